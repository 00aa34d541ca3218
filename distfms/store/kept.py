"""Partial statistics that are kept, so that what was read once is not read again."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from distfms.store.places import Location, files_below, is_temporary, write_whole
from distfms.store.remote import RemotePath

T = TypeVar("T")

_MAGIC = b"distfms-partial-1\n"
_DIGEST_BYTES = 32
SUFFIX = ".partial"
#: Units of a pack, whose merged value is an entry too: a power of two. A later pass over the same
#: units and others reads one entry in place of so many, and merges nothing there.
PACK_UNITS = 32
_PACK, _PACKS = "pack:", "packs"
_ABANDONED_AFTER_S = 3600.0
#: When a cache was last listed, and its bytes since then at most.
_USAGE = ".usage"
_LISTED_EVERY_S = 86_400.0

#: Seconds for which a cache on remote storage that has failed is left alone: a task that waits in
#: vain for it takes longer than one that goes without.
_PAUSE_S = 120.0
#: When each such place failed, and how.
_failed: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class PartialCache(Generic[T]):
    """Values by content key, one file each, checked by hash when read.

    Entries are written whole, so readers and concurrent writers of one entry never see half of
    it. They are not fsynced: all it would buy is not computing an entry again after a power cut, as
    a torn entry fails its hash and counts as missing. Tasks load and store entries where they run:
    a cluster needs ``folder`` on storage that its workers share to gain anything.

    Parameters
    ----------
    folder : Path or RemotePath
        Root of the cache, which may hold the entries of many specs.
    encode, decode : callable
        Turn a value into bytes, the same bytes for the same value, and back. Picklable.
    spec_key : str
        What the values depend on besides the unit: the statistics wanted, columns, folds, and
        the version of their format.
    packs_only : bool
        Whether packs are kept and single units are not.
    """

    folder: Location
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    spec_key: str = ""
    packs_only: bool = False

    def path(self, key: str) -> Location:
        """Return the file of an entry: two levels of folders, then the hash of both keys."""
        digest = _digest(self.spec_key.encode(), key.encode()).hex()
        return self._own / f"{_PACKS if key.startswith(_PACK) else digest[:2]}/{digest}{SUFFIX}"

    @cached_property
    def _own(self) -> Location:
        return self.folder / _digest(b"", self.spec_key.encode()).hex()[:32]

    def packs(self, keys: Sequence[str]) -> dict[int, tuple[str, bool]]:
        """Return the key of each pack of units in their order, and whether there is one.

        They are numbered by their first units, multiples of `PACK_UNITS`. A pack depends on its
        own units: others that change or join later leave it as it was.
        """
        there = set[str]()
        if len(keys) >= PACK_UNITS:
            with contextlib.suppress(OSError), self._watched():
                there = {place.name for place in (self._own / _PACKS).iterdir()}
        found = {}
        for first in range(0, len(keys) - PACK_UNITS + 1, PACK_UNITS):
            of_units = repr(keys[first : first + PACK_UNITS]).encode()
            key = _PACK + hashlib.sha256(of_units).hexdigest()
            found[first] = (key, self.path(key).name in there)
        return found

    def lookup(self, key: str) -> tuple[T | None, bool]:
        """Read an entry; return it, or None, and whether there is one that failed its checks.

        Never raises for what is stored.
        """
        path = self.path(key)
        try:
            with self._watched():
                raw = path.read_bytes()
        except OSError:
            return None, False
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = memoryview(raw)[head:]
        if raw[: len(_MAGIC)] != _MAGIC or raw[len(_MAGIC) : head] != _seal(path, payload):
            return None, True
        try:
            value = self.decode(bytes(payload))
        except Exception:
            # The bytes are what was written, but not what this version of decode reads.
            return None, True
        if isinstance(path, Path):
            with contextlib.suppress(OSError):
                os.utime(path)  # prune() drops what was used least recently
        return value, False

    def put(self, key: str, value: T) -> int:
        """Write an entry and return its bytes; OSError where the folder cannot be written."""
        path = self.path(key)
        payload = self.encode(value)
        content = b"".join((_MAGIC, _seal(path, payload), payload))
        with self._watched():
            write_whole(path, content, durable=False)
        return len(content)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Leave remote storage alone that has failed; remember it when it fails."""
        place = str(self.folder)
        since, text = _failed.get(place, (None, ""))
        if since is not None and time.monotonic() - since < _PAUSE_S:
            raise OSError(errno.EIO, text)
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(self.folder, RemotePath):
                _failed[place] = (time.monotonic(), error.strerror or str(error))
            raise


def prune(folder: Location, max_bytes: int, added: int | None = None) -> int:
    """Delete the least recently used entries of a cache until the rest fits; return how many.

    With ``added``, the most bytes that were written since the last call, the cache is listed only
    where they may be too many, and once a day.

    Remote storage knows only when they were written. Temporary files that a killed writer left
    more than an hour ago are deleted too. The cache is optional, so failing is no error.
    """
    n_deleted, usage = 0, folder / _USAGE
    with contextlib.suppress(OSError):
        if added is not None:
            with contextlib.suppress(FileNotFoundError, ValueError):
                since, known = map(float, usage.read_bytes().split())
                if known + added <= max_bytes and time.time() - since < _LISTED_EVERY_S:
                    write_whole(usage, b"%f %f" % (since, known + added), durable=False)
                    return 0
        found = files_below(folder)
        for entry in found:
            if is_temporary(entry.name) and entry.modified_s < time.time() - _ABANDONED_AFTER_S:
                entry.place.unlink(missing_ok=True)
        entries = [e for e in found if e.name.endswith(SUFFIX) and e.name.count("/") == 2]
        total = sum(entry.n_bytes for entry in entries)
        excess = total - max_bytes
        for entry in sorted(entries, key=lambda entry: (entry.modified_s, entry.n_bytes)):
            if excess <= 0:
                break
            entry.place.unlink(missing_ok=True)
            excess -= entry.n_bytes
            n_deleted += 1
        if added is not None and entries:
            write_whole(usage, b"%f %f" % (time.time(), max_bytes + excess), durable=False)
    return n_deleted


def _seal(path: Location, payload: bytes | memoryview) -> bytes:
    # The name is part of what is hashed, so an entry copied to another name is refused.
    return _digest(path.name.removesuffix(SUFFIX).encode(), payload)


def _digest(first: bytes, second: bytes | memoryview) -> bytes:
    """Hash two byte strings so that no other pair runs together to the same text."""
    hasher = hashlib.sha256(len(first).to_bytes(8, "little"))
    hasher.update(first)
    hasher.update(second)
    return hasher.digest()
