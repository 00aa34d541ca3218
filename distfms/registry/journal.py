"""Journals: numbered records, each written once and whole; and the lock of a model."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distfms.engine import storage
from distfms.engine.processes import is_dead, own_mark
from distfms.errors import DistfmsError, EngineError, SpecError

#: Where the environment names a registry.
VARIABLE = "DISTFMS_REGISTRY"

#: Where the environment has the key that versions are signed with.
SIGNING_KEY = "DISTFMS_SIGNING_KEY"

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

    kind: Literal["promote", "rollback", "remove", "repair"]
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


def encode(record: Record, model: str) -> bytes:
    """Return a record as bytes, a version signed if there is a key."""
    content = record.model_dump(mode="json")
    if isinstance(record, Version) and (signature := _signature(content, model)):
        content["signature"] = signature
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode(kind: type[R], payload: bytes, model: str, place: object, *, signed: bool = True) -> R:
    """Read a record.

    Raises
    ------
    SpecError
        If it has another form; if it is a version and, with ``signed``, not signed with the key
        that there is.
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
    found = content.pop("signature", None)
    record = kind.model_validate(content)
    if signed and kind is Version and (signature := _signature(content, model)):
        if found is None:
            raise SpecError(
                f"{place} is not signed, and {SIGNING_KEY} is set. If you trust this version, sign "
                f"it with `distfms models sign {model}@NUMBER`; if not, retrain with --anew."
            )
        if not hmac.compare_digest(signature.encode(), json.dumps(found).strip('"').encode()):
            raise SpecError(
                f"{place} is not signed with the key in {SIGNING_KEY}: it was changed, or signed "
                "with another key. Use another version, or the right key."
            )
    return record


def _signature(content: Mapping[str, Any], model: str) -> str:
    """Return the HMAC-SHA256 of a record of a model; empty without a key."""
    key = os.environ.get(SIGNING_KEY, "")
    signed = json.dumps({**content, "model": model}, sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode(), signed.encode(), hashlib.sha256).hexdigest() if key else ""


def author() -> str:
    """Return who is at work: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in containers, where the user has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# --- journals -------------------------------------------------------------------------------------

_RECORD = re.compile(r"(\d{8})\.json")
#: What is added to the name of a record that is set aside.
_ASIDE = ".damaged"


def listed(folder: storage.Location) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist."""
    with storage.reading(folder), suppress(FileNotFoundError):
        return sorted(place.name for place in folder.iterdir())
    return []


@contextmanager
def writing(place: storage.Location) -> Iterator[None]:
    """Explain why a registry cannot be written."""
    try:
        yield
    except OSError as error:
        advice = f"name another with --registry or {VARIABLE}"
        raise storage.unwritable(place, error, "The registry's folder", advice) from error


@dataclass(frozen=True)
class Journal(Generic[R]):
    """Records of one kind, in a folder of a model."""

    model: storage.Location
    name: str
    kind: type[R]

    @property
    def folder(self) -> storage.Location:
        """Where they are."""
        return self.model / self.name

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        return [int(name[:8]) for name in listed(self.folder) if _RECORD.fullmatch(name)]

    def next_number(self) -> int:
        """Return a number that no record has, nor had before it was set aside."""
        names = [name.removesuffix(_ASIDE) for name in listed(self.folder)]
        return 1 + max((int(name[:8]) for name in names if _RECORD.fullmatch(name)), default=0)

    def place(self, number: int) -> storage.Location:
        """Return the place of a record."""
        return self.folder / f"{number:08d}.json"

    def read(self, number: int, *, signed: bool = True) -> R:
        """Read a record; FileNotFoundError if there is none, SpecError if it cannot be used."""
        place = self.place(number)
        if not 0 < number < 10**8:
            raise FileNotFoundError(f"there is no record {place.name[:20]}")
        with storage.reading(place):
            payload = storage.read_regular(place)
        try:
            found = decode(self.kind, payload or b"", self.model.name, place, signed=signed)
            if found.number == number:
                return found
            reason = f"it has the number {found.number}"
        except SpecError:
            raise
        except (ValueError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
        raise DamagedError(
            f"{place} is damaged ({reason}). Restore it from a copy of the registry, or set it "
            f"aside with `distfms models repair {self.model.name}`."
        )

    def last(self, most: int | None = None, *, skip: bool = False) -> R | None:
        """Read the last record, or the last up to a number; None if there is none.

        With ``skip`` those that cannot be used are passed over, else they raise SpecError.
        """
        for number in reversed(self.numbers()):
            if most is None or number <= most:
                with suppress(FileNotFoundError, *([SpecError] if skip else [])):
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
            write = storage.write_whole if again else storage.create_whole
            return write(self.place(record.number), encode(record, self.model.name)) is not False

    def set_aside(self, number: int) -> None:
        """Take a record out of the journal, without losing it."""
        place = self.place(number)
        with writing(self.folder), suppress(FileNotFoundError):
            if isinstance(place, Path):
                place.replace(f"{place}{_ASIDE}")
            else:
                storage.write_whole(self.folder / f"{place.name}{_ASIDE}", place.read_bytes())
                place.unlink()


def _last(journal: Journal[Lock]) -> Lock | None:
    """Return the last lock; for one that cannot be read, an owner that nobody knows."""
    try:
        return journal.last()
    except SpecError:
        return Lock(number=journal.numbers()[-1], owner="Somebody", until=1.0)


def _expires(journal: Journal[Lock], lock: Lock) -> float | None:
    """Return when a lock expires, in seconds since 1970; None if it does not hold any more.

    Its age is what the storage says. One that is younger than now was written by a clock that has
    gone back since. That of a process of this machine ends with it.
    """
    if not lock.until or is_dead(lock.process):
        return None
    with storage.reading(journal.folder), writing(journal.folder):
        entry = storage.file_entry(journal.place(lock.number))
        told = entry is not None and entry.modified_s > 0
        now = storage.clock(journal.folder) if told else time.time()
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
