"""Curves of a run's ``metrics.json``, for any method, and what their figures share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distfms.report.formatting import as_number, number
from distfms.report.plots import Line

#: Colours, dashes and markers that can be told apart.
_N_STYLES = 8


@dataclass(frozen=True, eq=False)
class Curve:
    """A rule's curve: numbers by name at points along ``x``."""

    name: str
    x: list[float]
    points: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, entry: Mapping[str, Any], x: str) -> Curve:
        """Read an entry of ``curves``; `x` names the number that points stand at."""
        return cls(entry["name"], [point[x] for point in entry["points"]], entry["points"])

    def values(self, key: str) -> list[Any]:
        """Return a number at all points; None where there is none."""
        return [as_number(point.get(key)) for point in self.points]

    def has(self, key: str) -> bool:
        """Return whether any point has a number of this name."""
        return any(value is not None for value in self.values(key))

    def line(self, key: str, title: str, *, marked: Any = None, **looks: Any) -> Line:
        """Return the curve as a line of a chart.

        Parameters
        ----------
        key : str
        title : str
        marked : float, optional
            A value to set off at the end of the line.
        **looks
            Of :class:`~distfms.report.plots.Line`. A bold line gets the band ``lower``, ``upper``.
        """
        if looks.get("bold") and self.has("lower"):
            looks |= {"lower": self.values("lower"), "upper": self.values("upper")}
        value = as_number(marked)
        marks = [] if value is None else [(self.x[-1], value)]
        return Line(title, self.x, self.values(key), marks=marks, **looks)


def of_name(curves: Sequence[Curve], name: str) -> Curve | None:
    """Return the curve with a name."""
    return next((curve for curve in curves if curve.name == name), None)


def comparison_chart(
    curves: Sequence[Curve],
    key: str,
    title: Callable[[str], str],
    styles: Mapping[str, int],
    chosen: str,
) -> list[Line]:
    """Return a line for each rule, the chosen one bold; known rules keep their colours."""
    taken = {styles[curve.name] for curve in curves if curve.name in styles}
    free = [style for style in range(_N_STYLES) if style not in taken] or [_N_STYLES - 1]
    others = [curve.name for curve in curves if curve.name not in styles]
    own = {name: free[i % len(free)] for i, name in enumerate(others)}
    return [
        Line(
            title(curve.name),
            curve.x,
            curve.values(key),
            style=styles.get(curve.name, own.get(curve.name)),
            bold=curve.name == chosen,
        )
        for curve in curves
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


def more(n: int, shown: int, where: str, which: str = "") -> str:
    """Return a sentence about what a table or chart leaves out; empty if it leaves out nothing."""
    if n <= shown:
        return ""
    first = f"{shown} {which}".strip()
    return f" The first {first}; {number(n - shown)} more are {where}."
