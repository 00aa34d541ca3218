"""Charts: lines with bands, labelled points and bars; each is one SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, number, percent, shorten
from distfms.report.svg import (
    CARD,
    INK,
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
    polyline,
    stroke,
    tip,
    width_of,
    words,
    x_axis,
)

#: Dashes of the series, by style; dots for what is projected.
_DASHES = ("", "9 3", "2.4 2.4", "10 3 2.4 3", "4.5 2.2", "13 4.5", "7 2 1.8 2 1.8 2", "1.5 4.5")
_DOTS = _DASHES[2]
_FAINT = "#9aa2ad"
_MARKS_A_LINE = 9
_TIPS_A_LINE = 40
#: Distance of names at the ends of lines.
_APART = 13.0
_NAME_CHARACTERS = 24
_BAR_HEIGHT = 19.0
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
    xs = [float(v) for d in drawn for v in d.x] + [*marks.values()]
    ys = [float(v) for d in drawn for some in (d.y, d.lower, d.upper) for v in some]
    x, y = Scale.over(xs, margin=0.02, log=log_x), Scale.over(ys, margin=0.05, limits=y_limits)
    write, digits = (percent, 0) if y_percent else (number, 4)
    size = width, 340.0
    named = [d for d in drawn if not d.line.faint]
    flags = [name for d in named for name in d.line.names]
    at_ends = width == WIDE and not flags and _ends_apart(named, x, y, size[1])
    legend, top = ([], 8.0) if at_ends or (flags and len(named) == 1) else _legend(named, width)
    frame = Frame.of(
        x, y, (xlabel, ylabel), top=top + 15.0 * bool(marks), size=size, write=write, digits=digits,
        beside=1.12 * max(width_of(d.name) for d in named) if at_ends else
        90.0 if flags and width == WIDE else 0.0,
    )  # fmt: skip
    below = sorted(drawn, key=lambda d: (not d.line.faint, d.line.bold))
    inside = [part for d in below for part in d.draw(frame)]
    if at_ends:
        legend = [
            label(frame.x.end + 8.0, frame.y(float(d.y[-1])) + 4.0, d.name, colour=SERIES[d.style])
            for d in named
        ]
    legend += [part for d in named for part in d.flags(frame, width)]
    if width == WIDE:
        legend += [part for d in drawn for part in d.tips(frame, write)]
    lines_at = [_mark(frame, *mark) for mark in marks.items()]
    parts = [*frame.draw(), frame.clipped(inside), *lines_at, *legend]
    return document(*size, title, parts)


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
    shown = [p for p in points if _drawable(p.x, log_x) and _drawable(p.y, False)]
    x = Scale.over([p.x for p in shown], margin=0.08, log=log_x)
    y = Scale.over([p.y for p in shown], margin=0.08)
    frame = Frame.of(x, y, (xlabel, ylabel), size=(width, 380.0))
    rules = list[str]()
    if y.low < 0 < y.high:
        across = polyline((frame.at(x.low, 0.0), frame.at(x.high, 0.0)))
        rules.append(stroke(across, MUTED, 0.8))
    least, most = max(x.low, y.low), min(x.high, y.high)
    if diagonal and least < most:
        equal = polyline((frame.at(least, least), frame.at(most, most)))
        rules.append(stroke(equal, MUTED, 0.8, dash=_DASHES[1]))
    inside = frame.clipped([*rules, *_circles(frame, shown)])
    return document(width, 380.0, title, [*frame.draw(), inside, *_names(frame, shown, n_labels)])


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
    names = [shorten(bar.name, 34 if width == WIDE else 17) for bar in shown]
    write, digits = (percent, 0) if x_percent else (number, 4)
    ends = [bar.label or write(bar.value) for bar in shown]
    left = 14.0 + max(map(width_of, names), default=0.0)
    values = [as_number(bar.value) or 0.0 for bar in shown]
    # Where labels at the ends of bars leave room for the longest bar.
    room = width - left - 14.0 - max((width_of(end, NAME_SIZE) for end in ends), default=0.0)
    least = None if min(values, default=0.0) < 0 else 0.0
    scale = Scale.over([0.0, *values], margin=0.0, limits=(least, None))
    scale = scale.between(left, left + max(room, 80.0))
    bottom = 8.0 + _BAR_HEIGHT * max(1, len(shown))
    parts = list(x_axis(scale, xlabel, 8.0, bottom, width - 10.0, write, digits))
    for place, (name, end, value) in enumerate(zip(names, ends, values, strict=True)):
        middle = 8.0 + _BAR_HEIGHT * (place + 0.5)
        low, high = sorted((scale(0.0), scale(value)))
        data = f"M{amount(low)},{amount(middle - 6.5)}h{amount(high - low)}v13H{amount(low)}Z"
        told = f"<title>{words(shown[place].name)}: {words(end)}</title>"
        parts += [
            f"<g>{filled(data, SERIES[0])}{told}</g>",
            label(left - 6.0, middle + 3.5, name, anchor="end"),
            label(scale(max(value, 0.0)) + 4.0, middle + 3.5, end, size=NAME_SIZE, colour=MUTED),
        ]
    return document(width, bottom + 38.0, title, parts)


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
        style = (place if line.style is None else line.style) % len(SERIES)
        x, y = _values(line.x, log_x), _values(line.y)
        kept = np.isfinite(x) & np.isfinite(y)
        none = np.full(len(x), np.nan)
        low = none if line.lower is None else _values(line.lower)
        high = none if line.upper is None else _values(line.upper)
        return cls(line, style, x[kept], y[kept], low[kept], high[kept])

    @property
    def name(self) -> str:
        """Name of the line, cut if it is long."""
        return shorten(self.line.name, 40)

    def tips(self, frame: Frame, write: Callable[[Any], str]) -> Iterator[str]:
        """Yield values for pointing at, of some of the points."""
        for i in range(0, len(self.x), max(1, math.ceil(len(self.x) / _TIPS_A_LINE))):
            x, y = float(self.x[i]), float(self.y[i])
            if frame.y.low <= y <= frame.y.high:
                yield tip(frame.at(x, y), f"{self.line.name}: {write(y)} at {number(x)}")

    def stroked(self, data: str) -> str:
        """Return a path with the colour, the width and the dashes of the line."""
        bold = self.line.bold
        if self.line.faint:
            return stroke(data, _FAINT, 0.9)
        dash = _DOTS if self.line.dashed else "" if bold else _DASHES[self.style]
        return stroke(data, SERIES[self.style], 2.4 if bold else 1.5, dash=dash)

    def draw(self, frame: Frame) -> Iterator[str]:
        """Yield the band, the line, its markers and its rings."""
        colour = SERIES[self.style]
        known = np.isfinite(self.lower) & np.isfinite(self.upper)
        if known.any():
            above = self._points(frame, self.x[known], self.upper[known])
            below = self._points(frame, self.x[known], self.lower[known])
            band = polyline([*above, *reversed(below)], closed=True)
            yield filled(band, colour, "; fill-opacity: 0.16")
        points = self._points(frame, self.x, self.y)
        yield self.stroked(polyline(points))
        if not self.line.dashed and not self.line.faint:
            every = max(1, math.ceil(len(self.x) / _MARKS_A_LINE))
            # Begin elsewhere on each line, so that markers of equal lines do not cover one another.
            own = range((2 * self.style) % every, len(self.x), every)
            yield _markers([frame.at(self.x[i], self.y[i]) for i in own], self.style)
        for at in self.line.marks:
            yield stroke(circle(frame.at(*at), 5.0), colour, 2.0)

    def flags(self, frame: Frame, width: float) -> Iterator[str]:
        """Yield the names of points, each on a thin pole below its point, as far as there is room.

        From right to left: a name goes below those that it would run into, so that no pole crosses
        a name.
        """
        taken = list[tuple[float, float]]()
        named = zip(self.line.x, self.line.y, self.line.names, strict=False)
        for at, value, text in reversed([*named]):
            if not text or as_number(at) is None or as_number(value) is None:
                continue
            x, top = frame.at(float(at), float(value))
            name = shorten(text, _NAME_CHARACTERS)
            end = x + 6.0 + width_of(name, NAME_SIZE)
            own = max([top + 18.0, *(y + _APART for left, y in taken if left < end)])
            if own < frame.y.start - 4.0 and end < width:
                taken.append((x, own))
                yield stroke(polyline(((x, top), (x, own))), MUTED, 0.6)
                yield label(x + 3.0, own, name, size=NAME_SIZE)

    def _points(self, frame: Frame, xs: np.ndarray, ys: np.ndarray) -> list[Pair]:
        points = [frame.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        if not self.line.step:
            return points
        corners = [[(b[0], a[1]), b] for a, b in pairwise(points)]
        return points[:1] + [point for pair in corners for point in pair]


#: Corners of the markers, by style in turn; a circle has none.
_MARKERS: tuple[list[Pair], ...] = (
    [],
    [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)],
    [(0.0, -1.1), (1.0, 0.7), (-1.0, 0.7)],
    [(0.0, -1.1), (1.1, 0.0), (0.0, 1.1), (-1.1, 0.0)],
)


def _markers(places: Sequence[Pair], style: int) -> str:
    """Return the markers of a line as one path."""
    corners = _MARKERS[style % len(_MARKERS)]
    paths = (
        polyline([(x + 3.0 * a, y + 3.0 * b) for a, b in corners], closed=True)
        if corners
        else circle((x, y), 2.6)
        for x, y in places
    )
    data = "".join(paths)
    edge = f"; stroke: {ink(CARD)}; stroke-width: 0.6"
    return filled(data, SERIES[style], edge) if data else ""


def _ends_apart(drawn: Sequence[_Drawn], x: Scale, y: Scale, height: float) -> bool:
    """Whether all lines end at the right edge, so far apart that a name can stand at each end."""
    if not drawn or any(not len(d.x) or x(float(d.x[-1])) < 0.9 for d in drawn):
        return False
    ends = sorted(y(float(d.y[-1])) for d in drawn)
    inside = ends[0] >= 0.0 and ends[-1] <= 1.0
    return inside and all(b - a > _APART / (height - 60.0) for a, b in pairwise(ends))


def _legend(entries: Sequence[_Drawn], room: float) -> tuple[list[str], float]:
    """Return the names of lines in rows at the top, and where the plot below may begin."""
    parts, x, y = list[str](), 10.0, 14.0
    for drawn in entries:
        width = 40.0 + width_of(drawn.name)
        if x > 10.0 and x + width > room - 6.0:
            x, y = 10.0, y + 16.0
        sample = polyline(((x, y - 3.5), (x + 34.0, y - 3.5)))
        parts.append(drawn.stroked(sample))
        if not drawn.line.dashed:
            parts.append(_markers([(x + 17.0, y - 3.5)], drawn.style))
        parts.append(label(x + 40.0, y, drawn.name))
        x += width + 16.0
    return parts, y + 10.0 if entries else 8.0


def _mark(frame: Frame, name: str, at: float) -> str:
    """Return a vertical line with its label above the plot."""
    x, (top, bottom) = frame.x(at), (frame.y.end, frame.y.start)
    line = stroke(polyline(((x, top), (x, bottom))), INK, 1.0, dash=_DASHES[1])
    half = width_of(name, NAME_SIZE) / 2
    place = max(min(x, frame.x.end + 11.0 - half), half + 5.0)
    return line + label(place, top - 4.0, name, anchor="middle", size=NAME_SIZE)


# --- points -------------------------------------------------------------------------------------


def _circles(frame: Frame, points: Sequence[Point]) -> Iterator[str]:
    """Yield the points, the largest with a tooltip each."""
    ranked, radii = _ranked(points), _radii(points)
    rest = [circle(frame.at(p.x, p.y), 1.5) for p in (points[i] for i in ranked[_NAMED_POINTS:])]
    if rest:
        yield stroke("".join(rest), MUTED, 1.0)
    for i in sorted(ranked[:_NAMED_POINTS], key=lambda i: points[i].size):
        point, data = points[i], circle(frame.at(points[i].x, points[i].y), radii[i])
        drawn = stroke(data, MUTED, 1.0)
        if point.size > 0:
            edge = f"; fill-opacity: 0.85; stroke: {ink(CARD)}; stroke-width: 1"
            drawn = filled(data, SERIES[0], edge)
        yield f"<g>{drawn}<title>{words(point.tip or point.name)}</title></g>"


def _names(frame: Frame, points: Sequence[Point], n_names: int) -> Iterator[str]:
    """Yield names beside the largest points where they cover no other name and no point.

    Of very many points, names may cover the hollow ones.
    """
    radii, taken = _radii(points), list[tuple[float, float, float, float]]()
    for point, r in zip(points, radii, strict=True):
        if len(points) <= _NAMED_POINTS or point.size > 0:
            x, y = frame.at(point.x, point.y)
            taken.append((x - r, y - r, x + r, y + r))
    for i in _ranked(points)[:n_names]:
        name = shorten(points[i].name, _NAME_CHARACTERS)
        (x, y), gap = frame.at(points[i].x, points[i].y), radii[i] + 3
        width = width_of(name, NAME_SIZE)
        beside = ((x + gap, y + 3), (x - gap - width, y + 3))
        for left, base in (*beside, (x - width / 2, y - gap), (x - width / 2, y + gap + 8)):
            box = (left, base - 8.0, left + width, base + 2.0)
            inside = frame.x.start <= box[0] and box[2] <= frame.x.end
            inside &= frame.y.end <= box[1] and box[3] <= frame.y.start
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield label(left, base, name, size=NAME_SIZE)
                break


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _ranked(points: Sequence[Point]) -> list[int]:
    """Rank the points: the largest first, among equals those far from y = 0."""
    return sorted(range(len(points)), key=lambda i: (-points[i].size, -abs(points[i].y), i))


def _radii(points: Sequence[Point]) -> list[float]:
    largest = max((p.size for p in points), default=0.0) or 1.0
    hollow = 2.25 if len(points) <= _NAMED_POINTS else 1.5
    return [2.5 + 7.5 * math.sqrt(p.size / largest) if p.size > 0 else hollow for p in points]


def _values(values: Sequence[Any], log: bool = False) -> np.ndarray:
    """Return numbers, NaN for what is missing or has no place on the axis."""
    return np.array([float(v) if _drawable(v, log) else np.nan for v in values], dtype=float)


def _drawable(value: Any, log: bool) -> bool:
    found = as_number(value)
    return found is not None and (found > 0 or not log)
