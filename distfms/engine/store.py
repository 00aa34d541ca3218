"""Where a run keeps its files: folders of this machine or of shared storage, and object storage.

A place is a `pathlib.Path` or, for a URL, a `RemotePath`, which answers to the same names as far
as runs need them. Whatever goes wrong on remote storage is an `OSError`, as on a disk, and comes
within a bounded time.

A file is written whole or not at all: on a disk under a temporary name that is fsynced and
renamed; on object storage in one put, which shows the old object or the new one and nothing
between; on other remote storage (sftp, smb, hdfs, …) under a temporary name and moved, as whole as
that move is.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from distfms.engine.remote import RemotePath, is_url, local_part
from distfms.errors import SpecError

Location = Path | RemotePath

# Stores of objects whose URLs begin with the name of a bucket or container.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")


def locate(
    place: str | os.PathLike[str] | RemotePath, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """Return the place that a path or URL names; nothing is asked of the storage.

    Parameters
    ----------
    place : str, path or RemotePath
        ``file://`` URLs are folders of this machine.
    storage_options : mapping, optional
        Passed to the fsspec file system of a URL.

    Raises
    ------
    SpecError
        If no file system is known for the URL, its package is not installed, or the URL of a
        store of objects names no bucket.
    """
    if isinstance(place, RemotePath):
        return place
    text = os.fspath(place)
    if not is_url(text):
        return Path(text)
    local = local_part(text)
    if local is not None:
        return Path(local)
    remote = RemotePath(text, storage_options)
    if remote.protocol in _BUCKETS and re.fullmatch(r"\w+:/*|\w+:///.*", text, re.DOTALL):
        raise SpecError(f"{text} names no bucket. Write {remote.protocol}://BUCKET/folder.")
    remote.require_driver()
    return remote


def absolute(place: Location) -> Location:
    """Return the place by a name that means the same in every process of this machine."""
    return place.resolve() if isinstance(place, Path) else place


# --- writing ------------------------------------------------------------------------------------


def write_whole(place: Location, payload: bytes, *, durable: bool = True) -> None:
    """Write a file whole or not at all; its folder is made where needed.

    Parameters
    ----------
    place : Path or RemotePath
    payload : bytes
    durable : bool
        Whether it must be on the disk when this returns. Remote storage always keeps what it has
        acknowledged.

    Raises
    ------
    OSError
        Nothing is left behind then.
    """
    if isinstance(place, RemotePath):
        place.write_whole(payload)
        return
    # Not the process id alone: on shared storage another machine may have the same.
    temporary = place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(place)
        if durable:
            _sync_folder(place.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(folder: Location) -> None:
    """Make a folder and write to it.

    Raises
    ------
    OSError
        If it cannot be made or written.
    """
    probe = folder / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(probe, b"", durable=False)
    # Who may write but not delete can still keep a run there.
    with suppress(PermissionError):
        probe.unlink()


# --- looking ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A file below a folder.

    Attributes
    ----------
    name : str
        Relative to the folder, with ``/`` between folders.
    n_bytes : int
    modified_s : float
        Seconds since 1970; 0 where the storage does not tell.
    place : Path or RemotePath
    """

    name: str
    n_bytes: int
    modified_s: float
    place: Location


def files_below(folder: Location) -> list[Entry]:
    """List all files below a folder in the order of their names; none if there is no folder.

    Raises
    ------
    OSError
        If remote storage does not answer.
    """
    if isinstance(folder, RemotePath):
        return [
            Entry(name, n_bytes, modified_s, folder / name)
            for name, n_bytes, modified_s in folder.walk()
        ]
    return sorted(_local_entries(folder), key=lambda entry: entry.name)


def _local_entries(folder: Path) -> Iterator[Entry]:
    for path in folder.rglob("*"):
        # A file may go while others are listed.
        with suppress(FileNotFoundError):
            status = path.stat()  # once: on shared storage each look is a request
            if stat.S_ISREG(status.st_mode):
                name = path.relative_to(folder).as_posix()
                yield Entry(name, status.st_size, status.st_mtime, path)


def read_each(folder: Location, name: str) -> Iterator[tuple[Location, bytes]]:
    """Read the file of one name in each sub-folder: (sub-folder, content), the last name first.

    What is removed meanwhile, or may not be read, is passed over. Of a folder of this machine a
    file is read when it is asked for.

    Raises
    ------
    OSError
        If storage does not answer.
    """
    if isinstance(folder, RemotePath):
        yield from ((folder / below, text) for below, text in reversed(folder.read_each(name)))
        return
    try:
        below = sorted(folder.iterdir(), reverse=True)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for path in below:
        try:
            content = (path / name).read_bytes()
        except OSError:
            continue
        yield path, content


def missing_folders(folder: Location) -> list[Location]:
    """List what would have to be made for a folder to be: it and its parents, itself first.

    Remote storage has no folders of its own: nothing is to be made above the folder there.
    """
    if isinstance(folder, RemotePath):
        return [] if folder.exists() else [folder]
    return [path for path in (folder, *folder.parents) if not path.exists()]


def open_binary(place: Location) -> BinaryIO:
    """Open a file for reading; one on remote storage is fetched whole.

    Raises
    ------
    OSError
    """
    return place.open("rb") if isinstance(place, Path) else io.BytesIO(place.read_bytes())


# --- more ---------------------------------------------------------------------------------------


def remove_tree(folder: Location) -> None:
    """Remove a folder with all that is in it, as far as possible."""
    if isinstance(folder, RemotePath):
        with suppress(OSError):
            folder.remove_all()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def upload(file: Path, place: RemotePath) -> None:
    """Copy a file of this machine to remote storage, where it appears whole or not at all.

    Raises
    ------
    OSError
    """
    place.take(file)


class Breaker:
    """Remembers that a place does not work, so that not every task waits to find it out again.

    Parameters
    ----------
    pause_s : float
        Seconds for which it is then left alone.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._broken: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def trip(self, place: RemotePath, error: OSError) -> None:
        """Remember an error of a place."""
        with self._lock:
            self._broken[str(place)] = (time.monotonic(), error.strerror or str(error))

    def require(self, place: Location) -> None:
        """Raise the error of a place that is to be left alone."""
        since, text = self._broken.get(str(place), (None, ""))
        if since is not None and time.monotonic() - since < self._pause_s:
            raise OSError(errno.EIO, text)
