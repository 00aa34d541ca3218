"""Long form to wide form, said plainly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def pivot(rows: Iterable[tuple[Any, str, float | None]]) -> dict[Any, dict[str, list[float]]]:
    """Judgments by object (ascending) and attribute, in the order they come."""
    wide: dict[Any, dict[str, list[float]]] = {}
    for thing, attribute, value in rows:
        if value is not None:
            wide.setdefault(thing, {}).setdefault(attribute, []).append(float(value))
    return {thing: wide[thing] for thing in sorted(wide)}
