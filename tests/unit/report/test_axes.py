import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms.report.axes import Scale, tick_texts
from distfms.report.formatting import number
from distfms.report.plots import Bar, Line, Point, bar_chart, line_chart, scatter_chart

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LABELS = {"title": "t", "xlabel": "x", "ylabel": "y"}


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0.0, 1.0, False, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3.0, 12.0, False, [-2.5, 0.0, 2.5, 5.0, 7.5, 10.0]),
        (0.9, 25.0, True, [1.0, 2.0, 5.0, 10.0, 20.0]),
        (0.5, 2e5, True, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]),
        (30.0, 45.0, True, [30.0, 32.5, 35.0, 37.5, 40.0, 42.5, 45.0]),
    ],
)
def test_ticks_are_round_numbers(low, high, log, expected):
    assert Scale(low, high, log).ticks(7) == expected


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


def test_near_ticks_get_the_digits_that_tell_them_apart():
    assert tick_texts([1.0000001, 1.0000002], number, 4) == ["1.0000001", "1.0000002"]


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=6), st.booleans())
def test_any_numbers_make_a_chart(rows, log):
    x, y, z = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    bars = [Bar("a", v) for v in y if math.isfinite(v)]
    points = [Point("a", a, b, float(c > 0)) for a, b, c in zip(x, y, z, strict=True)]
    for svg in (
        line_chart([Line("a", x, y, y, z, step=log)], **LABELS, log_x=log),
        scatter_chart(points, **LABELS, log_x=log, diagonal=True),
        bar_chart(bars, title="t", xlabel="x"),
    ):
        ElementTree.fromstring(svg)
        assert "nan" not in svg
        assert "inf" not in svg
