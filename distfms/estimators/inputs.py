"""What estimators are given, as jobs read it: arrays, frames, Dask collections, Parquet files."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from distfms.data.files.dataset import open_dataset
from distfms.data.files.frames import AS_THEY_ARE, FrameForms
from distfms.data.files.partition import (
    MAX_ROWS,
    Dataset,
    Rows,
    RowsReader,
    as_table,
    collected,
    dask_dataset,
    frame_rows,
    held,
    memory_dataset,
)
from distfms.data.rows.columns import as_arrow, in_numpy
from distfms.errors import DataError, nearest

Kind = Literal["array", "frame", "dask-array", "dask-frame", "parquet"]


def kind_of(X: Any) -> Kind:
    """Return what sort of input `X` is; whatever is unknown counts as an array."""
    if isinstance(X, str | os.PathLike):
        return "parquet"
    if "dask" in sys.modules and sys.modules["dask"].is_dask_collection(X):
        return "dask-frame" if hasattr(X, "columns") else "dask-array"
    tabular = type(X) is dict or (hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"))
    return "frame" if tabular else "array"


@dataclass(frozen=True)
class AsRows:
    """Picklable function from rows, and values beside them, to rows as partitions hold them.

    Attributes
    ----------
    names : tuple of str or None
        Columns of an array; None for frames.
    types : mapping of str to pyarrow.DataType
        Of columns of frames; a chunk without a value does not know its own.
    beside : tuple of tuple of str
        Columns that each value beside the rows becomes.
    forms : FrameForms
        How columns of frames are read.
    """

    names: tuple[str, ...] | None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    beside: tuple[tuple[str, ...], ...] = ()
    forms: FrameForms = AS_THEY_ARE

    @cached_property
    def position(self) -> dict[str, int]:
        """Columns of an array by name."""
        return {name: i for i, name in enumerate(self.names or ())}

    def __call__(self, rows: Any, *values: Any) -> Rows:
        """Return rows; numbers of an array, or of a frame of nothing else, are not copied."""
        columns: dict[str, Any] = {}
        for names, value in zip(self.beside, values, strict=True):
            columns |= dict(zip(names, _columns(value, len(names)), strict=True))
        for name, column in columns.items():
            if len(column) != len(rows):
                raise DataError(
                    f"X (or a chunk of it) has {len(rows)} rows, and {name} has {len(column)}: "
                    "give a value for each row, and chunk Dask collections alike."
                )
        if self.names is not None:
            numbers = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(self.names))
            return Rows(pa.table(columns), numbers, self.position)
        return frame_rows(rows, self.types, columns, self.forms)


def _columns(value: Any, n_columns: int) -> list[pa.Array]:
    """Return what stands beside rows as columns."""
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return [value]
    values = np.asarray(value)
    try:
        return [as_arrow(v) for v in values.reshape(-1, n_columns).T]
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"y cannot be read as a column: {error}") from error


@dataclass(frozen=True, eq=False)
class Given:
    """Rows that an estimator was given.

    Attributes
    ----------
    kind : str
    schema : pyarrow.Schema
    as_rows : AsRows
    parts : sequence of tuple
        What `as_rows` is called with for each chunk of a Dask collection.
    lengths : sequence of float
        Rows of the chunks, NaN where they are unknown.
    path : str or None
        Of files.
    named : bool
        Whether the columns have names of their own.
    """

    kind: Kind
    schema: pa.Schema
    as_rows: AsRows = AsRows(())
    parts: Sequence[tuple[Any, ...]] = ()
    lengths: Sequence[float] = ()
    path: str | None = None
    named: bool = True
    _rows: Rows | None = None

    @property
    def lazy(self) -> bool:
        """Whether the rows are those of a Dask collection."""
        return self.kind.startswith("dask")

    @cached_property
    def dataset(self) -> Dataset:
        """The rows as a dataset; of a lazy collection with unknown chunks, counted by a pass."""
        return self.within(MAX_ROWS)

    def within(self, max_rows: int) -> Dataset:
        """Return the rows in partitions of at most so many, except those of a Dask collection."""
        if self.path is not None:
            return open_dataset(self.path, max_rows=max_rows)
        if self._rows is not None:
            return memory_dataset(self._rows, self.schema, max_rows)
        return dask_dataset(self.parts, self.lengths, self.as_rows, self.schema)

    @property
    def head(self) -> Dataset:
        """The columns, without rows where these are lazy."""
        return Dataset(self.schema, (), RowsReader()) if self.lazy else self.dataset

    def stack(
        self, function: Callable[[Any], np.ndarray], tail: tuple[int, ...] = (), dtype: Any = float
    ) -> Any:
        """Apply a picklable function to all partitions, lazily where they are; join the arrays."""
        if not self.lazy:
            arrays = [function(partition) for partition in self.dataset.partitions]
            return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        import dask
        import dask.array as da

        nothing = np.empty((0, *tail), dtype=dtype)
        work = dask.delayed(_apply, pure=False, traverse=False)
        chunks = [
            da.from_delayed(
                work(function, self.as_rows, nothing, *part), shape=(length, *tail), dtype=dtype
            )
            for part, length in zip(self.parts, self.lengths, strict=True)
        ]
        return da.concatenate(chunks)


def _apply(function: Any, as_rows: AsRows, nothing: np.ndarray, *part: Any) -> np.ndarray:
    n_rows = len(part[0])
    if not n_rows:
        return nothing
    rows = held(as_rows(*part), n_rows, 1)
    result: np.ndarray = function(rows)
    return result


def of_memory(
    X: Any,
    names: Sequence[str] | None,
    beside: Mapping[Any, Any],
    types: Mapping[str, pa.DataType] | None = None,
    forms: FrameForms = AS_THEY_ARE,
) -> Given:
    """Take rows in memory, and values beside them by the names of their columns."""
    named = are_named(X)
    if names is None and not hasattr(X, "iloc"):
        X = as_table(X)
    of_array = None if names is None else tuple(names)
    as_rows = AsRows(of_array, types or {}, tuple(beside), forms)
    rows = as_rows(X, *beside.values())
    kind: Kind = "frame" if names is None else "array"
    schema = rows.schema
    return Given(kind, schema, as_rows, named=named, _rows=rows)


def of_dask(
    X: Any,
    names: Sequence[str] | None,
    beside: Mapping[Any, Any],
    empty: pa.DataType,
    forms: FrameForms = AS_THEY_ARE,
) -> Given:
    """Take a Dask collection; columns whose type it does not know are `empty`."""
    types: Mapping[str, pa.DataType] = {}
    if names is None:
        fields = pa.Schema.from_pandas(X._meta, preserve_index=False)
        types = {f.name: empty if pat.is_null(f.type) else f.type for f in fields}
        parts = list(X.to_delayed())
        lengths = [np.nan] * X.npartitions
        head = X._meta
    else:
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
        parts = list(X.to_delayed().ravel())
        lengths = X.chunks[0]
        head = np.empty((0, *X.shape[1:]))
    of_array = None if names is None else tuple(names)
    as_rows = AsRows(of_array, types, tuple(beside), forms)
    empties = [np.empty((0, *v.shape[1:]), dtype=v.dtype) for v in beside.values()]
    schema = as_rows(head, *empties).schema
    columns = [parts, *(_divided(X, parts, value) for value in beside.values())]
    return Given(
        "dask-frame" if names is None else "dask-array",
        schema,
        as_rows,
        list(zip(*columns, strict=True)),
        lengths,
        named=are_named(X),
    )


def _divided(X: Any, parts: Sequence[Any], values: Any) -> list[Any]:
    """Divide values like the chunks of a Dask collection.

    Where these do not know their sizes, values in memory take a pass over them.
    """
    import dask

    lengths = None
    if hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any():
        lengths = X.chunks[0]
    if dask.is_dask_collection(values):
        if lengths and hasattr(values, "rechunk") and sum(lengths) == values.shape[0]:
            whole = dict.fromkeys(range(1, values.ndim), -1)
            values = values.rechunk({0: lengths, **whole})
        divided = list(np.ravel(values.to_delayed()))
        if len(divided) != len(parts):
            raise DataError(
                f"X has {len(parts)} chunks, but y (or the weights) {len(divided)}: chunk them "
                "alike."
            )
        return divided
    if lengths is None:
        lengths = dask.compute(*map(dask.delayed(len), parts))
    values = np.asarray(values)
    if sum(lengths) != len(values):
        raise DataError(
            f"X has {sum(lengths)} rows, but y (or the weights) {len(values)}: give one for each."
        )
    bounds = np.cumsum([0, *lengths])
    return [dask.delayed(values[start:stop]) for start, stop in itertools.pairwise(bounds)]


def of_files(path: Any) -> Given:
    """Take Parquet files."""
    dataset = open_dataset(path, without_rows="nothing can be learned or predicted")
    return Given("parquet", dataset.schema, path=os.fspath(path))


def array_names(shape: Sequence[int], seen: Sequence[str] | None = None) -> list[str]:
    """Return names of columns: `seen` or ``x0``, …; of three dimensions ``x0__1``, …."""
    names = [f"x{i}" for i in range(shape[1])] if seen is None else list(seen)
    if len(shape) == 3:
        names = [f"{name}__{k + 1}" for name in names for k in range(shape[2])]
    return names


def free_name(name: str, taken: Any) -> str:
    """Return a name, made longer until no column has it."""
    return free_name(f"{name}_", taken) if name in taken else name


def named_columns(X: Any, values: Any) -> list[str]:
    """Return columns of X that y or weights name; none where these are the values themselves."""
    is_one = isinstance(values, str)
    listed = [values] if is_one else values
    if not isinstance(listed, list | tuple):
        return []
    if not all(isinstance(name, str) for name in listed):
        return []
    if kind_of(X).endswith("array") and not is_one:
        return []
    columns = column_names(X)
    unknown = set(listed).difference(columns)
    is_unique = len(set(listed)) == len(listed)
    if not is_one and (unknown or not is_unique):
        return []
    for name in unknown:
        raise DataError(f"X has no column {name!r}.{nearest(name, columns)}")
    return list(listed)


def column_names(X: Any) -> list[str]:
    """Return the names of the columns of a frame, a mapping or Parquet files."""
    if kind_of(X) == "parquet":
        return list(open_dataset(X).schema.names)
    if "frame" not in kind_of(X):
        raise DataError(
            "y, sample_weight or groups names a column, but X has no named columns: give a frame."
        )
    columns = getattr(X, "column_names", None) or getattr(X, "columns", X)
    # An index of pandas takes a call for each name that it is asked for.
    names = [str(name) for name in (np.asarray(columns) if hasattr(columns, "dtype") else columns)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"X has two columns named {twice!r}: rename one.")
    return names


def are_named(X: Any) -> bool:
    """Return whether columns have names of their own; positions are none."""
    return not kind_of(X).endswith("array") and all(
        isinstance(label, str) for label in (X.columns if hasattr(X, "iloc") else column_names(X))
    )


def renamed(X: Any, names: Sequence[str]) -> Any:
    """Return a frame whose columns, in their order, have other names."""
    if hasattr(X, "iloc"):
        return X.rename(columns=dict(zip(X.columns, names, strict=True)))
    return as_table(X).rename_columns(list(names))


def picked(X: Any, mask: np.ndarray) -> Any:
    """Return some columns of a frame, as a frame of the same kind."""
    if hasattr(X, "iloc"):
        return X[X.columns[mask]]
    labels = [label for label, chosen in zip(column_names(X), mask, strict=True) if chosen]
    return {label: X[label] for label in labels} if type(X) is dict else X.select(labels)


def taken(X: Any, rows: np.ndarray) -> Any:
    """Return rows of a frame or an array."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return as_table(X).take(rows) if kind_of(X) == "frame" else np.asarray(X)[rows]


def without(X: Any, names: Sequence[str]) -> Any:
    """Return a frame without some columns, as far as it has them."""
    present = [name for name in column_names(X) if name in names]
    if not present:
        return X
    if hasattr(X, "iloc"):
        return X.drop(columns=present)
    return as_table(X).drop_columns(present)


def weights_of(values: Any, X: Any) -> Any:
    """Return weights in memory; one number, as in scikit-learn, is that of all rows."""
    weights = np.asarray(values)
    if not weights.any():
        raise DataError("The sample weights are zero for all rows: there is nothing to learn.")
    if weights.ndim:
        return values
    if kind_of(X).startswith("dask"):
        raise DataError("sample_weight is one number: give a weight for each row of a collection.")
    return np.full(len(X), float(weights))


def in_memory(X: Any, values: Any) -> Any:
    """Return values for the rows of X, or its columns of such names; None stays None."""
    if values is None:
        return None
    X = collected(X)
    if names := named_columns(X, values):
        X = X.compute() if kind_of(X) == "dask-frame" else X
        dataset = (of_files(X) if kind_of(X) == "parquet" else of_memory(X, None, {})).dataset
        tables = [dataset.reader.read(part, names) for part in dataset.partitions]
        arrays = [column.to_numpy() for column in pa.concat_tables(tables).columns]
        return arrays[0] if isinstance(values, str) else np.stack(arrays, axis=1)
    return np.asarray(values.compute() if kind_of(values).startswith("dask") else values)


def predictions_of(predict: Any, prefix: str, dtype: Any, partition: Any) -> np.ndarray:
    """Return the columns of a partition's predictions with a prefix, shape (n,) or (n, P)."""
    table = predict(partition)
    names = [name for name in table.column_names if name.startswith(prefix)]
    columns = [in_numpy(table.column(name)) for name in names]
    values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    return values.astype(dtype, copy=False)
