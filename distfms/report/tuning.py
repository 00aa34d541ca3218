"""What trying options found, on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.formatting import count, measure_title, option_text, options_text
from distfms.report.page import PageSection, Table, Text

_Point = Mapping[str, Any]

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
    return PageSection("Options tried", [Text(text), _table(tuning, points)])


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
        emphasis=[number for number, point in enumerate(points) if point["chosen"]],
    )
