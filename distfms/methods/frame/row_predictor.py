"""Predicting rows with a finished run's model, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.files.partition import Dataset, Partition, Rows, as_table
from distfms.data.rows.batches import ColumnPlan, SourceColumn, read_rows
from distfms.data.rows.columns import LARGEST, as_arrow, n_positive
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.engine.memory import counted
from distfms.errors import DataError

if TYPE_CHECKING:
    from distfms.data.files.dataset import PartitionReader

MISSING = "values_missing"
N_GROUPS, COST = "n_groups", "cost"
"""Columns of predictions that stop row by row."""
#: Least whole number whose neighbour is the same float64.
INEXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class RowPredictor:
    """Picklable function from a partition to a table of its predictions.

    A category that was in no training row counts as missing.

    Attributes
    ----------
    reader : PartitionReader
    plan : ColumnPlan
        Of the columns that the model reads.
    outputs : tuple of str
        Names of the columns of predictions.
    predict : callable
        ``(values by name of a batch's row, n_rows) → array of shape (n_rows, n_outputs)``;
        missing values are NaN. Picklable.
    spending : str
        What the predictions cost, for the user; empty where that is not a question.
    classes : sequence of str or float
        Where the outputs are probabilities of classes, these classes, as many, or two for the
        probability of the second; `outputs` then has the name of the column of predicted classes.
    threshold : float
        Probability from which on the second of two classes is predicted.
    gaps : str
        What the model takes missing values for.
    class_weights : array of shape (r,) or (1,)
        What decides between r classes times their probabilities.
    beside : sequence of str
        Names of columns that `predict` returns after the outputs.
    """

    reader: PartitionReader
    plan: ColumnPlan
    outputs: tuple[str, ...]
    predict: Callable[[Mapping[str, np.ndarray], int], np.ndarray]
    spending: str = ""
    classes: Sequence[Any] = ()
    threshold: float = 0.5
    gaps: str = "replaced with the training mean"
    class_weights: Any = 1.0
    beside: Sequence[str] = ()

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""
        roles = self.plan.roles
        return [*roles.features, *([roles.id] if roles.id else [])]

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), predictions, values that were missing."""
        import pyarrow as pa

        id_, n_rows = self.plan.roles.id, partition.n_rows
        n_missing = np.zeros(n_rows, dtype=np.int32)
        values: dict[str, np.ndarray] = {}
        matrix = self.reader.matrix(partition, list(self.numbers)) if self.numbers else None
        # Nothing is missing, infinite or too large.
        if matrix is not None and max(matrix.max(), -matrix.min()) < LARGEST:
            values = dict(zip(self.numbers, np.ascontiguousarray(matrix.T), strict=True))
        elif self.plan.columns:
            plan = replace(self.plan, roles=replace(self.plan.roles, id=None))  # read below
            batch = read_rows(self.reader, partition, plan, missing="mean")
            sums = batch.part_sums
            has_nan = np.ones(plan.n_columns) if sums is None else np.isnan(sums).any(axis=0)
            for column in plan.columns:
                if column.levels is not None or has_nan[column.start]:
                    n_missing += set_missing(batch.values, column)
            values = dict(zip(batch.names, batch.values, strict=True))
        columns: dict[str, Any] = {}
        if id_:
            columns[id_] = self.reader.read(partition, [id_]).column(id_)
        else:
            columns["row"] = np.arange(n_rows) + partition.row_offset
        found = self.predict(values, n_rows).reshape(n_rows, -1)
        n_outputs = found.shape[1] - len(self.beside)
        found, more = found[:, :n_outputs], found[:, n_outputs:]
        if self.classes:
            columns |= self._of_classes(found)
        else:
            columns |= dict(zip(self.outputs, found.T.copy(), strict=True))
        for name, own in zip(self.beside, more.T, strict=True):
            columns[name] = own.astype(np.int64 if name == N_GROUPS else np.float64)
        columns[MISSING] = n_missing
        arrays = [as_arrow(c) if isinstance(c, np.ndarray) else c for c in columns.values()]
        return pa.table(arrays, names=list(columns))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Columns that are read, in their order, where all are numbers as the data have them."""
        plain = all(c.levels is None and not c.expanded for c in self.plan.columns)
        return {c.name: i for i, c in enumerate(self.plan.columns)} if plain else {}

    def rows_of(self, given: Mapping[str, Any], id: str | None) -> Rows | None:
        """Return the rows of a mapping of lists or arrays of numbers, with nothing else converted.

        None where they are something else, or the mapping has or lacks the id unlike the plan.
        """
        if not self.numbers or (id in given) != (self.plan.roles.id is not None):
            return None
        own = [given.get(name) for name in self.numbers]
        if not {list, np.ndarray}.issuperset(map(type, own)):
            return None
        with suppress(ValueError):  # lengths differ
            values = np.array(own)
            if values.ndim == 2 and values.size and values.dtype.kind in "biuf":
                beside = as_table({name: given[name] for name in given if name == id})
                if id not in given or len(beside) == values.shape[1]:
                    return Rows(beside, values.astype(np.float64, copy=False).T, self.numbers)
        return None

    def _of_classes(self, found: np.ndarray) -> dict[str, Any]:
        """Return the class that is predicted of each row, and the probabilities of all."""
        found = shares_of(found)
        named = label_array(self.classes)
        names = [f"probability_{class_name(label)}" for label in self.classes]
        shares = dict(zip(names, found.T.copy(), strict=True))
        place = decided(found, self.class_weights, self.threshold)
        return {self.outputs[0]: named[place], **shares}

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows that lack a value."""
        label = f"Rows with missing values or unknown categories, {self.gaps}"
        found = {label: n_positive(table.column(MISSING))}
        if N_GROUPS in self.beside:
            numbers = np.asarray(table.column(N_GROUPS))
            counts = enumerate(np.bincount(numbers).tolist())
            found |= {f"Rows that stop after {counted(n, 'group')}": count for n, count in counts}
        return found


def label_array(labels: Sequence[Any]) -> np.ndarray:
    """Return labels as an array, whole numbers as integers."""
    if labels and all(type(label) is int for label in labels):
        return np.array(labels, dtype=np.int64 if max(labels) < 2**63 else np.uint64)
    found = np.array(labels)
    if found.dtype.kind == "f" and (np.abs(found) < INEXACT).all() and (found % 1 == 0).all():
        return found.astype(np.int64)
    return found


def class_name(label: Any) -> str:
    """Write a class; a number with all its digits."""
    if isinstance(label, float):
        return str(int(label)) if label.is_integer() and abs(label) < INEXACT else repr(label)
    return str(label)


def shares_of(found: np.ndarray) -> np.ndarray:
    """Return probabilities of all classes (n, r); of two a model may give that of the second."""
    return np.concatenate((1.0 - found, found), axis=1) if found.shape[1] == 1 else found


def decided(shares: np.ndarray, weights: Any, threshold: float) -> np.ndarray:
    """Return numbers of the predicted classes, from probabilities (n, r); see `RowPredictor`."""
    if threshold != 0.5:
        return (shares[:, 1] >= threshold).astype(np.intp)
    return np.asarray((shares * weights).argmax(axis=1))


def set_missing(values: np.ndarray, column: SourceColumn) -> np.ndarray:
    """Mark unknown categories as missing; return which rows lack the column, shape (n,)."""
    rows = values[column.start : column.stop]
    if column.levels is not None:
        rows[:, ~rows.any(axis=0)] = np.nan  # NaN counts as true
    absent: np.ndarray = np.isnan(rows[0])
    if column.flag:
        rows[-1] = absent
    return absent


def sources_of(plan: ColumnPlan) -> dict[str, Any]:
    """Return the levels of each feature, None for a number, for ``model.json``.

    Where a feature has other rows too, it is a mapping with the ``levels``.
    """
    found: dict[str, Any] = {}
    for column in plan.columns[: len(plan.roles.features)]:
        levels = None if column.levels is None else list(column.levels)
        rows = {"levels": levels, "knots": list(column.knots), "missing": column.flag}
        rows |= {"limits": list(column.limits)}
        found[column.name] = rows if column.expanded else levels
    return found


def levels_of(source: Any) -> Any:
    """Return the levels of a feature from an entry of `sources_of`."""
    return source["levels"] if isinstance(source, Mapping) else source


def plan_of_model(
    dataset: Dataset, needed: Sequence[str], sources: Mapping[str, Any], id: str | None
) -> ColumnPlan:
    """Find the columns of a model in a dataset, which needs no target.

    `sources` is what :func:`sources_of` returned. A column that is missing, or a category where it
    was a number, is a DataError; an `id` that the dataset does not have is left out.
    """
    schema = dataset.schema
    id = id if id in schema.names else None
    roles = Roles((), (), id=id)
    if needed:
        roles = resolve_roles(schema, target=None, features=needed, globs=False, id=id)
    expanded = {n: own for n in needed if isinstance(own := sources[n], Mapping)}
    known = {name: levels_of(sources[name]) for name in needed}
    for name, own in known.items():
        if (name in roles.text_features) != (own is not None):
            kinds = ("numbers", "categories") if own is None else ("categories", "numbers")
            raise DataError(
                f"The column {name!r} of the data holds {kinds[1]} ({schema.field(name).type}), "
                f"but the model was made with {kinds[0]}. Convert it."
            )
    levels = {name: list(own) for name, own in known.items() if own is not None}
    plan = ColumnPlan.of(roles, levels, unknown="zero")
    knots = {name: own["knots"] for name, own in expanded.items()}
    # Older models have no limits.
    limits = {name: own.get("limits", ()) for name, own in expanded.items()}
    return plan.expanded(knots, [n for n, own in expanded.items() if own["missing"]], limits)
