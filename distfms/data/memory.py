"""Datasets of rows in memory and of Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.dataset import MAX_ROWS, default_bytes
from distfms.data.partition import NAME, Dataset, HeldPartition, Rows, RowsReader
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of their file, as it were: folds are the same as those of a file of this name.
FILE = f"memory/{NAME}"


def held(rows: Any, n_rows: int, n_columns: int, index: int = 0, first: int = 0) -> HeldPartition:
    """Return rows, or a ``Delayed`` of them, as a partition whose first row has a number."""
    n_bytes = 8 * n_rows * n_columns
    return HeldPartition(
        index=index,
        path=NAME,
        name=FILE,
        row_groups=(0,),
        n_rows=n_rows,
        n_bytes=n_bytes,
        row_offset=first,
        file_row_offset=first,
        fingerprint=f"{NAME}:{first}:{n_rows}",
        file_version="",
        held_bytes=n_bytes,
        rows=rows,
    )


def memory_dataset(rows: Rows, schema: pa.Schema) -> Dataset:
    """Divide rows in memory into partitions of the size that those of files have.

    Nothing is copied. A DataError says that there are no rows.
    """
    n_rows, n_columns = rows.table.num_rows, len(schema)
    if rows.numbers is not None:
        n_rows = len(rows.numbers)
    if not n_rows:
        raise DataError("X has 0 rows, n_samples = 0: a minimum of 1 is required.")
    step = max(1, min(MAX_ROWS, default_bytes(n_columns) // (8 * n_columns)))
    starts = range(0, n_rows, step)
    partitions = []
    for index, start in enumerate(starts):
        numbers = None if rows.numbers is None else rows.numbers[start : start + step]
        own = replace(rows, table=rows.table.slice(start, step), numbers=numbers)
        partitions.append(held(own, min(step, n_rows - start), n_columns, index, start))
    return Dataset(schema, tuple(partitions), RowsReader())


def dask_dataset(
    parts: Sequence[Any], lengths: Sequence[float], as_rows: Callable[..., Rows], schema: pa.Schema
) -> Dataset:
    """Make a dataset of the chunks of Dask collections, which stay where they are.

    Parameters
    ----------
    parts : sequence of tuple
        For each chunk what `as_rows` is called with, ``Delayed`` or not.
    lengths : sequence of float
        Rows of the chunks; where one is NaN, all are counted in a pass over the data.
    as_rows : callable
        Picklable.
    schema : pyarrow.Schema
        Of the rows.
    """
    import dask

    if np.isnan(lengths).any():
        lengths = dask.compute(*(dask.delayed(len)(part[0]) for part in parts))
    work, first = dask.delayed(as_rows, pure=False), 0
    partitions: list[HeldPartition] = []
    for part, length in zip(parts, lengths, strict=True):
        n_rows = int(length)
        if n_rows:
            index = len(partitions)
            partitions.append(held(work(*part), n_rows, len(schema), index, first))
        first += n_rows
    if not partitions:
        raise DataError("X has 0 rows, n_samples = 0: a minimum of 1 is required.")
    return Dataset(schema, tuple(partitions), RowsReader())
