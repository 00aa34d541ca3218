"""What a run has done so far, as counters and gauges for Prometheus.

They follow the events of the engine and of the run in the driver, where each unit of work is
heard of once: attempts that failed, work that is done again after a loss, and deliveries that
come twice are not counted twice, and after a stage its numbers are those of the manifest. (One
exception: a partition that was read, lost with its worker after it had been told of, and then
found in the cache, counts here as read and in the manifest as taken from the cache.) A stage that
is done again, because a driver died in the middle of it, counts again, as it reads again.

On Ray the numbers go through ``ray.util.metrics`` to the metrics agent of the driver's node, where
Prometheus scrapes them as ``ray_distfms_…``. On any engine they are also written to a file, if one
is named, for the node exporter's textfile collector. Sums and counts only: a histogram of Ray's
forgets the sum of what it observed, so means are quotients of counters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from distfms.engine.event_log import FREQUENT

#: Labels of every metric: name in the spec, name of the run folder, method, kind of engine.
RUN_LABELS = ("name", "run", "method", "engine")

#: Variable that names the file of all metrics, for the textfile collector.
FILE_VARIABLE = "DISTFMS_METRICS_FILE"

# How long numbers may wait here while units and steps are done.
_FLUSH_S = 1.0

# "statistics 3 of 12" and the like are one stage for a label, whose values should be few.
_NUMBERED = re.compile(r" \d+ of \d+$")


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name : str
        After the conventions of Prometheus; a counter's ends in ``_total``.
    text : str
        What it counts.
    labels : tuple of str
        Beside those of every metric.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def is_counter(self) -> bool:
        """Whether it only grows; a gauge otherwise."""
        return self.name.endswith("_total")


#: All metrics.
METRICS = (
    Metric(
        "distfms_partitions_done_total",
        "Partitions done, each once in a pass: read, or their statistics taken from the cache",
        ("stage", "source"),
    ),
    Metric("distfms_bytes_read_total", "Bytes of the partitions read", ("stage",)),
    Metric("distfms_passes_done_total", "Passes over the data", ("stage",)),
    Metric("distfms_pass_partitions", "Partitions of the latest pass", ("stage",)),
    Metric("distfms_pass_partitions_done", "Partitions done of the latest pass", ("stage",)),
    Metric(
        "distfms_candidates_evaluated_total",
        "Gains of attributes or groups that the search for the selection computed and compared",
        ("stage",),
    ),
    Metric("distfms_pool_steps_total", "Steps that all shards of a pool answered", ("stage",)),
    Metric("distfms_pool_step_seconds_total", "Time these steps took", ("stage",)),
    Metric("distfms_actors_lost_total", "Actors that died or hung, and were replaced", ("stage",)),
    Metric("distfms_states_rebuilt_total", "States of shards built again after that", ("stage",)),
    Metric("distfms_steps_replayed_total", "Steps of shards done again after that", ("stage",)),
    Metric("distfms_workers_lost_total", "Times local worker processes died", ("stage",)),
    Metric("distfms_retries_total", "Attempts repeated after a transient error", ("stage",)),
    Metric("distfms_stages_done_total", "Stages finished", ("stage",)),
    Metric("distfms_stage_seconds_total", "Time the finished stages took", ("stage",)),
    Metric("distfms_runs_total", "Runs begun (or resumed), done and failed", ("status",)),
    Metric("distfms_run_active", "1 while the run is going on"),
)

_BY_NAME = {metric.name: metric for metric in METRICS}


class Exporter(Protocol):
    """Takes numbers to where they are scraped.

    Attributes
    ----------
    place : str
        Where that is, for people.
    """

    place: str

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Take the increment of a counter (above 0), or the value of a gauge."""

    def flush(self) -> None:
        """Know that for now that was all."""

    def close(self) -> None:
        """Hand on what has not been."""


class Metrics:
    """Follows the events of one run; see the module.

    Numbers that change with every unit or step go to the exporters about once a second, as that
    costs more than counting. An exporter that fails is told of once and then left out: metrics
    never break a run.

    Parameters
    ----------
    labels : mapping of str to str
        Values of `RUN_LABELS`.
    exporters : sequence of Exporter
    on_problem : callable, optional
        Told why an exporter is left out.
    clock : callable
        Replaces ``time.monotonic`` in tests.

    Attributes
    ----------
    values : dict
        (name, values of the metric's own labels) → number so far.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        exporters: Sequence[Exporter] = (),
        on_problem: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}
        self._labels = {name: str(labels[name]) for name in RUN_LABELS}
        self._exporters = list(exporters)
        self._on_problem = on_problem
        self._clock = clock
        self._flushed_s = clock()
        self._pending: dict[tuple[str, tuple[str, ...]], float] = {}
        self._stage = ""
        self._pass = _Pass()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event; kinds that count nothing are ignored."""
        take = getattr(self, f"_on_{event['event']}", None)
        if take is not None:
            take(event)
            if event["event"] not in FREQUENT or self._clock() - self._flushed_s >= _FLUSH_S:
                self._flush()

    def value(self, name: str, *labels: str) -> float:
        """Give a number so far, 0 if there was nothing to count.

        Parameters
        ----------
        name : str
        *labels : str
            Values of the metric's own labels, in its order.
        """
        return self.values.get((name, labels), 0.0)

    def close(self) -> None:
        """Hand on what exporters keep; safe to call twice."""
        # A run that was interrupted has neither been done nor failed, but it goes on no longer.
        if self.value("distfms_run_active"):
            self._set("distfms_run_active", 0)
        self._flush()
        self._export(lambda exporter: exporter.close())
        self._exporters = []

    # --- numbers ---

    def _add(self, name: str, amount: float, *labels: str) -> None:
        if amount > 0:
            for numbers in (self.values, self._pending):
                numbers[name, labels] = numbers.get((name, labels), 0.0) + amount

    def _set(self, name: str, value: float, *labels: str) -> None:
        self.values[name, labels] = self._pending[name, labels] = value

    def _flush(self) -> None:
        """Hand on what has changed."""
        pending, self._pending = self._pending, {}
        self._flushed_s = self._clock()
        self._export(lambda exporter: self._hand_on(exporter, pending))

    def _hand_on(
        self, exporter: Exporter, numbers: Mapping[tuple[str, tuple[str, ...]], float]
    ) -> None:
        for (name, labels), value in numbers.items():
            metric = _BY_NAME[name]
            named = self._labels | dict(zip(metric.labels, labels, strict=True))
            exporter.record(metric, value, named)
        exporter.flush()

    def _export(self, call: Callable[[Exporter], None]) -> None:
        for exporter in list(self._exporters):
            try:
                call(exporter)
            except Exception as error:
                self._exporters.remove(exporter)
                reason = (isinstance(error, OSError) and error.strerror) or error
                self._on_problem(f"{exporter.place} cannot be written to ({reason})")

    # --- passes ---

    def _on_pass_started(self, event: Mapping[str, Any]) -> None:
        self._pass = _Pass()
        self._set("distfms_pass_partitions", event["total"], self._stage)
        self._set("distfms_pass_partitions_done", 0, self._stage)

    def _on_unit(self, event: Mapping[str, Any]) -> None:
        self._done(event["done"] - event["cached"], event["cached"], event["bytes"])

    def _on_pass_finished(self, event: Mapping[str, Any]) -> None:
        # News of a unit may have been lost with its worker; these counts are complete.
        before = self._pass
        missing = event["total"] - before.n_read - before.n_cached
        n_cached = min(max(event["cached"] - before.n_cached, 0), missing)
        n_bytes = max(event["bytes"], before.n_bytes)
        self._done(before.n_read + missing - n_cached, before.n_cached + n_cached, n_bytes)
        self._add("distfms_passes_done_total", 1, self._stage)

    def _done(self, n_read: int, n_cached: int, n_bytes: int) -> None:
        """Count what the present pass has done beyond what is counted of it."""
        before, self._pass = self._pass, _Pass(n_read, n_cached, n_bytes)
        name = "distfms_partitions_done_total"
        self._add(name, n_read - before.n_read, self._stage, "read")
        self._add(name, n_cached - before.n_cached, self._stage, "cache")
        self._add("distfms_bytes_read_total", n_bytes - before.n_bytes, self._stage)
        self._set("distfms_pass_partitions_done", n_read + n_cached, self._stage)

    def _on_retry(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_retries_total", event["n_retries"], self._stage)

    def _on_worker_lost(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_workers_lost_total", 1, self._stage)

    # --- pools ---

    def _on_pool_step(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_pool_steps_total", 1, self._stage)
        self._add("distfms_pool_step_seconds_total", event["seconds"], self._stage)

    def _on_actor_lost(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_actors_lost_total", 1, self._stage)

    def _on_actor_replayed(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_states_rebuilt_total", event["shards"], self._stage)
        self._add("distfms_steps_replayed_total", event["steps"], self._stage)

    # --- the run ---

    def _on_begin(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_runs_total", 1, "begun")
        self._set("distfms_run_active", 1)

    def _on_stage(self, event: Mapping[str, Any]) -> None:
        self._stage = _NUMBERED.sub("", event["stage"])

    def _on_stage_done(self, event: Mapping[str, Any]) -> None:
        self._add("distfms_candidates_evaluated_total", event.get("n_candidates", 0), self._stage)
        self._add("distfms_stages_done_total", 1, self._stage)
        self._add("distfms_stage_seconds_total", event["seconds"], self._stage)

    def _on_done(self, event: Mapping[str, Any]) -> None:
        self._end("done")

    def _on_failed(self, event: Mapping[str, Any]) -> None:
        self._end("failed")

    def _end(self, status: str) -> None:
        self._add("distfms_runs_total", 1, status)
        self._set("distfms_run_active", 0)


@dataclass(frozen=True)
class _Pass:
    """What is counted of the present pass."""

    n_read: int = 0
    n_cached: int = 0
    n_bytes: int = 0


# --- where the numbers go -----------------------------------------------------------------------


class RayExporter:
    """Hands numbers to the metrics agent of the node, through the Ray that is connected.

    The agent gets them about every ten seconds and when this process leaves the cluster. It keeps
    counters as long as it runs, gauges for as long as they are set.
    """

    place = "the metrics agent of Ray"

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Take one number."""
        made = self._made.get(metric.name) or self._make(metric)
        if metric.is_counter:
            made.inc(float(value), dict(labels))
        else:
            made.set(float(value), dict(labels))

    def flush(self) -> None:
        """Do nothing: Ray has a rhythm of its own."""

    def close(self) -> None:
        """Do nothing: Ray hands on what is left when it disconnects."""

    def _make(self, metric: Metric) -> Any:
        from ray.util import metrics

        kind = metrics.Counter if metric.is_counter else metrics.Gauge
        tag_keys = (*RUN_LABELS, *metric.labels)
        self._made[metric.name] = kind(metric.name, metric.text, tag_keys=tag_keys)
        return self._made[metric.name]


class FileExporter:
    """Keeps a file of all numbers up to date, for the node exporter's textfile collector.

    Parameters
    ----------
    path : path
        In a folder that is there. Its name has to end in ``.prom``, or the collector does not read
        it. It is replaced as a whole, so one file is for one run at a time.
    interval_s : float
        Least time between two writes.
    clock : callable
        Replaces ``time.monotonic`` in tests.
    """

    def __init__(
        self,
        path: str | Path,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = f"the file {path}"
        self._path = Path(path)
        self._interval_s = interval_s
        self._clock = clock
        self._written_s = clock()
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Take one number."""
        values = self._values.setdefault(metric, {})
        key = tuple(labels[name] for name in (*RUN_LABELS, *metric.labels))
        values[key] = value + (values.get(key, 0.0) if metric.is_counter else 0.0)

    def flush(self) -> None:
        """Write the file, if that was long enough ago."""
        now_s = self._clock()
        if now_s - self._written_s >= self._interval_s:
            self._written_s = now_s
            self._write()

    def collect(self) -> Iterator[Any]:
        """Give all numbers as prometheus_client wants them."""
        from prometheus_client import core

        for metric, values in self._values.items():
            kind = core.CounterMetricFamily if metric.is_counter else core.GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=(*RUN_LABELS, *metric.labels))
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family

    def close(self) -> None:
        """Write the file."""
        self._write()

    def _write(self) -> None:
        from prometheus_client import CollectorRegistry, write_to_textfile

        registry = CollectorRegistry()
        registry.register(self)
        write_to_textfile(str(self._path), registry)


def open_metrics(
    labels: Mapping[str, str],
    *,
    ray_address: str | None = None,
    file: str | None = None,
    on_problem: Callable[[str], None] = lambda text: None,
) -> Metrics:
    """Make the metrics of a run with the exporters that suit.

    Parameters
    ----------
    labels : mapping of str to str
        Values of `RUN_LABELS`.
    ray_address : str, optional
        Of the Ray cluster that this process is connected to.
    file : str, optional
        See `FileExporter`.
    on_problem : callable, optional
        Told, once for each exporter, why there will be no metrics.

    Returns
    -------
    Metrics
        To be called with the events of the run, and closed.
    """
    exporters: list[Exporter] = []
    if ray_address is not None and ray_address.startswith("ray://"):
        on_problem("a driver connected through ray:// is no part of the cluster; submit the job")
    elif ray_address is not None:
        exporters.append(RayExporter())
    if file:
        exporters.append(FileExporter(file))
    return Metrics(labels, exporters, on_problem)
