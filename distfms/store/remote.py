"""Places on remote storage, by fsspec."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from distfms.credentials import secrets_of, without_credentials
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

#: The clients' own time limits, where the user sets none.
_S3_LIMITS = {
    "connect_timeout": 5,
    "read_timeout": 30,
    "retries": {"max_attempts": 4, "mode": "standard"},
}
_SFTP_LIMITS = {"timeout": 30, "banner_timeout": 30, "auth_timeout": 30}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.DOTALL)
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+::")


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


# --- places -------------------------------------------------------------------------------------


class RemotePath:
    """A place on remote storage; used as a `pathlib.Path` is.

    It is picklable, and opens its file system where it is used. Every failure of the storage is
    an `OSError`; one that does not answer in time is a `TimeoutError`. The storage options, those
    of the fsspec file system, are never shown. The query of a web address is one of them, so the
    name of the place is without it. Raises SpecError for what is no URL, holds a password, or is a
    chain of URLs.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URL.match(url)
        if match is None or "::" in url:
            raise SpecError(
                f"{url} is not a URL of the form protocol://place/folder; chained URLs (::) are "
                "not supported."
            )
        # pathlib makes one slash of two.
        slashes = "//" if len(match[2]) == 1 else match[2]
        self.protocol = match[1].lower()
        self.storage_options = dict(storage_options or {})
        self._url = f"{self.protocol}:{slashes}{match[3]}".rstrip("/")
        if self.protocol in ("http", "https"):
            self._url, _, query = self._url.partition("#")[0].partition("?")
            if query:
                self.storage_options["queries"] = {self._url: query}
        if without_credentials(self._url) != self._url:
            raise SpecError(
                f"The {self.protocol}:// URL holds a password, a token or a signature, which would "
                "be shown in logs and manifests. Leave it out, and give it as a storage option "
                "that names an environment variable, such as password: ${NAME}."
            )

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

    def with_queries_of(self, sibling: RemotePath) -> RemotePath:
        """Return the place with a file system that also opens another web address."""
        queries = {
            **sibling.storage_options.get("queries", {}),
            **self.storage_options.get("queries", {}),
        }
        options = {**self.storage_options, "queries": queries} if queries else self.storage_options
        return RemotePath(self._url, options)

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
        return str(self.driver()._strip_protocol(self._url)).rstrip("/")

    # --- reading and deleting ---

    def read_bytes(self) -> bytes:
        """Read the whole file."""
        # What is read is of unknown size; a transfer that goes on is the client's to watch.
        return self.ask("cat_file", self.inside, limit_s=10 * REQUEST_S)

    def exists(self) -> bool:
        """Whether there is such a file, or are files below it."""
        return bool(self.info())

    def is_dir(self) -> bool:
        """Whether there are files below it."""
        return self.info().get("type") == "directory"

    def info(self) -> Mapping[str, Any]:
        """Return what fsspec tells of a file or folder, nothing where there is none."""
        try:
            return self.ask("info", self.inside)
        except FileNotFoundError:
            return {}

    def infos(self, pattern: str | None = None) -> dict[str, Mapping[str, Any]]:
        """Return what fsspec tells of each file below the folder, by its name relative to it.

        Only of those that a pattern fits, where there is one.
        """
        inside = self.inside
        question = ("find", inside) if pattern is None else ("glob", f"{inside}/{pattern}")
        try:
            told = self.ask(*question, detail=True, limit_s=5 * REQUEST_S)
        except FileNotFoundError:
            return {}
        infos: dict[str, Mapping[str, Any]] = {}
        for key, info in told.items():
            name = key[len(inside) + 1 :]
            # A key that ends in a slash only marks a folder, as consoles and Hadoop write them.
            is_mark = not name or name.endswith("/")
            if is_mark or info.get("type") != "file":
                continue
            infos[name] = info
            if info.get("size") is None:  # as in the listings of web servers
                infos[name] = (self / name).info()
        return infos

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what is directly in the folder, in the order of names."""
        with suppress(FileNotFoundError):
            listed = self.ask("ls", self.inside, detail=False)
            names = {str(name).rstrip("/").rpartition("/")[2] for name in listed}
            yield from (self / name for name in sorted(names - {self.name, ""}))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file; object storage may not say that there was none."""
        try:
            self.ask("rm_file", self.inside)
        except FileNotFoundError:
            if not missing_ok:
                raise

    # --- writing ---

    def put(self, content: bytes | Path, *, new: bool = False) -> None:
        """Write the file, or copy one of this machine here, whole or not at all.

        With ``new`` an OSError is raised where there is one already.
        """
        folder, _, name = self.inside.rpartition("/")
        if self.protocol in OBJECT_STORAGE:
            self._send(content, self.inside, **({"mode": "create"} if new else {}))
            return
        if new and self.exists():
            raise FileExistsError(errno.EEXIST, f"{self} exists")
        temporary = f"{folder}/{temporary_name(name)}"
        try:
            self.ask("makedirs", folder, exist_ok=True)
            self._send(content, temporary)
            self.ask("mv", temporary, self.inside)
        except BaseException:
            with suppress(OSError):
                self.ask("rm_file", temporary)
            raise

    def _send(self, content: bytes | Path, inside: str, **options: Any) -> None:
        if isinstance(content, Path):
            limit_s = REQUEST_S + content.stat().st_size / SLOWEST_BYTES_PER_S
            self.ask("put_file", str(content), inside, limit_s=limit_s, **options)
        else:
            limit_s = REQUEST_S + len(content) / SLOWEST_BYTES_PER_S
            self.ask("pipe_file", inside, content, limit_s=limit_s, **options)

    # --- the file system ---

    def system(self) -> Any:
        """Return the fsspec file system, as the present thread has it.

        Raises SpecError where it cannot be made with these options, OSError where not reached.
        """
        from fsspec.core import url_to_fs

        try:
            if "queries" in self.storage_options:
                from distfms.store.web import SignedFileSystem

                system = SignedFileSystem(**self.storage_options)
            else:
                system = url_to_fs(self._url, **self._options())[0]
        except Exception as error:
            self.driver()
            # A file that is not there is one of this machine, such as a key.
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise self.os_error(error) from error
            raise SpecError(
                f"{self} cannot be opened ({type(error).__name__}: "
                f"{self._without_secrets(str(error))}). Check the URL and its storage options."
            ) from error
        # What fsspec remembers of earlier listings may be old: others write there too.
        system.invalidate_cache()
        return system

    def _options(self) -> Mapping[str, Any]:
        """Return the storage options, with time limits."""
        options = self.storage_options
        if self.protocol in ("s3", "s3a"):
            return {**options, "config_kwargs": {**_S3_LIMITS, **options.get("config_kwargs", {})}}
        return {**_SFTP_LIMITS, **options} if self.protocol == "sftp" else options

    def driver(self) -> Any:
        """Return the class of the file system; SpecError names the package that is missing."""
        from fsspec import get_filesystem_class
        from fsspec.registry import known_implementations

        try:
            return get_filesystem_class(self.protocol)
        except ImportError as error:
            entry = known_implementations.get(self.protocol, {})
            package = _EXTRAS.get(self.protocol)
            install = f"pip install 'distfms[{package}]'" if package else entry.get("err", error)
            raise SpecError(
                f"{self} needs a package that is not installed ({error}). Install it ({install}), "
                "for a job on a cluster on every node."
            ) from error
        except ValueError as error:
            raise SpecError(
                f"{self}: unknown storage "
                f"{self.protocol}://.{nearest(self.protocol, sorted(known_implementations))}"
            ) from error

    def ask(
        self, method: str, *arguments: Any, limit_s: float | None = None, **options: Any
    ) -> Any:
        """Call a method of the file system; whatever goes wrong is an OSError, in bounded time."""
        from fsspec.asyn import sync

        system = self.system()
        coroutine = getattr(system, f"_{method}", None) if system.async_impl else None
        try:
            if coroutine is None:
                return getattr(system, method)(*arguments, **options)
            limit_s = REQUEST_S if limit_s is None else limit_s
            return sync(system.loop, coroutine, *arguments, timeout=limit_s, **options)
        except Exception as error:
            if coroutine is None and not isinstance(error, FileNotFoundError):
                # The connection may be gone: the next request makes another.
                type(system).clear_instance_cache()
            raise self.os_error(error) from error

    def os_error(self, error: BaseException) -> OSError:
        """Return what a client of remote storage has raised as an error of a disk."""
        return os_error(error, self._without_secrets)

    def _without_secrets(self, text: str) -> str:
        for _, value in secrets_of(self.storage_options):
            if len(value) > 3 and value not in str(self):
                text = text.replace(value, "***")
        return without_credentials(text)


def os_error(error: BaseException, cleaned: Callable[[str], str] = without_credentials) -> OSError:
    """Return what a client of remote storage has raised as an error of a disk."""
    text = cleaned(" ".join(str(error).split()))[:500]
    if isinstance(error, NotImplementedError):
        return OSError(errno.EROFS, "this storage is read-only")
    if not isinstance(error, OSError):
        return OSError(errno.EIO, f"{type(error).__name__}: {text}")
    if isinstance(error, TimeoutError) and not text:
        text = f"no answer within {REQUEST_S:.0f} s"
    kinds = {
        FileNotFoundError: errno.ENOENT,
        FileExistsError: errno.EEXIST,
        PermissionError: errno.EACCES,
        IsADirectoryError: errno.EISDIR,
    }
    passed = errno.ETIMEDOUT if isinstance(error, TimeoutError) else errno.EIO
    # By its number OSError makes the subclass again.
    number = error.errno or kinds.get(type(error), passed)
    return OSError(number, cleaned(error.strerror or "") or text or type(error).__name__)


def temporary_name(name: str) -> str:
    """Return a name for a file that is being written, which no other writer takes."""
    # Not the process id alone: on shared storage another machine may have the same.
    return f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
