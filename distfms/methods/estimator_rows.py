"""Training rows of estimators, whatever they come as: arrays, frames, Dask, Parquet.

All become :class:`Rows`: chunks of float64 that a statistic is computed of, chunk by chunk, and
merged along the tree that the engine uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from distfms.data.batches import ColumnPlan, read_rows
from distfms.data.categories import categorical_columns, discover_categories
from distfms.data.dataset import ParquetDataset, Partition, PartitionReader, open_dataset
from distfms.data.roles import resolve_roles
from distfms.engine.executors import LocalExecutor
from distfms.engine.graph import Unit
from distfms.engine.mapreduce import map_reduce
from distfms.errors import DataError, SpecError
from distfms.methods.estimator_columns import (
    Columns,
    MissingRule,
    block_of,
    category_names,
    checked_weight,
    column_names,
    frame_levels,
    united_levels,
)
from distfms.methods.estimator_input import divide_like, kind_of, row_chunks
from distfms.stats.base import Statistic, merge_tree

T = TypeVar("T")
S = TypeVar("S", bound=Statistic)

#: Rows of an array or frame that are summarised at a time.
CHUNK_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows.

    Attributes
    ----------
    values : ndarray of shape (d, n)
        Features, unit stride along the rows; NaN is missing. Valid during the call only.
    target : ndarray of shape (n,) or (n, P)
        As given.
    weight : ndarray of shape (n,) or None
    """

    values: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None


class Rows(ABC):
    """Training rows, wherever they are.

    Attributes
    ----------
    columns : Columns
        Source columns and what they become.
    target_names : tuple of str
    """

    columns: Columns
    target_names: tuple[str, ...]

    @abstractmethod
    def reduce(self, summarise: Callable[[Chunk], S]) -> S:
        """Summarise every chunk and merge along the fixed tree; one pass over the rows."""

    @abstractmethod
    def targets(self, function: Callable[[np.ndarray], T]) -> list[T]:
        """Apply a function to the target of every chunk, without reading the features."""


@dataclass(frozen=True, eq=False)
class ArrayRows(Rows):
    """Rows in memory.

    Attributes
    ----------
    values : ndarray of shape (d, n), C-ordered
    target : ndarray of shape (n,) or (n, P)
    weight : ndarray of shape (n,) or None
    """

    columns: Columns
    target_names: tuple[str, ...]
    values: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None

    def _chunk(self, lo: int) -> Chunk:
        part = slice(lo, lo + CHUNK_ROWS)
        weight = None if self.weight is None else self.weight[part]
        return Chunk(self.values[:, part], self.target[part], weight)

    def reduce(self, summarise: Callable[[Chunk], S]) -> S:
        """See :class:`Rows`."""
        starts = range(0, self.values.shape[1], CHUNK_ROWS)
        if len(starts) == 1:
            return summarise(self._chunk(0))
        units = [Unit(str(lo), lo) for lo in starts]
        with LocalExecutor() as executor:
            return map_reduce(units, lambda lo: summarise(self._chunk(lo)), _merge, executor).value

    def targets(self, function: Callable[[np.ndarray], T]) -> list[T]:
        """See :class:`Rows`."""
        return [function(self.target)]


@dataclass(frozen=True, eq=False)
class DaskRows(Rows):
    """Rows of a Dask collection; work runs on whatever scheduler Dask is set to.

    Attributes
    ----------
    features, target, weight : list of Delayed
        One of each per chunk; `weight` may be None.
    missing : {"error", "mean"}
    """

    columns: Columns
    target_names: tuple[str, ...]
    features: list[Any]
    target: list[Any]
    weight: list[Any] | None
    missing: MissingRule

    def reduce(self, summarise: Callable[[Chunk], S]) -> S:
        """See :class:`Rows`."""
        import dask

        work = dask.delayed(partial(_summarise_chunk, summarise, self.columns, self.missing))
        weights = self.weight or [None] * len(self.features)
        parts = [work(*p) for p in zip(self.features, self.target, weights, strict=True)]
        # Delayed values have `merge` too, lazily: the tree becomes part of the graph.
        return merge_tree(parts).compute()

    def targets(self, function: Callable[[np.ndarray], T]) -> list[T]:
        """See :class:`Rows`."""
        import dask

        work = dask.delayed(lambda target: function(np.asarray(target)))
        return list(dask.compute(*(work(part) for part in self.target)))


def _merge(earlier: S, later: S) -> S:
    return earlier.merge(later)


def _summarise_chunk(
    summarise: Callable[[Chunk], S],
    columns: Columns,
    missing: MissingRule,
    features: Any,
    target: Any,
    weight: Any,
) -> S:
    """Summarise one block of a Dask collection, on a worker."""
    target = np.asarray(target)
    weight = None if weight is None else checked_weight(weight, len(features))
    if len(target) != len(features):
        raise DataError(
            f"A chunk of X has {len(features)} rows and its chunk of y {len(target)}: "
            "divide the two alike."
        )
    return summarise(Chunk(block_of(features, columns, missing), target, weight))


@dataclass(frozen=True, eq=False)
class ParquetRows(Rows):
    """Rows of Parquet files, read anew in every pass, partitions side by side.

    Attributes
    ----------
    dataset : ParquetDataset
    plan : ColumnPlan
    missing : {"error", "mean"}
    """

    columns: Columns
    target_names: tuple[str, ...]
    dataset: ParquetDataset
    plan: ColumnPlan
    missing: MissingRule

    def reduce(self, summarise: Callable[[Chunk], S]) -> S:
        """See :class:`Rows`."""
        read = partial(_read_chunk, summarise, self.dataset.reader, self.plan, self.missing)
        units = [Unit(p.fingerprint, p, p.n_bytes) for p in self.dataset.partitions]
        with LocalExecutor() as executor:
            return map_reduce(units, read, _merge, executor).value

    def targets(self, function: Callable[[np.ndarray], T]) -> list[T]:
        """See :class:`Rows`."""
        plan = self.plan.restricted(())
        read = partial(_read_chunk, _of_target(function), self.dataset.reader, plan, self.missing)
        with LocalExecutor() as executor:
            return executor.map(read, self.dataset.partitions)


def _of_target(function: Callable[[np.ndarray], T]) -> Callable[[Chunk], T]:
    return lambda chunk: function(chunk.target)


def _read_chunk(
    summarise: Callable[[Chunk], T],
    reader: PartitionReader,
    plan: ColumnPlan,
    missing: MissingRule,
    partition: Partition,
) -> T:
    block = read_rows(reader, partition, plan, missing=missing)
    target = block.target[0] if len(block.target) == 1 else block.target.T
    return summarise(Chunk(block.features, target, block.weight))


# --- from what was given to rows ---


def frame_rows(
    X: Any,
    y: np.ndarray,
    weight: np.ndarray | None,
    missing: MissingRule,
    names: tuple[str, ...] | None = None,
) -> ArrayRows:
    """Rows of a pandas frame.

    Parameters
    ----------
    X : pandas.DataFrame of n rows
    y : ndarray of shape (n,) or (n, P)
    weight : ndarray of shape (n,) or None
    missing : {"error", "mean"}
    names : tuple of str, optional
        Of the targets.

    Raises
    ------
    DataError
    """
    columns = Columns(column_names(X), united_levels([frame_levels(X, category_names(X))]))
    return ArrayRows(columns, names or target_names(y), columns.encode(X, missing), y, weight)


def target_names(y: Any) -> tuple[str, ...]:
    """Names of targets: those of a frame or series, otherwise ``y`` or ``y0``, ``y1``, …."""
    if hasattr(y, "columns"):
        return tuple(str(label) for label in y.columns)
    if getattr(y, "name", None) is not None and not hasattr(y, "chunks"):
        return (str(y.name),)
    width = y.shape[1] if getattr(y, "ndim", 1) == 2 else 0
    return tuple(f"y{i}" for i in range(width)) if width else ("y",)


def dask_rows(X: Any, y: Any, weight: Any, missing: MissingRule) -> DaskRows:
    """Rows of a Dask array or data frame.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
    y, weight : Dask collection or array in memory
        With the chunks of `X`, or cut up like it.
    missing : {"error", "mean"}

    Raises
    ------
    DataError
    """
    import dask

    if hasattr(X, "columns"):
        features = list(X.to_delayed())
        names = column_names(X)
        categories = category_names(X._meta)
        find = dask.delayed(partial(frame_levels, names=categories))
        found = dask.compute(*(find(f) for f in features)) if categories else [{}]
        columns = Columns(names, united_levels(found))
    else:
        features = row_chunks(X)
        columns = Columns(array_names(X.shape[1]))
    parts = None if weight is None else divide_like(X, features, weight)
    return DaskRows(columns, target_names(y), features, divide_like(X, features, y), parts, missing)


def parquet_rows(
    path: Any, target: str | Sequence[str], weight: str | None, missing: MissingRule
) -> ParquetRows:
    """Rows of Parquet files.

    Parameters
    ----------
    path : path
        Folder, file, glob or URL.
    target : str or sequence of str
        Column names; all other columns are features.
    weight : str or None
        Column name.
    missing : {"error", "mean"}

    Raises
    ------
    DataError
    """
    for value, role in ((target, "y"), (weight, "sample_weight")):
        named = [value] if isinstance(value, str) or value is None else list(value)
        if not all(isinstance(name, str) for name in named if name is not None):
            raise DataError(f"With the path of Parquet files {role} is the name of a column.")
    if target is None:
        raise DataError("With the path of Parquet files y names the target column.")
    dataset = open_dataset(path)
    roles = resolve_roles(dataset.schema, target=target, weight=weight)
    names = categorical_columns(dataset.schema, roles)
    with LocalExecutor() as executor:
        categories = discover_categories(dataset, names, map_fn=executor.map)
    plan = ColumnPlan.from_schema(dataset.schema, roles, categories)
    columns = Columns(roles.features, dict(categories.levels))
    return ParquetRows(columns, roles.target, dataset, plan, missing)


def open_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    missing: MissingRule,
    numeric_target: bool,
) -> Rows:
    """Rows to fit an estimator to; sets its ``n_features_in_`` and ``feature_names_in_``.

    Parameters
    ----------
    estimator : BaseEstimator
    X, y, sample_weight : see :class:`distfms.GroupSequencer`
    missing : {"error", "mean"}
    numeric_target : bool
        Whether the target is made of numbers, one or several; otherwise of one class label a row.

    Raises
    ------
    DataError, SpecError, ValueError
    """
    if missing not in ("error", "mean"):
        raise SpecError(f"missing is {missing!r}; choose 'error' or 'mean'.")
    kind = kind_of(X)
    if kind in ("array", "frame"):
        return _memory_rows(estimator, X, y, sample_weight, missing, numeric_target)
    if kind == "parquet":
        rows: Rows = parquet_rows(X, y, sample_weight, missing)
    else:
        rows = dask_rows(X, y, sample_weight, missing)
    estimator.n_features_in_ = len(rows.columns.names)
    if kind != "dask-array":
        estimator.feature_names_in_ = np.array(rows.columns.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return rows


def _memory_rows(
    estimator: Any, X: Any, y: Any, weight: Any, missing: MissingRule, numeric_target: bool
) -> ArrayRows:
    from sklearn.utils import check_X_y
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import validate_data

    names = target_names(y)
    finite = "allow-nan" if missing == "mean" else True
    rules: dict[str, Any] = {
        "multi_output": numeric_target,
        "y_numeric": numeric_target,
        "ensure_min_samples": 2,
    }
    frame = kind_of(X) == "frame"
    if frame:
        validate_data(estimator, X, y, skip_check_array=True)
        # Only the target needs scikit-learn's checks; the frame has its own.
        _, target = check_X_y(np.zeros((len(X), 1)), y, estimator=estimator, **rules)
    else:
        rules |= {"dtype": np.float64, "ensure_all_finite": finite}
        X, target = validate_data(estimator, X, y, **rules)
    if not numeric_target:
        check_classification_targets(target)
    weight = None if weight is None else checked_weight(weight, len(X))
    if frame:
        return frame_rows(X, target, weight, missing, names)
    columns = Columns(tuple(getattr(estimator, "feature_names_in_", ())) or array_names(X.shape[1]))
    return ArrayRows(columns, names, np.ascontiguousarray(X.T), target, weight)


def array_names(n_columns: int) -> tuple[str, ...]:
    """Names of columns that have none: ``x0``, ``x1``, …."""
    return tuple(f"x{i}" for i in range(n_columns))
