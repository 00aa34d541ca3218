"""Progress for people: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from distfms.engine.memory import format_bytes


class Progress(Protocol):
    """Takes the events of `map_reduce` and shows them."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event; kinds it does not know are ignored."""

    def close(self) -> None:
        """Finish the display; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_progress(
    description: str, stream: TextIO | None = None, interval_s: float = 5.0
) -> Progress:
    """Make the display that suits the stream.

    Parameters
    ----------
    description : str
        What is going on, such as ``"Reading"``.
    stream : file, optional
        Default: standard error.
    interval_s : float
        Least seconds between plain lines.

    Returns
    -------
    Progress
        A context manager to be passed as ``on_event``.
    """
    stream = stream or sys.stderr
    if stream.isatty():
        return BarProgress(description, stream)
    return LineProgress(description, stream, interval_s)


def tee(*handlers: Callable[[Mapping[str, Any]], None]) -> Callable[[Mapping[str, Any]], None]:
    """Make one event handler of several, called in the order given."""

    def hand_on(event: Mapping[str, Any]) -> None:
        for handler in handlers:
            handler(event)

    return hand_on


class _Display:
    """What both displays share: context manager, closed once."""

    _closed = False

    def close(self) -> None:
        """Finish the display; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._finish()

    def _finish(self) -> None:
        """Do what closing means for this display."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LineProgress(_Display):
    """Writes a line every few seconds, the last unit always.

    Parameters
    ----------
    description : str
        Start of each line.
    stream : file
        Where lines go.
    interval_s : float
        Least seconds between lines.
    clock : callable
        Replaces ``time.monotonic`` in tests.
    """

    def __init__(
        self,
        description: str,
        stream: TextIO,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description = description
        self._stream = stream
        self._interval_s = interval_s
        self._clock = clock
        self._last_s = clock()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        text = notice_text(event)
        if text is not None:
            self._write(text)
        if event["event"] != "unit":
            return
        now_s = self._clock()
        if event["done"] == event["total"] or now_s - self._last_s >= self._interval_s:
            self._last_s = now_s
            self._write(unit_text(event))

    def _write(self, text: str) -> None:
        print(f"{self._description}: {text}", file=self._stream, flush=True)


class BarProgress(_Display):
    """Shows a bar on a terminal.

    Parameters
    ----------
    description : str
        Text before the bar.
    stream : file
        The terminal.
    """

    def __init__(self, description: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task = self._bar.add_task(description, total=None, counts="")
        self._bar.start()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        text = notice_text(event)
        if text is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        if event["event"] == "pass_started":
            self._bar.update(self._task, total=event["total"])
        elif event["event"] == "unit":
            self._bar.update(
                self._task,
                completed=event["done"],
                total=event["total"],
                counts=unit_text(event),
            )

    def _finish(self) -> None:
        self._bar.stop()


def unit_text(event: Mapping[str, Any]) -> str:
    """Say how far a pass is, from a ``unit`` event."""
    cached = f", {event['cached']} cached" if event["cached"] else ""
    return f"{event['done']}/{event['total']}{cached}, {format_bytes(event['bytes'])} read"


def notice_text(event: Mapping[str, Any]) -> str | None:
    """Say what a person should know of an event beyond how far the pass is, if anything."""
    kind = event["event"]
    if kind == "cache_unwritable":
        return f"cannot write the cache, going on without it ({event['error']})"
    if kind == "cache_corrupt":
        return f"cached partial of {event['key']} was damaged, computed again"
    if kind == "retry":
        return f"{event['key']} succeeded after {event['n_retries']} further attempts"
    if kind == "worker_lost":
        return "worker processes died, doing their work again"
    if kind == "metrics_unavailable":
        return f"no metrics: {event['reason']}"
    return None
