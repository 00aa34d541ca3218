"""What can be made again and is kept: values and folders of files, by all that they depend on.

Below a folder each kind has one of its own. A value is a file, sealed with a hash of its name and
its content; one that is torn or damaged counts as missing. Files stand in a folder that appears
whole, or ends with its mark, which is written last. What nobody has used for longest goes first.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from distfms.store.places import (
    Location,
    file_entry,
    files_below,
    hangs,
    is_temporary,
    locked_file,
    remove_tree,
    sync,
    write_whole,
)
from distfms.store.remote import RemotePath

T = TypeVar("T")

#: Name of a folder in which things are kept, and nothing else is: what is in it may be deleted.
KEPT = ".kept"
#: What all kept things of a user may take, where no job says otherwise.
MAX_BYTES = 10 * 2**30
SUFFIX = ".kept"
_MAGIC = b"distfms-kept-1\n"
_DIGEST_BYTES = 32
#: Tells that a folder is whole, and by its age when it was last used; renewed once an hour.
_MARK = ".whole"
_RENEWED_S = 3600.0
#: Age at which folders may be deleted, as a job may be reading them, and what killed writers left.
_UNUSED_S = 86_400.0

#: Units of a pack, whose merged value is an entry too: a power of two. A later pass over the same
#: units and others reads one entry in place of so many, and merges nothing there.
PACK_UNITS = 32
_PACK = "pack:"

#: Seconds for which a folder on remote storage that has failed is left alone: a task that waits in
#: vain for it takes longer than one that goes without.
_PAUSE_S = 120.0
#: When each such place failed, and how.
_failed: dict[str, tuple[float, str]] = {}


# --- values ---------------------------------------------------------------------------------------


def kept_value(folder: Location, kind: str, dependencies: Any, make: Callable[[], bytes]) -> bytes:
    """Return the value that `make` returns, now or before.

    `dependencies`, as JSON has them, are all that it depends on, the version of `make` included.
    """
    place = folder / kind / f"{_key_of(dependencies)}{SUFFIX}"
    value, _ = _read(folder, place)
    if value is None:
        value = make()
        _write(folder, place, value)
    return value


def _key_of(dependencies: Any) -> str:
    text = json.dumps(dependencies, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(folder: Location, place: Location) -> tuple[bytes | None, bool]:
    """Return a value, or None, and whether there is one that failed its checks."""
    try:
        with _watched(folder):
            sealed = place.read_bytes()
    except OSError:
        return None, False
    n_head = len(_MAGIC) + _DIGEST_BYTES
    payload = sealed[n_head:]
    if sealed[:n_head] != _MAGIC + _seal(place, payload):
        return None, True
    if isinstance(place, Path):
        with contextlib.suppress(OSError):
            os.utime(place)  # prune() drops what was used least recently
    return payload, False


def _write(folder: Location, place: Location, payload: bytes) -> int:
    """Write a value and return its bytes.

    It is not fsynced: all that it would buy is not making it again after a power cut.
    """
    content = b"".join((_MAGIC, _seal(place, payload), payload))
    with _watched(folder):
        write_whole(place, content, durable=False)
    return len(content)


def _seal(place: Location, payload: bytes) -> bytes:
    # The name is part of what is hashed, so a value copied to another name is refused.
    return _digest(place.name.removesuffix(SUFFIX).encode(), payload)


def _digest(first: bytes, second: bytes) -> bytes:
    """Hash two byte strings so that no other pair runs together to the same text."""
    hasher = hashlib.sha256(len(first).to_bytes(8, "little"))
    hasher.update(first)
    hasher.update(second)
    return hasher.digest()


@contextlib.contextmanager
def _watched(folder: Location) -> Iterator[None]:
    """Leave remote storage alone that has failed; remember it when it fails."""
    name = str(folder)
    since_s, reason = _failed.get(name, (None, ""))
    if since_s is not None and time.monotonic() - since_s < _PAUSE_S:
        raise OSError(errno.EIO, reason)
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if isinstance(folder, RemotePath):
            _failed[name] = (time.monotonic(), error.strerror or str(error))
        raise


@dataclass(frozen=True)
class PartialCache(Generic[T]):
    """Partial statistics by content key.

    Tasks load and store entries where they run: a cluster needs ``folder`` on storage that its
    workers share to gain anything.

    Parameters
    ----------
    folder : Path or RemotePath
        Root of all that is kept.
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
        """Return the file of an entry: kind, folder, then the hash of both keys."""
        digest = _digest(self.spec_key.encode(), key.encode()).hex()
        folder = self._packs if key.startswith(_PACK) else self.folder / "partials" / digest[:2]
        return folder / f"{digest}{SUFFIX}"

    @property
    def _packs(self) -> Location:
        return self.folder / "packs" / _digest(b"", self.spec_key.encode()).hex()[:32]

    def packs(self, keys: Sequence[str]) -> dict[int, tuple[str, bool]]:
        """Return the key of each pack of units in their order, and whether there is one.

        They are numbered by their first units, multiples of `PACK_UNITS`. A pack depends on its
        own units: others that change or join later leave it as it was.
        """
        names = set[str]()
        if len(keys) >= PACK_UNITS:
            with contextlib.suppress(OSError), _watched(self.folder):
                names = {place.name for place in self._packs.iterdir()}
        packs = {}
        for first in range(0, len(keys) - PACK_UNITS + 1, PACK_UNITS):
            units = repr(keys[first : first + PACK_UNITS]).encode()
            key = _PACK + hashlib.sha256(units).hexdigest()
            packs[first] = (key, self.path(key).name in names)
        return packs

    def lookup(self, key: str) -> tuple[T | None, bool]:
        """Read an entry; return it, or None, and whether there is one that failed its checks.

        Never raises for what is stored.
        """
        payload, is_damaged = _read(self.folder, self.path(key))
        if payload is None:
            return None, is_damaged
        try:
            return self.decode(payload), False
        except Exception:
            # The bytes are what was written, but not what this version of decode reads.
            return None, True

    def put(self, key: str, value: T) -> int:
        """Write an entry and return its bytes; OSError where the folder cannot be written."""
        return _write(self.folder, self.path(key), self.encode(value))


# --- folders of files -----------------------------------------------------------------------------


def kept_files(
    folder: Location, kind: str, dependencies: Any, make: Callable[[Path], None]
) -> Location:
    """Return the folder that `make` has filled, now or before; see `kept_value`.

    Who comes second waits, but on remote storage, where both make the same. Raises OSError, or what
    `locked_file` raises, where the folder cannot be written.
    """
    place = _place_of_files(folder, kind, dependencies)
    if not _is_whole(place):
        with locked_file(place.parent / f".{place.name}.lock"):
            if not _is_whole(place):
                _fill(place, make)
    return place


def are_kept(folder: Location, kind: str, dependencies: Any) -> bool:
    """Return whether `kept_files` has the files."""
    return _is_whole(_place_of_files(folder, kind, dependencies))


def _place_of_files(folder: Location, kind: str, dependencies: Any) -> Location:
    return folder / kind / _key_of(dependencies)[:32]


def _is_whole(place: Location) -> bool:
    """Return whether a folder has its mark, which is renewed as a sign of use."""
    mark = place / _MARK
    if isinstance(mark, Path):
        with contextlib.suppress(OSError):
            os.utime(mark)  # never made again, as the folder may have been pruned meanwhile
        return mark.exists()
    entry = file_entry(mark)
    if entry is not None and time.time() - entry.modified_s > _RENEWED_S:
        with contextlib.suppress(OSError):
            mark.put(b"")
    return entry is not None


def _fill(place: Location, make: Callable[[Path], None]) -> None:
    """Make files elsewhere, and put them in place: the mark last, or all by one renaming."""
    if isinstance(place, Path):
        with TemporaryDirectory(prefix=".", suffix=".tmp", dir=place.parent) as scratch:
            filled = Path(scratch) / place.name
            filled.mkdir()
            # First, as what is made may have the age of what it is made from.
            (filled / _MARK).touch()
            make(filled)
            for file in files_below(filled):
                sync(filled / file.name)
            remove_tree(place)
            filled.rename(place)
        return
    # What is there may be another writer's, whose files are the same.
    with TemporaryDirectory(prefix="distfms-") as scratch:
        make(Path(scratch))
        for file in files_below(Path(scratch)):
            (place / file.name).put(Path(scratch) / file.name)
        (place / _MARK).put(b"")


# --- pruning --------------------------------------------------------------------------------------


@dataclass
class _Entry:
    """A value, or a folder of files."""

    place: Location
    is_folder: bool
    n_bytes: int = 0
    used_s: float = 0.0

    @property
    def is_hidden(self) -> bool:
        """Whether it is a lock, or is being written, or its writer was killed."""
        return self.place.name.startswith(".")

    def delete(self) -> None:
        """Delete it; of a folder the mark first, and none that is used again meanwhile."""
        if not self.is_folder:
            self.place.unlink(missing_ok=True)
            return
        if self.is_hidden:
            remove_tree(self.place)
            return
        with locked_file(self.place.parent / f".{self.place.name}.lock"):
            mark = file_entry(self.place / _MARK)
            if mark is None or mark.modified_s <= self.used_s:
                (self.place / _MARK).unlink(missing_ok=True)
                remove_tree(self.place)


@contextlib.contextmanager
def pruned(folder: Location, max_bytes: int) -> Iterator[None]:
    """Prune a folder when the block ends, also badly, unless its storage does not answer."""
    try:
        yield
    except Exception as error:
        if not hangs(error):
            prune(folder, max_bytes)
        raise
    prune(folder, max_bytes)


def prune(folder: Location, max_bytes: int = MAX_BYTES) -> int:
    """Delete what was used least recently until the rest fits; return how many.

    Folders of files stay for a day after their last use. Remote storage knows only when values
    were written. What a killed writer left a day ago is deleted too. Failing is no error.
    """
    n_deleted = 0
    with contextlib.suppress(OSError):
        unused_s = time.time() - _UNUSED_S
        entries = _entries(folder)
        for entry in entries:
            if entry.is_hidden and entry.used_s < unused_s:
                entry.delete()
        entries = [entry for entry in entries if not entry.is_hidden]
        excess = sum(entry.n_bytes for entry in entries) - max_bytes
        for entry in sorted(entries, key=lambda entry: (entry.used_s, entry.n_bytes)):
            if excess <= 0:
                break
            if entry.is_folder and entry.used_s > unused_s:
                continue
            entry.delete()
            excess -= entry.n_bytes
            n_deleted += 1
    return n_deleted


def _entries(folder: Location) -> list[_Entry]:
    """List what is kept; a folder was used when its newest file was written, often its mark."""
    entries: dict[str, _Entry] = {}
    for file in files_below(folder):
        kind, _, below = file.name.partition("/")
        name = below.partition("/")[0]
        is_hidden = name.startswith(".")
        is_value = file.name.endswith(SUFFIX) or is_temporary(file.name)
        is_folder = name != below and (is_hidden or not is_value)
        if not (is_folder or is_value or is_hidden):
            continue
        key = f"{kind}/{name}" if is_folder else file.name
        entry = entries.setdefault(key, _Entry(folder / key, is_folder))
        entry.n_bytes += file.n_bytes
        entry.used_s = max(entry.used_s, file.modified_s)
    return list(entries.values())
