"""Parquet datasets as a fixed sequence of partitions, and what reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from distfms.data.files.folder_keys import key_types, keys_of, with_keys
from distfms.data.files.footers import (
    check_same_schema,
    is_stored,
    open_parquet,
    parsed_footer,
    readable,
    refuse_duplicate_columns,
    settled_types,
    stored_name,
    with_types,
)
from distfms.data.files.formats.base import Forms
from distfms.data.files.formats.copies import Copies
from distfms.data.files.known_footers import known_footers
from distfms.data.files.layout import layout
from distfms.data.files.partition import (
    MAX_ROWS,
    Dataset,
    HeldPartition,
    Partition,
    Rows,
    RowsReader,
    column_runs,
    default_bytes,
)
from distfms.data.files.storage import common_filesystem, list_files, refuse_copies
from distfms.data.files.texts import NumberForm, NumberTexts, as_numbers
from distfms.data.rows.roles import is_categorical, plain_type
from distfms.errors import DataError
from distfms.store.places import File

if TYPE_CHECKING:
    import numpy as np
# What is read ahead of each column of such a row group, from a local disk and from elsewhere.
_STREAM_BYTES = 2**14
_REMOTE_STREAM_BYTES = 2**20

T = TypeVar("T")


@dataclass(frozen=True)
class PartitionReader:
    """Opens partitions; small, so that it can travel with every task.

    Whatever it reads is compared with the listing after reading, so that no result mixes two
    versions of a file.
    """

    filesystem: Any
    #: Columns with other types in some files, and how they are read.
    settled: Mapping[str, pa.DataType] = field(default_factory=dict, hash=False)
    #: Columns of text that is read as numbers, with the form of these.
    numbers: Mapping[str, NumberForm] = field(default_factory=dict, hash=False)
    #: Columns that are read as text.
    texts: frozenset[str] = frozenset()
    #: Columns that stand in the names of folders.
    keys: Mapping[str, pa.DataType] = field(default_factory=dict, hash=False)

    def open(self, partition: Partition) -> pq.ParquetFile:
        """Open the file of a partition; a DataError if it is no longer the one listed."""
        self._verify(partition)
        return self._opened(partition)

    def _opened(self, partition: Partition, buffer_size: int = 0) -> pq.ParquetFile:
        # Buffering ahead hides the latency of a remote store; on a local disk its helper threads
        # only get in the way of the workers (measured: a tenth of the decoding time).
        ahead = self._is_remote and not buffer_size
        options = {"filesystem": self.filesystem, "pre_buffer": ahead, "buffer_size": buffer_size}
        path = partition.path
        with readable(stored_name(partition)):
            metadata = parsed_footer(self.filesystem, path, partition.file_version)
            if metadata is None:
                raise _changed(partition)
            return open_parquet(path, metadata=metadata, **options)

    def read(self, partition: Partition, columns: Sequence[str]) -> pa.Table:
        """Read top-level columns of a partition, in the order given, on the calling thread.

        A DataError says that the file cannot be read, lacks a column or is not the one listed.
        """
        with self.open(partition) as file:
            table = self._read(file, partition, columns)
        self._verify(partition)
        return table

    def column_tables(self, partition: Partition, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of a partition in tables of about 4 MiB, so that few are held at once.

        At least one column at a time. Errors as of :meth:`read`, before the last table is yielded.
        """
        with self.open(partition) as file:
            for run in column_runs(columns, partition.n_rows):
                table = self._read(file, partition, run)
                if run[-1] == columns[-1]:
                    self._verify(partition)
                yield table

    def _read(self, file: pq.ParquetFile, partition: Partition, columns: Sequence[str]) -> pa.Table:
        stored = self._stored(columns)
        with readable(stored_name(partition)):
            table = file.read_row_groups(
                list(partition.row_groups), columns=stored, use_threads=False
            )
        if table.column_names != stored:
            _require_columns(table.column_names, partition, stored)
        return self._as_read(table, partition, columns, partition.n_rows)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Return which of some columns the files hold."""
        return [name for name in columns if name not in self.keys]

    def _as_read(
        self, table: pa.Table, partition: Partition, columns: Sequence[str], n_rows: int
    ) -> pa.Table:
        """Return columns, in this order, with the types in which they are read."""
        table = with_keys(table, partition.folder_keys, self.keys, columns, n_rows)
        for place, name in enumerate(table.column_names):
            column = table.column(place)
            if name in self.numbers:
                column = as_numbers(column, name, partition.called, self.numbers[name])
            if name in self.settled and column.null_count == n_rows:  # not every type can be cast
                column = pa.nulls(n_rows, self.settled[name])
            if column is not table.column(place):
                table = table.set_column(place, name, column)
        types = self._types(table.schema)
        return table if types.equals(table.schema) else table.cast(types)

    def _types(self, schema: pa.Schema) -> pa.Schema:
        """Return columns as they are read."""
        fields = []
        for column in schema:
            kind = self.settled.get(column.name) or plain_type(column.type)
            if column.name in self.numbers:
                kind = pa.float64()
            elif column.name in self.texts:
                kind = pa.string()
            fields.append(column if kind == column.type else column.with_type(kind))
        return pa.schema(fields, metadata=schema.metadata)

    def each_batch(
        self, partition: Partition, columns: Sequence[str], function: Callable[[Any, Any], T]
    ) -> Iterator[T]:
        """Call a function for a partition, or for some rows of a large one after the others.

        It is called with what stands in for this reader, and for the partition. Yields what it
        returns, in the order of the rows.
        """
        if not partition.batch_rows:
            yield function(self, partition)
            return
        self._verify(partition)
        file = self._opened(partition, _REMOTE_STREAM_BYTES if self._is_remote else _STREAM_BYTES)
        names = file.schema_arrow.names
        stored = self._stored(columns) or names[:1]
        _require_columns(names, partition, stored)
        batches = file.iter_batches(
            partition.batch_rows, list(partition.row_groups), stored, use_threads=False
        )
        position = f"row group {partition.row_groups[0]}, first at its row"
        start = 0
        while start < partition.n_rows:
            with readable(stored_name(partition)):
                table = pa.Table.from_batches([next(batches)])
            rows = Rows(self._as_read(table, partition, columns, len(table)))
            yield function(RowsReader(position, start), _piece(partition, start, rows))
            start += len(rows)
        self._verify(partition)

    @property
    def _is_remote(self) -> bool:
        return not isinstance(self.filesystem, fs.LocalFileSystem)

    def matrix(self, partition: Partition, columns: Sequence[str]) -> np.ndarray | None:
        """Return None: columns of a file are no array."""
        return None

    def locate_row(self, partition: Partition, position: int) -> str:
        """Return where a row of a partition is, as text."""
        if partition.source:
            return f"first at row {partition.file_row_offset + position + 1} below the names"
        with self.open(partition) as file:
            for group in partition.row_groups:
                rows = file.metadata.row_group(group).num_rows
                if position < rows:
                    return f"row group {group}, first at its row {position}"
                position -= rows
        raise IndexError(position)

    def _verify(self, partition: Partition) -> None:
        with readable(stored_name(partition)):
            if not is_stored(self.filesystem, partition.path, partition.file_version):
                raise _changed(partition)


def _piece(partition: Partition, start: int, rows: Rows) -> HeldPartition:
    """Return some rows of a partition as one."""
    n_rows = len(rows)
    piece = replace(
        partition,
        n_rows=n_rows,
        n_bytes=partition.n_bytes * n_rows // partition.n_rows,
        row_offset=partition.row_offset + start,
        file_row_offset=partition.file_row_offset + start,
        batch_rows=0,
    )
    return HeldPartition(**vars(piece), rows=rows)


def _changed(partition: Partition) -> DataError:
    return DataError(
        f"The file {partition.called} changed while the job was running, or a worker sees another "
        "one of this path: run the job again when nothing writes to its data, on storage that all "
        "workers share."
    )


def open_dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    max_rows: int = MAX_ROWS,
    max_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    without_rows: str = "nothing can be learned from it",
    copies: Copies | None = None,
    numbers: Iterable[str] = (),
    texts: Iterable[str] = (),
    forms: Forms | None = None,
    kinds: Mapping[str, pa.DataType] | None = None,
) -> Dataset:
    """Open Parquet data by reading the footers of its files; other formats are converted first.

    Parameters
    ----------
    path : str, path or sequence of those
        File, folder (searched for ``**/*.parquet``; where there is none, for another
        format), glob, URL of any
        fsspec or pyarrow file system, or a list of those.
    max_rows : int
    max_bytes : int, optional
        Limits of a partition: consecutive row groups of one file are packed as long as both hold.
        The default of `max_bytes` is `default_bytes`. A single row group beyond the limits is a
        partition of its own; one far beyond them is read in batches of rows that keep to them.
    storage_options : mapping, optional
        Passed to the fsspec file system of a URL.
    without_rows : str
        What follows for the caller from data without a single row, for the message. Shards without
        rows beside others are accepted; they give no partition.
    copies : Copies, optional
        Where files of other formats are kept as Parquet, and the footers of many files; by default
        the former below the user's cache folder.
    numbers : iterable of str
        Columns to read as numbers where they are there and hold text.
    texts : iterable of str
        Columns to read as text where they are there and hold whole numbers, or are of files without
        types.
    forms : Forms, optional
        How text is read, as that of other data was: as far as it is known.
    kinds : mapping of str to pyarrow.DataType, optional
        Types of columns that may be without a value here.

    Raises
    ------
    DataError
        If nothing is there, a file is empty, truncated, in an unknown format or the copy of
        another, the files' schemas differ, a column name occurs twice, or there is no row at all.
    """
    notes: list[str] = []
    named = list_files(path, storage_options, notes.append)
    numbers = {*numbers}
    texts = {*texts}
    of_model = forms or Forms()
    # Numbers, too, are read from texts: only so can a file hold words among them.
    forms = Forms(dict.fromkeys((*texts, *numbers), "string")).beside(of_model)
    stored, forms = (copies or Copies()).converted(named, forms=forms)
    filesystem = common_filesystem(stored)
    folder = None if copies is None else copies.folder
    name = json.dumps(path, default=str)
    footers = known_footers(folder, name, filesystem, stored)
    # Files without rows are free of columns and types, where others have rows.
    with_rows = [footer for footer in footers if footer[0].n_rows] or footers
    first, schema = with_rows[0]
    refuse_duplicate_columns(schema, first.called)
    settled = settled_types(filesystem, with_rows, kinds)
    schema = with_types(schema, settled)
    for file, other_schema in with_rows[1:]:
        check_same_schema(schema, first, with_types(other_schema, settled), file)
    files = tuple(f for f, _ in footers)
    refuse_copies(files)
    if not any(file.n_rows for file in files):
        listed = named[0].path if len(stored) == 1 else f"the {len(stored)} files of {path}"
        raise DataError(f"There are no rows in {listed}: {without_rows}.")
    keys = key_types(files, schema, forms.types)
    for name, kind in keys.items():
        schema = schema.append(pa.field(name, kind))
    if keys:
        notes.append(f"Keys of folders are columns: {', '.join(keys)}.")
        types = {name: "string" for name, kind in keys.items() if pa.types.is_string(kind)}
        forms = forms.beside(Forms(types))
    if dates := [name for name in keys_of(files[0]) if name not in schema.names]:
        notes.append(f"Dates in the names of folders are no columns: {', '.join(dates)}.")
    partitions = layout(files, schema, max_rows, max_bytes or default_bytes(len(schema)))
    of_numbers = []
    of_texts = []
    for name in schema.names:
        kind = schema.field(name).type
        if name in numbers and is_categorical(kind):
            of_numbers.append(name)
        if name in texts and not is_categorical(kind):
            _require_codes(kind, name, first)
            of_texts.append(name)
    plain = PartitionReader(filesystem, settled, {}, frozenset(of_texts), keys)
    named_forms, notes_of_forms = _number_forms(of_numbers, forms, plain, partitions[0])
    notes += notes_of_forms
    of_text = {name for name, kind in forms.types.items() if kind == "string"}
    by_column = {name: form for name, form in forms.numbers.items() if name not in of_text}
    forms = replace(forms, numbers={**by_column, **named_forms, **of_model.numbers})
    reader = replace(plain, numbers={name: forms.numbers[name] for name in of_numbers})
    return Dataset(reader._types(schema), partitions, reader, files, forms, tuple(notes))


def _require_codes(kind: pa.DataType, name: str, file: File) -> None:
    """Refuse to read numbers as text that have more than one form."""
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"The column {name!r} of {file.called} holds {kind}, which cannot be read as "
            "text: remove it from `data.text`, or write it as text."
        )


def _number_forms(
    named: Sequence[str], forms: Forms, reader: PartitionReader, first: Partition
) -> tuple[dict[str, NumberForm], list[str]]:
    """Return the forms of text that is read as numbers, by the rows of a partition, and notes."""
    numbers = {}
    notes = []
    columns = reader.read(first, named).columns if named else []
    for name, column in zip(named, columns, strict=True):
        texts = NumberTexts.of(pc.unique(column))
        numbers[name] = forms.numbers.get(name, texts.form)
        if texts.bound:
            notes.append(f"Values of {name!r} such as `{texts.bound}` count as their bound.")
    return numbers, notes


def _require_columns(names: Sequence[str], partition: Partition, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(
            f"The file {partition.called} has no column {missing[0]!r}: rewrite it with the "
            "columns of the other files."
        )
