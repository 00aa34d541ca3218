"""Names beside points, where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distfms.report.formatting import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_NAME_WIDTH = 24


@dataclass(frozen=True)
class Spot:
    """A point that may get a name, and that names of others should not cover.

    Attributes
    ----------
    name : str
    x, y : float
        In the units of the axes.
    diameter : float
        Of its marker, in units of the chart.
    solid : bool
        Names never cover solid spots; they cover others where there is no free place.
    """

    name: str
    x: float
    y: float
    diameter: float
    solid: bool = True


def draw_names(axes: Axes, spots: Sequence[Spot], order: Sequence[int]) -> None:
    """Write names beside spots where they cover neither one another nor a solid spot.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        With its layout done: what moves afterwards leaves the names behind.
    spots : sequence of Spot
    order : sequence of int
        Which spots get a name, the most important first; a name without room is left out.
    """
    from matplotlib.transforms import Bbox

    taken: list[Bbox] = []
    light: list[Bbox] = []
    for spot in spots:
        x, y = axes.transData.transform((spot.x, spot.y))
        d = spot.diameter
        (taken if spot.solid else light).append(Bbox.from_bounds(x - d / 2, y - d / 2, d, d))
    for i in order:
        for avoided in ([*taken, *light], taken):
            box = _place(axes, spots[i], avoided)
            if box is not None:
                taken.append(box)
                break


def _place(axes: Axes, spot: Spot, avoided: Sequence[Bbox]) -> Bbox | None:
    """Write a name on the first side where it is inside the axes and covers nothing avoided."""
    frame = axes.get_window_extent()
    for dx, dy, ha, va in _sides(spot.diameter / 2 + 3):
        text = axes.annotate(
            shorten(spot.name, _NAME_WIDTH),
            (spot.x, spot.y),
            xytext=(dx, dy),
            textcoords="offset points",
            ha=ha,
            va=va,
            fontsize=9.5,
            zorder=5,
        )
        box = text.get_window_extent()
        inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
        if inside and not any(box.overlaps(other) for other in avoided):
            return box
        text.remove()
    return None


def _sides(gap: float) -> list[tuple[float, float, str, str]]:
    near = 0.7 * gap
    return [
        (gap, 0, "left", "center"),
        (-gap, 0, "right", "center"),
        (0, gap, "center", "bottom"),
        (0, -gap, "center", "top"),
        (near, near, "left", "bottom"),
        (near, -near, "left", "top"),
        (-near, near, "right", "bottom"),
        (-near, -near, "right", "top"),
    ]
