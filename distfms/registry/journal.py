"""Journals: numbered records, each written once and whole; and the lock of a model."""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distfms.engine.processes import is_dead, own_mark
from distfms.errors import DistfmsError, EngineError, SpecError
from distfms.store import places

#: Where the environment names a registry.
VARIABLE = "DISTFMS_REGISTRY"

#: Seconds for which the lock of a process of another machine that was killed keeps others out.
LOCK_S = 60.0

#: Seconds for which a lock that is held is waited for, and between two looks at it.
WAIT_S = 600.0
_LOOK_S = 1.0


class DamagedError(SpecError):
    """A record, or a file of a version, is not what was written."""


class Record(BaseModel):
    """What every record of a journal holds."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    form: int = 1
    number: Annotated[int, Field(ge=0)]
    created: str = Field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] = Field(
        default_factory=lambda: secrets.token_hex(8)
    )
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
    """A change of which version is current, or of which there are."""

    kind: Literal["promote", "rollback", "remove"]
    version: int | None
    """Current from now on."""
    below: int | None = None
    """Number of the change that a rollback returns to."""
    removed: list[int]
    """Versions that are gone, or about to be."""
    author: str = ""
    because: str = ""

    @model_validator(mode="after")
    def _descends(self) -> Change:
        if self.below is not None and not 0 < self.below < self.number:
            raise ValueError("it rolls back to a change that is not before it")
        return self


class Lock(Record):
    """Who works on the next version of a model, and until when."""

    owner: str
    until: float
    """Seconds since 1970 by the owner's clock; 0 when the work has ended."""
    seconds: Annotated[float, Field(gt=0)] = LOCK_S
    """How long it keeps others out after it was last written."""
    process: str = ""
    """The owner's process; see `distfms.engine.processes`."""


R = TypeVar("R", bound=Record)


#: The form of records; those of another are not read.
_FORM = 1


def encode(record: Record) -> bytes:
    """Return a record as bytes."""
    content = record.model_dump(mode="json")
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode(kind: type[R], payload: bytes, place: object) -> R:
    """Read a record.

    Raises
    ------
    SpecError
        If it has another form.
    ValueError
        If it is damaged.
    """
    content = json.loads(payload)
    if not isinstance(content, dict) or not {"form", "token"} <= content.keys():
        raise ValueError("it is not a record")
    if content["form"] != _FORM:
        raise SpecError(
            f"{place} was written by another version of distfms, in a form that this one does not "
            "read. Use that version, or name another registry."
        )
    return kind.model_validate(content)


def author() -> str:
    """Return who is at work: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in containers, where the user has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# --- journals -------------------------------------------------------------------------------------

_RECORD = re.compile(r"(\d{8})\.json")


def listed(folder: places.Location) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist."""
    with places.reading(folder), suppress(FileNotFoundError):
        return sorted(place.name for place in folder.iterdir())
    return []


@contextmanager
def writing(place: places.Location) -> Iterator[None]:
    """Explain why a registry cannot be written."""
    try:
        yield
    except OSError as error:
        advice = f"name another with --registry or {VARIABLE}"
        raise places.unwritable(place, error, "The registry's folder", advice) from error


@dataclass(frozen=True)
class Journal(Generic[R]):
    """Records of one kind, in a folder of a model."""

    model: places.Location
    name: str
    kind: type[R]

    @property
    def folder(self) -> places.Location:
        """Where they are."""
        return self.model / self.name

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        return [int(name[:8]) for name in listed(self.folder) if _RECORD.fullmatch(name)]

    def next_number(self) -> int:
        """Return a number that no record has, damaged or not."""
        return 1 + max(self.numbers(), default=0)

    def place(self, number: int) -> places.Location:
        """Return the place of a record."""
        return self.folder / f"{number:08d}.json"

    def read(self, number: int) -> R:
        """Read a record; FileNotFoundError if there is none, SpecError if it cannot be used."""
        place = self.place(number)
        if not 0 < number < 10**8:
            raise FileNotFoundError(f"there is no record {place.name[:20]}")
        with places.reading(place):
            payload = places.read_regular(place)
        try:
            found = decode(self.kind, payload or b"", place)
            if found.number == number:
                return found
            reason = f"it has the number {found.number}"
        except SpecError:
            raise
        except (ValueError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
        raise DamagedError(
            f"{place} is damaged ({reason}). Restore it from a copy of the registry, or promote "
            f"another version: distfms models promote {self.model.name}@NUMBER."
        )

    def last(self, most: int | None = None) -> R | None:
        """Read the last record that is not damaged, or the last up to a number; None without."""
        for number in reversed(self.numbers()):
            if most is None or number <= most:
                with suppress(FileNotFoundError, DamagedError):
                    return self.read(number)
        return None

    def each(self, note: Callable[[str], None]) -> Iterator[R]:
        """Yield the records that can be used, the first one first; note the others."""
        for number in self.numbers():
            try:
                yield self.read(number)
            except FileNotFoundError:  # it may be removed while others are read
                continue
            except SpecError as error:
                note(f"Skipping a record. {error}")

    def write(self, record: R, *, again: bool = False) -> bool:
        """Write a record if there is none of its number, or again; return whether it is written."""
        with writing(self.folder):
            write = places.write_whole if again else places.create_whole
            return write(self.place(record.number), encode(record)) is not False


def _last(journal: Journal[Lock]) -> Lock | None:
    """Return the last lock; for one that cannot be read, an owner that nobody knows."""
    numbers = journal.numbers()
    if not numbers:
        return None
    try:
        return journal.read(numbers[-1])
    except (FileNotFoundError, SpecError):
        return Lock(number=numbers[-1], owner="Somebody", until=1.0)


def _expires(journal: Journal[Lock], lock: Lock) -> float | None:
    """Return when a lock expires, in seconds since 1970; None if it does not hold any more.

    Its age is what the storage says. One that is younger than now was written by a clock that has
    gone back since. That of a process of this machine ends with it.
    """
    if not lock.until or is_dead(lock.process):
        return None
    with places.reading(journal.folder), writing(journal.folder):
        entry = places.file_entry(journal.place(lock.number))
        told = entry is not None and entry.modified_s > 0
        now = places.clock(journal.folder) if told else time.time()
    written = entry.modified_s if entry is not None and told else lock.until - lock.seconds
    return written + lock.seconds if abs(now - written) < lock.seconds else None


def _taken(journal: Journal[Lock], name: str, owner: str, say: Callable[[str], None]) -> Lock:
    """Take the lock of a model; where another holds it, wait until it ends."""
    began, told = time.monotonic(), False
    while True:
        last = _last(journal)
        number = 1 if last is None else last.number + 1
        until, process = time.time() + LOCK_S, own_mark()
        own = Lock(number=number, owner=owner, until=until, seconds=LOCK_S, process=process)
        expires = None if last is None else _expires(journal, last)
        if expires is None and journal.write(own):
            return own
        other = _last(journal) or own
        if time.monotonic() - began >= WAIT_S:
            moment = datetime.fromtimestamp(expires or own.until, UTC)
            raise EngineError(
                f"{other.owner} is working on {name!r}. Wait until it ends; if it was killed, its "
                f"lock expires at {moment:%Y-%m-%d %H:%M:%S} UTC."
            )
        if not told and expires is not None:
            say(f"{other.owner} is working on {name!r}: waiting for at most {WAIT_S:g} s.")
            told = True
        time.sleep(_LOOK_S)


@contextmanager
def locked(
    journal: Journal[Lock], name: str, owner: str, say: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Hold the lock of a model; see `Registry.locked`."""
    own = _taken(journal, name, owner, say)

    def extend() -> None:
        # Whoever still holds the lock goes on, whatever the storage answers for a moment.
        other: Lock | None = None
        with suppress(DistfmsError):
            until = time.time() + LOCK_S
            journal.write(own.model_copy(update={"until": until}), again=True)
        with suppress(DistfmsError):
            other = _last(journal)
        if other is not None and other.number != own.number:
            raise EngineError(
                f"The lock of {owner} on {name!r} has expired, and {other.owner} has taken it. "
                "Nothing was promoted; start again."
            )

    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(LOCK_S / 4):
            with suppress(EngineError):  # the owner is told when asking
                extend()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield extend
    finally:
        ended.set()
        thread.join()
        with suppress(DistfmsError):
            journal.write(own.model_copy(update={"until": 0.0}), again=True)
