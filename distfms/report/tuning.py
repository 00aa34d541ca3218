"""What trying options found, on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
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
    option = _number_option(points)
    if option is None:
        return []
    lines = _lines(points, option)
    if len(lines) > _LINES_SHOWN:
        return []
    measure = measure_title(tuning["measure"])
    limits = fences(lines)
    chart = line_chart(
        lines,
        title=f"{measure} of the grid's points",
        xlabel=option,
        ylabel=measure,
        log_x=_is_wide([value for line in lines for value in line.x]),
        y_limits=limits,
    )
    caption = (
        f"Mean of the folds, weighted by their rows, against {option}. Ring: the chosen point, "
        "with a band of one standard error."
    )
    if limits != (None, None):
        caption += " Values beyond the scale are in the table."
    return [Figure(chart, caption)]


def _is_wide(values: Sequence[float]) -> bool:
    """Whether a logarithmic scale tells values apart better than an even one."""
    least = min(values)
    return least > 0 and max(values) >= _WIDE * least


def _number_option(points: Sequence[_Point]) -> str | None:
    """Find the option that a line runs over: the number with the most values, if it has three."""
    best = None
    most_values = _LINE_VALUES - 1
    for name in points[0]["options"]:
        values = {as_number(point["options"][name]) for point in points}
        # A point that ends nowhere (`max_groups: null`) has no place on a line.
        if None not in values and len(values) > most_values:
            best = name
            most_values = len(values)
    return best


def _lines(points: Sequence[_Point], option: str) -> list[Line]:
    """Return one line for each combination of the other options."""
    combinations: dict[str, list[_Point]] = {}
    for point in points:
        fixed = {name: value for name, value in point["options"].items() if name != option}
        combinations.setdefault(options_text(fixed), []).append(point)
    return [_line(name or "mean of the folds", c, option) for name, c in combinations.items()]


def _line(name: str, points: Sequence[_Point], option: str) -> Line:
    """Return the means of points over an option; the chosen line has a band, its point a ring."""
    points = sorted(points, key=lambda point: float(point["options"][option]))
    x = [float(point["options"][option]) for point in points]
    means = [as_number(point["mean"]) for point in points]
    are_chosen = [point["chosen"] for point in points]
    if not any(are_chosen):
        return Line(name, x, means)
    marks = zip(compress(x, are_chosen), compress(means, are_chosen), strict=True)
    return Line(
        name,
        x,
        means,
        lower=[_shifted(point, -1.0) for point in points],
        upper=[_shifted(point, 1.0) for point in points],
        bold=True,
        marks=[(place, mean) for place, mean in marks if mean is not None],
    )


def _shifted(point: _Point, n_errors: float) -> float | None:
    """Return the mean of a point and so many standard errors; None where either is missing."""
    mean = as_number(point["mean"])
    error = as_number(point["standard_error"])
    if mean is None or error is None:
        return None
    return mean + n_errors * error


def _table(tuning: Mapping[str, Any], points: Sequence[_Point]) -> Table:
    measure = measure_title(tuning["measure"], True)
    error = "± standard error"
    rows = []
    for point in points:
        row = {name: option_text(value) for name, value in point["options"].items()}
        row[measure] = point["mean"]
        row[error] = point["standard_error"]
        row[""] = "chosen" if point["chosen"] else "best mean" if point["best"] else ""
        rows.append(row)
    return Table(
        rows,
        "Points of the grid, simplest first: means of the folds.",
        {measure: "measure", error: "measure"},
        emphasis=[number for number, point in enumerate(points) if point["chosen"]],
    )
