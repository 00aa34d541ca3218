"""The table of a model's measures, for any method: training, folds, held-out data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, measure_title
from distfms.report.page import Table
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
    names = dict.fromkeys([*titles, *(name for own in rows.values() for name in own)])
    known = {name: titles.get(name) or measure_title(name, True) for name in names}
    table = [
        {"": label, **{title: as_number(own.get(name)) for name, title in known.items()}}
        for label, own in rows.items()
        if any(as_number(value) is not None for value in own.values())
    ]
    kinds = dict.fromkeys(known.values(), "measure")
    return [Table(table, caption, kinds)] if table else []


def _over_folds(folds: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean over the folds that have a number, and standard deviation between them."""
    values = [as_number(fold.get(name)) for fold in folds]
    known = np.array([np.nan if value is None else value for value in values])
    found = over_folds(known, [fold["weight"] for fold in folds])
    return as_number(float(found.mean)), as_number(float(found.deviation))
