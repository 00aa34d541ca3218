"""Plot primitives: lines with bands, labelled points, horizontal bars. Each returns one SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.report.formatting import as_number, number, percent, shorten
from distfms.report.svg import CARD, INK, MUTED, SERIES, drawing, new_figure, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Drawn so narrow that the text can still be read on a telephone.
WIDTH = 520.0
_DASHES: tuple[Any, ...] = (
    "solid",
    (0, (6, 2)),
    (0, (1.6, 1.6)),
    (0, (7, 2, 1.6, 2)),
    (0, (3, 1.5)),
    (0, (9, 3)),
    (0, (5, 1.5, 1.2, 1.5, 1.2, 1.5)),
    (0, (1, 3)),
)
_MARKERS = "os^Dv*PX"
_MARKS_A_LINE = 9
_LEGEND_CHARACTERS = 66
_NAME_CHARACTERS = 24
#: Digits that ticks may have beyond the usual ones.
_MORE_DIGITS = 9
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


@dataclass(frozen=True)
class VerticalMark:
    """A vertical line with a label, such as the budget."""

    x: float
    label: str


@dataclass(frozen=True)
class SecondScale:
    """The values read on the right-hand axis, where `unit` on the left is 100 %."""

    label: str
    unit: float


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


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    marks: Sequence[VerticalMark] = (),
    second_scale: SecondScale | None = None,
    y_limits: tuple[float | None, float | None] = (None, None),
    y_percent: bool = False,
    log_x: bool = False,
    height: float = 330.0,
) -> str:
    """Draw lines over a common x, and return the SVG.

    The title is read to those who cannot see the chart, and not drawn. With `y_percent` values are
    shares; a logarithmic x leaves out points at x ≤ 0; a limit of None is left to the data.
    """
    with drawing():
        figure = new_figure(WIDTH, height)
        axes = figure.subplots()
        handles = [_draw_line(axes, line, i, log_x) for i, line in enumerate(lines)]
        if log_x:
            axes.set_xscale("log")
        axes.set_ylim(*y_limits)
        axes.margins(x=0.02)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        _plain_ticks(axes, log_x=log_x, y_percent=y_percent)
        for mark in marks:
            _draw_mark(axes, mark)
        if second_scale is not None:
            _draw_second_scale(axes, second_scale)
        _draw_legend(figure, handles, [line.name for line in lines])
        return to_svg(figure, title)


def scatter_chart(
    points: Sequence[Point],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    diagonal: bool = False,
    log_x: bool = False,
    n_labels: int = 14,
    height: float = 360.0,
) -> str:
    """Draw points, the largest of them with their names as far as there is room; return the SVG.

    Points without finite coordinates, or that a logarithm does not admit, are left out; `diagonal`
    draws x = y.
    """
    shown = [p for p in points if _drawable(p.x, log_x) and _drawable(p.y, False)]
    with drawing():
        figure = new_figure(WIDTH, height)
        axes = figure.subplots()
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.margins(0.08)
        axes.set_xscale("log" if log_x else "linear")
        tips = _draw_points(axes, shown)
        if shown and min(p.y for p in shown) < 0 < max(p.y for p in shown):
            axes.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
        if diagonal and shown:
            axes.axline((1, 1), slope=1, color=MUTED, linewidth=0.8, linestyle=_DASHES[1])
        _plain_ticks(axes, log_x=log_x)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _draw_names(axes, shown, n_labels)
        return to_svg(figure, title, tips)


def bar_chart(bars: Sequence[Bar], *, title: str, xlabel: str, n_bars: int = 30) -> str:
    """Draw the first `n_bars` as horizontal bars, the first at the top, and return the SVG.

    The caller says in the caption if there are more than fit.
    """
    shown = list(bars[:n_bars])
    places = range(len(shown))
    with drawing():
        figure = new_figure(WIDTH, 62 + 19.0 * max(1, len(shown)))
        axes = figure.subplots()
        axes.barh(places, [b.value for b in shown], color=SERIES[0], height=0.68, linewidth=0)
        axes.set_yticks(places, [shorten(b.name, 34) for b in shown])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.grid(False, axis="y")
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.set_xlabel(xlabel)
        for place, bar in zip(places, shown, strict=True):
            axes.annotate(
                bar.label or number(bar.value),
                (max(bar.value, 0), place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                fontsize=9.5,
            )
        _plain_ticks(axes, y=False)
        return to_svg(figure, title)


def picture_chart(
    pictures: Sequence[Sequence[float]],
    shape: tuple[int, int],
    labels: Sequence[str],
    *,
    title: str,
) -> str:
    """Draw values of the pixels of pictures side by side, each with a scale of its own.

    Parameters
    ----------
    pictures : sequence of sequence of float
        Values of the pixels, row by row.
    shape : (int, int)
        Height and width in pixels.
    labels : sequence of str
        What the values of each picture are.
    title : str
        As for :func:`line_chart`.

    Returns
    -------
    str
        SVG. Values of both signs have a scale with 0 in its middle.
    """
    with drawing():
        figure = new_figure(WIDTH, 60 + WIDTH / len(pictures) * shape[0] / shape[1])
        for axes, values, label in zip(
            np.atleast_1d(figure.subplots(1, len(pictures))), pictures, labels, strict=True
        ):
            pixels = np.reshape(np.asarray(values, dtype=float), shape)
            signed, top = bool((pixels < 0).any()), float(np.abs(pixels).max()) or 1.0
            shown = axes.imshow(
                pixels,
                cmap="RdBu" if signed else "Blues",
                vmin=-top if signed else 0.0,
                vmax=top,
                interpolation="nearest",
            )
            axes.set(xticks=[], yticks=[], xlabel=label)
            axes.grid(False)
            figure.colorbar(shown, ax=axes, shrink=0.75)
        return to_svg(figure, title)


def heat_map(values: Sequence[Sequence[float | None]], names: Sequence[str], *, title: str) -> str:
    """Draw correlations of things with each other, None where there are none; see `line_chart`."""
    with drawing():
        size = 180 + 34 * len(names)
        figure = new_figure(min(size + 60, WIDTH), min(size, WIDTH))
        axes = figure.subplots()
        table = np.array(values, dtype=float)
        shown = axes.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1)
        places = range(len(names))
        short = [shorten(name, 18) for name in names]
        axes.set_xticks(places, short, rotation=45, ha="right")
        axes.set_yticks(places, short)
        axes.grid(False)
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                # The cells are the same on a dark page.
                ink = "#fafafa" if abs(value) > 0.6 else "#111111"
                text = f"{value:.2f}"
                axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=8.5)
        figure.colorbar(shown, ax=axes, shrink=0.75)
        return to_svg(figure, title)


# --- lines --------------------------------------------------------------------------------------


def _draw_line(axes: Axes, line: Line, place: int, log_x: bool) -> Any:
    style = (place if line.style is None else line.style) % len(SERIES)
    colour = SERIES[style]
    x, y = _values(line.x, log_x), _values(line.y)
    kept = np.isfinite(x) & np.isfinite(y)
    every = max(1, math.ceil(kept.sum() / _MARKS_A_LINE))
    (handle,) = axes.plot(
        x[kept],
        y[kept],
        color=colour,
        linestyle=_DASHES[2] if line.dashed else _DASHES[0 if line.bold else style],
        linewidth=2.4 if line.bold else 1.5,
        drawstyle="steps-post" if line.step else "default",
        marker=None if line.dashed else _MARKERS[style],
        markersize=5,
        # Begin elsewhere on each line, so that markers of equal lines do not cover one another.
        markevery=((2 * style) % every, every),
        markeredgecolor=CARD,
        markeredgewidth=0.6,
        zorder=3 if line.bold else 2.5,
    )
    if line.lower is not None and line.upper is not None:
        low, high = _values(line.lower), _values(line.upper)
        step: Any = "post" if line.step else None
        axes.fill_between(x, low, high, step=step, color=colour, alpha=0.16, linewidth=0)
    for at, value in line.marks:
        axes.plot([at], [value], "o", ms=10, mfc="none", mec=colour, mew=2, zorder=4)
    return handle


def _draw_mark(axes: Axes, mark: VerticalMark) -> None:
    axes.axvline(mark.x, color=INK, linewidth=1, linestyle=_DASHES[1], zorder=2)
    to_fraction = axes.transData - axes.transAxes
    near_right = to_fraction.transform((mark.x, 0))[0] > 0.6
    axes.annotate(
        mark.label,
        (mark.x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if near_right else 5, -3),
        textcoords="offset points",
        ha="right" if near_right else "left",
        va="top",
        fontsize=9.5,
        color=INK,
    )


def _draw_second_scale(axes: Axes, scale: SecondScale) -> None:
    to_share, to_value = (lambda value: value / scale.unit), (lambda share: share * scale.unit)
    other = axes.secondary_yaxis("right", functions=(to_share, to_value))
    other.set_ylabel(scale.label)
    other.yaxis.set_major_formatter(_tick_writer(percent, 0))
    other.spines["right"].set_visible(True)


def _draw_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    if not handles:
        return
    # matplotlib leaves out names that begin with an underscore; a joiner of no width saves them.
    labels = [f"\u2060{t}" if t.startswith("_") else t for t in (shorten(n, 40) for n in names)]
    widest = max(len(label) for label in labels) + 7
    n_columns = max(1, min(len(labels), _LEGEND_CHARACTERS // widest))
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=n_columns,
        handlelength=3.2,
        fontsize=10,
        columnspacing=1.6,
        borderaxespad=0.2,
    )


# --- points -------------------------------------------------------------------------------------


def _draw_points(axes: Axes, points: Sequence[Point]) -> dict[str, str]:
    """Draw the points; return the tooltips of those that have one."""
    named = set(_ranked(points)[:_NAMED_POINTS])
    rest = [p for i, p in enumerate(points) if i not in named]
    if rest:
        axes.plot([p.x for p in rest], [p.y for p in rest], "o", ms=3, mfc="none", mec=MUTED)
    diameters = _diameters(points)
    tips = {}
    for i in sorted(named, key=lambda i: points[i].size):
        point = points[i]
        filled = point.size > 0
        (artist,) = axes.plot(
            [point.x],
            [point.y],
            "o",
            markersize=diameters[i],
            markerfacecolor=SERIES[0] if filled else "none",
            markeredgecolor=CARD if filled else MUTED,
            alpha=0.85 if filled else 1.0,
            zorder=2.5 if filled else 2,
        )
        artist.set_gid(f"point-{i}")
        tips[f"point-{i}"] = point.tip or point.name
    return tips


def _draw_names(axes: Axes, points: Sequence[Point], n_names: int) -> None:
    """Write names beside the largest points where they cover no other name and no point.

    The layout is done: what moves afterwards leaves the names behind. Of very many points, names
    may cover the hollow ones.
    """
    from matplotlib.transforms import Bbox

    frame, diameters = axes.get_window_extent(), _diameters(points)
    taken = []
    for point, d in zip(points, diameters, strict=True):
        if len(points) <= _NAMED_POINTS or point.size > 0:
            x, y = axes.transData.transform((point.x, point.y))
            taken.append(Bbox.from_bounds(x - d / 2, y - d / 2, d, d))
    for i in _ranked(points)[:n_names]:
        gap = diameters[i] / 2 + 3
        for dx, dy, ha, va in (
            (gap, 0, "left", "center"),
            (-gap, 0, "right", "center"),
            (0, gap, "center", "bottom"),
            (0, -gap, "center", "top"),
        ):
            text = axes.annotate(
                shorten(points[i].name, _NAME_CHARACTERS),
                (points[i].x, points[i].y),
                xytext=(dx, dy),
                textcoords="offset points",
                ha=ha,
                va=va,
                fontsize=9.5,
                zorder=5,
            )
            box = text.get_window_extent()
            inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _ranked(points: Sequence[Point]) -> list[int]:
    """Rank the points: the largest first, among equals those far from y = 0."""
    return sorted(range(len(points)), key=lambda i: (-points[i].size, -abs(points[i].y), i))


def _diameters(points: Sequence[Point]) -> list[float]:
    largest = max((p.size for p in points), default=0.0) or 1.0
    hollow = 4.5 if len(points) <= _NAMED_POINTS else 3.0
    return [5 + 15 * math.sqrt(p.size / largest) if p.size > 0 else hollow for p in points]


# --- axes ---------------------------------------------------------------------------------------


def _values(values: Sequence[Any], log: bool = False) -> np.ndarray:
    """Return numbers, NaN for what is missing or has no place on the axis."""
    return np.array([float(v) if _drawable(v, log) else np.nan for v in values])


def _drawable(value: Any, log: bool) -> bool:
    found = as_number(value)
    return found is not None and (found > 0 or not log)


def _plain_ticks(
    axes: Axes, *, y: bool = True, y_percent: bool = False, log_x: bool = False
) -> None:
    """Write ticks as the tables write numbers; label enough of a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.xaxis.set_major_formatter(_tick_writer(number, 4))
    if y:
        axes.yaxis.set_major_formatter(_tick_writer(*((percent, 0) if y_percent else (number, 4))))
    if log_x:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _tick_writer(write: Callable[[float, int], str], digits: int) -> Any:
    """Return what labels the ticks of an axis, with as many digits as tell them apart."""
    from matplotlib.ticker import Formatter

    class Writer(Formatter):
        def format_ticks(self, values: Any) -> list[str]:
            for more in range(_MORE_DIGITS):
                labels = [write(value, digits + more) for value in values]
                if len(set(labels)) == len(set(values)):
                    break
            return labels

        def __call__(self, x: float, pos: int | None = None) -> str:
            return write(x, digits)

    return Writer()
