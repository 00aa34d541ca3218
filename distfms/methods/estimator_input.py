"""The input of all estimators: rows in memory, of a Dask collection or of Parquet files.

Whatever is given becomes a :class:`Source`: pieces of rows as Arrow tables, which the functions
that read a partition of a job's files read in the same way.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from distfms.data.batches import ColumnPlan
from distfms.data.categories import Categories, scan_categories
from distfms.data.dataset import MAX_BYTES, MAX_ROWS, Partition, open_dataset
from distfms.data.roles import require_columns
from distfms.engine.executors import LocalExecutor
from distfms.engine.graph import Unit
from distfms.engine.mapreduce import map_reduce
from distfms.errors import DataError, nearest
from distfms.stats.base import Statistic, merge_tree

T = TypeVar("T")
S = TypeVar("S", bound=Statistic)
Types = Mapping[str, pa.DataType]
Kind = Literal["array", "frame", "dask-array", "dask-frame", "parquet"]

#: What is called with a piece: a :class:`TableReader` or ``PartitionReader``, and a partition.
PieceFunction = Callable[[Any, Partition], T]


def kind_of(X: Any) -> Kind:
    """Return what sort of input `X` is; whatever is unknown counts as an array."""
    if isinstance(X, str | os.PathLike):
        return "parquet"
    if "dask" in sys.modules and sys.modules["dask"].is_dask_collection(X):
        return "dask-frame" if hasattr(X, "columns") else "dask-array"
    return "frame" if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns") else "array"


def as_frame(X: Any, ignored: Sequence[str] = ()) -> Any:
    """Return a frame in memory as one of pandas, a Dask frame as it is, without some columns.

    Raises
    ------
    DataError
        If two columns have one name.
    """
    import pandas as pd

    if kind_of(X) == "frame" and not isinstance(X, pd.DataFrame):
        X = pa.table(X).to_pandas(types_mapper=pd.ArrowDtype)
    names = [str(label) for label in X.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"X has several columns named {', '.join(map(repr, twice))}.")
    return X.drop(columns=[name for name in ignored if name in names])


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
    named = isinstance(values, str) and hasattr(X, "columns")
    values = X[values] if named else values
    return np.asarray(values.compute() if kind_of(values).startswith("dask") else values)


@dataclass(frozen=True)
class TableReader:
    """Reads a table in memory as :class:`~distfms.data.dataset.PartitionReader` reads a file."""

    table: pa.Table

    @property
    def reader(self) -> TableReader:
        """Itself."""
        return self

    @property
    def piece(self) -> tuple[TableReader, Partition]:
        """Itself and its only partition, the whole table."""
        n_rows, n_bytes = self.table.num_rows, self.table.nbytes
        return self, Partition(0, "X", "X", (0,), n_rows, n_bytes, 0, 0, "", "")

    def read(self, partition: Partition, columns: Sequence[str]) -> pa.Table:
        """Return some of the columns."""
        return self.table.select(list(columns))

    def column_tables(self, partition: Partition, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the columns, all at once."""
        yield self.read(partition, columns)

    def locate_row(self, partition: Partition, position: int) -> str:
        """Return where a row is, as text."""
        return f"first at row {position}"


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
    """

    kind: Kind
    schema: pa.Schema
    pieces: Sequence[Any]
    target: tuple[str, ...] = ()
    weight: str | None = None
    named: bool = True
    lengths: Sequence[float] = ()
    classes: Any = None

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
        elif len(self.pieces) == 1:
            found = [work(self.pieces[0])]
        else:
            with LocalExecutor() as executor:
                found = executor.map(work, self.pieces)
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
        """Join the arrays that a function returns for the pieces; a row's shape is `tail`.

        Returns
        -------
        ndarray, or dask.array.Array
            Lazy where the rows are those of a Dask collection.
        """
        if not self.lazy:
            return np.concatenate([np.empty((0, *tail)), *self.map(function)])
        import dask
        import dask.array as da

        work = dask.delayed(partial(_rows_of, function, tail))
        parts = [
            da.from_delayed(work(piece), shape=(length, *tail), dtype=np.float64)
            for piece, length in zip(self.pieces, self.lengths, strict=True)
        ]
        return da.concatenate(parts)

    def levels(self, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Levels of categorical columns, found by a pass over them.

        Raises
        ------
        DataError
            If a column has no value, or too many levels.
        """
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


def _apply(function: PieceFunction[Any], piece: tuple[Any, Partition]) -> Any:
    reader, partition = piece
    return function(reader, partition) if partition.n_rows else None


def _rows_of(function: PieceFunction[np.ndarray], tail: tuple[int, ...], piece: Any) -> np.ndarray:
    found = _apply(function, piece)
    return np.empty((0, *tail)) if found is None else found


def _merge(earlier: S, later: S) -> S:
    return earlier.merge(later)


def _levels(columns: tuple[str, ...], reader: Any, partition: Partition) -> Categories:
    return scan_categories(partition, reader, columns)


# --- from what was given to a source ------------------------------------------------------------


@dataclass(frozen=True)
class InputRules:
    """What an estimator takes.

    Attributes
    ----------
    classes : bool
        Whether the target holds a class for each row, rather than numbers.
    multi_output : bool
        Whether there may be several targets.
    allow_nan : bool
        Whether arrays may have gaps.
    judgments : bool
        Whether cells may hold several numbers: arrays of three dimensions, lists.
    """

    classes: bool = False
    multi_output: bool = False
    allow_nan: bool = False
    judgments: bool = False


def open_source(
    estimator: Any,
    X: Any,
    y: Any = None,
    weight: Any = None,
    *,
    rules: InputRules,
    reset: bool = False,
    like: ColumnPlan | None = None,
    ignored: Sequence[str] = (),
) -> Source:
    """Open whatever an estimator is given.

    Parameters
    ----------
    estimator : BaseEstimator
        scikit-learn checks arrays in its name.
    X : array-like, frame (pandas, pyarrow, …), Dask array or frame, or path of Parquet files
    y, weight : array-like, Dask collection, or names of columns of X
    rules : InputRules
    reset : bool
        Whether the estimator is fitted to the rows.
    like : ColumnPlan, optional
        Of the rows that the estimator was fitted to.
    ignored : sequence of str
        Columns of frames that are passed over where they are found.

    Raises
    ------
    DataError, ValueError
        If X is of no use, or y or the weights do not fit it.
    """
    kind = kind_of(X)
    known = () if like is None else like.columns
    types = {column.name: pa.string() if column.levels else pa.float64() for column in known}
    if kind == "parquet":
        return _parquet(X, y, weight, rules)
    if "frame" in kind:
        X, y, weight = _taken_out(X, y, weight, rules, ignored)
    elif isinstance(y, str) or isinstance(weight, str):
        raise DataError("y or sample_weight names a column, but X has no named columns.")
    if kind.startswith("dask"):
        return _dask(X, y, weight, rules, types)
    return _memory(estimator, X, y, weight, rules, types, reset)


def _parquet(path: Any, y: Any, weight: Any, rules: InputRules) -> Source:
    target = [y] if y is None or isinstance(y, str) else list(y)
    if not all(name is None or isinstance(name, str) for name in (*target, weight)):
        raise DataError("With the path of Parquet files y and sample_weight name columns of them.")
    names = tuple(name for name in target if name is not None)
    dataset = open_dataset(path)
    pieces = [(dataset.reader, partition) for partition in dataset.partitions]
    source = Source("parquet", dataset.schema, pieces, names, weight)
    if not (rules.classes and names):
        return source
    require_columns(dataset.schema, names, "target")
    found = source.map(partial(_unique, names[0]))
    return replace(source, classes=_checked_classes(np.unique(np.concatenate(found))))


def _unique(column: str, reader: Any, partition: Partition) -> np.ndarray:
    return np.unique(reader.read(partition, [column]).column(column).to_numpy())


def _checked_classes(classes: np.ndarray) -> np.ndarray:
    check_classification_targets(classes)
    return classes


def _taken_out(
    X: Any, y: Any, weight: Any, rules: InputRules, ignored: Sequence[str]
) -> tuple[Any, Any, Any]:
    """Take target and weight that are named out of a frame; any frame in memory becomes pandas."""
    X = as_frame(X, ignored)
    names = [str(label) for label in X.columns]
    several = rules.multi_output and isinstance(y, list) and all(isinstance(v, str) for v in y)
    given = [*(y if several else [y]), weight]
    used = [name for name in given if isinstance(name, str)]
    for name in used:
        if name not in names:
            raise DataError(f"X has no column {name!r}.{nearest(name, names)}")
    y = X[y] if several or isinstance(y, str) else y
    weight = X[weight] if isinstance(weight, str) else weight
    return X.drop(columns=used), y, weight


def _memory(
    estimator: Any, X: Any, y: Any, weight: Any, rules: InputRules, types: Types, reset: bool
) -> Source:
    kind, named, classes = kind_of(X), False, None
    if kind == "frame":
        named = all(isinstance(label, str) for label in X.columns)
    else:
        finite = "allow-nan" if rules.allow_nan else True
        checks = {"dtype": np.float64, "allow_nd": rules.judgments, "ensure_all_finite": finite}
        X = validate_data(estimator, X, reset=reset, **checks)
    columns = _Columns.of(X, y, weight, types)
    if y is not None:
        checks = {"multi_output": rules.multi_output, "y_numeric": not rules.classes}
        _, y = check_X_y(np.zeros((len(X), 1)), y, estimator=estimator, **checks)
        if rules.classes:
            classes, y = np.unique(_checked_classes(y), return_inverse=True)
    table = columns.table(X, y, weight)
    step = max(1, min(MAX_ROWS, MAX_BYTES * table.num_rows // max(table.nbytes, 1)))
    starts = range(0, table.num_rows, step)
    pieces = [TableReader(table.slice(start, step)).piece for start in starts]
    return Source(kind, table.schema, pieces, columns.target, columns.weight, named, (), classes)


def _dask(X: Any, y: Any, weight: Any, rules: InputRules, types: Types) -> Source:
    import dask

    kind, classes = kind_of(X), None
    if kind == "dask-frame":
        empty = pa.list_(pa.float64()) if rules.judgments else pa.string()
        fields = pa.Schema.from_pandas(X._meta, preserve_index=False)
        nulls = [field.name for field in fields if pat.is_null(field.type)]
        types = {**dict.fromkeys(nulls, empty), **types}
        parts, lengths, head = list(X.to_delayed()), [np.nan] * X.npartitions, X._meta
    else:
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
        parts, lengths = list(X.to_delayed().ravel()), X.chunks[0]
        head = np.empty((0, *X.shape[1:]))
    columns = _Columns.of(X, y, weight, types)
    y, weight = (None if v is None else _divided(X, parts, v) for v in (y, weight))
    if rules.classes and y is not None:
        found = dask.compute(*map(dask.delayed(np.unique), y))
        classes = _checked_classes(np.unique(np.concatenate(found)))
        y = [dask.delayed(np.searchsorted)(classes, part) for part in y]
    schema = columns.table(head, np.empty((0, len(columns.target))), np.empty(0)).schema
    nothing = [None] * len(parts)
    work = dask.delayed(columns.piece)
    pieces = [work(*piece) for piece in zip(parts, y or nothing, weight or nothing, strict=True)]
    named = kind == "dask-frame" and all(isinstance(label, str) for label in X.columns)
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
        taken = {str(label) for label in getattr(X, "columns", ())}
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

    def piece(self, rows: Any, y: Any, weight: Any) -> tuple[TableReader, Partition]:
        """Rows as a piece of a source."""
        return TableReader(self.table(rows, y, weight)).piece


def _free_name(name: str, taken: Container[str]) -> str:
    return _free_name(f"{name}_", taken) if name in taken else name


def _array_table(rows: Any, types: Types) -> pa.Table:
    values = np.asarray(rows, dtype=np.float64)
    n_columns = values.shape[1]
    names = list(types) if len(types) == n_columns else [f"x{i}" for i in range(n_columns)]
    if values.ndim == 3:
        names = [f"{name}__{k + 1}" for name in names for k in range(values.shape[2])]
    columns = np.ascontiguousarray(values.reshape(len(values), len(names)).T)
    return pa.Table.from_arrays([pa.array(column) for column in columns], names)


def _frame_table(rows: Any, types: Types) -> pa.Table:
    try:
        table = pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"A column of X holds values of several kinds: {error}") from error
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

    Parameters
    ----------
    estimator : BaseEstimator
    names : sequence of str, or None
        None where the columns have no names.
    n_columns : int
    reset : bool
        Set rather than check.
    needed : sequence of str
        A frame that holds these may lack others.

    Raises
    ------
    ValueError
        In scikit-learn's words.
    """
    head: Any = np.empty((0, n_columns))
    if names is not None:
        import pandas as pd

        known = set(() if reset else getattr(estimator, "feature_names_in_", ()))
        if needed and set(names) >= set(needed) and not set(names) >= known:
            return
        head = pd.DataFrame(columns=list(names), dtype=float)
    validate_data(estimator, head, reset=reset, skip_check_array=True)
