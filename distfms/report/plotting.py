"""The first figure of a report drawn with matplotlib, for those who work in Python."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.report.page import Figure, PageSection
from distfms.report.plots import Line


def draw_first(sections: Sequence[PageSection]) -> Any:
    """Draw the first figure of a report; return the axes of matplotlib.

    Raises SpecError where that is not installed, or the report has no figure.
    """
    blocks = [block for section in sections for block in section.blocks]
    figures: list[Any] = [block.svg for block in blocks if isinstance(block, Figure)]
    drawings = [drawing for drawing in figures if drawing.axes]
    if not drawings:
        raise SpecError("The report of this fit has no lines or bars to draw: see `report()`.")
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise SpecError("Plots need matplotlib: pip install 'distfms[plot]'.") from error
    drawing = drawings[0]
    axes = pyplot.subplots(layout="constrained")[1]
    axes.set_xlabel(drawing.axes["xlabel"])
    if isinstance(drawing.items[0], Line):
        _draw_lines(axes, drawing.items, **drawing.axes)
    else:
        bars = drawing.items
        drawn = axes.barh([bar.name for bar in bars], [bar.value for bar in bars])
        axes.bar_label(drawn, drawing.axes["labels"], padding=3)
        axes.invert_yaxis()
    return axes


def _draw_lines(
    axes: Any, lines: Sequence[Line], *, ylabel: str, marks: Any, is_share: bool, **more: Any
) -> None:
    """Draw lines, with what the chart of the report has beside them."""
    for line in lines:
        _draw_line(axes, line)
    for name, x in marks.items():
        axes.axvline(x, color="0.3", linestyle="--", linewidth=1.0)
        axes.annotate(name, (x, 1.01), xycoords=("data", "axes fraction"), ha="center")
    named = [line for line in lines if not line.faint]
    if len(named) > 1 or not named[0].names:
        axes.legend()
    if is_share:
        axes.yaxis.set_major_formatter(import_module("matplotlib.ticker").PercentFormatter(1.0))
    axes.set(ylabel=ylabel, ylim=more["y_limits"])
    if more["log_x"]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")


def _draw_line(axes: Any, line: Line) -> None:
    """Draw a line with its band, its rings and the names of its points."""
    x = np.array(line.x, dtype=float)
    y = np.array(line.y, dtype=float)
    if line.sizes:
        axes.scatter(x, y, 20.0 * (1.0 + np.array(line.sizes)))
        return
    (drawn,) = axes.plot(
        x,
        y,
        label=None if line.faint else line.name,
        color="0.8" if line.faint else None,
        linestyle=":" if line.dashed else "-",
        linewidth=2.4 if line.bold else 1.5,
        drawstyle="steps-post" if line.step else "default",
    )
    colour = drawn.get_color()
    if line.lower is not None and line.upper is not None:
        lower = np.array(line.lower, dtype=float)
        upper = np.array(line.upper, dtype=float)
        axes.fill_between(x, lower, upper, alpha=0.16, color=colour)
    for place in line.marks:
        axes.plot(*place, "o", fillstyle="none", markersize=9, color=colour)
    below = {"xytext": (3, -12), "textcoords": "offset points", "fontsize": "small"}
    for name, point_x, point_y in zip(line.names, x, y, strict=False):
        axes.annotate(name, (point_x, point_y), **below)
