"""The lock of a model: it is renewed while its owner works, and expires if the owner is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from distfms.engine import storage
from distfms.errors import DistfmsError, EngineError, SpecError
from distfms.registry.journal import Journal, writing
from distfms.registry.records import LONGEST_LOCK_S, Lock


def _last(journal: Journal[Lock]) -> Lock | None:
    """Return the last lock; for one that cannot be read, an owner that nobody knows."""
    try:
        return journal.last()
    except SpecError:
        return Lock(number=journal.numbers()[-1], owner="Somebody", until=1.0, seconds=60.0)


def _expires(journal: Journal[Lock], lock: Lock) -> float | None:
    """Return when a lock expires, in seconds since 1970; None if it does not hold any more.

    Its age is what the storage says. One that is younger than now was written by a clock that has
    gone back since.
    """
    with storage.reading(journal.folder), writing(journal.folder):
        entry = storage.file_entry(journal.place(lock.number))
        told = entry is not None and entry.modified_s > 0
        now = storage.clock(journal.folder) if told else time.time()
    written = entry.modified_s if entry is not None and told else lock.until - lock.seconds
    return written + lock.seconds if lock.until and abs(now - written) < lock.seconds else None


@contextmanager
def locked(
    journal: Journal[Lock], name: str, owner: str, seconds: float
) -> Iterator[Callable[[], None]]:
    """Hold the lock of a model; see `Registry.locked`."""
    if not 0 < seconds <= LONGEST_LOCK_S:
        raise SpecError(f"A lock lasts up to {LONGEST_LOCK_S:.0f} s, not {seconds:g} s.")
    last = _last(journal)
    number = 1 if last is None else last.number + 1
    own = Lock(number=number, owner=owner, until=time.time() + seconds, seconds=seconds)
    expires = None if last is None else _expires(journal, last)
    if expires is not None or not journal.write(own):
        other = _last(journal) or own
        until = datetime.fromtimestamp(expires or own.until, UTC)
        raise EngineError(
            f"{other.owner} is working on {name!r}. Wait for its end; if it was killed, its lock "
            f"expires at {until:%Y-%m-%d %H:%M:%S} UTC."
        )

    def extend() -> None:
        # Whoever still holds the lock goes on, whatever the storage answers for a moment.
        other: Lock | None = None
        with suppress(DistfmsError):
            until = time.time() + seconds
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
        while not ended.wait(seconds / 4):
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
