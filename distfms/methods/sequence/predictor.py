"""Predicting rows with a finished run's model, by the longest prefix that a budget affords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan, SourceColumn, read_rows
from distfms.data.dataset import ParquetDataset, Partition, PartitionReader
from distfms.data.roles import Roles, is_categorical, resolve_roles
from distfms.errors import DataError
from distfms.methods.contract import FinishedRun
from distfms.methods.sequence.anytime import AnytimePredictor

MISSING = "values_missing"


@dataclass(frozen=True, eq=False)
class PrefixPredictor:
    """Picklable function from a partition to its predictions.

    A missing value, and a category that was in no training row, count as the column's training
    mean: they say nothing, and so they move nothing.

    Attributes
    ----------
    reader : PartitionReader
    plan : ColumnPlan
        Of the columns of the prefix alone.
    model : AnytimePredictor
    n_groups : int
        Length of the prefix.
    budget : float or None
    """

    reader: PartitionReader
    plan: ColumnPlan
    model: AnytimePredictor
    n_groups: int
    budget: float | None

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""
        roles = self.plan.roles
        return [*roles.features, *([roles.id] if roles.id else [])]

    def spending(self) -> str:
        """Say what the predictions cost."""
        model, total = self.model, len(self.model.groups)
        spent = float(model.spent[self.n_groups - 1]) if self.n_groups else 0.0
        given = "" if self.budget is None else f" of the budget {self.budget:g}"
        line = f"Spends {spent:g}{given} a row on {self.n_groups} of {total} groups"
        if self.n_groups:
            return line
        return (
            f"{line}: the first one, {model.groups[0]}, costs {model.spent[0]:g}, so every row is "
            "predicted by the mean of the training rows"
        )

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), predictions, values that were missing."""
        import pyarrow as pa

        roles, n_rows = self.plan.roles, partition.n_rows
        values, n_missing = self._read(partition)
        columns: dict[str, Any] = {}
        if roles.id:
            columns[roles.id] = self.reader.read(partition, [roles.id]).column(roles.id)
        else:
            columns["row"] = np.arange(n_rows) + partition.row_offset
        columns |= dict(zip(self._outputs(), self._predict(values, n_rows), strict=True))
        columns[MISSING] = n_missing
        return pa.table(columns)

    def _read(self, partition: Partition) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values by column, and how many each row lacks."""
        n_missing = np.zeros(partition.n_rows, dtype=np.int32)
        block = read_rows(self.reader, partition, self.plan, missing="mean")
        for column in self.plan.columns:
            n_missing += _set_missing(block.values, column)
        return dict(zip(block.names, block.values, strict=True)), n_missing

    def _predict(self, values: Mapping[str, np.ndarray], n_rows: int) -> list[np.ndarray]:
        """Predictions of a prefix, one array for each output."""
        if not self.n_groups:  # nothing is read, but the rows are there
            mean = self.model.predict(np.zeros((1, len(self.model.feature_names))), budget=-1.0)
            return [np.full(n_rows, value) for value in mean.ravel()]
        found = self.model.predict(values, budget=float(self.model.spent[self.n_groups - 1]))
        return list(found.reshape(n_rows, -1).T.copy())

    def _outputs(self) -> list[str]:
        return [f"predicted_{name}" for name in self.model.target_names]

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows that lack a value."""
        label = "Rows with missing values or unknown categories, taken for the training mean"
        return {label: int(np.count_nonzero(table.column(MISSING).to_numpy()))}


def _set_missing(values: np.ndarray, column: SourceColumn) -> np.ndarray:
    """Mark unknown categories as missing; tell which rows lack the column, shape (n,)."""
    rows = values[column.start : column.stop]
    if column.levels is not None:
        rows[:, ~rows.any(axis=0)] = np.nan  # NaN counts as true
    return np.isnan(rows[0])


def make_predictor(
    run: FinishedRun, dataset: ParquetDataset, budget: float | None
) -> PrefixPredictor:
    """Find the columns of the longest affordable prefix in a dataset.

    Parameters
    ----------
    run : FinishedRun
    dataset : ParquetDataset
        Needs no target, and no column of a group that the budget does not pay for.
    budget : float or None
        Cost a row; None for the whole sequence.

    Raises
    ------
    DataError
        If a column of the prefix is missing, or is a category where it was a number.
    """
    model = AnytimePredictor.from_arrays(run.weights, run.model)
    levels: Mapping[str, list[str] | None] = run.model["sources"]
    n_groups = model.affordable(budget)
    needed = [n for step in run.selection["sequence"][:n_groups] for n in step["columns"]]
    id_ = run.model["id"] if run.model["id"] in dataset.schema.names else None
    roles = Roles((), (), id=id_)
    if needed:
        roles = resolve_roles(dataset.schema, target=None, features=needed, globs=False, id=id_)
    for name in needed:
        _require_kind(dataset, name, levels[name] is not None)
    categories = {name: known for name in needed if (known := levels[name]) is not None}
    plan = ColumnPlan.from_schema(dataset.schema, roles, categories, unknown="zero")
    return PrefixPredictor(dataset.reader, plan, model, n_groups, budget)


def _require_kind(dataset: ParquetDataset, name: str, categorical: bool) -> None:
    """Refuse a number where the model knows categories, and the other way round."""
    dtype = dataset.schema.field(name).type
    if is_categorical(dtype) != categorical:
        kinds = ("categories", "numbers") if categorical else ("numbers", "categories")
        raise DataError(
            f"The column {name!r} of {dataset.files[0].path} holds {kinds[1]} ({dtype}), but the "
            f"model was made with {kinds[0]}. Convert it."
        )
