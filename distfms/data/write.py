"""Parquet out: one file, or a folder of shards, never half-written.

Numbers are written with zstd and without a dictionary, floats with BYTE_STREAM_SPLIT and integers,
which are mostly ids, with DELTA_BINARY_PACKED: measurements and ids hardly repeat, and these forms
are written and decoded two to five times as fast as the writer's default and are smaller.
Whatever is written appears under its final name only when it is complete and on disk.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import as_floats
from distfms.engine.remote import RemotePath
from distfms.engine.storage import Location, locate, sync, unwritable, whole_file, writing
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 * 2**20
ROWS_PER_SHARD = 1_000_000

# A string in a list has no fixed width; the estimate only decides where a row group ends.
_ASSUMED_WIDTH = 16

_OUR_SUFFIXES = (".parquet", ".json", ".csv")


def write_table(
    path: str | os.PathLike[str] | RemotePath,
    table: pa.Table,
    row_group_rows: int = ROW_GROUP_ROWS,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> Location:
    """Write one Parquet file atomically, in place of one that is there, and return its place."""
    target = locate(path)
    with (
        writing(target),
        whole_file(target) as temporary,
        GroupedFile(temporary, row_group_rows, row_group_bytes) as file,
    ):
        file.write(table)
    return target


class ShardWriter:
    """Write a dataset of any length as ``part-00000.parquet``, ``part-00001.parquet``, ….

    The shards go to a hidden folder next to the target, which is renamed when the last one is on
    disk: a killed writer leaves no dataset that looks whole. What is written depends on the rows
    only, not on how they were cut into calls of :meth:`write`. At most one row group is held.
    The folder must not exist, or be empty; `overwrite` replaces a dataset that is there, but no
    folder that holds anything else.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        schema: pa.Schema,
        rows_per_shard: int = ROWS_PER_SHARD,
        row_group_rows: int = ROW_GROUP_ROWS,
        row_group_bytes: int = ROW_GROUP_BYTES,
        *,
        overwrite: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.schema = schema
        self._rows_per_shard = rows_per_shard
        self._bounds = (row_group_rows, row_group_bytes)
        self._shards = contextlib.ExitStack()
        self._n_shards = 0
        self._shard: GroupedFile | None = None
        check_free(self.folder, overwrite=overwrite)
        self._working = working_folder(self.folder, "partial")

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        try:
            if kind is not None:
                self._shards.__exit__(kind, *error)
                return
            with writing_to(self.folder):
                if self._n_shards == 0:  # a dataset without rows has one shard without rows
                    self._open_shard().write(self.schema.empty_table())
                self._end_shard()
                sync(self._working)
                self._publish()
        finally:
            shutil.rmtree(self._working, ignore_errors=True)

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        assert table.schema.equals(self.schema)
        with writing_to(self.folder):
            start = 0
            while start < table.num_rows:
                shard = self._shard or self._open_shard()
                piece = table.slice(start, self._rows_per_shard - shard.n_rows)
                shard.write(piece)
                start += piece.num_rows
                if shard.n_rows == self._rows_per_shard:
                    self._end_shard()

    def add_file(self, name: str, content: bytes) -> None:
        """Put a small file (metadata, costs) next to the shards.

        Its name begins with an underscore: pyarrow, Dask and Spark take any other file of the
        folder for a part of the table.
        """
        assert name.startswith("_")
        assert name.endswith(_OUR_SUFFIXES)
        with writing_to(self.folder):
            path = self._working / name
            path.write_bytes(content)
            sync(path)

    def _open_shard(self) -> GroupedFile:
        path = self._working / f"part-{self._n_shards:05d}.parquet"
        self._n_shards += 1
        self._shard = self._shards.enter_context(GroupedFile(path, *self._bounds))
        return self._shard

    def _end_shard(self) -> None:
        if self._shard is not None:
            path, self._shard = self._shard.path, None
            self._shards.close()
            sync(path)

    def _publish(self) -> None:
        """Rename; an old dataset is moved out of the way first and removed last."""
        old = None
        if self.folder.exists() and any(self.folder.iterdir()):
            old = working_folder(self.folder, "replaced")
            self.folder.replace(old)
        self._working.replace(self.folder)
        sync(self.folder.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


class GroupedFile:
    """One Parquet file whose row groups end where rows or uncompressed bytes reach their bound.

    Where they end depends on the rows only, as partitions follow them and sums follow partitions.
    A row group has at least one row. The first table written decides about the schema.
    """

    def __init__(
        self,
        path: Path,
        row_group_rows: int = ROW_GROUP_ROWS,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self.path = path
        self.n_rows = 0
        self._max_rows = row_group_rows
        self._max_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._writer: Any = None

    def __enter__(self) -> GroupedFile:
        return self

    def write(self, table: pa.Table) -> None:
        """Append rows; full row groups go to disk."""
        import pyarrow.parquet as pq

        if self._writer is None:
            options = parquet_options(table.schema)
            self._writer = pq.ParquetWriter(str(self.path), table.schema, **options)
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
            self._writer.close()
        elif self._writer is not None:
            # Closing writes the footer, which fails for the reason why the file is not wanted.
            with contextlib.suppress(Exception):
                self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending_rows:
            group = pa.concat_tables(self._pending)
            self._pending = []
            self._writer.write_table(group, row_group_size=group.num_rows)
            self._pending_rows = self._pending_bytes = 0


class CsvFile:
    """One CSV file, written table after table; the first decides about the columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> CsvFile:
        return self

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        import pyarrow.csv as csv

        self._writer = self._writer or csv.CSVWriter(str(self._path), table.schema)
        self._writer.write_table(table)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def check_free(folder: Path, *, overwrite: bool) -> None:
    """See that a dataset can be put at ``folder``, in place of another if that is allowed."""
    with writing_to(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise DataError(f"{folder} is a file; name a folder for the dataset.")
        entries = list(folder.iterdir())
        if entries and not overwrite:
            raise DataError(
                f"{folder} exists and is not empty; choose another folder or overwrite it."
            )
        strange = [e.name for e in entries if not e.is_file() or e.suffix not in _OUR_SUFFIXES]
        if strange:
            raise DataError(
                f"{folder} is not overwritten: it holds {strange[0]!r}, which is not part of a "
                "dataset. Remove the folder yourself or choose another."
            )


def working_folder(target: Path, purpose: str) -> Path:
    """Make a hidden folder next to ``target``.

    Those of the same purpose left by processes of this machine that are gone are removed.
    """
    prefix = f".{target.name}.{purpose}-{socket.gethostname()}-"
    with writing_to(target):
        parent = target.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        for entry in parent.glob(f"{glob.escape(prefix)}*"):
            owner = entry.name.removeprefix(prefix).partition("-")[0]
            if owner.isdigit() and not _is_running(int(owner)):
                shutil.rmtree(entry, ignore_errors=True)
        folder = parent / f"{prefix}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
    return folder


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def writing_to(target: Path) -> Iterator[None]:
    """Explain a failed write in one paragraph that names the target."""
    try:
        yield
    except OSError as error:
        raise unwritable(target, error, "The dataset", "name another place") from error


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return options of a writer: encodings for floats and integers, a dictionary for all else."""
    import pyarrow.types as pt

    encodings: dict[str, str] = {}
    others: list[str] = []
    for field in schema:
        path, kind = field.name, field.type
        if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            path, kind = f"{path}.list.element", kind.value_type
        if pt.is_float32(kind) or pt.is_float64(kind):
            encodings[path] = "BYTE_STREAM_SPLIT"
        elif pt.is_integer(kind):
            encodings[path] = "DELTA_BINARY_PACKED"
        else:
            others.append(path)
    return {
        "compression": "zstd",
        "use_dictionary": others or False,
        "column_encoding": encodings or None,
    }


def _row_bytes(table: pa.Table) -> np.ndarray:
    """Uncompressed bytes of each row, (n_rows,) int64."""
    import pyarrow.compute as pc
    import pyarrow.types as pt

    n_bytes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        if pt.is_list(kind) or pt.is_large_list(kind):
            n_bytes += _numbers(pc.list_value_length(column)) * _width(kind.value_type) + 4
        elif pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind):
            n_bytes += _numbers(pc.binary_length(column))
        else:
            n_bytes += _width(kind)
    return n_bytes


def _numbers(lengths: pa.ChunkedArray) -> np.ndarray:
    chunks = [np.nan_to_num(as_floats(chunk)).astype(np.int64) for chunk in lengths.chunks]
    return np.concatenate([np.empty(0, np.int64), *chunks])


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return _ASSUMED_WIDTH
