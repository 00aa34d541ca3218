import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms.report.plots import Bar, Line, bar_chart, line_chart
from distfms.report.svg import Scale

X = list(range(41))
LABELS = {"title": "a <title> & more", "xlabel": "cost", "ylabel": "loss"}


def lines():
    falling = [100 / (1 + x) for x in X]
    band = Line(
        "measured", X, falling, [y - 1 for y in falling], [y + 1 for y in falling], bold=True
    )
    dashed = Line("_projected $x$", X, [y / 2 for y in falling], dashed=True, marks=[(3, 5.0)])
    return line_chart([band, dashed], **LABELS, marks={"budget 40": 40}, y_limits=(0, None))


def points():
    y = [(-1.0) ** x * x for x in X]
    sizes = [x % 4 for x in X]
    return line_chart([Line("all", X, y, sizes=sizes, tips=["tip"] * len(X))], **LABELS)


def bars():
    return bar_chart([Bar("first", 3, "3 × 4 = 12"), Bar("second", 1)], title="t", xlabel="r")


def texts(svg):
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.text]


CHARTS = pytest.mark.parametrize("draw", [lines, points, bars])


@CHARTS
def test_svg_is_well_formed_titled_and_deterministic(draw):
    svg = draw()
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root[0].tag.endswith("title")
    assert root.get("aria-label") == root[0].text
    assert svg == draw()
    assert "metadata" not in svg
    assert "<style" not in svg  # it would apply to the whole page


@CHARTS
def test_every_colour_follows_the_theme_of_the_page(draw):
    assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{3,6}", draw())


def test_names_stay_text_and_are_never_markup_or_mathematics():
    results = texts(lines())
    assert any("_projected $x$" in text for text in results)
    assert "budget 40" in results
    assert "a <title> & more" in results


def test_names_of_any_alphabet_are_written_and_control_characters_replaced():
    names = {
        "魅力": "魅力",
        "می\u200cخواهم": "می\u200cخواهم",
        "bell\a": "bell\ufffd",
        "\ud800": "\ufffd",
    }
    svg = bar_chart([Bar(name, 3) for name in names], title="魅力", xlabel="r")
    assert set(names.values()) < set(texts(svg))


def test_labels_do_not_cover_one_another():
    names = [f"name {x}" for x in X]
    svg = line_chart([Line("all", [1.0] * len(X), X, names=names)], **LABELS)
    labels = re.findall(r"<text[^>]*>(name \d+)</text>", svg)
    assert 9 < len(labels) < 25


# --- scales -------------------------------------------------------------------------------------

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS), st.booleans())
def test_ticks_are_few_and_ascend_on_any_scale(values, log):
    scale = Scale.over(values, margin=0.05, log=log)
    ticks = scale.ticks(7)
    assert len(ticks) <= 9
    assert ticks == sorted(ticks)
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


def test_a_scale_leads_evenly_from_start_to_end():
    even = Scale(2.0, 6.0).between(100.0, 300.0)
    assert [even(v) for v in (2.0, 3.0, 6.0)] == [100.0, 150.0, 300.0]
    log = Scale(1.0, 100.0, log=True).between(0.0, 1.0)
    assert log(10.0) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=6), st.booleans())
def test_any_numbers_make_a_chart(rows, log):
    x, y, z = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    bars = [Bar("a", v) for v in y if math.isfinite(v)]
    for svg in (
        line_chart([Line("a", x, y, y, z, step=log)], **LABELS, log_x=log),
        line_chart(
            [Line("a", x, y, sizes=[1] * len(x), tips=["tip"] * len(x))], **LABELS, log_x=log
        ),
        bar_chart(bars, title="t", xlabel="x"),
    ):
        ElementTree.fromstring(svg)
        assert "nan" not in svg
        assert "inf" not in svg
