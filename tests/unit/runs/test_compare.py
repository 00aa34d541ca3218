"""Runs side by side: their choices, scores and curves on one page, and what has none."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.runs import index
from distfms.runs.compare import compare
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from tests.unit.report.checks import check_page


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two sequences with other costs, and a model on landmarks of the same name."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    table = pa.table({"age": x[:, 0], "blood": x[:, 1], "scan": x[:, 2], "y": x @ [1.0, 2.0, 3.0]})
    pq.write_table(table, folder / "a.parquet")
    data = {"path": str(folder / "a.parquet"), "target": "y", "test": 0.2, "folds": 3}
    base = {"name": "job", "data": data, "output": str(folder / "out")}
    jobs = [
        {"method": "sequence", "sequence": {"costs": {"default": 1}}},
        {"method": "sequence", "sequence": {"costs": {"default": 1, "scan": 50}}},
        {"method": "landmarks", "landmarks": {"landmarks": 20, "metric": "none"}},
    ]
    made = [folder / "out" / "job" / f"run{k}" for k in range(len(jobs))]
    for job, out in zip(jobs, made, strict=True):
        run_job(build_spec({**base, **job}), out=out)
    return made


def test_two_runs_stand_side_by_side(runs, tmp_path):
    page = compare([str(run) for run in runs[:2]], tmp_path / "c.html").read_text()
    text = check_page(page)
    for expected in ("groups explain", "Held-out rows", "± between folds", "against the budget"):
        assert expected in text
    orders = [
        [step["group"] for step in json.loads((run / "selection.json").read_text())["sequence"]]
        for run in runs[:2]
    ]
    assert orders[0] != orders[1]
    # A chart at both widths; the places of a group in the two orders are in one row.
    assert page.count('role="img"') == 2
    assert f">{orders[0][0]}</td>" in page


def test_runs_of_other_methods_have_no_chart_in_common(runs, tmp_path):
    text = check_page(compare([runs[0], runs[2]], tmp_path / "c.html").read_text())
    assert "against the budget" not in text
    with pytest.raises(SpecError, match="the same run"):
        compare([runs[0], runs[0]], tmp_path / "c.html")


def test_an_index_does_not_mix_the_measures_of_jobs_with_one_name(runs):
    text = index.draw(runs[0].parent.parent).read_text()
    assert "job (sequence, y)" in text
    assert "job (landmarks, y)" in text
    assert "2 jobs" in text
