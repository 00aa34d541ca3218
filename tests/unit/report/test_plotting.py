"""The first figure of a report in matplotlib, and the report as an object."""

import sys

import numpy as np
import pandas as pd
import pytest

import distfms
from distfms.errors import SpecError
from distfms.report import plots, plotting
from distfms.report.page import Figure, PageSection

FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])


@pytest.fixture(scope="module")
def model():
    return distfms.GroupSequencer(model="linear", folds=0).fit(FRAME, FRAME["a"].rename("y"))


def test_a_report_is_text_and_a_file(model, tmp_path):
    page = model.report()
    assert "Measure 2 of 3 groups: they explain 100% of" in page.text.replace("\u00a0", " ")
    assert "<" not in page.text
    page.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == page
    assert repr(model.anytime()) == "<AnytimeSession: 0 groups, spent 0>"
    assert all(not name.startswith("_") or name == "__version__" for name in dir(distfms))


def test_without_matplotlib_the_install_line_is_said(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(SpecError, match=r"pip install 'distfms\[plot\]'"):
        model.plot()


def test_a_report_without_figures_says_so():
    with pytest.raises(SpecError, match="no lines or bars"):
        plotting.draw_first([PageSection("", [])])


def test_lines_and_bars(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = model.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost spent", "explained variance")
    assert {"a", "stop after 2\u00a0groups"} <= {text.get_text() for text in axes.texts}
    assert axes.lines[0].get_drawstyle() == "steps-post"
    names = {"title": "t", "xlabel": "x"}
    chart = plots.bar_chart([plots.Bar("one", 1.0), plots.Bar("two", 2.0, "many")], **names)
    axes = plotting.draw_first([PageSection("", [Figure(chart, "")])])
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.0]
