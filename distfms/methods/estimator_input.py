"""What estimators are given: telling the sorts of input apart, and applying a model to them."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from distfms.data.batches import ColumnPlan, read_rows
from distfms.data.dataset import Partition, PartitionReader, open_dataset
from distfms.data.roles import resolve_roles
from distfms.engine.executors import LocalExecutor
from distfms.errors import DataError
from distfms.methods.estimator_columns import Columns, MissingRule

T = TypeVar("T")
Kind = Literal["array", "frame", "dask-array", "dask-frame", "parquet"]


def kind_of(X: Any) -> Kind:
    """Tell what sort of input an estimator was given.

    Parameters
    ----------
    X : object
        A path is a str or ``os.PathLike``; whatever is unknown counts as an array.
    """
    if isinstance(X, str | os.PathLike):
        return "parquet"
    if "dask" in sys.modules and sys.modules["dask"].is_dask_collection(X):
        return "dask-frame" if hasattr(X, "columns") else "dask-array"
    pandas = sys.modules.get("pandas")
    return "frame" if pandas is not None and isinstance(X, pandas.DataFrame) else "array"


def in_memory(values: Any) -> Any:
    """Compute a Dask collection; anything else becomes an array (None stays None)."""
    if values is None:
        return None
    computed = values.compute() if kind_of(values).startswith("dask") else values
    return np.asarray(computed)


def row_chunks(array: Any) -> list[Any]:
    """Delayed blocks of whole rows of a Dask array."""
    whole = array if array.ndim == 1 else array.rechunk({1: -1})
    return list(whole.to_delayed().ravel())


def divide_like(X: Any, features: list[Any], values: Any) -> list[Any]:
    """Divide a target or weights like the chunks of the features.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
    features : list of Delayed
        Its chunks.
    values : Dask collection or array-like
        An array in memory takes a pass over `X` where the sizes of its chunks are unknown.

    Returns
    -------
    list of Delayed

    Raises
    ------
    DataError
        If they do not fit.
    """
    import dask

    if dask.is_dask_collection(values):
        known = hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any()
        if hasattr(values, "rechunk") and known:
            values = values.rechunk({0: X.chunks[0]})
        delayed = row_chunks(values) if hasattr(values, "chunks") else list(values.to_delayed())
        if len(delayed) != len(features):
            raise DataError(
                f"X comes in {len(features)} chunks and y (or the weights) in {len(delayed)}: "
                "divide them alike."
            )
        return delayed
    lengths = dask.compute(*(dask.delayed(len)(part) for part in features))
    if sum(lengths) != len(values):
        raise DataError(f"X has {sum(lengths)} rows and y (or the weights) {len(values)}.")
    bounds = np.cumsum([0, *lengths])
    array = np.asarray(values)
    return [dask.delayed(array[lo:hi]) for lo, hi in itertools.pairwise(bounds)]


def map_parquet(
    path: Any,
    columns: Columns,
    function: Callable[[np.ndarray], np.ndarray],
    missing: MissingRule,
) -> np.ndarray:
    """Apply a function to blocks (d, n) of Parquet files and join the results in order.

    Parameters
    ----------
    path : path
    columns : Columns
        Only these are read.
    function : callable
        From a block to an array of n rows; the block is valid during the call only.
    missing : {"error", "mean"}
    """
    dataset = open_dataset(path)
    roles = resolve_roles(dataset.schema, target=None, features=columns.names)
    plan = ColumnPlan.from_schema(dataset.schema, roles, columns.levels, unknown="zero")
    read = partial(_of_partition, function, dataset.reader, plan, missing)
    with LocalExecutor() as executor:
        return np.concatenate(executor.map(read, dataset.partitions))


def _of_partition(
    function: Callable[[np.ndarray], T],
    reader: PartitionReader,
    plan: ColumnPlan,
    missing: MissingRule,
    partition: Partition,
) -> T:
    block = read_rows(reader, partition, plan, missing=missing).features
    for column in plan.columns:
        if column.levels is not None:  # an unknown category says nothing: it counts as the mean
            rows = block[column.start : column.stop]
            rows[:, ~rows.any(axis=0)] = np.nan
    return function(block)


def read_columns(path: Any, names: str | Sequence[str]) -> np.ndarray:
    """Read columns of numbers of Parquet files into memory.

    Parameters
    ----------
    path : path
    names : str or sequence of str

    Returns
    -------
    ndarray of shape (n,), or (n, P) for several columns
    """
    dataset = open_dataset(path)
    roles = resolve_roles(dataset.schema, target=None, features=names)
    plan = ColumnPlan.from_schema(dataset.schema, roles)
    blocks = [read_rows(dataset, p, plan).values.T.copy() for p in dataset.partitions]
    values = np.concatenate(blocks)
    return values[:, 0] if values.shape[1] == 1 else values


def map_dask(X: Any, function: Callable[[Any], np.ndarray], tail: tuple[int, ...]) -> Any:
    """Apply a function to the chunks of a Dask collection, lazily.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
    function : callable
        From a chunk in memory to a float64 array of as many rows.
    tail : tuple of int
        Shape of a row of the result.

    Returns
    -------
    dask.array.Array
        Its number of rows is unknown where `X` does not know its own.
    """
    import dask
    import dask.array as da

    frame = hasattr(X, "columns")
    features = list(X.to_delayed()) if frame else row_chunks(X)
    lengths = [np.nan] * len(features) if frame else X.chunks[0]
    work = dask.delayed(function)
    parts = [
        da.from_delayed(work(part), shape=(n, *tail), dtype=np.float64)
        for part, n in zip(features, lengths, strict=True)
    ]
    return da.concatenate(parts)
