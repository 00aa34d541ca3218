"""Files of data, runs and caches: on this machine, or on remote storage by fsspec.

A place is a `pathlib.Path` or, for a URL, a `RemotePath`, which answers to the same names as far
as they are needed. Whatever goes wrong on remote storage is an `OSError`, as on a disk, and comes
within a bounded time.

A file is written whole or not at all: on a disk under a temporary name that is fsynced and
renamed; on object storage in one put; on other remote storage (sftp, smb, hdfs, …) under a
temporary name and moved, as whole as that move is.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np

from distfms.errors import DistfmsError, EngineError, SpecError
from distfms.store.remote import REQUEST_S, RemotePath, is_url, local_part, temporary_name

Location = Path | RemotePath

# Stores of objects whose URLs begin with the name of a bucket or container.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")

#: What a file system answers that knows no links.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)

#: What a file system answers that knows no locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# By the names of fsspec's clients.
_STAMPS = ("ETag", "etag", "md5Hash", "version_id")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")


def locate(
    place: str | os.PathLike[str] | RemotePath, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """Return the place that a path or URL names; nothing is asked of the storage.

    Raises SpecError if no file system is known for the URL, its package is not installed, or the
    URL of a store of objects names no bucket.
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
        raise SpecError(f"{text} has no bucket. Write {remote.protocol}://BUCKET/folder.")
    remote.driver()
    return remote


def absolute(place: Location) -> Location:
    """Return the place by a name that means the same in every process of this machine."""
    return place.resolve() if isinstance(place, Path) else place


# --- writing ------------------------------------------------------------------------------------


@contextmanager
def whole_file(place: Location, *, durable: bool = True) -> Iterator[Path]:
    """Yield where to write a file, which is at its place when the block ends well.

    Its folder is made where needed; nothing is left behind by an error. ``durable`` asks for it to
    be on the disk when this returns; remote storage always keeps what it has acknowledged.
    """
    if isinstance(place, RemotePath):
        with TemporaryDirectory(prefix="distfms-") as scratch:
            written = Path(scratch) / place.name
            yield written
            place.put(written)
        return
    temporary = place.with_name(temporary_name(place.name))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(place)
        if durable:
            sync(place.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_whole(place: Location, payload: bytes, *, durable: bool = True) -> None:
    """Write a file whole or not at all; see `whole_file`."""
    if isinstance(place, RemotePath):
        place.put(payload)
        return
    with whole_file(place, durable=durable) as temporary:
        temporary.write_bytes(payload)


def create_whole(place: Location, payload: bytes) -> bool:
    """Write a file whole unless there is one; return whether this call has made it.

    Of several writers one succeeds: on a disk by a link (where there are none, by an exclusive
    creation, which a killed process may leave torn), on object storage by a conditional put.
    Other remote storage can only look before it writes: of two writers at the same instant both
    may believe they succeeded. The payload must be no other writer's.
    """
    try:
        if isinstance(place, RemotePath):
            place.put(payload, new=True)
        else:
            _link_new(place, payload)
    except OSError:
        # An answer may have been lost, and the client have asked again.
        with suppress(FileNotFoundError):
            return read_regular(place) == payload
        raise
    return True


def _link_new(place: Path, payload: bytes) -> None:
    """Write a file whole; FileExistsError where there is one."""
    temporary = place.with_name(temporary_name(place.name))
    write_whole(temporary, payload)
    try:
        os.link(temporary, place)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with place.open("xb") as stream:
            stream.write(payload)
        sync(place)
    finally:
        temporary.unlink()
    sync(place.parent)


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that a killed writer has left."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".tmp")


@contextmanager
def locked_file(path: Location, busy: str = "") -> Iterator[None]:
    """Hold a lock that dies with its process; go on without where the storage knows no locks.

    Where another process holds it, wait; or raise an EngineError that says how busy it is.
    """
    if isinstance(path, RemotePath):
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("ab")
    except OSError as error:
        raise storage_error(path, error) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise EngineError(busy) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise storage_error(path, error) from error
        yield


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(folder: Location) -> None:
    """Make a folder and write to it; OSError if that cannot be done."""
    probe = folder / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    write_whole(probe, b"", durable=False)
    # Who may write but not delete can still keep a run there.
    with suppress(PermissionError):
        probe.unlink()


def remove_tree(folder: Location) -> None:
    """Remove a folder with all that is in it, as far as possible."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        folder.ask("rm", folder.inside, recursive=True, limit_s=5 * REQUEST_S)


# --- reading and listing ------------------------------------------------------------------------


def read_regular(place: Location) -> bytes | None:
    """Read a file; None where it is a folder, or a pipe or device that might never end."""
    if isinstance(place, Path) and not stat.S_ISREG(place.stat().st_mode):
        return None
    return place.read_bytes()


def names_in(folder: Location) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist."""
    with reading(folder), suppress(FileNotFoundError):
        return sorted(place.name for place in folder.iterdir())
    return []


_NO_GROUPS = np.zeros((0, 3), dtype=np.int64)


@dataclass(frozen=True)
class File:
    """A file, as found in a folder; one of data is complete once its footer has been read.

    Attributes
    ----------
    name : str
        Relative to the folder, with ``/`` between folders. In a dataset the folder's own name comes
        first, as ``2024/a.parquet``: it stays the same when further folders join the dataset.
    n_bytes : int
    modified_s : float
        Time of modification, 0 where the storage does not tell.
    stamp : str
        What changes when the content changes: the etag if the store has one, else the modification
        time; empty when it tells neither.
    place : Path or RemotePath
    key : str
        What decides, with the number of a row, its fold where no id or query does.
    source : str
        Path of the user's file that it is a copy of.
    state : str
        What tells a file whose size and stamp are the same from another: on a disk inode and time
        of change, else the etag; empty where nothing does.
    row_groups : ndarray of int, shape (row groups, 3)
        Rows, about their bytes once decoded, and those of uncompressed pages.
    footer : str
        Digest of the footer: the size, place and (where the writer gave them) least and greatest
        value of every column of every row group. It tells a file that was rewritten with the same
        size and given its old time stamp.
    sheet : str
        Of a workbook, the sheet that is read; empty for the fullest.
    """

    name: str
    n_bytes: int
    modified_s: float
    stamp: str
    place: Location
    key: str = ""
    source: str = ""
    state: str = ""
    row_groups: np.ndarray = field(default_factory=lambda: _NO_GROUPS, compare=False)
    footer: str = ""
    sheet: str = ""

    @property
    def called(self) -> str:
        """Path that users know."""
        return self.source or self.path

    @property
    def path(self) -> str:
        """Path inside the file system; that of a sheet ends in ``#`` and its name."""
        inside = self.place.as_posix() if isinstance(self.place, Path) else self.place.inside
        return f"{inside}#{self.sheet}" if self.sheet else inside

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.row_groups[:, 0].sum())

    @property
    def version(self) -> str:
        """Text that changes when the content does: size, stamp and footer."""
        return f"{self.n_bytes}:{self.stamp}:{self.footer}"


def files_below(folder: Location, pattern: str | None = None) -> list[File]:
    """List the files below a folder in the order of their names; none if there is no folder.

    In a pattern, relative to the folder, ``**`` stands for any number of folders. Raises OSError if
    storage does not answer.
    """
    if isinstance(folder, Path):
        hidden = pattern is None
        names = glob.glob(pattern or "**", root_dir=folder, recursive=True, include_hidden=hidden)
        entries = [_local_entry(folder, Path(name).as_posix()) for name in names]
    else:
        infos = folder.infos(pattern)
        entries = [_remote_entry(folder / name, name, info) for name, info in infos.items()]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.name)


def file_entry(place: Location) -> File | None:
    """Return the entry of one file, None if there is no such file."""
    if isinstance(place, Path):
        return _local_entry(place.parent, place.name)
    return _remote_entry(place, place.name, place.info())


def _local_entry(folder: Path, name: str) -> File | None:
    place = folder / name
    try:
        status = place.stat()  # once: on shared storage each look is a request
    except (FileNotFoundError, NotADirectoryError):
        return None  # a file may go while others are listed
    if not stat.S_ISREG(status.st_mode):
        return None
    state = f"{status.st_ino}:{status.st_ctime_ns}"
    stamp = str(status.st_mtime_ns)
    return File(name, status.st_size, status.st_mtime, stamp, place, state=state)


def _remote_entry(place: RemotePath, name: str, info: Mapping[str, Any]) -> File | None:
    if info.get("type") != "file":
        return None
    size = int(info.get("size") or 0)
    modified_s = _modified_s(info)
    return File(name, size, modified_s, stamp_of(info), place, state=etag_of(info))


def stamp_of(info: Mapping[str, Any]) -> str:
    """Return what tells the content of a remote file, as fsspec describes it, from another."""
    return etag_of(info) or str(_modified_s(info) or "")


def etag_of(info: Mapping[str, Any]) -> str:
    """Return what the store calls the content of a file, empty if it has no name for it."""
    return next((str(info[key]).strip('"') for key in _STAMPS if info.get(key) is not None), "")


def _modified_s(info: Mapping[str, Any]) -> float:
    for key in _TIMES:
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return 0.0


def read_each(folder: Location, name: str, ending: str = "") -> Iterator[tuple[Location, bytes]]:
    """Read the file of one name in each sub-folder: (sub-folder, content), the last name first.

    Only sub-folders whose names have the ending are looked at.

    What is removed meanwhile, or may not be read, is passed over. Raises OSError if storage does
    not answer.
    """
    passed = (FileNotFoundError, NotADirectoryError, PermissionError)
    below: list[Location] = []
    with suppress(*passed):
        below = [path for path in folder.iterdir() if path.name.endswith(ending)]
    for path in sorted(below, key=lambda path: path.name, reverse=True):
        with suppress(*passed):
            if (payload := read_regular(path / name)) is not None:
                yield path, payload


def missing_folders(folder: Location) -> list[Location]:
    """List what would have to be made for a folder to be: it and its parents, itself first.

    Remote storage has no folders of its own: nothing is to be made above the folder there.
    """
    if isinstance(folder, RemotePath):
        return [] if folder.exists() else [folder]
    return [path for path in (folder, *folder.parents) if not path.exists()]


def open_stream(place: Location) -> Any:
    """Open a file for reading piece by piece; what the storage's client raises is as it is."""
    return place.open("rb") if isinstance(place, Path) else place.system().open(place.inside, "rb")


def open_binary(place: Location) -> BinaryIO:
    """Open a file for reading; one on remote storage is fetched whole."""
    return place.open("rb") if isinstance(place, Path) else io.BytesIO(place.read_bytes())


# --- what goes wrong, said so that a user can act on it -------------------------------------------


def storage_error(place: Location, error: OSError, done: str = "written") -> DistfmsError:
    """Explain a failure of a disk or of remote storage: a place could not be ``done``."""
    reason = error.strerror or error
    if isinstance(error, NotADirectoryError):
        return SpecError(
            f"{place} could not be {done}: a file is where a folder must be. Name another place."
        )
    if isinstance(place, Path):
        if error.errno in _FULL:
            return EngineError(
                f"The disk is full or a quota is reached: {place} could not be {done}. Finished "
                "work is kept; free some space, then run the same command again to resume."
            )
        is_denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        suspect = "the folder's permissions" if is_denied else "the disk or the network it is on"
        return EngineError(
            f"{place} could not be {done} ({reason}). Check {suspect}, then run the same command "
            "again to resume."
        )
    text = f"{place} could not be {done} ({reason}). {_advice(error)}"
    if error.errno == errno.EROFS:
        return SpecError(f"{text}.")
    return EngineError(f"{text}, then run the same command again to resume.")


def _advice(error: OSError) -> str:
    """Return what to look at when remote storage has failed."""
    if isinstance(error, PermissionError):
        return "Access is denied: check the credentials and their permissions"
    if isinstance(error, FileNotFoundError):
        return "Check that the bucket or container exists"
    if error.errno == errno.EROFS:
        return "Name another place"
    return "Check that the storage is reachable and has credentials"


@contextmanager
def reading(place: Location) -> Iterator[None]:
    """Explain failures of storage other than that a file is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(place, error, "read") from error


@contextmanager
def writing(place: Location) -> Iterator[None]:
    """Explain failures of storage."""
    try:
        yield
    except OSError as error:
        raise storage_error(place, error) from error


def hangs(error: BaseException) -> bool:
    """Whether an error says that storage does not answer, so that no more should be asked of it."""
    return isinstance(error.__cause__, TimeoutError)


def unwritable(place: Location, error: OSError, name: str, advice: str) -> DistfmsError:
    """Explain why nothing can be written where a user wants it.

    A storage that does not answer may do so later, and a full disk be emptied; for anything else
    another place has to be named, which ``advice`` says how to do.
    """
    silent = isinstance(error, TimeoutError | ConnectionError) or error.errno == errno.EIO
    if error.errno in _FULL or (silent and not isinstance(place, Path)):
        return storage_error(place, error)
    remedy = "fix its permissions" if isinstance(place, Path) else _advice(error)
    remedy = remedy[:1].upper() + remedy[1:]
    reason = error.strerror or error
    return SpecError(f"{name} {place} cannot be written ({reason}). {remedy}, or {advice}.")
