"""Partial statistics that are kept, so that what was read once is not read again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from distfms.engine.remote import RemotePath
from distfms.engine.store import Breaker, Entry, Location, files_below, locate, write_whole

T = TypeVar("T")

_MAGIC = b"distfms-partial-1\n"
_DIGEST_BYTES = 32
_SUFFIX = ".partial"
_ABANDONED_AFTER_S = 3600.0

#: A cache on remote storage that fails is left alone for a while: a task that waits in vain for
#: it takes longer than one that goes without.
_breaker = Breaker(pause_s=120.0)


@dataclass(frozen=True)
class Lookup(Generic[T]):
    """What a cache had under a key.

    Attributes
    ----------
    found : bool
        Whether ``value`` is the cached value.
    value : T or None
        The value, None when not found.
    corrupt : bool
        Whether there was an entry that failed its checks. It is then not found.
    """

    found: bool = False
    value: T | None = None
    corrupt: bool = False


@dataclass(frozen=True)
class PartialCache(Generic[T]):
    """Values by content key, one file each, checked by hash when read.

    Entries are written to a temporary name and renamed, so readers and concurrent writers of one
    entry never see half of it. They are not fsynced: an fsync per partition costs milliseconds
    to tens of milliseconds, and all it buys here is not recomputing an entry after a power cut,
    as a torn entry fails its hash and counts as missing.

    Instances are picklable when ``encode`` and ``decode`` are; tasks load and store entries
    where they run. A cluster therefore needs ``folder`` on storage that its workers share to
    gain anything from the cache; without, each machine keeps its own. On object storage an
    entry is put whole.

    Parameters
    ----------
    folder : path, URL or RemotePath
        Root of the cache; made on first write. May hold the entries of many specs.
    encode : callable
        Turns a value into bytes, the same bytes for the same value.
    decode : callable
        The inverse.
    spec_key : str
        What the values depend on besides the unit: the statistics wanted, columns, folds, and
        the version of their format.
    """

    folder: str | Path | RemotePath
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    spec_key: str = ""

    def path(self, key: str) -> Location:
        """Give the file of an entry: two levels of folders, then the hash of both keys."""
        digest = _digest(self.spec_key.encode(), key.encode()).hex()
        return locate(self.folder) / digest[:2] / digest[2:4] / (digest + _SUFFIX)

    def lookup(self, key: str) -> Lookup[T]:
        """Read an entry and check it.

        Parameters
        ----------
        key : str
            Content key of the unit.

        Returns
        -------
        Lookup
            Never raises for what is stored: an unreadable entry is a miss, a torn or altered
            one is a miss marked corrupt.
        """
        path = self.path(key)
        try:
            with self._watched():
                raw = path.read_bytes()
        except OSError:
            return Lookup()
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = memoryview(raw)[head:]
        if raw[: len(_MAGIC)] != _MAGIC or raw[len(_MAGIC) : head] != self._seal(path, payload):
            return Lookup(corrupt=True)
        try:
            value = self.decode(bytes(payload))
        except Exception:
            # The bytes are what was written, but not what this version of decode reads.
            return Lookup(corrupt=True)
        if isinstance(path, Path):
            with contextlib.suppress(OSError):
                os.utime(path)  # prune() drops what was used least recently
        return Lookup(found=True, value=value)

    def get(self, key: str) -> T | None:
        """Give the cached value, or None when there is none that passes its checks."""
        return self.lookup(key).value

    def put(self, key: str, value: T) -> int:
        """Write an entry, replacing what was there.

        Returns
        -------
        int
            Bytes written.

        Raises
        ------
        OSError
            The folder cannot be written (nothing is left behind), or failed a moment ago.
        """
        path = self.path(key)
        payload = self.encode(value)
        content = b"".join((_MAGIC, self._seal(path, payload), payload))
        with self._watched():
            write_whole(path, content, durable=False)
        return len(content)

    def n_bytes(self) -> int:
        """Give the bytes of all entries, of every spec, in the folder."""
        return sum(entry.n_bytes for entry in self._entries())

    def prune(self, max_bytes: int) -> int:
        """Delete the least recently used entries until the rest fits.

        Remote storage knows only when they were written.

        Parameters
        ----------
        max_bytes : int
            What may stay, in bytes.

        Returns
        -------
        int
            Entries deleted. Temporary files that a killed writer left more than an hour ago are
            deleted too and not counted.
        """
        self._delete_abandoned()
        entries = sorted(self._entries(), key=lambda entry: (entry.modified_s, entry.n_bytes))
        excess = sum(entry.n_bytes for entry in entries) - max_bytes
        n_deleted = 0
        for entry in entries:
            if excess <= 0:
                break
            entry.place.unlink(missing_ok=True)
            excess -= entry.n_bytes
            n_deleted += 1
        return n_deleted

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Leave remote storage alone that has failed; remember it when it fails."""
        place = locate(self.folder)
        _breaker.require(place)
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(place, RemotePath):
                _breaker.trip(place, error)
            raise

    def _seal(self, path: Location, payload: bytes | memoryview) -> bytes:
        # The name is part of what is hashed, so an entry copied to another name is refused.
        return _digest(path.name.removesuffix(_SUFFIX).encode(), payload)

    def _entries(self) -> list[Entry]:
        return [entry for entry in files_below(locate(self.folder)) if _is_entry(entry.name)]

    def _delete_abandoned(self) -> None:
        limit = time.time() - _ABANDONED_AFTER_S
        for entry in files_below(locate(self.folder)):
            if entry.name.endswith(".tmp") and entry.modified_s < limit:
                entry.place.unlink(missing_ok=True)


def _is_entry(name: str) -> bool:
    return name.endswith(_SUFFIX) and name.count("/") == 2


def _digest(first: bytes, second: bytes | memoryview) -> bytes:
    """Hash two byte strings so that no other pair runs together to the same text."""
    hasher = hashlib.sha256(len(first).to_bytes(8, "little"))
    hasher.update(first)
    hasher.update(second)
    return hasher.digest()
