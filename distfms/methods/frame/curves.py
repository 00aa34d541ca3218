"""Curves of ``metrics.json``, in one form for every method.

``curves`` lists ``{name, points}``, the chosen rule first. A point is ``{budget, …, train: {…},
validation: {…}, test: {…}}``: what is spent, in the method's unit, what else tells the model apart,
and its measures by name on each set of rows that there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.stats.base import number_or_none


def points_of(
    sizes: Mapping[str, Any], scores: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the points of a curve.

    Parameters
    ----------
    sizes : mapping of str to sequence of n numbers
        ``budget`` among them.
    scores : mapping of str to mapping
        For each set of rows, n values of each measure; NaN where one does not exist.
    """
    columns = {name: np.asarray(values).tolist() for name, values in sizes.items()}
    by_point = zip(*columns.values(), strict=True)
    points = [dict(zip(columns, values, strict=True)) for values in by_point]
    for rows, measures in scores.items():
        for measure, values in measures.items():
            for point, value in zip(points, values, strict=True):
                measured = point.setdefault(rows, {})
                measured[measure] = number_or_none(value)
    return points
