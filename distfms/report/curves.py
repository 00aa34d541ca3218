"""Curves of a run's ``metrics.json``, for any method, and what their figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, number
from distfms.report.plots import Line

#: The rows that measures are of, the most trusted first.
ROWS = {"test": "held-out rows", "validation": "cross-validation", "train": "training rows"}
#: Colours, dashes and markers that can be told apart.
_N_STYLES = 8


@dataclass(frozen=True, eq=False)
class Curve:
    """A rule's curve: measures by rows and name at points along a budget."""

    name: str
    points: Sequence[Mapping[str, Any]]

    @property
    def x(self) -> list[float]:
        """Budgets of the points."""
        return [point["budget"] for point in self.points]

    def values(self, rows: str, measure: str) -> list[float | None]:
        """Return a measure at all points; None where there is none."""
        return [measured(point, rows, measure) for point in self.points]

    def has(self, rows: str, measure: str) -> bool:
        """Return whether any point has a measure."""
        return any(value is not None for value in self.values(rows, measure))

    def line(self, rows: str, measure: str, title: str, **looks: Any) -> Line:
        """Return the curve as a line of a chart.

        Parameters
        ----------
        rows, measure, title : str
        **looks
            Of :class:`~distfms.report.plots.Line`. A bold line gets the band ``lower``, ``upper``.
        """
        if looks.get("bold") and self.has(rows, "lower"):
            looks |= {bound: self.values(rows, bound) for bound in ("lower", "upper")}
        return Line(title, self.x, self.values(rows, measure), **looks)


def measured(point: Mapping[str, Any], rows: str, measure: str) -> float | None:
    """Return a measure of a point of a curve, or of a baseline; None where there is none."""
    return as_number((point.get(rows) or {}).get(measure))


def curves_of(metrics: Mapping[str, Any]) -> dict[str, Curve]:
    """Return the curves of ``metrics.json`` that have points, by name."""
    return {e["name"]: Curve(e["name"], e["points"]) for e in metrics["curves"] if e["points"]}


def trusted(curves: Iterable[Curve], measure: str) -> str:
    """Return the rows to judge by: the most trusted on which all curves have the measure."""
    found = list(curves)
    return next((r for r in ROWS if all(curve.has(r, measure) for curve in found)), "train")


def comparison_chart(
    curves: Sequence[Curve],
    rows: str,
    measure: str,
    title: Callable[[str], str],
    styles: Mapping[str, int],
    chosen: str,
) -> list[Line]:
    """Return a line for each rule, the chosen one bold; known rules keep their colours."""
    taken = {styles[curve.name] for curve in curves if curve.name in styles}
    free = cycle([s for s in range(_N_STYLES) if s not in taken] or [_N_STYLES - 1])
    own = {c.name: styles[c.name] if c.name in styles else next(free) for c in curves}
    return [
        Line(title(c.name), c.x, c.values(rows, measure), style=own[c.name], bold=c.name == chosen)
        for c in curves
    ]


def value_range(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the least and the greatest value of some lines with their bands and marks."""
    values = [
        value
        for line in lines
        for ys in (line.y, line.lower or (), line.upper or (), [y for _, y in line.marks])
        for y in ys
        if (value := as_number(y)) is not None
    ]
    return min(values, default=0.0), max(values, default=1.0)


def fences(lines: Sequence[Line]) -> tuple[float | None, float | None]:
    """Return limits that leave out values far outside (Tukey's outer fences); None where none are.

    One point that diverges would flatten all others.
    """
    values = [value for line in lines for y in line.y if (value := as_number(y)) is not None]
    if not values:
        return None, None
    first, third = np.percentile(values, [25, 75]).tolist()
    kept = [v for v in values if 4 * first - 3 * third <= v <= 4 * third - 3 * first]
    if len(kept) == len(values):
        return None, None
    margin = 0.05 * (max(kept) - min(kept))
    return min(kept) - margin, max(kept) + margin


def more(n: int, shown: int, where: str, which: str = "") -> str:
    """Return a sentence about what a table or chart leaves out; empty if it leaves out nothing."""
    if n <= shown:
        return ""
    first = f"{shown} {which}".strip()
    return f" The first {first}; {number(n - shown)} more are {where}."
