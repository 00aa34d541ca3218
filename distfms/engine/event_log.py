"""Events of a run as JSON, one object a line, for collectors of logs.

Every line has the same keys: ``time`` (UTC, RFC 3339, milliseconds), ``level`` (``info``,
``warning`` or ``error``), ``event`` (one of `EVENTS`), ``run`` (name of the run folder, null before
there is one), ``stage`` (null outside of stages) and ``fields`` (an object, the event's own).
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TextIO

from distfms.engine.progress import Progress, open_progress
from distfms.errors import SpecError

#: Variable that names the kind of log where a command has no option for it.
LOG_VARIABLE = "DISTFMS_LOG"
KINDS = ("text", "json")


@dataclass(frozen=True)
class EventKind:
    """What an event says.

    Attributes
    ----------
    level : {"info", "warning", "error"}
    text : str
        When it happens.
    fields : tuple of str
        Its own fields. Those after ``"…"`` may be absent.
    """

    level: str
    text: str
    fields: tuple[str, ...] = ()


#: All events, by name.
EVENTS: Mapping[str, EventKind] = {
    "message": EventKind("info", "a line for people", ("text",)),
    "begin": EventKind(
        "info",
        "a driver has taken the run",
        ("run", "name", "method", "engine", "resumed", "attempt"),
    ),
    "stage": EventKind("info", "a stage begins", ("stage",)),
    "stage_done": EventKind(
        "info",
        "a stage has ended and its files are written",
        ("stage", "seconds", "…", "n_read", "n_cached", "bytes_read", "n_candidates"),
    ),
    "note": EventKind("info", "something that the report says too", ("text",)),
    "done": EventKind("info", "the run is done"),
    "failed": EventKind("error", "the run ended with an error", ("error",)),
    "interrupted": EventKind("warning", "the run was ended by an interrupt or SIGTERM"),
    "pass_started": EventKind("info", "a pass over the partitions begins", ("total",)),
    "unit": EventKind(
        "info",
        "a partition is done; counts of the pass so far; a line every 5 s, and the last",
        ("index", "key", "from_cache", "done", "total", "cached", "bytes"),
    ),
    "pass_finished": EventKind(
        "info", "a pass has ended", ("total", "computed", "cached", "bytes")
    ),
    "retry": EventKind("warning", "work was tried again", ("key", "n_retries")),
    "cache_corrupt": EventKind("warning", "a cached partial was damaged", ("key",)),
    "cache_unwritable": EventKind("warning", "the cache cannot be written", ("error",)),
    "worker_lost": EventKind("warning", "local worker processes died", ("n_losses",)),
    "pool": EventKind("info", "a pool of actors opens", ("kind", "n_actors", "n_shards")),
    "pool_step": EventKind(
        "info",
        "all shards have answered; a line every 5 s",
        ("step", "seconds"),
    ),
    "actor_lost": EventKind("warning", "an actor died or hung", ("actor", "reason", "n_losses")),
    "actor_replayed": EventKind(
        "info", "another actor stands where the lost one stood", ("actor", "shards", "steps")
    ),
    "checkpoint": EventKind("info", "states of a pool are saved", ("step", "bytes")),
    "checkpoint_damaged": EventKind("warning", "a saved state was damaged", ("step", "shard")),
    "metrics_unavailable": EventKind("warning", "there will be no metrics", ("reason",)),
}

#: Events of which there are too many to keep each.
FREQUENT = frozenset({"unit", "pool_step"})


class JsonLog:
    """Writes events, and lines for people, as JSON; see the module.

    Used as a context manager it also tells of an interrupt, and of an error that nobody has told
    of.

    Parameters
    ----------
    stream : file
    interval_s : float
        Least seconds between two events of the same frequent kind.
    clock : callable
        Replaces ``time.monotonic`` in tests.
    """

    #: Events stand for the lines that people would read, which need not be said besides.
    tells_events = True

    def __init__(
        self,
        stream: TextIO,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._clock = clock
        self._last_s: dict[str, float] = {}
        self._run: str | None = None
        self._stage: str | None = None
        self._told_failure = False

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        fields = dict(event)
        kind = fields.pop("event")
        if kind == "begin":
            self._run = fields["run"]
        elif kind == "stage":
            self._stage = fields["stage"]
        if kind not in FREQUENT or self._due(kind, event):
            self._write(kind, fields)
        if kind == "stage_done":
            self._stage = None
        self._told_failure |= kind == "failed"

    def say(self, line: str) -> None:
        """Take a line for people."""
        self._write("message", {"text": line.strip()})

    def close(self) -> None:
        """Do nothing: every line is written at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self({"event": "interrupted"})
        elif error is not None and not self._told_failure:
            self({"event": "failed", "error": str(error) or type(error).__name__})

    def _due(self, kind: str, event: Mapping[str, Any]) -> bool:
        """Whether enough time has passed, or this is the last of its pass."""
        now_s = self._clock()
        last = kind == "unit" and event["done"] == event["total"]
        if last or now_s - self._last_s.get(kind, -math.inf) >= self._interval_s:
            self._last_s[kind] = now_s
            return True
        return False

    def _write(self, kind: str, fields: Mapping[str, Any]) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": EVENTS[kind].level if kind in EVENTS else "info",
            "event": kind,
            "run": self._run,
            "stage": self._stage,
            "fields": fields,
        }
        # One write for each line: others may write to the same stream.
        self._stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


Say = Callable[[str], None]


@contextmanager
def open_log(kind: str, say: Say, stream: TextIO | None = None) -> Iterator[tuple[Say, Progress]]:
    """Make the log of a command.

    Parameters
    ----------
    kind : {"text", "json"}
        Lines for people, with progress on standard error; or JSON.
    say : callable
        Takes lines for people.
    stream : file, optional
        For JSON; default: standard output.

    Yields
    ------
    say : callable
        Takes lines for people; may be used afterwards.
    progress : Progress
        Takes events.

    Raises
    ------
    SpecError
        There is no such kind.
    """
    if kind not in KINDS:
        raise SpecError(
            f"There is no log of kind {kind!r}; `--log` (or the variable {LOG_VARIABLE}) is one "
            f"of: {', '.join(KINDS)}."
        )
    if kind == "text":
        with open_progress("Reading") as progress:
            yield say, progress
    else:
        with JsonLog(stream or sys.stdout) as log:
            yield log.say, log
