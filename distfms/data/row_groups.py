"""One Parquet file: how its columns are encoded, and where its row groups end.

Where they end depends on the rows only, as partitions follow them and sums follow partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

# A string in a list has no fixed width; the estimate only decides where a row group ends.
_ASSUMED_WIDTH = 16


class GroupedFile:
    """One Parquet file whose row groups end where rows or bytes reach their bound.

    Parameters
    ----------
    path : Path
        Local; in place of an existing file.
    schema : pyarrow.Schema
    row_group_rows, row_group_bytes : int
        Upper bounds; one row always fits.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, row_group_rows: int, row_group_bytes: int
    ) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.n_rows = 0
        self._max_rows = row_group_rows
        self._max_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._writer = pq.ParquetWriter(str(path), schema, **parquet_options(schema))

    def write(self, table: pa.Table) -> None:
        """Append rows; full row groups go to disk."""
        ends = np.cumsum(_row_bytes(table))
        start = 0
        while start < table.num_rows:
            taken = int(ends[start - 1]) if start else 0
            limit = taken + self._max_bytes - self._pending_bytes
            fits = int(np.searchsorted(ends, limit, side="right"))
            n_rows = min(fits - start, self._max_rows - self._pending_rows)
            if n_rows <= 0 and self._pending_rows:
                self._flush()
                continue
            n_rows = max(n_rows, 1)
            self._pending.append(table.slice(start, n_rows))
            self._pending_rows += n_rows
            self._pending_bytes += int(ends[start + n_rows - 1]) - taken
            start += n_rows
        self.n_rows += table.num_rows
        if self._pending_rows == self._max_rows:
            self._flush()

    def close(self) -> None:
        """Write what is pending, and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close the handle of a file that is not wanted any more."""
        # Closing writes the footer, which fails for the reason why the file is abandoned.
        with contextlib.suppress(Exception):
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending_rows:
            group = pa.concat_tables(self._pending)
            self._pending = []
            self._writer.write_table(group, row_group_size=group.num_rows)
            self._pending_rows = self._pending_bytes = 0


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Options of ``pyarrow.parquet.ParquetWriter`` for a schema.

    Parameters
    ----------
    schema : pyarrow.Schema

    Returns
    -------
    dict
        Compression, and per column the encoding: BYTE_STREAM_SPLIT for floats (also those in
        lists), the writer's dictionary for all else.
    """
    import pyarrow.types as pt

    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    floats = [path for path, kind in leaves if pt.is_float32(kind) or pt.is_float64(kind)]
    others = [path for path, kind in leaves if path not in set(floats)]
    return {
        "compression": "zstd",
        "use_dictionary": others or False,
        "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT") or None,
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Parquet paths of the primitive columns below a field."""
    import pyarrow.types as pt

    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pt.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _row_bytes(table: pa.Table) -> np.ndarray:
    """Uncompressed bytes of each row, (n_rows,) int64."""
    import pyarrow.compute as pc
    import pyarrow.types as pt

    n_bytes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        if pt.is_list(kind) or pt.is_large_list(kind):
            lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
            n_bytes += lengths * _width(kind.value_type) + 4
        elif pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind):
            n_bytes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            n_bytes += _width(kind)
    return n_bytes


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return _ASSUMED_WIDTH
