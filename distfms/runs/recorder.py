"""The events of a run and all who want them: the run folder, the display, the metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from distfms.engine.event_log import FREQUENT
from distfms.engine.executors import Executor
from distfms.engine.metrics import FILE_VARIABLE, RUN_LABELS, Metrics, open_metrics
from distfms.runs.folder import RunFolder

EventHandler = Callable[[Mapping[str, Any]], None]


class Recorder:
    """Hands on every event of a run.

    Parameters
    ----------
    run : RunFolder
        Keeps events in ``events.jsonl``, but for the many of single units and steps.
    say : callable
        Takes lines for people.
    progress : callable
        Shows events. Where its `tells_events` is true, lines that only repeat an event are not
        said.

    Attributes
    ----------
    metrics : Metrics or None
        Set by `begin`.
    """

    def __init__(self, run: RunFolder, say: Callable[[str], None], progress: EventHandler) -> None:
        self._run = run
        self._say = say
        self._progress = progress
        self.metrics: Metrics | None = None

    def begin(self, executor: Executor, line: str, **fields: Any) -> None:
        """Record that a driver has taken the run, and count from now on.

        Parameters
        ----------
        executor : Executor
            On Ray the numbers go to its metrics agents.
        line : str
            What to say.
        **fields
            Of the event; they hold the labels of the metrics.
        """
        event = {"event": "begin", "engine": executor.name, **fields}
        self.show(event)
        self._say_unless_told(line)
        self.metrics = open_metrics(
            {label: event[label] for label in RUN_LABELS},
            ray_address=getattr(executor, "address", None) if executor.name == "ray" else None,
            file=os.environ.get(FILE_VARIABLE),
            on_problem=lambda text: self.event("metrics_unavailable", reason=text),
        )
        self.count(event)

    def fail(self, error: Exception) -> None:
        """Count and show that the run has ended with an error, if it had begun."""
        if self.metrics is not None:
            event = {"event": "failed", "error": str(error) or type(error).__name__}
            self.count(event)
            self.show(event, keep=False)

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Count, show and keep an event."""
        self.count(event)
        self.show(event)

    def event(self, kind: str, line: str = "", /, **fields: Any) -> None:
        """Record an event made of these fields, with the line that says the same to people."""
        self({"event": kind, **fields})
        if line:
            self._say_unless_told(line)

    def count(self, event: Mapping[str, Any]) -> None:
        """Count an event, without showing or keeping it."""
        if self.metrics is not None:
            self.metrics(event)

    def show(self, event: Mapping[str, Any], *, keep: bool = True) -> None:
        """Show an event, and keep it if so asked, without counting it."""
        self._progress(event)
        if keep and event["event"] not in FREQUENT:
            self._run.event(**dict(event))

    def close(self) -> None:
        """Hand on the metrics; safe to call twice."""
        if self.metrics is not None:
            self.metrics.close()

    def _say_unless_told(self, line: str) -> None:
        if not getattr(self._progress, "tells_events", False):
            self._say(line)
