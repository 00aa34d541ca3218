"""Points of a grid that one path of choices answers together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped_by_path(
    points: Sequence[tuple[K, V]],
) -> tuple[dict[K, tuple[V, ...]], list[tuple[int, int]]]:
    """Put points together that differ by one value only, which one path of choices answers.

    Parameters
    ----------
    points : sequence of (K, V)
        Of each point what has to be equal, and the value.

    Returns
    -------
    groups : dict
        Values by what is equal, in the order of their first points.
    places : list of (int, int)
        For each point its group and the place among the group's values.
    """
    values: dict[K, list[V]] = {}
    found = []
    for key, value in points:
        own = values.setdefault(key, [])
        own.append(value)
        found.append((key, len(own) - 1))
    index = {key: i for i, key in enumerate(values)}
    return {k: tuple(own) for k, own in values.items()}, [(index[k], at) for k, at in found]
