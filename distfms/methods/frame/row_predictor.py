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
from distfms.stats.classification import decided, shares_of

if TYPE_CHECKING:
    from distfms.data.files.dataset import PartitionReader
    from distfms.methods.frame.contract import FinishedRun

MISSING = "values_missing"
#: Columns of predictions that stop row by row.
N_GROUPS = "n_groups"
COST = "cost"
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
    stops : bool
        Whether `predict` also returns, after the outputs, where a row stops and what that costs.
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
    stops: bool = False

    @classmethod
    def of(
        cls,
        run: FinishedRun,
        dataset: Dataset,
        needed: Sequence[str],
        outputs: tuple[str, ...],
        predict: Callable[[Mapping[str, np.ndarray], int], np.ndarray],
        **facts: Any,
    ) -> RowPredictor:
        """Find the features that a run's model needs in a dataset; see `plan_of_model`."""
        plan = plan_of_model(dataset, needed, run.model["sources"], run.model["id"])
        return cls(dataset.reader, plan, outputs, predict, **facts)

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""
        roles = self.plan.roles
        return [*roles.features, *([roles.id] if roles.id else [])]

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), predictions, values that were missing."""
        import pyarrow as pa

        n_rows = partition.n_rows
        values, n_missing = self._values(partition)
        columns: dict[str, Any] = {}
        id_ = self.plan.roles.id
        if id_:
            columns[id_] = self.reader.read(partition, [id_]).column(id_)
        else:
            columns["row"] = np.arange(n_rows) + partition.row_offset
        predicted = self.predict(values, n_rows).reshape(n_rows, -1)
        beside = (N_GROUPS, COST) if self.stops else ()
        n_outputs = predicted.shape[1] - len(beside)
        outputs = predicted[:, :n_outputs]
        if self.classes:
            columns |= self._of_classes(outputs)
        else:
            columns |= dict(zip(self.outputs, outputs.T.copy(), strict=True))
        for name, column in zip(beside, predicted.T[n_outputs:], strict=True):
            dtype = np.int64 if name == N_GROUPS else np.float64
            columns[name] = column.astype(dtype)
        columns[MISSING] = n_missing
        arrays = [as_arrow(c) if isinstance(c, np.ndarray) else c for c in columns.values()]
        return pa.table(arrays, names=list(columns))

    def _values(self, partition: Partition) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return values by name of a batch's row, and how many each row lacks."""
        n_missing = np.zeros(partition.n_rows, dtype=np.int32)
        plan = self.plan
        names = list(self.numbers)
        if not plan.columns:
            return {}, n_missing
        if names:
            matrix = self.reader.matrix(partition, names)
            # Nothing is missing, infinite or too large.
            if matrix is not None and max(matrix.max(), -matrix.min()) < LARGEST:
                rows = np.ascontiguousarray(matrix.T)
                return dict(zip(names, rows, strict=True)), n_missing
        roles = replace(plan.roles, id=None)  # which is read apart
        plan = replace(plan, roles=roles)
        batch = read_rows(self.reader, partition, plan, missing="mean")
        values = batch.values
        has_nan = np.ones(plan.n_columns)
        if batch.part_sums is not None:
            has_nan = np.isnan(batch.part_sums).any(axis=0)
        for column in plan.columns:
            if column.levels is not None or has_nan[column.start]:
                n_missing += set_missing(values, column)
        return dict(zip(batch.names, values, strict=True)), n_missing

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Columns that are read, in their order, where all are numbers as the data have them."""
        plain = all(c.levels is None and not c.expanded for c in self.plan.columns)
        return {c.name: i for i, c in enumerate(self.plan.columns)} if plain else {}

    def rows_of(self, columns: Mapping[str, Any], id: str | None) -> Rows | None:
        """Return the rows of a mapping of lists or arrays of numbers, with nothing else converted.

        None where they are something else, or the mapping has or lacks the id unlike the plan.
        """
        has_id = id in columns
        if not self.numbers or has_id != (self.plan.roles.id is not None):
            return None
        numbers = [columns.get(name) for name in self.numbers]
        kinds = set(map(type, numbers))
        if not kinds <= {list, np.ndarray}:
            return None
        with suppress(ValueError):  # lengths differ
            values = np.array(numbers)
            is_numeric = values.dtype.kind in "biuf"
            if values.ndim != 2 or not values.size or not is_numeric:
                return None
            ids = as_table({name: columns[name] for name in columns if name == id})
            if not has_id or len(ids) == values.shape[1]:
                matrix = values.astype(np.float64, copy=False).T
                return Rows(ids, matrix, self.numbers)
        return None

    def _of_classes(self, outputs: np.ndarray) -> dict[str, Any]:
        """Return the class that is predicted of each row, and the probabilities of all."""
        shares = shares_of(outputs)
        labels = label_array(self.classes)
        names = [f"probability_{class_name(label)}" for label in self.classes]
        place = decided(shares, self.class_weights, self.threshold)
        return {self.outputs[0]: labels[place], **dict(zip(names, shares.T.copy(), strict=True))}

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows that lack a value."""
        label = f"Rows with missing values or unknown categories, {self.gaps}"
        counts = {label: n_positive(table.column(MISSING))}
        if self.stops:
            n_rows = np.bincount(np.asarray(table.column(N_GROUPS)))
            for n_groups, count in enumerate(n_rows.tolist()):
                counts[f"Rows that stop after {counted(n_groups, 'group')}"] = count
        return counts


def label_array(labels: Sequence[Any]) -> np.ndarray:
    """Return labels as an array, whole numbers as integers."""
    if labels and all(type(label) is int for label in labels):
        return np.array(labels, dtype=np.int64 if max(labels) < 2**63 else np.uint64)
    array = np.array(labels)
    if array.dtype.kind == "f" and (np.abs(array) < INEXACT).all() and (array % 1 == 0).all():
        return array.astype(np.int64)
    return array


def class_name(label: Any) -> str:
    """Write a class; a number with all its digits."""
    if isinstance(label, float):
        return str(int(label)) if label.is_integer() and abs(label) < INEXACT else repr(label)
    return str(label)


def set_missing(values: np.ndarray, column: SourceColumn) -> np.ndarray:
    """Mark unknown categories as missing; return which rows lack the column, shape (n,)."""
    rows = values[column.start : column.stop]
    if column.levels is not None:
        rows[:, ~rows.any(axis=0)] = np.nan  # NaN counts as true
    absent: np.ndarray = np.isnan(rows[0])
    if column.flag:
        rows[-1] = absent
    return absent


def levels_of(source: Any) -> Any:
    """Return the levels of a feature from an entry of `RowForm.sources`."""
    return source["levels"] if isinstance(source, Mapping) else source


def plan_of_model(
    dataset: Dataset, needed: Sequence[str], sources: Mapping[str, Any], id: str | None
) -> ColumnPlan:
    """Find the columns of a model in a dataset, which needs no target.

    `sources` is what `RowForm.sources` returned. A column that is missing, or a category where it
    was a number, is a DataError; an `id` that the dataset does not have is left out.
    """
    schema = dataset.schema
    id = id if id in schema.names else None
    roles = Roles((), (), id=id)
    if needed:
        roles = resolve_roles(schema, target=None, features=needed, globs=False, id=id)
    levels = {}
    knots = {}
    limits = {}
    flagged = []
    for name in needed:
        source = sources[name]
        texts = levels_of(source)
        holds_texts = name in roles.text_features
        if holds_texts != (texts is not None):
            kinds = ("categories", "numbers") if holds_texts else ("numbers", "categories")
            raise DataError(
                f"The column {name!r} of the data holds {kinds[0]} ({schema.field(name).type}), "
                f"but the model was made with {kinds[1]}. Convert it."
            )
        if texts is not None:
            levels[name] = list(texts)
        if isinstance(source, Mapping):
            knots[name] = source["knots"]
            limits[name] = source["limits"]
            if source["missing"]:
                flagged.append(name)
    plan = ColumnPlan.of(roles, levels, unknown="zero")
    return plan.expanded(knots, flagged, limits)
