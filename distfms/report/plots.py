"""Charts: lines with bands, labelled points and bars; each is one SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, number, percent, shorten
from distfms.report.names import APART, Box, named_mark, names_below, names_beside
from distfms.report.svg import (
    CARD,
    DASHES,
    MUTED,
    NAME_SIZE,
    SERIES,
    WIDE,
    Frame,
    Pair,
    Scale,
    amount,
    at_both_widths,
    circle,
    document,
    filled,
    ink,
    label,
    markers,
    polyline,
    segment,
    stroke,
    tip,
    width_of,
    words,
    x_axis,
)

#: What is projected.
_DOTS = DASHES[2]
_FAINT = "#9aa2ad"
_MARKS_A_LINE = 9
_TIPS_A_LINE = 40
_BAR_HEIGHT = 19.0
_LINE_CHART_HEIGHT = 340.0
_SCATTER_CHART_HEIGHT = 380.0
#: Points with a name of their own in the SVG (tooltips); the others share one path.
_NAMED_POINTS = 400


@dataclass(frozen=True)
class Line:
    """A line of a chart; points where x or y is missing are left out.

    Attributes
    ----------
    lower, upper : sequence of float, optional
        A band around the line, such as a confidence interval.
    style : int, optional
        Which colour, dash and marker; by default the line's place in the chart.
    dashed, bold : bool
        Thin and dashed, for what is projected rather than measured; thicker than others, and solid.
    step : bool
        The value holds until the next point, as a prediction does between two measurements.
    marks : sequence of (float, float)
        Points on the line to set off, such as where to stop.
    names : sequence of str
        What happens at each point, to stand below the line; empty where nothing is to be said.
    faint : bool
        Thin and grey, without a name: what the other lines are seen against.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    lower: Sequence[Any] | None = None
    upper: Sequence[Any] | None = None
    style: int | None = None
    dashed: bool = False
    bold: bool = False
    step: bool = False
    marks: Sequence[tuple[float, float]] = ()
    names: Sequence[str] = ()
    faint: bool = False


@dataclass(frozen=True)
class Point:
    """A point of a scatter chart: filled, of an area by its size, or hollow for size 0."""

    name: str
    x: float
    y: float
    size: float = 0.0
    tip: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar: its name on the left, its value and label at its end."""

    name: str
    value: float
    label: str = ""


@at_both_widths
def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    marks: Mapping[str, float] | None = None,
    y_limits: tuple[float | None, float | None] = (None, None),
    y_percent: bool = False,
    log_x: bool = False,
    width: float = WIDE,
) -> str:
    """Draw lines over a common x, and return the SVG.

    The title is read to those who cannot see the chart, and not drawn. With `y_percent` values are
    shares; a logarithmic x leaves out points at x ≤ 0; a limit of None is left to the data. `marks`
    are vertical lines at x by their names. Names of lines stand at their ends where there is room,
    otherwise in a legend.
    """
    marks = marks or {}
    drawn = [_Drawn.of(line, place, log_x) for place, line in enumerate(lines)]
    named = [d for d in drawn if not d.line.faint]
    x, y = _scales(drawn, list(marks.values()), log_x, y_limits)
    has_flags = any(d.line.names for d in named)
    names_at_ends = width == WIDE and not has_flags and _ends_apart(named, x, y)
    top = 23.0 if marks else 8.0
    legend = list[str]()
    if not names_at_ends and not (has_flags and len(named) == 1):
        legend, height = _legend(named, width)
        top += height
    beside = 0.0
    if names_at_ends:
        beside = 1.12 * max(width_of(d.name) for d in named)
    elif has_flags and width == WIDE:
        beside = 90.0
    write = percent if y_percent else number
    frame = Frame.of(
        x,
        y,
        (xlabel, ylabel),
        top=top,
        size=(width, _LINE_CHART_HEIGHT),
        write=write,
        digits=0 if y_percent else 4,
        beside=beside,
    )
    parts = [*frame.draw(), frame.clipped(_inside(frame, drawn))]
    parts += [named_mark(frame, name, place) for name, place in marks.items()]
    parts += legend
    if names_at_ends:
        parts += [d.name_at_end(frame) for d in named]
    for d in named:
        parts += d.flags(frame, width)
    if width == WIDE:
        for d in drawn:
            parts += d.tips(frame, write)
    return document(width, _LINE_CHART_HEIGHT, title, parts)


@at_both_widths
def scatter_chart(
    points: Sequence[Point],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    diagonal: bool = False,
    log_x: bool = False,
    n_labels: int = 14,
    width: float = WIDE,
) -> str:
    """Draw points, the largest of them with their names as far as there is room; return the SVG.

    Points without finite coordinates, or that a logarithm does not admit, are left out; `diagonal`
    draws x = y.
    """
    shown = [p for p in points if _is_drawable(p.x, log_x) and _is_drawable(p.y, False)]
    x = Scale.over([p.x for p in shown], margin=0.08, log=log_x)
    y = Scale.over([p.y for p in shown], margin=0.08)
    frame = Frame.of(x, y, (xlabel, ylabel), size=(width, _SCATTER_CHART_HEIGHT))
    inside = list[str]()
    if y.low < 0 < y.high:
        inside.append(segment(frame.at(x.low, 0.0), frame.at(x.high, 0.0), MUTED, 0.8))
    least = max(x.low, y.low)
    greatest = min(x.high, y.high)
    if diagonal and least < greatest:
        start = frame.at(least, least)
        end = frame.at(greatest, greatest)
        inside.append(segment(start, end, MUTED, 0.8, dash=DASHES[1]))
    inside += _circles(frame, shown)
    parts = [*frame.draw(), frame.clipped(inside), *_names(frame, shown, n_labels)]
    return document(width, _SCATTER_CHART_HEIGHT, title, parts)


@at_both_widths
def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    xlabel: str,
    n_bars: int = 30,
    x_percent: bool = False,
    width: float = WIDE,
) -> str:
    """Draw the first `n_bars` as horizontal bars, the first at the top, and return the SVG.

    The caller says in the caption if there are more than fit.
    """
    shown = list(bars[:n_bars])
    write = percent if x_percent else number
    digits = 0 if x_percent else 4
    names = [shorten(bar.name, 34 if width == WIDE else 17) for bar in shown]
    labels = [bar.label or write(bar.value) for bar in shown]
    values = [as_number(bar.value) or 0.0 for bar in shown]
    start = 14.0 + max(map(width_of, names), default=0.0)
    label_width = max((width_of(text, NAME_SIZE) for text in labels), default=0.0)
    # Where labels at the ends of bars leave room for the longest bar.
    length = max(width - start - 14.0 - label_width, 80.0)
    least = None if min(values, default=0.0) < 0 else 0.0
    scale = Scale.over([0.0, *values], margin=0.0, limits=(least, None))
    scale = scale.between(start, start + length)
    bottom = 8.0 + _BAR_HEIGHT * max(1, len(shown))
    parts = list(x_axis(scale, xlabel, 8.0, bottom, width - 10.0, write, digits))
    for place, value in enumerate(values):
        middle = 8.0 + _BAR_HEIGHT * (place + 0.5)
        text = labels[place]
        pointed = f"<title>{words(shown[place].name)}: {words(text)}</title>"
        end = scale(max(value, 0.0)) + 4.0
        parts += [
            f"<g>{_bar(scale, value, middle)}{pointed}</g>",
            label(start - 6.0, middle + 3.5, names[place], anchor="end"),
            label(end, middle + 3.5, text, size=NAME_SIZE, colour=MUTED),
        ]
    return document(width, bottom + 38.0, title, parts)


def _bar(scale: Scale, value: float, middle: float) -> str:
    """Return a bar from 0 to a value, about the height of its middle."""
    low, high = sorted((scale(0.0), scale(value)))
    corner = f"M{amount(low)},{amount(middle - 6.5)}"
    return filled(f"{corner}h{amount(high - low)}v13H{amount(low)}Z", SERIES[0])


# --- lines --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A line as it is drawn: its points that are there, and its style."""

    line: Line
    style: int
    x: np.ndarray
    y: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, line: Line, place: int, log_x: bool) -> _Drawn:
        """Leave out points where x or y is missing."""
        style = place if line.style is None else line.style
        x = _numbers(line.x, log_x)
        y = _numbers(line.y)
        missing = [None] * len(x)
        lower = _numbers(line.lower or missing)
        upper = _numbers(line.upper or missing)
        kept = np.isfinite(x) & np.isfinite(y)
        style %= len(SERIES)
        return cls(line, style, x[kept], y[kept], lower[kept], upper[kept])

    @property
    def name(self) -> str:
        """Name of the line, cut if it is long."""
        return shorten(self.line.name, 40)

    def name_at_end(self, frame: Frame) -> str:
        """Return the name, to the right of the last point."""
        y = frame.y(float(self.y[-1]))
        return label(frame.x.end + 8.0, y + 4.0, self.name, colour=SERIES[self.style])

    def tips(self, frame: Frame, write: Callable[[Any], str]) -> Iterator[str]:
        """Yield values for pointing at, of some of the points."""
        every = max(1, math.ceil(len(self.x) / _TIPS_A_LINE))
        for i in range(0, len(self.x), every):
            x = float(self.x[i])
            y = float(self.y[i])
            if frame.y.low <= y <= frame.y.high:
                yield tip(frame.at(x, y), f"{self.line.name}: {write(y)} at {number(x)}")

    def stroked(self, data: str) -> str:
        """Return a path with the colour, the width and the dashes of the line."""
        if self.line.faint:
            return stroke(data, _FAINT, 0.9)
        dash = DASHES[self.style]
        if self.line.bold:
            dash = ""
        if self.line.dashed:
            dash = _DOTS
        return stroke(data, SERIES[self.style], 2.4 if self.line.bold else 1.5, dash=dash)

    def draw(self, frame: Frame) -> Iterator[str]:
        """Yield the band, the line, its markers and its rings."""
        has_band = np.isfinite(self.lower) & np.isfinite(self.upper)
        if has_band.any():
            yield self._band(frame, has_band)
        yield self.stroked(polyline(self._points(frame, self.x, self.y)))
        if not self.line.dashed and not self.line.faint:
            yield self._markers(frame)
        for x, y in self.line.marks:
            yield stroke(circle(frame.at(x, y), 5.0), SERIES[self.style], 2.0)

    def _band(self, frame: Frame, is_known: np.ndarray) -> str:
        x = self.x[is_known]
        upper = self._points(frame, x, self.upper[is_known])
        lower = self._points(frame, x, self.lower[is_known])
        data = polyline([*upper, *reversed(lower)], closed=True)
        return filled(data, SERIES[self.style], "; fill-opacity: 0.16")

    def _markers(self, frame: Frame) -> str:
        every = max(1, math.ceil(len(self.x) / _MARKS_A_LINE))
        # Begin elsewhere on each line, so that markers of equal lines do not cover one another.
        first = (2 * self.style) % every
        marked = slice(first, None, every)
        places = [frame.at(x, y) for x, y in zip(self.x[marked], self.y[marked], strict=True)]
        return markers(places, self.style)

    def flags(self, frame: Frame, width: float) -> Iterator[str]:
        """Yield the names of points, below them."""
        named = list[tuple[str, Pair]]()
        for x, y, text in zip(self.line.x, self.line.y, self.line.names, strict=False):
            if text and as_number(x) is not None and as_number(y) is not None:
                named.append((text, frame.at(float(x), float(y))))
        return names_below(frame, named, width)

    def _points(self, frame: Frame, xs: np.ndarray, ys: np.ndarray) -> list[Pair]:
        points = list[Pair]()
        for x, y in zip(xs, ys, strict=True):
            point = frame.at(float(x), float(y))
            if self.line.step and points:
                points.append((point[0], points[-1][1]))
            points.append(point)
        return points


def _scales(
    drawn: Sequence[_Drawn],
    marks: Sequence[float],
    log_x: bool,
    y_limits: tuple[float | None, float | None],
) -> tuple[Scale, Scale]:
    """Return the scales of x and y over all lines, their bands and the marks."""
    xs = list(marks)
    ys = list[float]()
    for d in drawn:
        xs += d.x.tolist()
        ys += [*d.y.tolist(), *d.lower.tolist(), *d.upper.tolist()]
    x = Scale.over(xs, margin=0.02, log=log_x)
    return x, Scale.over(ys, margin=0.05, limits=y_limits)


def _inside(frame: Frame, drawn: Sequence[_Drawn]) -> list[str]:
    """Draw the lines: faint ones below the others, and bold ones above."""
    parts = list[str]()
    for d in sorted(drawn, key=lambda d: (not d.line.faint, d.line.bold)):
        parts += d.draw(frame)
    return parts


def _ends_apart(drawn: Sequence[_Drawn], x: Scale, y: Scale) -> bool:
    """Whether all lines end at the right edge, so far apart that a name can stand at each end."""
    if not drawn or any(not len(d.x) or x(float(d.x[-1])) < 0.9 for d in drawn):
        return False
    ends = sorted(y(float(d.y[-1])) for d in drawn)
    if ends[0] < 0.0 or ends[-1] > 1.0:
        return False
    least = APART / (_LINE_CHART_HEIGHT - 60.0)
    return all(upper - lower > least for lower, upper in pairwise(ends))


def _legend(entries: Sequence[_Drawn], room: float) -> tuple[list[str], float]:
    """Return the names of lines in rows at the top, and the height that they take."""
    parts = list[str]()
    x = 10.0
    y = 14.0
    for drawn in entries:
        width = 40.0 + width_of(drawn.name)
        if x > 10.0 and x + width > room - 6.0:
            x = 10.0
            y += 16.0
        parts += _legend_entry(drawn, x, y)
        x += width + 16.0
    return parts, y + 2.0 if entries else 0.0


def _legend_entry(drawn: _Drawn, x: float, y: float) -> Iterator[str]:
    """Yield a sample of a line and its name."""
    middle = y - 3.5
    yield drawn.stroked(polyline(((x, middle), (x + 34.0, middle))))
    if not drawn.line.dashed:
        yield markers([(x + 17.0, middle)], drawn.style)
    yield label(x + 40.0, y, drawn.name)


# --- points -------------------------------------------------------------------------------------


def _circles(frame: Frame, points: Sequence[Point]) -> Iterator[str]:
    """Yield the points, the largest with a tooltip each."""
    ranked = _ranked(points)
    radii = _radii(points)
    unnamed = [points[i] for i in ranked[_NAMED_POINTS:]]
    if unnamed:
        data = "".join(circle(frame.at(point.x, point.y), 1.5) for point in unnamed)
        yield stroke(data, MUTED, 1.0)
    for i in sorted(ranked[:_NAMED_POINTS], key=lambda i: points[i].size):
        yield _circle(frame, points[i], radii[i])


def _circle(frame: Frame, point: Point, radius: float) -> str:
    data = circle(frame.at(point.x, point.y), radius)
    drawn = stroke(data, MUTED, 1.0)
    if point.size > 0:
        edge = f"; fill-opacity: 0.85; stroke: {ink(CARD)}; stroke-width: 1"
        drawn = filled(data, SERIES[0], edge)
    return f"<g>{drawn}<title>{words(point.tip or point.name)}</title></g>"


def _names(frame: Frame, points: Sequence[Point], n_names: int) -> Iterator[str]:
    """Yield names beside the largest points; of very many, they may cover the hollow ones."""
    radii = _radii(points)
    places = [frame.at(point.x, point.y) for point in points]
    taken = list[Box]()
    for point, place, radius in zip(points, places, radii, strict=True):
        if len(points) <= _NAMED_POINTS or point.size > 0:
            taken.append(Box.around(place, radius))
    named = [(points[i].name, places[i], radii[i] + 3.0) for i in _ranked(points)[:n_names]]
    return names_beside(frame, named, taken)


def _ranked(points: Sequence[Point]) -> list[int]:
    """Rank the points: the largest first, among equals those far from y = 0."""
    return sorted(range(len(points)), key=lambda i: (-points[i].size, -abs(points[i].y), i))


def _radii(points: Sequence[Point]) -> list[float]:
    largest = max((point.size for point in points), default=0.0) or 1.0
    hollow = 2.25 if len(points) <= _NAMED_POINTS else 1.5
    radii = []
    for point in points:
        filled_radius = 2.5 + 7.5 * math.sqrt(max(point.size, 0.0) / largest)
        radii.append(filled_radius if point.size > 0 else hollow)
    return radii


def _numbers(values: Sequence[Any], log: bool = False) -> np.ndarray:
    """Return numbers, NaN for what is missing or has no place on the axis."""
    return np.array([float(v) if _is_drawable(v, log) else np.nan for v in values], dtype=float)


def _is_drawable(value: Any, log: bool) -> bool:
    exact = as_number(value)
    return exact is not None and (exact > 0 or not log)
