"""The input of all estimators: rows in memory, of a Dask collection or of Parquet files.

Whatever is given becomes a :class:`Source`: pieces of rows as Arrow tables, which the functions
that read a partition of a job's files read in the same way.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from sklearn.utils import Tags, check_X_y, get_tags
from sklearn.utils.validation import validate_data

from distfms.data.batches import ColumnPlan
from distfms.data.categories import Categories, scan_categories
from distfms.data.dataset import MAX_ROWS, default_bytes, open_dataset
from distfms.data.memory import held
from distfms.data.partition import Partition, Rows, RowsReader
from distfms.data.roles import require_columns
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.engine.mapreduce import map_reduce
from distfms.errors import DataError, nearest
from distfms.methods.passes import keeps_rows
from distfms.stats.base import Statistic, merge_tree

T = TypeVar("T")
S = TypeVar("S", bound=Statistic)
Types = Mapping[str, pa.DataType]
Kind = Literal["array", "frame", "dask-array", "dask-frame", "parquet"]

#: A chunk of a Dask collection has fewer rows.
_MOST_CHUNK_ROWS = 2**32

#: What is called with a piece: a :class:`RowsReader` or ``PartitionReader``, and a partition.
PieceFunction = Callable[[Any, Partition], T]


def kind_of(X: Any) -> Kind:
    """Return what sort of input `X` is; whatever is unknown counts as an array."""
    if isinstance(X, str | os.PathLike):
        return "parquet"
    if "dask" in sys.modules and sys.modules["dask"].is_dask_collection(X):
        return "dask-frame" if hasattr(X, "columns") else "dask-array"
    return "frame" if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns") else "array"


def as_frame(X: Any) -> Any:
    """Return a frame in memory as one of pandas, a Dask frame as it is."""
    import pandas as pd

    if kind_of(X) == "frame" and not isinstance(X, pd.DataFrame):
        X = pa.table(X).to_pandas(types_mapper=pd.ArrowDtype)
    return X


def in_memory(X: Any, values: Any) -> np.ndarray | None:
    """Values for the rows of X, or its columns of such names, as an array; None stays None."""
    if values is None:
        return None
    if kind_of(X) == "parquet" and not hasattr(values, "shape"):
        dataset = open_dataset(X)
        names = [values] if isinstance(values, str) else list(values)
        tables = [dataset.reader.read(partition, names) for partition in dataset.partitions]
        columns = pa.concat_tables(tables).columns
        arrays = [column.to_numpy() for column in columns]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
    if "frame" in kind_of(X):
        X = as_frame(X)
        values = X[values] if _column_names(X, values) else values
    return np.asarray(values.compute() if kind_of(values).startswith("dask") else values)


@dataclass(frozen=True, eq=False)
class Source:
    """Rows, wherever they are.

    Attributes
    ----------
    kind : str
    schema : pyarrow.Schema
        Of every piece.
    pieces : sequence of (reader, Partition)
        Or, for Dask collections, of Delayed that become such pairs.
    target : tuple of str
        Columns of the pieces that hold the target; empty where none was given.
    weight : str or None
        Column of the sample weights.
    named : bool
        Whether the columns have names of their own.
    lengths : sequence of float
        Rows of the pieces of a Dask collection, NaN where they are unknown.
    classes : ndarray or None
        Classes of the target, ascending, where it holds classes.
    taken : tuple of str
        Columns of X that hold target and weights.
    """

    kind: Kind
    schema: pa.Schema
    pieces: Sequence[Any]
    target: tuple[str, ...] = ()
    weight: str | None = None
    named: bool = True
    lengths: Sequence[float] = ()
    classes: Any = None
    taken: tuple[str, ...] = ()

    @property
    def codes(self) -> np.ndarray | None:
        """What stands for the classes in the column of the target: in memory, their numbers."""
        if self.classes is None or self.kind == "parquet":
            return self.classes
        return np.arange(len(self.classes))

    @property
    def lazy(self) -> bool:
        """Whether the rows are those of a Dask collection."""
        return self.kind.startswith("dask")

    def map(self, function: PieceFunction[T]) -> list[T]:
        """Apply a picklable function to every piece that has rows; results in order."""
        work = partial(_apply, function)
        if self.lazy:
            import dask

            found = list(dask.compute(*map(dask.delayed(work), self.pieces)))
        else:
            found = _each(work, self.pieces)
        return [value for value in found if value is not None]

    def reduce(self, function: PieceFunction[S]) -> S:
        """Summarise every piece and merge along the tree of a job, in one pass over the rows."""
        work = partial(_apply, function)
        if self.lazy:
            import dask

            # Delayed values have `merge` too, lazily: the tree becomes part of the graph.
            parts = map(dask.delayed(lambda piece: _Part(work(piece))), self.pieces)
            return merge_tree(list(parts)).compute().value
        if len(self.pieces) == 1:
            return work(self.pieces[0])
        units = [Unit(str(i), piece, piece[1].n_bytes) for i, piece in enumerate(self.pieces)]
        with LocalExecutor() as executor:
            return map_reduce(units, work, _merge, executor).value

    def stack(self, function: PieceFunction[np.ndarray], tail: tuple[int, ...] = ()) -> Any:
        """Join the arrays, lazy for Dask collections, of all pieces; a row's shape is `tail`."""
        if not self.lazy:
            return np.concatenate([np.empty((0, *tail)), *self.map(function)])
        import dask
        import dask.array as da

        work = dask.delayed(partial(_apply, function, empty=np.empty((0, *tail))))
        parts = [
            da.from_delayed(work(piece), shape=(length, *tail), dtype=np.float64)
            for piece, length in zip(self.pieces, self.lengths, strict=True)
        ]
        return da.concatenate(parts)

    def passes(
        self, read: PieceFunction[T], summarise: Callable[[T, Any], S], row_values: int
    ) -> Callable[[Any], S]:
        """Return a function that summarises all rows at a message, in a pass over them.

        What `read` makes of a piece stays in memory between passes if it fits.
        """
        if self.lazy or not keeps_rows(8 * row_values * sum(p.n_rows for _, p in self.pieces)):
            return lambda message: self.reduce(lambda *piece: summarise(read(*piece), message))
        kept = self.map(read)
        return lambda message: merge_tree(_each(lambda rows: summarise(rows, message), kept))

    def levels(self, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Find levels of categorical columns by a pass; refuse a column without any."""
        if not columns:
            return {}
        found = reduce(Categories.merge, self.map(partial(_levels, tuple(columns)))).levels
        for name, levels in found.items():
            if not levels:
                raise DataError(f"All values of column {name!r} are missing: leave it out.")
        return dict(found)


@dataclass(frozen=True)
class _Part:
    """A statistic of a chunk of a Dask collection, None for a chunk without rows."""

    value: Any

    def merge(self, other: _Part) -> _Part:
        if self.value is None or other.value is None:
            return other if self.value is None else self
        return _Part(self.value.merge(other.value))


def _each(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Apply a function to every item, side by side."""
    if len(items) == 1:
        return [function(items[0])]
    with LocalExecutor() as executor:
        return executor.map(function, items)


def _apply(function: PieceFunction[Any], piece: tuple[Any, Partition], empty: Any = None) -> Any:
    reader, partition = piece
    return function(reader, partition) if partition.n_rows else empty


def _merge(earlier: S, later: S) -> S:
    return earlier.merge(later)


def _levels(columns: tuple[str, ...], reader: Any, partition: Partition) -> Categories:
    return scan_categories(partition, reader, columns)


# --- from what was given to a source ------------------------------------------------------------


def open_source(
    estimator: Any,
    X: Any,
    y: Any = None,
    weight: Any = None,
    *,
    reset: bool = False,
    like: ColumnPlan | None = None,
    ignored: Sequence[str] = (),
) -> Source:
    """Open whatever an estimator is given.

    The estimator's tags say what it takes: classes or numbers as target, and several of these;
    gaps; several judgments in a cell. `like` plans the rows that it was fitted to; `ignored`
    columns of frames are passed over.
    """
    if reset and y is None:
        raise DataError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None: give values, or the name of their column."
        )
    kind, tags = kind_of(X), get_tags(estimator)
    known = () if like is None else like.columns
    types = {column.name: pa.string() if column.levels else pa.float64() for column in known}
    if kind == "parquet":
        return _parquet(X, y, weight, tags)
    taken = [name for name in (y, weight) if isinstance(name, str)]
    if "frame" in kind:
        X = as_frame(X)
        taken = [name for value in (y, weight) for name in _column_names(X, value)]
        y, weight = (X[v] if _column_names(X, v) else v for v in (y, weight))
        X = X.drop(columns=[name for name in {*taken, *ignored} if name in set(X.columns)])
    elif taken:
        raise DataError("y or sample_weight names a column, but X has no named columns.")
    if kind.startswith("dask"):
        source = _dask(X, y, weight, tags, types)
    else:
        source = _memory(estimator, X, y, weight, types, reset)
    return replace(source, taken=tuple(taken))


def _parquet(path: Any, y: Any, weight: Any, tags: Tags) -> Source:
    names = () if y is None else (y,) if isinstance(y, str) else tuple(y)
    if not all(isinstance(n, str) for n in (*names, *(() if weight is None else [weight]))):
        raise DataError("With the path of Parquet files y and sample_weight name columns of them.")
    dataset = open_dataset(path)
    pieces = [(dataset.reader, partition) for partition in dataset.partitions]
    taken = names if weight is None else (*names, weight)
    source = Source("parquet", dataset.schema, pieces, names, weight, taken=taken)
    if y is None or tags.estimator_type != "classifier":
        return source
    require_columns(dataset.schema, names, "target")
    return replace(source, classes=np.unique(np.concatenate(source.map(partial(_unique, names)))))


def _unique(columns: Sequence[str], reader: Any, partition: Partition) -> np.ndarray:
    return np.unique(reader.read(partition, columns).column(0).to_numpy())


def _column_names(X: Any, values: Any) -> list[str]:
    """Columns of a frame that y or weights name; none where these are the values themselves."""
    known = set(map(str, X.columns))
    if isinstance(values, list) and values and all(isinstance(v, str) for v in values):
        return values if known.issuperset(values) else []
    if not isinstance(values, str):
        return []
    if values not in known:
        raise DataError(f"X has no column {values!r}.{nearest(values, list(known))}")
    return [values]


def _memory(estimator: Any, X: Any, y: Any, weight: Any, types: Types, reset: bool) -> Source:
    kind, named, classes, tags = kind_of(X), False, None, get_tags(estimator)
    if kind == "frame":
        named = all(isinstance(label, str) for label in X.columns)
    else:
        checks = {
            "dtype": np.float64,
            "allow_nd": tags.input_tags.three_d_array,
            "ensure_all_finite": "allow-nan" if tags.input_tags.allow_nan else True,
        }
        X = validate_data(estimator, X, reset=reset, **checks)
    columns = _Columns.of(X, y, weight, types)
    if y is not None:
        is_class = tags.estimator_type == "classifier"
        checks = {"multi_output": tags.target_tags.multi_output, "y_numeric": not is_class}
        _, y = check_X_y(np.zeros((len(X), 1)), y, estimator=estimator, **checks)
        if is_class:
            classes, y = np.unique(y, return_inverse=True)
    table = columns.table(X, y, weight)
    most = default_bytes(table.num_columns) * table.num_rows // max(table.nbytes, 1)
    step = max(1, min(MAX_ROWS, most))
    starts = range(0, table.num_rows, step)
    pieces = [_piece(table.slice(start, step), start) for start in starts]
    return Source(kind, table.schema, pieces, columns.target, columns.weight, named, (), classes)


def _dask(X: Any, y: Any, weight: Any, tags: Tags, types: Types) -> Source:
    import dask

    kind, named, classes = kind_of(X), False, None
    if kind == "dask-frame":
        named = all(isinstance(label, str) for label in X.columns)
        empty = pa.list_(pa.float64()) if tags.input_tags.three_d_array else pa.string()
        fields = pa.Schema.from_pandas(X._meta, preserve_index=False)
        types = {**{f.name: empty for f in fields if pat.is_null(f.type)}, **types}
        parts, lengths, head = list(X.to_delayed()), [np.nan] * X.npartitions, X._meta
    else:
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
        parts, lengths = list(X.to_delayed().ravel()), X.chunks[0]
        head = np.empty((0, *X.shape[1:]))
    columns = _Columns.of(X, y, weight, types)
    y, weight = (None if v is None else _divided(X, parts, v) for v in (y, weight))
    if y is not None and tags.estimator_type == "classifier":
        classes = np.unique(np.concatenate(dask.compute(*map(dask.delayed(np.unique), y))))
        y = [dask.delayed(np.searchsorted)(classes, part) for part in y]
    schema = columns.table(head, np.empty((0, len(columns.target))), np.empty(0)).schema
    nothing = [None] * len(parts)
    work = dask.delayed(columns.piece)
    # Rows of chunks whose lengths are unknown have numbers of their own, too.
    numbers = [number * _MOST_CHUNK_ROWS for number in range(len(parts))]
    given = zip(parts, y or nothing, weight or nothing, numbers, strict=True)
    pieces = [work(*piece) for piece in given]
    return Source(kind, schema, pieces, columns.target, columns.weight, named, lengths, classes)


def _divided(X: Any, parts: Sequence[Any], values: Any) -> list[Any]:
    """Divide a target or weights like the chunks of a Dask collection.

    Where these do not know their sizes, values in memory take a pass over them.
    """
    import dask

    known = hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any()
    if dask.is_dask_collection(values):
        if known and hasattr(values, "rechunk") and sum(X.chunks[0]) == values.shape[0]:
            values = values.rechunk({0: X.chunks[0], **dict.fromkeys(range(1, values.ndim), -1)})
        divided = list(np.ravel(values.to_delayed()))
        if len(divided) != len(parts):
            raise DataError(
                f"X comes in {len(parts)} chunks and y (or the weights) in {len(divided)}: divide "
                "them alike."
            )
        return divided
    lengths = X.chunks[0] if known else dask.compute(*map(dask.delayed(len), parts))
    values = np.asarray(values)
    if sum(lengths) != len(values):
        raise DataError(f"X has {sum(lengths)} rows, y (or the weights) {len(values)}.")
    bounds = np.cumsum([0, *lengths])
    return [dask.delayed(values[lo:hi]) for lo, hi in itertools.pairwise(bounds)]


def target_names(y: Any) -> tuple[str, ...]:
    """Names of targets: those of a frame or series, otherwise ``y`` or ``y0``, ``y1``, …."""
    if hasattr(y, "columns"):
        return tuple(str(label) for label in y.columns)
    if isinstance(getattr(y, "name", None), str) and not hasattr(y, "chunks"):
        return (y.name,)
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return tuple(f"y{i}" for i in range(shape[1])) if len(shape) == 2 else ("y",)


# --- tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """Columns of the tables that rows become: those of X, then the target, then the weights."""

    types: Types
    target: tuple[str, ...]
    weight: str | None

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any, types: Types) -> _Columns:
        frame = hasattr(X, "columns")
        taken = set(map(str, X.columns) if frame else _array_names(X.shape[1], types))
        names = () if y is None else target_names(y)
        target = tuple(_free_name(name, taken) for name in names)
        free = _free_name("sample_weight", taken.union(target))
        return cls(types, target, None if weight is None else free)

    def table(self, rows: Any, y: Any, weight: Any) -> pa.Table:
        """Rows of a pandas frame or array, with target and weights, as a table."""
        frame = hasattr(rows, "columns")
        table = _frame_table(rows, self.types) if frame else _array_table(rows, self.types)
        beside = {} if self.weight is None else {self.weight: np.asarray(weight, dtype=np.float64)}
        if self.target:
            values = np.asarray(y, dtype=np.float64)
            values = values.reshape(len(values), len(self.target))
            beside = dict(zip(self.target, values.T, strict=True)) | beside
        for name, column in beside.items():
            if column.shape != (table.num_rows,):
                raise DataError(
                    f"X (or a chunk of it) has {table.num_rows} rows, but {name} has the shape "
                    f"{column.shape}: give a value for each row, and divide Dask collections alike."
                )
            table = table.append_column(name, pa.array(np.ascontiguousarray(column)))
        return table

    def piece(
        self, rows: Any, y: Any, weight: Any, row_offset: int
    ) -> tuple[RowsReader, Partition]:
        """Rows as a piece of a source."""
        return _piece(self.table(rows, y, weight), row_offset)


def _piece(table: pa.Table, first: int) -> tuple[RowsReader, Partition]:
    return RowsReader(), held(Rows(table), table.num_rows, table.num_columns, 0, first)


def _free_name(name: str, taken: Container[str]) -> str:
    return _free_name(f"{name}_", taken) if name in taken else name


def _array_names(n_columns: int, types: Types) -> list[str]:
    return list(types) if len(types) == n_columns else [f"x{i}" for i in range(n_columns)]


def _array_table(rows: Any, types: Types) -> pa.Table:
    values = np.asarray(rows, dtype=np.float64)
    names = _array_names(values.shape[1], types)
    if values.ndim == 3:
        names = [f"{name}__{k + 1}" for name in names for k in range(values.shape[2])]
    columns = np.ascontiguousarray(values.reshape(len(values), len(names)).T)
    return pa.Table.from_arrays([pa.array(column) for column in columns], names)


def _frame_table(rows: Any, types: Types) -> pa.Table:
    try:
        table = pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"X cannot be read as a table: {error}") from error
    for position, field in enumerate(table.schema):
        wanted = field.type
        if pat.is_null(wanted):
            wanted = types.get(field.name, pa.float64())
        elif pat.is_list(wanted) and pat.is_null(wanted.value_type):
            wanted = pa.list_(pa.float64())
        if wanted != field.type:
            column = table.column(position).cast(wanted)
            table = table.set_column(position, field.name, column)
    return table.replace_schema_metadata()


# --- scikit-learn's checks ----------------------------------------------------------------------


def check_columns(
    estimator: Any,
    names: Sequence[str] | None,
    n_columns: int,
    *,
    reset: bool = False,
    needed: Sequence[str] = (),
) -> None:
    """Set or check number and names of an estimator's columns, as scikit-learn does.

    `names` is None where the columns have no names. A frame that holds those `needed` may lack
    others.
    """
    head: Any = np.empty((0, n_columns))
    if names is not None:
        import pandas as pd

        known = set(() if reset else getattr(estimator, "feature_names_in_", ()))
        if needed and set(names) >= set(needed) and not set(names) >= known:
            return
        head = pd.DataFrame(columns=list(names), dtype=float)
    validate_data(estimator, head, reset=reset, skip_check_array=True)
