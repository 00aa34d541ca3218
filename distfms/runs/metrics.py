"""What a run has done so far, as counters and gauges for Prometheus."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Variable that names a file for all metrics, for the node exporter's textfile collector.
FILE_VARIABLE = "DISTFMS_METRICS_FILE"

# Least seconds between two writings of the file.
_INTERVAL_S = 5.0

#: Labels of every metric: name in the spec, name of the run folder, method, kind of engine.
RUN_LABELS = ("name", "run", "method", "engine")

# "statistics 3 of 12" and the like are one stage for a label, whose values should be few.
_NUMBERED = re.compile(r" \d+ of \d+$")


@dataclass(frozen=True)
class Metric:
    """One metric for Prometheus: a counter if its name ends in ``_total``, else a gauge.

    `event` is the kind of events that add to it: 1, or what their field `amount` says. `labels` are
    its own, besides those of every metric.
    """

    name: str
    event: str
    amount: str
    labels: tuple[str, ...]
    text: str

    @property
    def is_counter(self) -> bool:
        """Whether it only grows."""
        return self.name.endswith("_total")


#: All metrics. Sums and counts only: a histogram of Ray's forgets the sum of what it observed.
METRICS = tuple(
    Metric(f"distfms_{name}", event, amount, tuple(labels.split()), text)
    for name, event, amount, labels, text in (
        ("partitions_done_total", "", "", "stage source", "Partitions done, each once in a pass"),
        ("bytes_read_total", "", "", "stage", "Bytes of the partitions read"),
        ("passes_done_total", "pass_finished", "", "stage", "Passes over the data"),
        ("pass_partitions", "", "", "stage", "Partitions of the latest pass"),
        ("pass_partitions_done", "", "", "stage", "Partitions done of the latest pass"),
        ("candidates_evaluated_total", "stage_done", "n_candidates", "stage", "Gains compared"),
        ("pool_steps_total", "pool_step", "", "stage", "Steps that all shards of a pool answered"),
        ("pool_step_seconds_total", "pool_step", "seconds", "stage", "Time these steps took"),
        ("actors_lost_total", "actor_lost", "", "stage", "Actors that were lost and replaced"),
        ("states_rebuilt_total", "actor_replayed", "shards", "stage", "States built again"),
        ("steps_replayed_total", "actor_replayed", "steps", "stage", "Steps of shards done again"),
        ("workers_lost_total", "worker_lost", "", "stage", "Times local worker processes died"),
        ("retries_total", "retry", "n_retries", "stage", "Attempts after a transient error"),
        ("stages_done_total", "stage_done", "", "stage", "Stages finished"),
        ("stage_seconds_total", "stage_done", "seconds", "stage", "Time finished stages took"),
        ("runs_total", "", "", "status", "Runs begun (or resumed), done and failed"),
        ("run_active", "", "", "", "1 while the run is active"),
    )
)

_BY_NAME = {metric.name: metric for metric in METRICS}


class Metrics:
    """Follows the events of one run, and hands its numbers on for Prometheus.

    The driver hears of each unit of work once: attempts that failed, work that is done again after
    a loss and deliveries that come twice are not counted twice, and after a stage its numbers are
    those of the manifest. On a Ray cluster that is there, at `ray_address`, the numbers go to the
    metrics agent of the driver's node, on any engine to a `file`, if one is named, which is
    replaced as a whole. A receiver that fails is told of once (`on_problem`) and then left out:
    metrics never break a run.

    `values` are the numbers so far by (name, values of the metric's own labels).
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        *,
        ray_address: str | None = None,
        file: str | Path | None = None,
        on_problem: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}
        self._labels = {name: str(labels[name]) for name in RUN_LABELS}
        self._file = file or None
        self._ray_address = ray_address
        self._ray: dict[str, Any] = {}
        self._on_problem = on_problem
        self._clock = clock
        self._written_s = clock()
        self._stage = ""
        self._read = self._cached = self._bytes = 0  # of the present pass

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event; kinds that count nothing are ignored."""
        kind = event["event"]
        if kind == "stage":
            self._stage = _NUMBERED.sub("", event["stage"])
        elif kind in ("pass_started", "unit", "pass_finished"):
            self._follow_pass(event)
        elif kind in ("begin", "done", "failed"):
            self._add("distfms_runs_total", 1, "begun" if kind == "begin" else kind)
            self._set("distfms_run_active", float(kind == "begin"))
        for metric in METRICS:
            if kind == metric.event:
                amount = event.get(metric.amount, 0) if metric.amount else 1
                self._add(metric.name, amount, self._stage)
        if self._clock() - self._written_s >= _INTERVAL_S:
            self._write()

    def value(self, name: str, *labels: str) -> float:
        """Return a number so far, 0 if there was nothing to count."""
        return self.values.get((name, labels), 0.0)

    def close(self) -> None:
        """Hand on what has not been; safe to call twice."""
        # A run that was interrupted has neither been done nor failed, but it goes on no longer.
        if self.value("distfms_run_active"):
            self._set("distfms_run_active", 0)
        self._write()

    def _follow_pass(self, event: Mapping[str, Any]) -> None:
        before = (self._read, self._cached, self._bytes)
        if event["event"] == "pass_started":
            self._set("distfms_pass_partitions", event["total"], self._stage)
            before = (0, 0, 0)
            self._read = self._cached = self._bytes = 0
        elif event["event"] == "unit":
            self._cached, self._bytes = event["cached"], event["bytes"]
            self._read = event["done"] - event["cached"]
        else:
            # News of a unit may have been lost with its worker; these counts are complete.
            self._cached = max(self._cached, min(event["cached"], event["total"] - self._read))
            self._read = event["total"] - self._cached
            self._bytes = max(self._bytes, event["bytes"])
        name = "distfms_partitions_done_total"
        self._add(name, self._read - before[0], self._stage, "read")
        self._add(name, self._cached - before[1], self._stage, "cache")
        self._add("distfms_bytes_read_total", self._bytes - before[2], self._stage)
        self._set("distfms_pass_partitions_done", self._read + self._cached, self._stage)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        if amount > 0:
            self.values[name, labels] = self.value(name, *labels) + amount
            self._hand_to_ray(name, amount, labels)

    def _set(self, name: str, value: float, *labels: str) -> None:
        self.values[name, labels] = value
        self._hand_to_ray(name, value, labels)

    def _hand_to_ray(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Hand a number to the agent, which keeps counters, and gets the rest when Ray leaves."""
        if self._ray_address is None:
            return
        metric = _BY_NAME[name]
        try:
            if self._ray_address.startswith("ray://"):
                raise ConnectionError("a driver connected through ray:// is no part of the cluster")
            from ray.util import metrics

            if name not in self._ray:
                kind = metrics.Counter if metric.is_counter else metrics.Gauge
                tag_keys = (*RUN_LABELS, *metric.labels)
                self._ray[name] = kind(name, metric.text, tag_keys=tag_keys)
            made = self._ray[name]
            tags = self._labels | dict(zip(metric.labels, labels, strict=True))
            (made.inc if metric.is_counter else made.set)(float(amount), tags)
        except Exception as error:
            self._ray_address = None
            self._on_problem(f"cannot write to Ray's metrics agent ({error})")

    def collect(self) -> Iterator[Any]:
        """Yield all numbers as prometheus_client wants them."""
        from prometheus_client import core

        for metric in METRICS:
            kind = core.CounterMetricFamily if metric.is_counter else core.GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=(*RUN_LABELS, *metric.labels))
            for (name, labels), value in self.values.items():
                if name == metric.name:
                    family.add_metric((*self._labels.values(), *labels), value)
            if family.samples:
                yield family

    def _write(self) -> None:
        if self._file is None:
            return
        from prometheus_client import CollectorRegistry, write_to_textfile

        self._written_s = self._clock()
        registry = CollectorRegistry()
        try:
            registry.register(self)
            write_to_textfile(str(self._file), registry)
        except Exception as error:
            reason = (isinstance(error, OSError) and error.strerror) or error
            text = f"cannot write the file {self._file} ({reason})"
            self._file = None
            self._on_problem(text)
