"""What trying options found, on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.formatting import as_number, count, measure_title, option_text, options_text
from distfms.report.metrics import fences
from distfms.report.page import Figure, PageSection, Table, Text
from distfms.report.plots import Line, line_chart

_Point = Mapping[str, Any]

_LINES_SHOWN = 8
#: Least values of a number for a line over it.
_LINE_VALUES = 3
#: Ratio of the largest to the smallest value from which a scale is logarithmic.
_WIDE = 50.0
_RULES = {
    "best": "Rule: the best mean.",
    "one_standard_error": (
        "Rule: the simplest point (first in the grid) that is behind the best by at most one "
        "standard error of the difference."
    ),
    "by_difference": (
        "Rule: the first point whose mean difference from the best is within one standard error; "
        "with two ways to select, first within each, then between them."
    ),
}


def tuning_section(metrics: Mapping[str, Any]) -> PageSection:
    """Return the section; without blocks where nothing was tuned."""
    tuning = metrics.get("tuning")
    if tuning is None:
        return PageSection("", [])
    points = tuning["points"]
    better = "more" if tuning["higher_is_better"] else "less"
    measure = measure_title(tuning["measure"])
    text = (
        f"Chosen: {options_text(tuning['chosen'])}. Compared {count(len(points), 'point')} of the "
        f"grid on {count(len(tuning['folds']), 'fold')} of the training rows, by {measure} "
        f"({better} is better). {_RULES[tuning['rule']]} The chosen point's mean is slightly "
        "optimistic; held-out rows show what to expect."
    )
    return PageSection(
        "Options tried", [Text(text), *_figures(tuning, points), _table(tuning, points)]
    )


def _figures(tuning: Mapping[str, Any], points: Sequence[_Point]) -> list[Figure]:
    """Draw the measure over an option with numbers; the table alone has what makes no lines."""
    measure = measure_title(tuning["measure"])
    title = f"{measure} of the grid's points"
    over = _number_option(points)
    lines = [] if over is None else _lines(points, over)
    if over is None or len(lines) > _LINES_SHOWN:
        return []
    values = [v for line in lines for v in line.x]
    log_x = min(values) > 0 and max(values) >= _WIDE * min(values)
    limits = fences(lines)
    chart = line_chart(
        lines, title=title, xlabel=over, ylabel=measure, log_x=log_x, y_limits=limits
    )
    caption = (
        f"Mean of the folds, weighted by their rows, against {over}. Ring: the chosen point, with "
        "a band of one standard error."
        + " Values beyond the scale are in the table."
        * (limits != (None, None))
    )
    return [Figure(chart, caption)]


def _number_option(points: Sequence[_Point]) -> str | None:
    """Find the option that a line runs over: the number with the most values, if it has three."""
    names = points[0]["options"]
    values = {name: {as_number(point["options"][name]) for point in points} for name in names}
    # A point that ends nowhere (`max_groups: null`) has no place on a line.
    sizes = {name: len(own) for name, own in values.items() if None not in own}
    best = max(sizes, key=sizes.__getitem__, default=None)
    return best if best is not None and sizes[best] >= _LINE_VALUES else None


def _lines(points: Sequence[_Point], over: str) -> list[Line]:
    """Return one line for each combination of the other options."""
    by_rest: dict[str, list[_Point]] = {}
    for point in points:
        rest = options_text({k: v for k, v in point["options"].items() if k != over})
        by_rest.setdefault(rest, []).append(point)
    return [_line(name or "mean of the folds", own, over) for name, own in by_rest.items()]


def _line(name: str, points: Sequence[_Point], over: str) -> Line:
    own = sorted(points, key=lambda p: float(p["options"][over]))
    x = [float(p["options"][over]) for p in own]
    pairs = [(as_number(p["mean"]), as_number(p["standard_error"])) for p in own]
    chosen = any(p["chosen"] for p in own)
    bands = [[None if m is None or e is None else m + s * e for m, e in pairs] for s in (-1, 1)]
    return Line(
        name,
        x,
        [mean for mean, _ in pairs],
        lower=bands[0] if chosen else None,
        upper=bands[1] if chosen else None,
        bold=chosen,
        marks=[
            (at, mean)
            for at, (mean, _), p in zip(x, pairs, own, strict=True)
            if p["chosen"] and mean is not None
        ],
    )


def _table(tuning: Mapping[str, Any], points: Sequence[_Point]) -> Table:
    measure, error = measure_title(tuning["measure"], True), "± standard error"
    rows = [
        {
            **{name: option_text(value) for name, value in p["options"].items()},
            measure: p["mean"],
            error: p["standard_error"],
            "": "chosen" if p["chosen"] else "best mean" if p["best"] else "",
        }
        for p in points
    ]
    return Table(
        rows,
        "Points of the grid, simplest first: means of the folds.",
        {measure: "measure", error: "measure"},
        emphasis=[i for i, p in enumerate(points) if p["chosen"]],
    )
