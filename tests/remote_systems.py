"""File systems of fsspec for tests: one that fails when told to, one without object semantics."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem


class FaultyFileSystem(MemoryFileSystem):
    """Objects in memory; the put with a certain number fails, once or from then on.

    Attributes
    ----------
    n_puts : int
        Puts so far.
    failing : int or None
        Number of the first put that fails.
    lasting : bool
        Whether all later ones fail too.
    seen : list of str
        Names that were put.
    """

    protocol = "memory"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    n_puts: ClassVar[int] = 0
    failing: ClassVar[int | None] = None
    lasting: ClassVar[bool] = True
    seen: ClassVar[list[str]] = []

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> Any:
        cls = FaultyFileSystem
        cls.n_puts += 1
        cls.seen.append(path)
        if cls.failing is not None and (
            cls.n_puts > cls.failing if cls.lasting else cls.n_puts == cls.failing
        ):
            raise OSError(errno.EIO, "the storage has failed")
        return super().pipe_file(path, value, **kwargs)

    @classmethod
    def reset(cls, failing: int | None = None, lasting: bool = True) -> None:
        cls.n_puts = 0
        cls.failing = failing
        cls.lasting = lasting
        cls.seen.clear()


class ShelfFileSystem(LocalFileSystem):
    """Files that are not objects: as on sftp or smb, a write that breaks off leaves half a file."""

    protocol = "shelf"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("shelf://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"shelf://{name}"


@contextmanager
def registered(protocol: str, system: type) -> Iterator[None]:
    """Let fsspec find a file system under a protocol."""
    known = fsspec.registry.copy() if hasattr(fsspec.registry, "copy") else dict(fsspec.registry)
    fsspec.register_implementation(protocol, system, clobber=True)
    try:
        yield
    finally:
        from fsspec.registry import _registry

        _registry.pop(protocol, None)
        if protocol in known:
            _registry[protocol] = known[protocol]
