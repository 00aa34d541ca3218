"""Places on remote storage, by fsspec."""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from distfms.errors import SpecError, nearest

#: Protocols of object storage: a put replaces an object at once, and there is nothing to rename.
OBJECT_STORAGE = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci", "tos", "obs", "memory")
)

#: Extras of distfms that bring the package of a protocol.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"} | dict.fromkeys(
    ("abfs", "abfss", "az"), "azure"
)

#: Seconds that a request may take, and bytes a second that a transfer must make beyond it.
REQUEST_S = 60.0
SLOWEST_BYTES_PER_S = 2**20

#: boto's own limits, where the user sets none: a server that is not there is given up before
#: `REQUEST_S`, and one that falls silent soon after it.
_S3_LIMITS = {
    "connect_timeout": 5,
    "read_timeout": 30,
    "retries": {"max_attempts": 4, "mode": "standard"},
}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.DOTALL)
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+::")


class _OfThread(threading.local):
    """File systems that only one thread uses: those that are not async may not be shared."""

    def __init__(self) -> None:
        self.systems: dict[Any, Any] = {}


# By process, class, place and options.
_shared: dict[Any, Any] = {}
_own = _OfThread()


def is_url(path: str) -> bool:
    """Whether a path names a place by URL, such as ``s3://bucket/runs``."""
    # Also as pathlib writes it, with one slash.
    return _URL.match(path) is not None or _CHAIN.match(path) is not None


def local_part(url: str) -> str | None:
    """Return the path in a URL of this machine's files, None for another URL."""
    match = _URL.match(url)
    if match is None or match[1].lower() not in ("file", "local"):
        return None
    return "/" + match[3]


class RemotePath:
    """A place on remote storage; used as a `pathlib.Path` is, as far as runs need it.

    It is picklable, and opens its file system where it is used. Every failure of the storage is
    an `OSError`; one that does not answer in time is a `TimeoutError`.

    Parameters
    ----------
    url : str
        ``protocol://…``.
    storage_options : mapping, optional
        Passed to the fsspec file system. Never shown.

    Raises
    ------
    SpecError
        If it is no URL, holds a password, or is a chain of URLs.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URL.match(url)
        if match is None or "::" in url:
            raise SpecError(
                f"{url} is no URL of one place. It has the form protocol://place/folder; a chain "
                "of URLs (::) cannot be written to."
            )
        # pathlib makes one slash of two.
        slashes = "//" if len(match[2]) == 1 else match[2]
        self.protocol = match[1].lower()
        self.storage_options = dict(storage_options or {})
        self._url = f"{self.protocol}:{slashes}{match[3]}".rstrip("/")
        if re.match(r"[^/]*:[^/]*@", match[3]):
            raise SpecError(
                f"The {self.protocol}:// URL holds a password, which would be shown in logs and "
                "manifests. Leave it out, and give it as a storage option by the name of an "
                "environment variable: password: ${NAME}."
            )

    # --- names ---

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotePath):
            return NotImplemented
        return (self._url, self.storage_options) == (other._url, other.storage_options)

    def __hash__(self) -> int:
        return hash(self._url)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._url}/{name}", self.storage_options)

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The folder that holds this."""
        return RemotePath(self._url.rpartition("/")[0], self.storage_options)

    @property
    def inside(self) -> str:
        """Path inside the file system, as fsspec lists it."""
        return str(self._open()[1]).rstrip("/")

    # --- reading ---

    def read_bytes(self) -> bytes:
        """Read the whole file.

        Raises
        ------
        OSError
            `FileNotFoundError` if there is none.
        """
        system, path = self._open()
        # What is read is of unknown size; a transfer that goes on is the client's to watch.
        return self._ask(partial(system.cat_file, path), 10 * REQUEST_S)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the whole file as text."""
        return self.read_bytes().decode(encoding)

    def exists(self) -> bool:
        """Whether there is such a file, or are files below it."""
        return self._kind() is not None

    def is_dir(self) -> bool:
        """Whether there are files below it."""
        return self._kind() == "directory"

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._kind() == "file"

    def _kind(self) -> str | None:
        system, path = self._open()
        try:
            return self._ask(partial(system.info, path))["type"]
        except FileNotFoundError:
            return None

    def iterdir(self) -> Iterator[RemotePath]:
        """Give what is directly in the folder, in the order of names."""
        system, path = self._open()
        with suppress(FileNotFoundError):
            found = self._ask(partial(system.ls, path, detail=False))
            names = {str(name).rstrip("/").rpartition("/")[2] for name in found}
            yield from (self / name for name in sorted(names - {self.name, ""}))

    def walk(self) -> list[tuple[str, int, float]]:
        """List all files below: (relative name, bytes, modification time in s), by name.

        Raises
        ------
        OSError
        """
        system, path = self._open()
        try:
            found = self._ask(partial(system.find, path, detail=True), 5 * REQUEST_S)
        except FileNotFoundError:
            return []
        start = len(str(path).rstrip("/")) + 1
        return sorted(
            (name[start:], int(info.get("size") or 0), _modified_s(info))
            for name, info in found.items()
            if info["type"] == "file" and len(name) > start
        )

    def read_each(self, name: str) -> list[tuple[str, bytes]]:
        """Read the file of one name in each sub-folder: (sub-folder's name, content).

        What is removed meanwhile, or may not be read, is left out.

        Raises
        ------
        OSError
        """
        folders = [folder.name for folder in self.iterdir()]
        system, path = self._open()
        wanted = {f"{str(path).rstrip('/')}/{folder}/{name}": folder for folder in folders}
        if not wanted:
            return []
        # Side by side where the file system can.
        cat = partial(system.cat, list(wanted), on_error="return")
        found = self._ask(cat, 10 * REQUEST_S)
        contents = []
        for inside, content in found.items():
            if isinstance(content, FileNotFoundError | NotADirectoryError | PermissionError):
                continue
            if isinstance(content, BaseException):
                raise self._as_os_error(content) from content
            contents.append((wanted[inside], content))
        return sorted(contents)

    # --- writing ---

    def write_whole(self, payload: bytes) -> None:
        """Write the file whole or not at all; see `distfms.engine.store`.

        Raises
        ------
        OSError
        """
        limit_s = REQUEST_S + len(payload) / SLOWEST_BYTES_PER_S
        self._put(lambda system, path: partial(system.pipe_file, path, payload), limit_s)

    def take(self, file: Path) -> None:
        """Copy a file of this machine here, whole or not at all.

        Raises
        ------
        OSError
        """
        limit_s = REQUEST_S + file.stat().st_size / SLOWEST_BYTES_PER_S
        self._put(lambda system, path: partial(system.put_file, str(file), path), limit_s)

    def _put(self, put: Callable[[Any, str], Callable[[], Any]], limit_s: float) -> None:
        system, path = self._open()
        if self.protocol in OBJECT_STORAGE:
            self._ask(put(system, path), limit_s)
            return
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            self._ask(partial(system.makedirs, folder, exist_ok=True))
            self._ask(put(system, temporary), limit_s)
            self._ask(partial(system.mv, temporary, path))
        except BaseException:
            with suppress(OSError):
                self._ask(partial(system.rm_file, temporary))
            raise

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file; object storage may not say that there was none.

        Raises
        ------
        OSError
        """
        system, path = self._open()
        try:
            self._ask(partial(system.rm_file, path))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_all(self) -> None:
        """Delete all files below.

        Raises
        ------
        OSError
        """
        system, path = self._open()
        with suppress(FileNotFoundError):
            self._ask(partial(system.rm, path, recursive=True), 5 * REQUEST_S)

    # --- the file system ---

    def require_driver(self) -> None:
        """Check that there is a file system for the protocol; nothing is asked of the storage.

        Raises
        ------
        SpecError
            Names the package to install.
        """
        from fsspec import get_filesystem_class
        from fsspec.registry import known_implementations

        try:
            get_filesystem_class(self.protocol)
        except ImportError as error:
            entry = known_implementations.get(self.protocol, {})
            package = _EXTRAS.get(self.protocol)
            install = f"pip install 'distfms[{package}]'" if package else entry.get("err", error)
            raise SpecError(
                f"{self} needs a package that this Python lacks ({error}). Install it here "
                f"({install}) and, for a job on a cluster, on every node too."
            ) from error
        except ValueError as error:
            raise SpecError(
                f"{self}: there is no storage of the kind {self.protocol}://."
                f"{nearest(self.protocol, sorted(known_implementations))}"
            ) from error

    def _open(self) -> tuple[Any, str]:
        """Return the file system and the path inside it."""
        self.require_driver()
        from fsspec import get_filesystem_class

        options = _with_limits(self.protocol, self.storage_options)
        kind = get_filesystem_class(self.protocol)
        key = (os.getpid(), kind, *self._url.split("/")[:3], repr(options))
        # One session for all threads, where they can share it.
        known = _shared if getattr(kind, "async_impl", False) else _own.systems
        system = known.get(key)
        if system is None:
            # Two threads may connect at once; both go on with the first connection.
            system = known.setdefault(key, self._connect(options))
        # What fsspec remembers of earlier listings may be old: others write there too.
        system.invalidate_cache()
        return system, system._strip_protocol(self._url)

    def _connect(self, options: Mapping[str, Any]) -> Any:
        """Make the file system; many connect to their server at once, and have no time limit."""
        from fsspec.core import url_to_fs

        # fsspec's own instances go by thread, and this is made in a passing one.
        own = {**options, "skip_instance_cache": True}
        try:
            return _within(partial(url_to_fs, self._url, **own), REQUEST_S)[0]
        except Exception as error:
            # A file that is not there is one of this machine, such as a key.
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise self._as_os_error(error) from error
            raise SpecError(
                f"{self} cannot be opened ({type(error).__name__}: "
                f"{self._without_secrets(str(error))}). Check the URL and its storage options."
            ) from error

    def _ask(self, call: Callable[[], Any], limit_s: float | None = None) -> Any:
        """Make a request; whatever goes wrong is an OSError, after a bounded time."""
        try:
            return _within(call, REQUEST_S if limit_s is None else limit_s)
        except Exception as error:
            if not isinstance(error, FileNotFoundError):
                # The connection may be gone, or still busy with what was given up.
                _own.systems.clear()
            raise self._as_os_error(error) from error

    def _as_os_error(self, error: BaseException) -> OSError:
        text = self._without_secrets(" ".join(str(error).split()))[:500]
        if isinstance(error, NotImplementedError):
            return OSError(errno.EROFS, f"{self.protocol}:// can only be read")
        if not isinstance(error, OSError):
            return OSError(errno.EIO, f"{type(error).__name__}: {text}")
        number = error.errno or {
            FileNotFoundError: errno.ENOENT,
            PermissionError: errno.EACCES,
        }.get(type(error), errno.ETIMEDOUT if isinstance(error, TimeoutError) else errno.EIO)
        # By its number OSError makes the subclass again.
        return OSError(number, self._without_secrets(error.strerror or text) or repr(error))

    def _without_secrets(self, text: str) -> str:
        for value in _strings(self.storage_options):
            if len(value) > 3:
                text = text.replace(value, "***") if value not in str(self) else text
        return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            # Where a server is may be said: it is what a user looks for first.
            if key != "endpoint_url":
                yield from _strings(item)
            elif password := re.search(r"//[^/@]*:([^/@]+)@", str(item)):
                yield password[1]
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _with_limits(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if protocol not in ("s3", "s3a"):
        return dict(options)
    limits = {**_S3_LIMITS, **options.get("config_kwargs", {})}
    return {"use_listings_cache": False, **options, "config_kwargs": limits}


def _modified_s(info: Mapping[str, Any]) -> float:
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return 0.0


def _within(call: Callable[[], Any], limit_s: float) -> Any:
    """Call in a thread, and stop waiting for it after a time."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="distfms-storage", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not outcome:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {limit_s:.0f} s")
    value, error = outcome[0]
    if error is not None:
        raise error
    return value
