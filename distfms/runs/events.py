"""Events of a run: how they are shown and kept.

The engine and the driver emit mappings with the key ``event``; ``cluster/README.md`` lists them
with their fields. A :class:`Recorder` hands each one to the display of the command, and to the file
``events.jsonl`` in the run folder.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Self, TextIO

from distfms.engine.memory import counted, format_bytes
from distfms.errors import SpecError
from distfms.report.notes import coded, unmuted
from distfms.runs.folder import RunFolder, to_json
from distfms.store.places import hangs, write_whole

Event = Mapping[str, Any]
Say = Callable[[str], None]
Display = Callable[[Event], None]

#: Variable that names the kind of log where a command has no option for it.
LOG_VARIABLE = "DISTFMS_LOG"

#: Seconds between two lines, or two writings of a file, about the same thing.
_INTERVAL_S = 5.0


#: Levels of the events that are more than news.
LEVELS = {
    "failed": "error",
    "interrupted": "warning",
    "retry": "warning",
    "cache_corrupt": "warning",
    "cache_unwritable": "warning",
    "actor_lost": "warning",
}

#: What people should read at once.
_NOTICES = {
    "retry": "{key} succeeded after retries: {n_retries}",
    "cache_corrupt": "the cached partial of {key} was damaged; recomputing it",
    "cache_unwritable": "cannot write the cache; continuing without it ({error})",
}

#: Events of which there are too many to keep each.
FREQUENT = frozenset({"unit", "task", "pool_step"})


class _Throttle:
    """Whether it is time for another line of a kind."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def due(self, kind: str, *, in_any_case: bool = False) -> bool:
        now_s = monotonic()
        if in_any_case or now_s - self._last_s.get(kind, -math.inf) >= _INTERVAL_S:
            self._last_s[kind] = now_s
            return True
        return False


def _ends_pass(event: Event) -> bool:
    return event["event"] in ("unit", "task") and event["done"] == event["total"]


# --- displays -----------------------------------------------------------------------------------


class TextLog:
    """Shows progress to people: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._throttle = _Throttle()
        self._throttle.due("unit")  # the first line comes after a while
        self._bar: Any = _bar(self._stream) if self._stream.isatty() else None

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if notice := _NOTICES.get(event["event"]):
            self._tell(notice.format(**event))
        if event["event"] == "unit":
            cached = f", {event['cached']} cached" if event["cached"] else ""
            self._show(event, "Reading", f"{cached}, {format_bytes(event['bytes'])} read")
        elif event["event"] == "task":
            self._show(event, event["what"], f", {counted(event['workers'], 'worker')}")

    def close(self) -> None:
        """Finish the display; safe to call twice."""
        if self._bar is not None:
            self._bar.stop()

    def _tell(self, text: str, what: str = "Reading") -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(f"{what}: {text}", file=self._stream, flush=True)

    def _show(self, event: Event, what: str, details: str = "") -> None:
        text = f"{event['done']}/{event['total']}{details}"
        if self._bar is not None:
            (task,) = self._bar.task_ids
            counts = {"completed": event["done"], "total": event["total"], "counts": text}
            self._bar.update(task, description=what, **counts)
        elif self._throttle.due("unit", in_any_case=_ends_pass(event)):
            self._tell(text, what)


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(file=stream))
    bar.add_task("Reading", total=None, counts="")
    bar.start()
    return bar


class JsonLog:
    """Writes events, and lines for people, as JSON, one object a line, for collectors of logs.

    Every line has the same keys, which ``cluster/README.md`` explains. Frequent events are written
    every few seconds.
    """

    #: Events stand for the lines that people would read, which need not be said as well.
    tells_events = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._throttle = _Throttle()
        self._run: str | None = None
        self._stage: str | None = None
        self._told_failure = False

    def __call__(self, event: Event) -> None:
        """Take one event."""
        kind = event["event"]
        self._run = event["run"] if kind == "begin" else self._run
        self._stage = event["stage"] if kind == "stage" else self._stage
        if kind not in FREQUENT or self._throttle.due(kind, in_any_case=_ends_pass(event)):
            self._write(kind, {key: value for key, value in event.items() if key != "event"})
        self._stage = None if kind == "stage_done" else self._stage
        self._told_failure |= kind == "failed"

    def say(self, line: str) -> None:
        """Take a line for people."""
        self._write("message", {"text": line.strip()})

    def end(self, error: BaseException) -> None:
        """Report an interrupt, or an error that no event has reported."""
        if isinstance(error, KeyboardInterrupt):
            self({"event": "interrupted"})
        elif not self._told_failure:
            self(_failure(error))

    def _write(self, kind: str, fields: Event) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": LEVELS.get(kind, "info"),
            "event": kind,
            "run": self._run,
            "stage": self._stage,
            "fields": fields,
        }
        # One write for each line: others may write to the same stream.
        self._stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


@contextmanager
def open_log(
    kind: str, say: Say, quiet: bool = False, stream: TextIO | None = None
) -> Iterator[tuple[Say, Say, Display]]:
    """Yield what takes lines with results, also afterwards, other lines for people, and events.

    `kind` is ``text``, lines for people with progress on standard error, or ``json``, to a stream
    (by default standard output). ``quiet`` drops all but results and, of JSON, events.
    """
    if kind not in ("text", "json"):
        raise SpecError(f"Unknown `--log` or {LOG_VARIABLE} {kind!r}; choose from text, json.")
    if kind == "json":
        log = JsonLog(stream or sys.stdout)
        try:
            yield log.say, silent if quiet else log.say, log
        except BaseException as error:
            log.end(error)
            raise
        return
    if quiet:
        yield say, silent, silent
        return
    shown = TextLog()
    try:
        yield say, say, shown
    finally:
        shown.close()


def silent(news: Any) -> None:
    """Take a line or an event and do nothing."""


# --- the run ------------------------------------------------------------------------------------


class Recorder:
    """Hands every event of a run to the display and the run folder.

    Used as a context manager, around all that happens once the folder is locked. Where
    `tells_events` of the display is true, lines that only repeat an event are not said. Without a
    run folder nothing is kept. Notes of the codes `muted` are kept, and not said.
    """

    def __init__(
        self, run: RunFolder | None, say: Say, display: Display, muted: Sequence[str] = ()
    ) -> None:
        self._run = run
        self._muted = muted
        self._say = say
        self._display = display
        self._path = None if run is None else run.path / "events.jsonl"
        # On remote storage, where files cannot be appended to: what is there, and what waits.
        self._written: bytes | None = None
        self._waiting: list[str] = []
        self._ends = _Throttle()

    def __call__(self, event: Event) -> None:
        """Show and keep an event."""
        self._display(event)
        if event["event"] not in FREQUENT:
            self._keep(event)

    def iteration(self, event: Event) -> None:
        """Take an event of one of many passes; show the ends of passes now and then."""
        if not _ends_pass(event) or self._ends.due("unit"):
            self(event)

    def event(self, kind: str, line: str = "", /, **fields: Any) -> None:
        """Record an event made of these fields, with the line that says the same to people."""
        self({"event": kind, **fields})
        if line and not getattr(self._display, "tells_events", False):
            self._say(line)

    def note(self, text: str) -> None:
        """Record a note, and say it with its code."""
        line = f"Note: {coded(text)}" if unmuted([text], self._muted) else ""
        self.event("note", line, text=text)

    def fail(self, error: Exception, *, keep: bool) -> None:
        """Record that the run has ended with an error; kept in the folder only where asked."""
        event = _failure(error)
        self._display(event)
        if keep:
            self._keep(event)

    def flush(self) -> None:
        """Write down events that wait in memory; that they cannot be written stops nothing."""
        if self._run is None or self._path is None or not self._waiting:
            return
        if not self._run.holds_claim():
            return
        with suppress(OSError):
            if self._written is None:
                with suppress(FileNotFoundError):
                    self._written = self._path.read_bytes()
            lines = "".join(self._waiting).encode()
            content = (self._written or b"") + lines
            write_whole(self._path, content)
            self._written = content
            self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not hangs(error):
            self.flush()

    def _keep(self, event: Event) -> None:
        if self._path is None:
            return
        line = to_json({"time": round(time.time(), 3), **event}).decode() + "\n"
        if not isinstance(self._path, Path):
            self._waiting.append(line)
            return
        with suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            file.write(line)


def _failure(error: BaseException) -> Event:
    return {"event": "failed", "error": str(error) or type(error).__name__}
