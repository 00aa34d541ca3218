"""The table of a model's measures, for any method: training, folds, held-out data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, measure_title
from distfms.report.page import Column, Table
from distfms.stats.fold_means import over_folds

Rows = dict[str, dict[str, Any]]


def measure_rows(metrics: Mapping[str, Any], noun: str = "rows") -> Rows:
    """Return the measures of each set of rows.

    ``metrics`` has ``train``, ``test`` (each ``{name: value}`` or null) and ``folds`` (a list of
    such, each with its ``weight``).
    """
    rows = {f"Training {noun}": dict(metrics["train"])}
    folds = metrics["folds"]
    if folds:
        # Means of counts over folds tell nothing about a model.
        found = {
            name: _over_folds(folds, name)
            for name in dict.fromkeys(name for fold in folds for name in fold)
            if name not in ("fold", "weight") and not name.startswith("n_")
        }
        rows[f"Mean of {len(folds)} folds, each held out once"] = {
            n: v[0] for n, v in found.items()
        }
        rows["± between folds"] = {name: spread for name, (_, spread) in found.items()}
    if metrics["test"]:
        rows[f"Held-out {noun}"] = dict(metrics["test"])
    return rows


def measure_tables(metrics: Mapping[str, Any], caption: str) -> list[Table]:
    """Put the measures of training, folds and held-out rows below one another."""
    return tables_of(measure_rows(metrics), {}, caption)


def tables_of(rows: Rows, titles: Mapping[str, str], caption: str) -> list[Table]:
    """Put the measures of sets of rows below one another.

    Columns are those of `titles` first, with these titles, then others by their names. Columns and
    rows that would be empty are left out; no measure makes no table.
    """
    known = dict.fromkeys([*titles, *(name for own in rows.values() for name in own)])
    table = [[label, *(as_number(own.get(name)) for name in known)] for label, own in rows.items()]
    table = [row for row in table if any(value is not None for value in row[1:])]
    columns = [
        Column(""),
        *(Column(titles.get(name) or measure_title(name, True), "measure") for name in known),
    ]
    return [without_empty_columns(columns, table, caption)] if table else []


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


def _over_folds(folds: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean over the folds that have a number, and standard deviation between them."""
    values = [as_number(fold.get(name)) for fold in folds]
    known = np.array([np.nan if value is None else value for value in values])
    found = over_folds(known, [fold["weight"] for fold in folds])
    return as_number(float(found.mean)), as_number(float(found.deviation))
