"""Datasets of rows in memory and of Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.dataset import MAX_ROWS, default_bytes
from distfms.data.partition import NAME, Dataset, HeldPartition, Rows, RowsReader
from distfms.data.roles import index_metadata
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


def frame_rows(
    frame: Any,
    types: Mapping[str, pa.DataType] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Rows:
    """Return the rows of a frame, and of columns `beside` it; see :func:`as_table`.

    Those of a pandas frame of float64 are not copied, and cost nothing a column.
    """
    import pyarrow as pa

    beside = beside or {}
    if hasattr(frame, "iloc") and frame.shape[1] and (frame.dtypes == np.float64).all():
        position = {str(name): i for i, name in enumerate(frame.columns)}
        if len(position) == frame.shape[1]:
            return Rows(pa.table(dict(beside)), frame.to_numpy(), position)
    table = as_table(frame, types)
    for name, column in beside.items():
        table = table.append_column(name, column)
    return Rows(table)


def as_table(rows: Any, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Return a frame, a table, or a mapping of names to columns as a pyarrow table.

    `types` are of columns whose values do not tell, as they are all missing.
    """
    import pyarrow as pa
    import pyarrow.types as pat

    try:
        if hasattr(rows, "iloc"):
            table = pa.Table.from_pandas(rows, preserve_index=False)
        else:
            table = pa.table(rows)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"{NAME} cannot be read as columns with names ({error}). Give a table, a frame, or a "
            "mapping of the names of columns to their values."
        ) from error
    for position, column in enumerate(table.schema):
        known = (types or {}).get(column.name, column.type)
        if pat.is_null(known):
            known = pa.float64()
        elif pat.is_list(known) and pat.is_null(known.value_type):
            known = pa.list_(pa.float64())
        if known != column.type:
            cast = table.column(position).cast(known)
            table = table.set_column(position, column.name, cast)
    return table.replace_schema_metadata(index_metadata(table.schema))


def memory_dataset(rows: Rows, schema: pa.Schema) -> Dataset:
    """Divide rows in memory into partitions of the size that those of files have.

    Nothing is copied. A DataError says that there are no rows.
    """
    n_rows, n_columns = len(rows), len(schema)
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
