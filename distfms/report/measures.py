"""The table of a model's measures, for any method: training, folds, held-out data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.report.formatting import as_number
from distfms.report.page import Column, Table
from distfms.stats.fold_means import over_folds


def measure_tables(metrics: Mapping[str, Any], caption: str) -> list[Table]:
    """Put the measures of training, folds and held-out rows side by side.

    ``metrics`` has ``train``, ``test`` (each ``{name: value}`` or null) and ``folds`` (a list of
    such, each with its ``weight``). Columns that would be empty are left out; no measure makes no
    table.
    """
    train, test, folds = metrics["train"], metrics["test"] or {}, metrics["folds"]
    weights = [fold["weight"] for fold in folds]
    rows: list[list[Any]] = []
    for name in dict.fromkeys([*train, *test, *(key for fold in folds for key in fold)]):
        if name in ("fold", "weight"):
            continue
        # The mean of counts over folds tells nothing about a model.
        values = [None if name.startswith("n_") else as_number(fold.get(name)) for fold in folds]
        between = _mean_and_spread(values, weights)
        row = [as_number(train.get(name)), *between, as_number(test.get(name))]
        if any(value is not None for value in row):
            rows.append([name, *row])
    titles = ["Measure", "Training", f"Mean of {len(folds)} folds", "± between folds", "Held out"]
    columns = [Column(titles[0], "text"), *(Column(title, "measure") for title in titles[1:])]
    return [without_empty_columns(columns, rows, caption)] if rows else []


def without_empty_columns(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    caption: str,
    emphasis: Sequence[int] = (),
) -> Table:
    """Build a table of those columns that hold anything; the first is always kept."""
    kept = [i for i in range(len(columns)) if i == 0 or any(row[i] is not None for row in rows)]
    return Table(
        [columns[i] for i in kept], [[row[i] for i in kept] for row in rows], caption, emphasis
    )


def _mean_and_spread(
    values: Sequence[float | None], weights: Sequence[float]
) -> tuple[float | None, float | None]:
    """Mean over the folds that have a number, and standard deviation between them."""
    known = np.array([np.nan if value is None else value for value in values])
    found = over_folds(known, weights)
    return as_number(float(found.mean)), as_number(float(found.deviation))
