"""What a dataset is, its partitions, and datasets of rows in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from distfms.data.rows.roles import index_metadata
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.files.frames import FrameForms

T = TypeVar("T")

#: What rows in memory are called in messages.
NAME = "X"

#: The key of one file by itself, and of rows in memory: its name has no say. That of others is the
#: path below the folder or the fixed head of a glob; in a list the name.
LONE = "memory/X"

MAX_ROWS = 131_072
"""Default limit of rows in a partition."""

_LEAST_BYTES = 64 * 2**20
_MOST_BYTES = 128 * 2**20

# Columns are decoded in tables of about this size: small beside a partition, large enough that the
# cost of calls does not show (with 1 MiB, which a core's cache holds, passes of two threads took a
# tenth longer, with folds up to a fifth).
_TABLE_BYTES = 2**22


@dataclass(frozen=True)
class Partition:
    """Rows of a dataset that follow one another: the unit of reading, caching and merging.

    Attributes
    ----------
    index : int
        Position in the dataset, from 0.
    path, name : str
        Path inside the dataset's file system, and name in the dataset (see `File`).
    row_groups : tuple of int
        Consecutive row groups of the file; (0,) where there are none.
    n_rows, n_bytes : int
        Rows, and about the bytes of all columns once decoded.
    row_offset, file_row_offset : int
        Rows of the dataset, and of the file, before the first row of the partition.
    fingerprint : str
        Digest of key (so that data that were moved or renamed keep their cached statistics), file
        version, row groups and schema.
    file_version : str
        :attr:`File.version` of the file when it was listed.
    batch_rows : int
        Rows to read at a time; 0 for all at once.
    held_bytes : int
        About what is held while it is read.
    weight : float
        What its rows weigh beside their own weight: less than 1 where they are to be forgotten.
    key : str
        What decides the folds of its rows where no id does (see `File`).
    source : str
        Path of the user's file where the one that is read is a copy.
    folder_keys : mapping of str to str or None
        Values of the columns that stand in the names of folders, as ``region=north``.
    """

    index: int
    path: str
    name: str
    row_groups: tuple[int, ...]
    n_rows: int
    n_bytes: int
    row_offset: int
    file_row_offset: int
    fingerprint: str
    file_version: str
    batch_rows: int = 0
    held_bytes: int = 0
    weight: float = 1.0
    key: str = ""
    source: str = ""
    folder_keys: Mapping[str, str | None] = field(default_factory=dict, hash=False)

    @property
    def called(self) -> str:
        """Path that users know."""
        return self.source or self.path

    @property
    def is_lazy(self) -> bool:
        """Whether its rows are still to be computed, by Dask."""
        return False

    def loaded(self) -> Partition:
        """Return the partition with its rows at hand, where it is the partition that holds them."""
        return self


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with named columns in partitions, wherever they are; picklable.

    :func:`distfms.data.files.dataset.open_dataset` makes one of files, `memory_dataset` of rows in
    memory, and `dask_dataset` of Dask collections.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns and types of every partition.
    partitions : tuple of Partition
        In the order of the rows, each with one row or more.
    reader : PartitionReader or RowsReader
        What reads partitions; give tasks this rather than the dataset, it is smaller.
    files : tuple of distfms.store.places.File
        None where rows are in memory.
    forms : Forms, optional
        How text is read, where it is.
    notes : tuple of str
        What users should know of what is read.
    """

    schema: pa.Schema
    partitions: tuple[Partition, ...]
    reader: Any
    files: tuple[Any, ...] = ()
    forms: Any = None
    notes: tuple[str, ...] = ()

    def restricted(self, partitions: Sequence[Partition]) -> Dataset:
        """Return the dataset of some partitions, and their files."""
        paths = {partition.path for partition in partitions}
        files = tuple(file for file in self.files if file.path in paths)
        return replace(self, files=files, partitions=tuple(partitions))

    @property
    def place(self) -> str:
        """Path of the first file, for messages."""
        return self.files[0].called if self.files else NAME

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(partition.n_rows for partition in self.partitions)

    @property
    def n_bytes(self) -> int:
        """About the bytes of all columns in memory."""
        return sum(partition.n_bytes for partition in self.partitions)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digest of the fingerprints of all partitions, in order."""
        return digest(*(partition.fingerprint for partition in self.partitions))


def digest(*texts: str) -> str:
    """Return a hexadecimal digest of texts; the separator keeps ('ab','c') from ('a','bc')."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:32]


def place_of(fingerprint: str) -> float:
    """Return a whole number of 48 bits that stands for a partition."""
    return float(int(hashlib.sha256(fingerprint.encode()).hexdigest()[:12], 16))


def column_runs(columns: Sequence[str], n_rows: int) -> Iterator[Sequence[str]]:
    """Divide columns into those of which as many rows are decoded together."""
    step = max(1, _TABLE_BYTES // (8 * max(n_rows, 1)))
    return (columns[start : start + step] for start in range(0, len(columns), step))


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory: a table, and numbers of other columns as one array.

    Attributes
    ----------
    table : pyarrow.Table
    numbers : ndarray of float64, shape (n, d), or None
        In any layout; it is read in place.
    position : mapping of str to int
        Columns of `numbers` by name.
    """

    table: pa.Table
    numbers: np.ndarray | None = None
    position: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.table.num_rows if self.numbers is None else len(self.numbers)

    def slice(self, start: int, n_rows: int) -> Rows:
        """Return some rows that follow one another."""
        numbers = None if self.numbers is None else self.numbers[start : start + n_rows]
        return replace(self, table=self.table.slice(start, n_rows), numbers=numbers)

    @property
    def schema(self) -> pa.Schema:
        """All columns: the numbers, then those of the table."""
        import pyarrow as pa

        if self.numbers is None:
            return self.table.schema
        fields = [pa.field(name, pa.float64()) for name in self.position]
        return pa.schema([*fields, *self.table.schema], metadata=self.table.schema.metadata)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return columns, in the order given."""
        if self.numbers is None:
            return self.table.select(list(columns))
        import pyarrow as pa

        arrays = [
            pa.array(np.ascontiguousarray(self.numbers[:, self.position[name]]))
            if name in self.position
            else self.table.column(name)
            for name in columns
        ]
        return pa.table(arrays, names=list(columns))

    def matrix(self, columns: Sequence[str]) -> np.ndarray | None:
        """Return columns of numbers as one array (n, k), if possible in place; None otherwise."""
        if self.numbers is None or not all(name in self.position for name in columns):
            return None
        selected = [self.position[name] for name in columns]
        whole = selected == list(range(self.numbers.shape[1]))
        return self.numbers if whole else self.numbers[:, selected]


@dataclass(frozen=True)
class HeldPartition(Partition):
    """A partition that holds its rows; `rows` may be a Dask ``Delayed`` of these."""

    rows: Any = None

    @property
    def is_lazy(self) -> bool:
        """Whether its rows are still to be computed, by Dask."""
        return hasattr(self.rows, "compute")

    def loaded(self) -> HeldPartition:
        """Return the partition with its rows computed."""
        return replace(self, rows=self.rows.compute()) if self.is_lazy else self


@dataclass(frozen=True)
class RowsReader:
    """Reads a :class:`HeldPartition` as a ``PartitionReader`` reads one of a file.

    Messages count rows from `first`, and say `where`.
    """

    where: str = "first at row"
    first: int | None = None

    def read(self, partition: Any, columns: Sequence[str]) -> pa.Table:
        """Return columns, in the order given."""
        table: pa.Table = partition.loaded().rows.read(columns)
        return table

    def column_tables(self, partition: Any, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns, some at a time."""
        for run in column_runs(columns, partition.n_rows):
            yield self.read(partition, run)

    def each_batch(
        self, partition: Any, columns: Sequence[str], function: Callable[[Any, Any], T]
    ) -> Iterator[T]:
        """Call a function for the partition, which is in memory as a whole."""
        yield function(self, partition)

    def matrix(self, partition: Any, columns: Sequence[str]) -> np.ndarray | None:
        """Return columns of numbers as one array (n, k), or None where they are no array."""
        block: np.ndarray | None = partition.rows.matrix(columns)
        return block

    def locate_row(self, partition: Partition, position: int) -> str:
        """Return where a row is, as text."""
        first = partition.row_offset if self.first is None else self.first
        return f"{self.where} {first + position}"


# --- rows in memory, and of Dask collections -----------------------------------------------------


def held(rows: Any, n_rows: int, n_columns: int, index: int = 0, first: int = 0) -> HeldPartition:
    """Return rows, or a ``Delayed`` of them, as a partition whose first row has a number."""
    n_bytes = 8 * n_rows * n_columns
    return HeldPartition(
        index=index,
        path=NAME,
        name=LONE,
        key=LONE,
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
    forms: FrameForms | None = None,
) -> Rows:
    """Return the rows of a frame, and of columns `beside` it; see :func:`as_table`.

    `forms` say how columns are read.

    Those of a pandas frame of float64 are not copied, and cost nothing a column.
    """
    import pyarrow as pa

    beside = beside or {}
    texts = forms.texts if forms else frozenset()
    if hasattr(frame, "iloc") and frame.shape[1] and (frame.dtypes == np.float64).all():
        position = {str(name): i for i, name in enumerate(frame.columns)}
        if len(position) == frame.shape[1] and texts.isdisjoint(position):
            return Rows(pa.table(dict(beside)), frame.to_numpy(), position)
    table = as_table(frame, types)
    table = forms(table, NAME) if forms else table
    for name, column in beside.items():
        table = table.append_column(name, column)
    return Rows(table)


def as_table(rows: Any, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Return a frame, a table, or a mapping of names to columns as a pyarrow table.

    `types` are of columns whose values do not tell, as they are all missing.
    """
    import pyarrow as pa
    import pyarrow.types as pat

    if hasattr(rows, "toarray"):
        raise DataError(f"{NAME} is sparse: make it dense, with `.toarray()`.")
    rows = collected(rows)
    try:
        if hasattr(rows, "iloc"):
            table = pa.Table.from_pandas(_plain_frame(rows), preserve_index=False)
        else:
            table = pa.table(rows)
    except (pa.ArrowException, ValueError, TypeError) as error:
        _refuse_columns(rows)
        raise DataError(
            f"{NAME} cannot be read as columns with names ({error}). Give a table, a frame, or a "
            "mapping of the names of columns to their values."
        ) from error
    for position, column in enumerate(table.schema):
        if pat.is_null(column.type):
            kind = (types or {}).get(column.name, pa.float64())
        elif pat.is_list(column.type) and pat.is_null(column.type.value_type):
            kind = pa.list_(pa.float64())
        else:
            continue
        cast = table.column(position).cast(kind)
        table = table.set_column(position, column.name, cast)
    return table.replace_schema_metadata(index_metadata(table.schema))


def collected(rows: Any) -> Any:
    """Return the rows of a lazy frame of polars; anything else as it is."""
    is_lazy = hasattr(rows, "collect_schema") and hasattr(rows, "collect")
    return rows.collect() if is_lazy else rows


def _plain_frame(frame: Any) -> Any:
    """Return a pandas frame with texts for intervals, periods and other categories of objects."""
    import pandas as pd

    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    plain = [_plain_column(column) for column in columns]
    if all(after is before for before, after in zip(columns, plain, strict=True)):
        return frame
    joined = pd.concat([column.reset_index(drop=True) for column in plain], axis=1)
    return joined.set_axis(frame.columns, axis=1)


def _plain_column(column: Any) -> Any:
    """Return a column of a frame as it is, or as texts or numbers that Arrow holds."""
    import pandas as pd

    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype) and not _are_plain(kind.categories):
        # Two categories may be written alike.
        texts = np.array([str(label) for label in kind.categories], dtype=object)
        codes = column.cat.codes.to_numpy()
        return pd.Series(texts[codes]).where(codes >= 0, None)
    if isinstance(kind, pd.IntervalDtype | pd.PeriodDtype):
        return column.astype(str).where(column.notna(), None)
    if isinstance(kind, pd.SparseDtype):
        return column.sparse.to_dense()
    return column


def _are_plain(labels: Any) -> bool:
    """Whether labels of categories are numbers, truths or texts."""
    import pandas as pd

    if labels.dtype.kind in "iufb":
        return True
    may_be_texts = labels.dtype == object or isinstance(labels.dtype, pd.StringDtype)
    return may_be_texts and all(isinstance(label, str) for label in labels)


def _refuse_columns(rows: Any) -> None:
    """Name the first column that Arrow cannot hold, if it is one column's fault."""
    import pyarrow as pa

    if not hasattr(rows, "items"):
        return
    for name, values in rows.items():
        try:
            pa.array(values)
        except (pa.ArrowException, ValueError, TypeError) as error:
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise DataError(
                f"The column {name!r} cannot be read: it holds values of the types "
                f"{', '.join(kinds[:5])}. Convert it to numbers or to text, or leave it out."
            ) from error


def memory_dataset(rows: Rows, schema: pa.Schema, max_rows: int = MAX_ROWS) -> Dataset:
    """Divide rows in memory into partitions of the size that those of files have.

    Nothing is copied. A DataError says that there are no rows.
    """
    n_rows = len(rows)
    n_columns = len(schema)
    if not n_rows:
        raise DataError("X has 0 rows, n_samples = 0: a minimum of 1 is required.")
    fitting = default_bytes(n_columns) // (8 * n_columns)
    step = max(1, min(max_rows, fitting))
    partitions = []
    for index, start in enumerate(range(0, n_rows, step)):
        shard = rows.slice(start, step)
        partitions.append(held(shard, len(shard), n_columns, index, start))
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
    work = dask.delayed(as_rows, pure=False)
    first = 0
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


def default_bytes(n_columns: int) -> int:
    """Return the most uncompressed bytes of a partition: 64 MiB, in wide tables up to 128 MiB.

    Partial statistics have a value for each pair of columns. Rows that take less than these would
    cost more to merge than to summarise.
    """
    return min(max(8 * n_columns**2, _LEAST_BYTES), _MOST_BYTES)
