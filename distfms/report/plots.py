"""Charts: lines with bands or of points, and bars; each is one SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, number, percent, shorten
from distfms.report.svg import (
    CARD,
    DASHES,
    INK,
    MUTED,
    NAME_SIZE,
    SERIES,
    WIDTH,
    Drawing,
    Frame,
    Pair,
    Scale,
    amount,
    circle,
    document,
    filled,
    label,
    polyline,
    segment,
    stroke,
    width_of,
    words,
    x_axis,
)

#: What is projected.
_DOTS = DASHES[2]
_FAINT = "#9aa2ad"
#: Around filled circles, which may overlap.
_EDGE = f"; fill-opacity: 0.85; stroke: {CARD}; stroke-width: 1"
#: Points of a line that show their values when they are pointed at.
_TIPS_A_LINE = 40
_BAR_HEIGHT = 19.0
_LINE_CHART_HEIGHT = 340.0
#: Distance of names below one another, and characters of a name.
_APART = 13.0
_CHARACTERS = 24


@dataclass(frozen=True)
class Line:
    """A line of a chart; points where x or y is missing are left out.

    Attributes
    ----------
    lower, upper : sequence of float, optional
        A band around the line, such as a confidence interval.
    style : int, optional
        Which colour and dashes; by default the line's place in the chart.
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
    sizes, tips : sequence of float, sequence of str
        Points alone are drawn, as circles of areas by these sizes, hollow for 0, which show
        their tips when they are pointed at.
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
    sizes: Sequence[float] = ()
    tips: Sequence[str] = ()


@dataclass(frozen=True)
class Bar:
    """A bar: its name on the left, its value and label at its end."""

    name: str
    value: float
    label: str = ""


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
) -> Drawing:
    """Draw lines over a common x, and return the SVG.

    The title is read to those who cannot see the chart, and not drawn. With `y_percent` values are
    shares; a logarithmic x leaves out points at x ≤ 0; a limit of None is left to the data. `marks`
    are vertical lines at x by their names. A single line whose points have names has none itself.
    """
    marks = marks or {}
    drawn = [_Drawn.of(line, place, log_x) for place, line in enumerate(lines)]
    named = [one_line for one_line in drawn if not one_line.line.faint]
    legend = list[str]()
    height = 0.0
    if len(named) > 1 or not any(one_line.line.names for one_line in named):
        legend, height = _legend(named)
    x, y = _scales(drawn, list(marks.values()), log_x, y_limits)
    top = height + (23.0 if marks else 8.0)
    frame = Frame.of(x, y, height=_LINE_CHART_HEIGHT, top=top, is_share=y_percent)
    inside = list[str]()
    for one_line in sorted(drawn, key=lambda drawn: (not drawn.line.faint, drawn.line.bold)):
        inside += one_line.draw(frame)
    parts = [*frame.draw(xlabel, ylabel, y_percent), frame.clipped(inside), *legend]
    parts += [_named_mark(frame, name, place) for name, place in marks.items()]
    for one_line in named:
        parts += one_line.names_of_points(frame)
    axes = {"xlabel": xlabel, "ylabel": ylabel, "marks": marks, "is_share": y_percent}
    axes |= {"log_x": log_x, "y_limits": y_limits}
    return document(lines, _LINE_CHART_HEIGHT, parts, title=title, **axes)


def bar_chart(
    bars: Sequence[Bar], *, title: str, xlabel: str, n_bars: int = 30, x_percent: bool = False
) -> Drawing:
    """Draw the first `n_bars` as horizontal bars, the first at the top, and return the SVG.

    The caller says in the caption if there are more than fit.
    """
    shown = bars[:n_bars]
    write = percent if x_percent else number
    labels = [bar.label or write(bar.value) for bar in shown]
    values = [bar.value for bar in shown]
    names = [_name_of(bar) for bar in shown]
    start = 14.0 + max(map(width_of, names), default=0.0)
    # Where labels at the ends of bars leave room for the longest bar.
    longest_label = max(map(width_of, labels), default=0.0)
    end = max(WIDTH - 14.0 - longest_label, start + 80.0)
    least = None if min(values, default=0.0) < 0 else 0.0
    scale = Scale.over([0.0, *values], margin=0.0, limits=(least, None))
    scale = scale.between(start, end)
    bottom = 8.0 + _BAR_HEIGHT * max(1, len(shown))
    parts = list(x_axis(scale, xlabel, 8.0, bottom, x_percent))
    top = 8.0
    for bar, text in zip(shown, labels, strict=True):
        parts += _bar(bar, text, scale, top)
        top += _BAR_HEIGHT
    axes = {"xlabel": xlabel, "labels": labels}
    return document(shown, bottom + 38.0, parts, title=title, **axes)


def _name_of(bar: Bar) -> str:
    return shorten(bar.name, 34)


def _bar(bar: Bar, text: str, scale: Scale, top: float) -> Iterator[str]:
    """Yield a bar from 0, with its name on the left and a text at its end."""
    low, high = sorted((scale(0.0), scale(bar.value)))
    corner = f"M{amount(low)},{amount(top + 3.0)}"
    shape = filled(f"{corner}h{amount(high - low)}v13H{amount(low)}Z", SERIES[0])
    yield f"<g>{shape}<title>{words(bar.name)}: {words(text)}</title></g>"
    base = top + 13.0
    yield label(scale.start - 6.0, base, _name_of(bar), anchor="end")
    end = scale(max(bar.value, 0.0))
    yield label(end + 4.0, base, text, size=NAME_SIZE, colour=MUTED)


# --- lines --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A line as it is drawn: its points that are there, and its style."""

    line: Line
    style: int
    kept: np.ndarray
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
        return cls(line, style, kept, x[kept], y[kept], lower[kept], upper[kept])

    @property
    def name(self) -> str:
        """Name of the line, cut if it is long."""
        return shorten(self.line.name, 40)

    def stroked(self, data: str) -> str:
        """Return a path with the colour, the width and the dashes of the line."""
        if self.line.faint:
            return stroke(data, _FAINT, 0.9)
        dash = DASHES[self.style]
        if self.line.bold:
            dash = ""
        if self.line.dashed:
            dash = _DOTS
        return stroke(data, SERIES[self.style], 2.4 if self.line.bold else 1.5, dash)

    def draw(self, frame: Frame) -> Iterator[str]:
        """Yield the band, the line and its rings, or its circles; a single point as a dot."""
        if self.line.sizes:
            yield from self._circles(frame)
            return
        colour = SERIES[self.style]
        band = self._band(frame)
        if band:
            yield filled(band, colour, "; fill-opacity: 0.16")
        points = self._points(frame, self.x, self.y)
        yield self.stroked(polyline(points))
        if len(points) == 1:
            yield filled(circle(points[0], 2.6), colour)
        for x, y in self.line.marks:
            ring = circle(frame.at(x, y), 5.0)
            yield stroke(ring, colour, 2.0)
        if not self.line.faint:
            yield from self._tips(frame)

    def _tips(self, frame: Frame) -> Iterator[str]:
        """Yield places that show values when they are pointed at."""
        every = max(1, len(self.x) // _TIPS_A_LINE)
        xs = self.x[::every].tolist()
        ys = self.y[::every].tolist()
        for x, y in zip(xs, ys, strict=True):
            place = filled(circle(frame.at(x, y), 7.0), "transparent")
            text = f"{self.line.name}: {number(y)} at {number(x)}"
            yield f"<g>{place}<title>{words(text)}</title></g>"

    def _circles(self, frame: Frame) -> Iterator[str]:
        largest = max(self.line.sizes) or 1.0
        places = self._points(frame, self.x, self.y)
        looks = compress(zip(self.line.sizes, self.line.tips, strict=True), self.kept)
        for place, (size, tip) in zip(places, looks, strict=True):
            data = circle(place, 2.5 + 7.5 * math.sqrt(size / largest))
            drawn = stroke(data, MUTED, 1.0)
            if size > 0:
                drawn = filled(data, SERIES[self.style], _EDGE)
            yield f"<g>{drawn}<title>{words(tip)}</title></g>"

    def _band(self, frame: Frame) -> str:
        has_band = np.isfinite(self.lower) & np.isfinite(self.upper)
        x = self.x[has_band]
        upper = self._points(frame, x, self.upper[has_band])
        lower = self._points(frame, x, self.lower[has_band])
        return polyline([*upper, *reversed(lower)], closed=True)

    def _points(self, frame: Frame, xs: np.ndarray, ys: np.ndarray) -> list[Pair]:
        points = list[Pair]()
        for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
            point = frame.at(x, y)
            if self.line.step and points:
                points.append((point[0], points[-1][1]))
            points.append(point)
        return points

    def names_of_points(self, frame: Frame) -> Iterator[str]:
        """Yield the names of points, each on a thin pole below, as far as there is room.

        From right to left: a name goes below those that it would run into, and below the poles that
        would cross it.
        """
        poles = list[tuple[Pair, float]]()
        for x, y, text in self._named_points():
            name = shorten(text, _CHARACTERS)
            width = width_of(name, NAME_SIZE)
            start, top = frame.at(x, y)
            is_beyond = start + 6.0 + width > WIDTH
            end = start if is_beyond else start + 6.0 + width
            base = top + 18.0
            for (place, other_top), other_base in sorted(poles, key=lambda pole: pole[1]):
                if place < end and other_top < base < other_base + _APART:
                    base = other_base + _APART
            if base > frame.y.start - 4.0:
                continue
            poles.append(((start - 6.0 - width if is_beyond else start, top), base))
            yield segment((start, top), (start, base), MUTED, 0.6)
            if is_beyond:
                yield label(start - 3.0, base, name, size=NAME_SIZE, anchor="end")
            else:
                yield label(start + 3.0, base, name, size=NAME_SIZE)

    def _named_points(self) -> Iterator[tuple[float, float, str]]:
        """Yield the points that have a name, the last first."""
        points = list(zip(self.line.x, self.line.y, self.line.names, strict=False))
        for x, y, text in reversed(points):
            if text and as_number(x) is not None and as_number(y) is not None:
                yield x, y, text


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
    has_circles = any(one_line.line.sizes for one_line in drawn)
    margin = 0.15 if has_circles else 0.05  # for names below the lowest
    return x, Scale.over(ys, margin=margin, limits=y_limits)


def _legend(entries: Sequence[_Drawn]) -> tuple[list[str], float]:
    """Return the names of lines in rows at the top, and the height that they take."""
    parts = list[str]()
    x = 10.0
    y = 14.0
    for drawn in entries:
        width = 40.0 + width_of(drawn.name)
        if x > 10.0 and x + width > WIDTH - 6.0:
            x = 10.0
            y += 16.0
        middle = y - 3.5
        parts.append(drawn.stroked(polyline(((x, middle), (x + 34.0, middle)))))
        parts.append(label(x + 40.0, y, drawn.name))
        x += width + 16.0
    return parts, y + 2.0 if entries else 0.0


def _named_mark(frame: Frame, name: str, value: float) -> str:
    """Return a vertical line with its label above the plot."""
    x = frame.x(value)
    top = frame.y.end
    line = segment((x, top), (x, frame.y.start), INK, 1.0, DASHES[1])
    half = width_of(name, NAME_SIZE) / 2
    middle = max(min(x, WIDTH - 5.0 - half), half + 5.0)
    return line + label(middle, top - 4.0, name, anchor="middle", size=NAME_SIZE)


def _numbers(values: Sequence[Any], log: bool = False) -> np.ndarray:
    """Return numbers, NaN for what is missing or has no place on the axis."""
    return np.array([float(v) if _is_drawable(v, log) else np.nan for v in values], dtype=float)


def _is_drawable(value: Any, log: bool) -> bool:
    exact = as_number(value)
    return exact is not None and (exact > 0 or not log)
