"""Figures of a report drawn with matplotlib, for those who work in Python."""

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

    Raises SpecError where that is not installed.
    """
    try:
        axes = import_module("matplotlib.pyplot").subplots()[1]
    except ImportError as error:
        raise SpecError("Plots need matplotlib: pip install 'distfms[plot]'.") from error
    blocks = [block for section in sections for block in section.blocks]
    drawing: Any = next(block.svg for block in blocks if isinstance(block, Figure))
    for drawn in drawing.items:
        if isinstance(drawn, Line):
            label = None if drawn.faint else drawn.name
            y = np.array(drawn.y, dtype=float)
            axes.plot(drawn.x, y, label=label, color="0.8" if drawn.faint else None)
            axes.legend()
        else:
            axes.barh(drawn.name, drawn.value)
    axes.set(xlabel=drawing.xlabel, title=drawing.title_of_chart)
    return axes
