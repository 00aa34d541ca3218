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
from types import TracebackType
from typing import TYPE_CHECKING

from distfms.data.row_groups import GroupedFile
from distfms.engine.remote import RemotePath
from distfms.engine.storage import Location, locate, whole_file
from distfms.engine.storage_errors import unwritable, writing
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 * 2**20
ROWS_PER_SHARD = 1_000_000

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
    with writing(target), whole_file(target) as temporary:
        file = GroupedFile(temporary, table.schema, row_group_rows, row_group_bytes)
        try:
            file.write(table)
        except BaseException:
            file.abandon()
            raise
        file.close()
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
        _require_positive(rows_per_shard=rows_per_shard, row_group_rows=row_group_rows)
        _require_positive(row_group_bytes=row_group_bytes)
        self.folder = Path(folder)
        self.schema = schema
        self.rows_per_shard = rows_per_shard
        self.n_rows = 0
        self._bounds = (row_group_rows, row_group_bytes)
        self._names: list[str] = []
        self._file: GroupedFile | None = None
        self._closed = False
        check_free(self.folder, overwrite=overwrite)
        self._working = working_folder(self.folder, "partial")

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, table: pa.Table) -> None:
        """Append rows.

        Parameters
        ----------
        table : pyarrow.Table
            Of the writer's schema.

        Raises
        ------
        DataError
            If the schema differs or the disk is full.
        """
        if not table.schema.equals(self.schema):
            raise DataError(
                f"rows for {self.folder} have the columns {_described(table.schema)} where the "
                f"dataset has {_described(self.schema)}."
            )
        with self._guarded():
            start = 0
            while start < table.num_rows:
                room = self.rows_per_shard - self._rows_in_shard()
                piece = table.slice(start, room)
                self._shard().write(piece)
                start += piece.num_rows
                self.n_rows += piece.num_rows
                if self._rows_in_shard() == self.rows_per_shard:
                    self._end_shard()

    def add_file(self, name: str, content: bytes) -> None:
        """Put a small file (metadata, costs) next to the shards.

        Parameters
        ----------
        name : str
            File name ending in ``.json`` or ``.csv``. It begins with an underscore: pyarrow, Dask
            and Spark take any other file of the folder for a part of the table.
        content : bytes
        """
        assert name.startswith("_")
        assert name.endswith(_OUR_SUFFIXES)
        with self._guarded():
            path = self._working / name
            path.write_bytes(content)
            _sync(path)

    def close(self) -> tuple[Path, ...]:
        """Finish the last shard and give the folder its name.

        Returns
        -------
        tuple of Path
            The shards in order. A dataset without rows has one shard without rows.
        """
        if not self._closed:
            with self._guarded():
                if self._file is not None or not self._names:
                    self._shard()
                    self._end_shard()
                _sync(self._working)
                self._publish()
            self._closed = True
        return tuple(self.folder / name for name in self._names)

    def abort(self) -> None:
        """Remove everything written so far."""
        self._closed = True
        if self._file is not None:
            self._file.abandon()
            self._file = None
        shutil.rmtree(self._working, ignore_errors=True)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Leave nothing behind when writing fails, and say why it did."""
        if self._closed:
            raise DataError(f"the writer of {self.folder} is closed already.")
        try:
            with writing_to(self.folder):
                yield
        except BaseException:
            self.abort()
            raise

    def _rows_in_shard(self) -> int:
        return self._file.n_rows if self._file is not None else 0

    def _shard(self) -> GroupedFile:
        if self._file is None:
            name = f"part-{len(self._names):05d}.parquet"
            self._names.append(name)
            self._file = GroupedFile(self._working / name, self.schema, *self._bounds)
        return self._file

    def _end_shard(self) -> None:
        assert self._file is not None
        self._file.close()
        _sync(self._file.path)
        self._file = None

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


def check_free(folder: Path, *, overwrite: bool) -> None:
    """See that a dataset can be put at ``folder``.

    Parameters
    ----------
    folder : Path
    overwrite : bool
        Whether a dataset that is there may be replaced.

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
    """Make a hidden folder next to ``target``, on the same disk, and clear stale ones.

    Parameters
    ----------
    target : Path
        What will be there in the end.
    purpose : str
        Goes into the name.

    Returns
    -------
    Path
        An empty folder. Those of the same purpose left by processes of this machine that are no
        longer there are removed.

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
    """Tell a failed write as one paragraph.

    Parameters
    ----------
    target : Path
        What the user asked for, which the message names.

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


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise DataError(f"{name} is {number}; it has to be at least 1.")


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
