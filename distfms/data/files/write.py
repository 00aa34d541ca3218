"""Parquet and CSV out.

Numbers are written with zstd and without a dictionary, floats with BYTE_STREAM_SPLIT and integers,
which are mostly ids, with DELTA_BINARY_PACKED: measurements and ids hardly repeat, and these forms
are written and decoded two to five times as fast as the writer's default and are smaller.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distfms.data.rows.roles import plain_type
from distfms.store.places import Location, locate, whole_file, writing
from distfms.store.remote import RemotePath

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 * 2**20

#: Bytes of a text, and items of a list: they only decide where a row group ends.
_ASSUMED_WIDTH = 16
_ASSUMED_ITEMS = 4


def write_table(path: str | os.PathLike[str] | RemotePath, table: pa.Table) -> Location:
    """Write one Parquet file atomically, in place of one that is there, and return its place."""
    target = locate(path)
    with writing(target), whole_file(target) as temporary, GroupedFile(temporary) as file:
        file.write(table)
    return target


@dataclass(eq=False)
class GroupedFile:
    """One Parquet file whose row groups have as many rows as keep to a number and to about a size.

    How many depends on the columns alone, as partitions follow them and sums follow partitions. The
    first table written decides about the schema.
    """

    path: Path
    max_rows: int = ROW_GROUP_ROWS
    max_bytes: int = ROW_GROUP_BYTES
    _pending: list[pa.Table] = field(default_factory=list)
    _writer: Any = None
    _group_rows: int = 1

    def __enter__(self) -> GroupedFile:
        return self

    def write(self, table: pa.Table) -> None:
        """Append rows; full row groups go to disk."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            options = parquet_options(table.schema)
            self._writer = pq.ParquetWriter(str(self.path), table.schema, **options)
            row_bytes = sum(map(_width, table.schema.types)) or 1
            self._group_rows = max(1, min(self.max_rows, self.max_bytes // row_bytes))
        self._pending.append(table)
        n_rows = sum(pending.num_rows for pending in self._pending)
        if n_whole := n_rows - n_rows % self._group_rows:
            rows = pa.concat_tables(self._pending)
            self._writer.write_table(rows.slice(0, n_whole), row_group_size=self._group_rows)
            self._pending = [rows.slice(n_whole)]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import pyarrow as pa

        if kind is None:
            if any(pending.num_rows for pending in self._pending):
                self._writer.write_table(pa.concat_tables(self._pending))
            self._writer.close()
        elif self._writer is not None:
            # Closing writes the footer, which fails for the reason why the file is not wanted.
            with contextlib.suppress(Exception):
                self._writer.close()


class CsvFile:
    """One CSV file, written table after table; the first decides about the columns.

    Texts and names of columns that a spreadsheet would take for formulas begin with an apostrophe.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> CsvFile:
        return self

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        import pyarrow.csv as csv

        table = _without_formulas(table.cast(_plain_schema(table.schema)))
        self._writer = self._writer or csv.CSVWriter(str(self._path), table.schema)
        self._writer.write_table(table)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


#: How texts begin that a spreadsheet takes for formulas.
_FORMULA = r"^[=+\-@\t\r]"


def _without_formulas(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc
    import pyarrow.types as pt

    names = [f"'{name}" if re.match(_FORMULA, name) else name for name in table.column_names]
    table = table.rename_columns(names)
    for number, column in enumerate(table.columns):
        if pt.is_string(column.type):
            begins = pc.match_substring_regex(column, _FORMULA)
            quoted = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(
                number, table.field(number), pc.if_else(begins, quoted, column)
            )
    return table


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which rows are written as text."""
    import pyarrow as pa
    import pyarrow.types as pt

    fields = []
    for column in schema:
        is_coded = pt.is_dictionary(column.type)
        kind = plain_type(column.type.value_type if is_coded else column.type)
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return options of a writer: encodings for floats and integers, a dictionary for all else."""
    import pyarrow.types as pt

    encodings: dict[str, str] = {}
    by_dictionary: list[str] = []
    for path, kind in zip(schema.names, schema.types, strict=True):
        if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            path = f"{path}.list.element"
            kind = kind.value_type
        if pt.is_float32(kind) or pt.is_float64(kind):
            encodings[path] = "BYTE_STREAM_SPLIT"
        elif pt.is_integer(kind):
            encodings[path] = "DELTA_BINARY_PACKED"
        else:
            by_dictionary.append(path)
    return {
        "compression": "zstd",
        "use_dictionary": by_dictionary or False,
        "column_encoding": encodings or None,
    }


def _width(kind: pa.DataType) -> int:
    """Return about how many bytes a value takes."""
    import pyarrow.types as pt

    if pt.is_list(kind) or pt.is_large_list(kind):
        return 4 + _ASSUMED_ITEMS * _width(kind.value_type)
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return _ASSUMED_WIDTH
