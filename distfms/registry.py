"""Versions of models, and which of them is in place.

Below the registry's root each model has a folder of its name::

    versions/00000003.json    what version 3 holds: its files with their sha256, facts, parent
    files/TOKEN/…             these files, written before the version is
    changes/00000005.json     the fifth change of what is in place: promotion, rollback, removal
    locks/00000002.json       who works on the next version, and until when

These are journals: a record is written once, whole, and only if nobody else has written that
number (`create_whole`). Thus the last change says what is in place, of two that promote at the
same time one is refused, and a reader sees the version before or the version after. On storage
that is neither a disk nor known for conditional puts (S3, GCS and Azure are; sftp, smb and some
services that speak S3 are not), two changes in the same instant may both be believed done; the
later write stands. A lock compares the clocks of machines; only `promote` decides, by what was in
place.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distfms.engine import storage
from distfms.errors import EngineError, SpecError, nearest

#: Where the environment names a registry.
VARIABLE = "DISTFMS_REGISTRY"

#: As the name of a job.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RECORD = re.compile(r"\d{8}\.json")
#: Files that no version has are deleted at this age: somebody may still be writing or reading them.
_ABANDONED_S = 86400.0


class Record(BaseModel):
    """What every record of a journal holds."""

    model_config = ConfigDict(frozen=True)

    number: int
    created: str = Field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    token: str = Field(default_factory=lambda: secrets.token_hex(8))
    """Tells the record from that of another writer."""


class Version(Record):
    """An immutable version of a model.

    Attributes
    ----------
    number : int
        1 for the first.
    created : str
        UTC time.
    files : mapping of str to str
        Name of each file and its sha256.
    facts : mapping
        What its maker wrote down about it, as JSON has it.
    parent : int or None
        The version that it was made to follow.
    """

    files: dict[str, str]
    facts: dict[str, Any]
    parent: int | None


class Change(Record):
    """A change of what is in place, or of what there is."""

    kind: Literal["promote", "rollback", "remove"]
    version: int | None
    """In place from now on."""
    before: list[int]
    """Versions that were in place before it, the last one last."""
    removed: list[int]
    """Versions that are gone, or about to be."""


class Lock(Record):
    """Who works on the next version of a model, and until when."""

    owner: str
    until: float
    """Seconds since 1970."""


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class _Journal(Generic[R]):
    """Numbered records in a folder."""

    folder: storage.Location
    kind: type[R]

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        return [int(name[:8]) for name in _listed(self.folder) if _RECORD.fullmatch(name)]

    def place(self, number: int) -> storage.Location:
        """Return the place of a record."""
        return self.folder / f"{number:08d}.json"

    def read(self, number: int) -> R:
        """Read a record; FileNotFoundError if there is none."""
        with storage.reading(self.place(number)):
            payload = self.place(number).read_bytes()
        with suppress(ValidationError):
            found = self.kind.model_validate_json(payload)
            if found.number == number:
                return found
        raise SpecError(
            f"{self.place(number)} is damaged. Restore it from a copy of the registry, or delete "
            "it: without it there is no such version (roll back if it was in place), or no such "
            "change."
        )

    def last(self) -> R | None:
        """Read the last record."""
        while numbers := self.numbers():
            with suppress(FileNotFoundError):  # where another was written, it may be removed
                return self.read(numbers[-1])
        return None

    def write(self, record: R, *, again: bool = False) -> bool:
        """Write a record if there is none of its number, or again; return whether it is written."""
        with _writing(self.folder):
            write = storage.write_whole if again else storage.create_whole
            return write(self.place(record.number), record.model_dump_json().encode()) is not False


def _listed(folder: storage.Location) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist."""
    with storage.reading(folder), suppress(FileNotFoundError):
        return sorted(place.name for place in folder.iterdir())
    return []


@contextmanager
def _writing(place: storage.Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = f"name another with --registry or {VARIABLE}"
        raise storage.unwritable(place, error, "The registry's folder", advice) from error


@dataclass(frozen=True)
class Registry:
    """Versions of models below a folder or URL; see the module for what is guaranteed.

    Attributes
    ----------
    root : Path or RemotePath
        As `distfms.engine.storage.locate` returns it; made when first written to.
    """

    root: storage.Location

    # --- reading ---

    def names(self) -> list[str]:
        """Return the names of all models that have versions."""
        names = filter(_NAME.fullmatch, _listed(self.root))
        return [name for name in names if self._journal(name, Version).numbers()]

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, the oldest first; none if there is no such model."""
        gone, found = self._last(name).removed, list[Version]()
        for number in self._journal(name, Version).numbers():
            with suppress(FileNotFoundError):  # it may be removed while others are read
                found += [self._journal(name, Version).read(number)] if number not in gone else []
        return found

    def version(self, name: str, number: int | None = None) -> Version:
        """Return a version, or the one in place.

        Raises
        ------
        SpecError
            If there is none; it says what there is.
        """
        while True:
            last = self._last(name)
            wanted = last.version if number is None else number
            if wanted is not None and wanted not in last.removed:
                with suppress(FileNotFoundError):
                    return self._journal(name, Version).read(wanted)
            # What was in place may have been removed after another was put there.
            if number is not None or self._last(name).version == wanted:
                break
        known = [n for n in self._journal(name, Version).numbers() if n not in last.removed]
        if not known:
            there = nearest(name, self.names()) or " It has none yet."
            raise SpecError(f"The registry {self.root} has no model {name!r}.{there}")
        lacking, last_ones = wanted or "in place", ", ".join(map(str, known[-10:]))
        raise SpecError(
            f"{name!r} has no version {lacking}. The last ones are {last_ones}, and {name}@"
            f"{known[-1]} names the last."
        )

    def current(self, name: str) -> Version | None:
        """Return the version in place, None if there is none."""
        return self.version(name) if self._last(name).version is not None else None

    def history(self, name: str) -> list[Change]:
        """Return all changes of what is in place, the first one first."""
        changes = self._journal(name, Change)
        return [changes.read(number) for number in changes.numbers()]

    def read(self, name: str, number: int | None = None) -> tuple[Version, dict[str, bytes]]:
        """Read the files of a version, or of the one in place, and check them.

        Raises
        ------
        SpecError
            If there is no such version, or a file is not what was added.
        """
        while True:
            found = self.version(name, number)
            folder, payloads = self.files(name, found), dict[str, bytes]()
            with storage.reading(folder), suppress(FileNotFoundError):
                for file in found.files:
                    payloads[file] = (folder / file).read_bytes()
            # Another version may be in place by now, and this one have been removed.
            if len(payloads) < len(found.files) and self.version(name, number) != found:
                continue
            for file, sha256 in found.files.items():
                if hashlib.sha256(payloads.get(file, b"")).hexdigest() != sha256:
                    raise SpecError(
                        f"Version {found.number} of {name!r} is damaged: {folder / file} is not "
                        "what was added (its sha256 differs). Use another version, as `distfms "
                        f"models rollback {name}` does."
                    )
            return found, payloads

    # --- writing ---

    def add(
        self,
        name: str,
        files: Mapping[str, bytes],
        facts: Mapping[str, Any],
        parent: int | None = None,
    ) -> Version:
        """Keep files as the next version, or return the version that holds the same.

        Parameters
        ----------
        name : str
            Of the model: letters, digits, ``.``, ``_`` and ``-``.
        files : mapping of str to bytes
        facts : mapping
            What is worth knowing about it, as JSON has it.
        parent : int, optional
            The version that it follows.
        """
        hashes = {file: hashlib.sha256(files[file]).hexdigest() for file in sorted(files)}
        made = Version(number=0, files=hashes, facts=dict(facts), parent=parent)
        while True:
            versions = self.versions(name)
            for version in versions:
                if version.files == hashes:
                    return version
            if not made.number:
                for file, payload in files.items():
                    with _writing(self.root):
                        storage.write_whole(self.files(name, made) / file, payload)
            made = made.model_copy(update={"number": versions[-1].number + 1 if versions else 1})
            if self._journal(name, Version).write(made):
                return made

    def promote(self, name: str, number: int, expected: int | str | None = "any") -> Change:
        """Put a version in place.

        Parameters
        ----------
        name : str
        number : int
        expected : int, None or "any"
            The version in place (None for none) that the decision was based on.

        Raises
        ------
        EngineError
            If another version is in place by now.
        SpecError
            If there is no such version.
        """

        def change(last: Change) -> dict[str, Any] | None:
            if expected not in ("any", last.version):
                raise EngineError(
                    f"Version {number} of {name!r} is not promoted: version {last.version} is in "
                    f"place by now, and it was compared with version {expected}. Compare again."
                )
            self.version(name, number)
            if last.version == number:
                return None
            before = [] if last.version is None else [last.version]
            return {"kind": "promote", "version": number, "before": last.before + before}

        return self._change(name, change)

    def rollback(self, name: str) -> Change:
        """Put the version in place that was there before the present one.

        Raises
        ------
        SpecError
            If there was none.
        """

        def change(last: Change) -> dict[str, Any] | None:
            if not last.before:
                self.version(name)
                raise SpecError(
                    f"No version of {name!r} was in place before version {last.version}. Promote "
                    f"the one you want: distfms models promote {name}@NUMBER."
                )
            self.version(name, last.before[-1])
            return {"kind": "rollback", "version": last.before[-1], "before": last.before[:-1]}

        return self._change(name, change)

    def gc(self, name: str, keep: int) -> list[int]:
        """Remove versions, and files a day old that none has; return the numbers removed.

        Kept are the last ``keep`` of them (at least one, so that numbers are never used again),
        the one in place and the one before it.
        """
        journal, gone = self._journal(name, Version), list[int]()
        if not journal.numbers():
            self.version(name)

        def change(last: Change) -> dict[str, Any] | None:
            numbers = [number for number in journal.numbers() if number not in last.removed]
            kept = {*numbers[-max(keep, 1) :], last.version, *last.before[-1:]}
            gone[:] = [number for number in numbers if number not in kept]
            before = [number for number in last.before if number not in gone]
            return {"kind": "remove", "before": before, "removed": gone} if gone else None

        # Announced first: from then on nobody promotes what is about to go.
        announced, locks = self._change(name, change).removed, self._journal(name, Lock)
        with _writing(self.root):
            for places, old in ((journal, announced), (locks, locks.numbers()[:-1])):
                for number in old:
                    places.place(number).unlink(missing_ok=True)
            self._sweep(self._of(name), {version.token for version in self.versions(name)})
        return gone

    def _sweep(self, folder: storage.Location, used: Set[str]) -> None:
        """Delete files that no version has: of removed ones, and of writers that were killed."""
        for entry in storage.files_below(folder):
            if not 0 < entry.modified_s < time.time() - _ABANDONED_S:
                continue
            kind, _, file = entry.name.partition("/")
            if kind == "files" and (token := file.partition("/")[0]) not in used:
                storage.remove_tree(folder / kind / token)
            elif storage.is_temporary(entry.name):
                entry.place.unlink(missing_ok=True)

    @contextmanager
    def locked(self, name: str, owner: str, seconds: float) -> Iterator[Callable[[], None]]:
        """Keep others from working on the next version of a model.

        The lock is renewed while the block runs, and expires if the process is killed. Yields a
        function that renews it at once, and raises EngineError if it had expired, as where the
        process or the storage stood still, and another has taken it.

        Parameters
        ----------
        name : str
        owner : str
            Shown to whoever is refused.
        seconds : float
            How long the lock of a process that was killed keeps others out.

        Raises
        ------
        EngineError
            If another holds it.
        """
        journal = self._journal(name, Lock)
        last = journal.last()
        own = Lock(number=last.number + 1 if last else 1, owner=owner, until=time.time() + seconds)
        if (last is not None and last.until > time.time()) or not journal.write(own):
            holder = journal.last() or own
            raise EngineError(
                f"{holder.owner} is working on {name!r}. Wait for its end; if it was killed, its "
                f"lock expires at {datetime.fromtimestamp(holder.until, UTC):%H:%M:%S} UTC."
            )

        def extend(until: float) -> None:
            journal.write(own.model_copy(update={"until": until}), again=True)
            other = journal.last() or own
            if other.number != own.number:
                raise EngineError(
                    f"The lock of {owner} on {name!r} has expired, and {other.owner} has taken it. "
                    "Nothing was promoted; start again."
                )

        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(seconds / 4):
                with suppress(EngineError):  # the owner is told when asking
                    extend(time.time() + seconds)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield lambda: extend(time.time() + seconds)
        finally:
            ended.set()
            thread.join()
            with suppress(EngineError):
                extend(0.0)

    # --- places ---

    def _of(self, name: str) -> storage.Location:
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} is no name of a model: use letters, digits, `.`, `_`, `-`.")
        return self.root / name

    def _journal(self, name: str, kind: type[R]) -> _Journal[R]:
        return _Journal(self._of(name) / f"{kind.__name__.lower()}s", kind)

    def journal(self, name: str, kind: type[R]) -> _Journal[R]:
        """Return the journal of a further kind of records of a model."""
        return self._journal(name, kind)

    def files(self, name: str, version: Version) -> storage.Location:
        """Return the folder that has the files of a version."""
        return self._of(name) / "files" / version.token

    def _last(self, name: str) -> Change:
        """Return the last change, one that says nothing where there is none."""
        nothing = Change(number=0, kind="remove", version=None, before=[], removed=[])
        return self._journal(name, Change).last() or nothing

    def _change(self, name: str, change: Callable[[Change], dict[str, Any] | None]) -> Change:
        """Write the change that follows from the last one, which others may write meanwhile."""
        while True:
            last = self._last(name)
            wanted = change(last)
            if wanted is None:
                return last
            there = self._journal(name, Version).numbers()
            gone = {*last.removed, *wanted.get("removed", ())}.intersection(there)
            number = {"number": last.number + 1, "removed": sorted(gone)}
            new = Change(**{"version": last.version, **wanted, **number})
            if self._journal(name, Change).write(new):
                return new
