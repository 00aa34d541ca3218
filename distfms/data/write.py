"""Parquet out: one table, or a folder of shards, never half-written.

Float columns are written with BYTE_STREAM_SPLIT and zstd and without a dictionary: measurements
hardly repeat, and this form decodes about twice as fast as the writer's default and is smaller.
Whatever is written appears under its final name only when it is complete and on disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.engine.remote import RemotePath
from distfms.engine.storage import Location, locate, whole_file
from distfms.engine.storage_errors import unwritable, writing
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
    """Write one Parquet file atomically.

    Parameters
    ----------
    path : path, URL or RemotePath
        An existing file is replaced. Its folder is made where needed.
    table : pyarrow.Table
    row_group_rows : int
        At most so many rows in a row group.
    row_group_bytes : int
        At most so many uncompressed bytes in a row group, but at least one row.

    Returns
    -------
    Path or RemotePath
        Where the table is.

    Raises
    ------
    EngineError
        If the file cannot be written; nothing is left behind then.
    """
    target = locate(path)
    with (
        writing(target),
        whole_file(target) as temporary,
        GroupedFile(temporary, table.schema, row_group_rows, row_group_bytes) as file,
    ):
        file.write(table)
    return target


class ShardWriter:
    """Write a dataset of any length as ``part-00000.parquet``, ``part-00001.parquet``, ….

    The shards go to a hidden folder next to the target, which is renamed when the last one is on
    disk: a killed writer leaves no dataset that looks whole. What is written depends on the rows
    only, not on how they were cut into calls of :meth:`write`. At most one row group is held.

    Parameters
    ----------
    folder : path
        The dataset; must not exist, or be empty, unless ``overwrite``.
    schema : pyarrow.Schema
    rows_per_shard : int
        Rows of every shard but the last.
    row_group_rows, row_group_bytes : int
        Upper bounds of a row group, the second in uncompressed bytes; one row always fits.
    overwrite : bool
        Replace a dataset that is there. Refused for folders that hold anything but datasets.

    Raises
    ------
    DataError
        If the folder is taken.
    SpecError, EngineError
        If the folder cannot be written, or the disk is full.

    Examples
    --------
    >>> with ShardWriter(folder, table.schema, rows_per_shard=1000) as writer:  # doctest: +SKIP
    ...     writer.write(table)
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
        bounds = {"row_group_rows": row_group_rows, "row_group_bytes": row_group_bytes}
        for name, number in {"rows_per_shard": rows_per_shard, **bounds}.items():
            if number < 1:
                raise DataError(f"{name} is {number}; it has to be at least 1.")
        self.folder = Path(folder)
        self.schema = schema
        self.rows_per_shard = rows_per_shard
        self._bounds = bounds
        self._n_shards = 0
        self._open = contextlib.ExitStack()
        self._file: GroupedFile | None = None
        check_free(self.folder, overwrite=overwrite)
        self._working = working_folder(self.folder, "partial")

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        try:
            if kind is not None:
                self._open.__exit__(kind, *error)
                return
            with writing_to(self.folder):
                if self._n_shards == 0:  # a dataset without rows has one shard without rows
                    self._shard()
                self._end_shard()
                _sync(self._working)
                self._publish()
        finally:
            shutil.rmtree(self._working, ignore_errors=True)

    def write(self, table: pa.Table) -> None:
        """Append rows.

        Raises
        ------
        DataError
            If the schema differs.
        SpecError, EngineError
            If they cannot be written.
        """
        if not table.schema.equals(self.schema):
            raise DataError(
                f"rows for {self.folder} have the columns {_described(table.schema)} where the "
                f"dataset has {_described(self.schema)}."
            )
        with writing_to(self.folder):
            start = 0
            while start < table.num_rows:
                shard = self._shard()
                piece = table.slice(start, self.rows_per_shard - shard.n_rows)
                shard.write(piece)
                start += piece.num_rows
                if shard.n_rows == self.rows_per_shard:
                    self._end_shard()

    def add_file(self, name: str, content: bytes) -> None:
        """Put a small file (metadata, costs) next to the shards.

        Its name ends in ``.json`` or ``.csv`` and begins with an underscore: pyarrow, Dask and
        Spark take any other file of the folder for a part of the table.
        """
        assert name.startswith("_")
        assert name.endswith(_OUR_SUFFIXES)
        with writing_to(self.folder):
            path = self._working / name
            path.write_bytes(content)
            _sync(path)

    def _shard(self) -> GroupedFile:
        if self._file is None:
            path = self._working / f"part-{self._n_shards:05d}.parquet"
            self._n_shards += 1
            self._file = self._open.enter_context(GroupedFile(path, self.schema, **self._bounds))
        return self._file

    def _end_shard(self) -> None:
        if self._file is not None:
            path, self._file = self._file.path, None
            self._open.close()
            _sync(path)

    def _publish(self) -> None:
        """Rename; an old dataset is moved out of the way first and removed last."""
        old = None
        if self.folder.exists() and any(self.folder.iterdir()):
            old = working_folder(self.folder, "replaced")
            self.folder.replace(old)
        self._working.replace(self.folder)
        _sync(self.folder.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


class GroupedFile:
    """One Parquet file whose row groups end where rows or bytes reach their bound.

    Where they end depends on the rows only, as partitions follow them and sums follow partitions.

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

    def __enter__(self) -> GroupedFile:
        return self

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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
            self._writer.close()
            return
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


def check_free(folder: Path, *, overwrite: bool) -> None:
    """See that a dataset can be put at ``folder``, in place of another if that is allowed.

    Raises
    ------
    DataError
        If something is there that may not be replaced.
    """
    with writing_to(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise DataError(f"{folder} is a file; name a folder for the dataset.")
        entries = list(folder.iterdir())
        if entries and not overwrite:
            raise DataError(
                f"{folder} exists and is not empty; choose another folder or ask to overwrite it."
            )
        strange = [e.name for e in entries if not e.is_file() or e.suffix not in _OUR_SUFFIXES]
        if strange:
            raise DataError(
                f"{folder} is not replaced: it holds {strange[0]!r}, which no dataset has. "
                "Remove the folder yourself or choose another."
            )


def working_folder(target: Path, purpose: str) -> Path:
    """Make a hidden folder next to ``target``, on the same disk, and return it.

    Those of the same purpose left by processes of this machine that are no longer there are
    removed.

    Raises
    ------
    DataError
        If the parent folder cannot be made or written.
    """
    prefix = f".{target.name}.{purpose}-{socket.gethostname()}-"
    with writing_to(target):
        parent = target.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        for entry in parent.iterdir():
            owner = entry.name.removeprefix(prefix).partition("-")[0]
            if entry.name.startswith(prefix) and owner.isdigit() and not _is_running(int(owner)):
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
    """Explain a failed write in one paragraph that names the target.

    Raises
    ------
    SpecError, EngineError
        In place of any OSError: the second if the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(target, error, "The dataset", "name another place") from error


def _sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return options of ``pyarrow.parquet.ParquetWriter`` for a schema.

    Floats (also those in lists) have BYTE_STREAM_SPLIT, all else the writer's dictionary.
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
