"""Reading the JSON content of a run folder, whose optional keys may be missing or null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def as_number(value: Any) -> float | None:
    """Read a finite number.

    Parameters
    ----------
    value : object
        Anything; numbers are ``int`` or ``float``, booleans are not.

    Returns
    -------
    float or None
        ``None`` for everything that is no finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Read a mapping; anything else is an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_entries(value: Any) -> list[Mapping[str, Any]]:
    """Read a list of mappings, without what is none."""
    items = value if isinstance(value, list | tuple) else []
    return [item for item in items if isinstance(item, Mapping)]


def curve_points(curve: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the points of a curve that say what was ``spent``."""
    return [p for p in as_entries(curve.get("points")) if as_number(p.get("spent")) is not None]


def has_numbers(points: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Tell whether any point has a number under the key."""
    return any(as_number(point.get(key)) is not None for point in points)
