from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import distfms
from distfms.runs.metrics import METRICS, Metrics

LABELS = {"name": "small", "run": "r1", "method": "sequence", "engine": "local"}
PARTITIONS, BYTES = "distfms_partitions_done_total", "distfms_bytes_read_total"


def unit(done: int, cached: int, n_bytes: int) -> dict[str, Any]:
    return {"event": "unit", "done": done, "cached": cached, "bytes": n_bytes, "total": 4}


def finished(computed: int, cached: int, n_bytes: int) -> dict[str, Any]:
    counts = {"computed": computed, "cached": cached, "bytes": n_bytes}
    return {"event": "pass_finished", "total": 4, **counts}


def counted(*events: Mapping[str, Any]) -> Metrics:
    metrics = Metrics(LABELS)
    metrics({"event": "stage", "stage": "s"})
    for event in events:
        metrics(event)
    return metrics


def partitions(metrics: Metrics) -> tuple[float, float, float]:
    return (
        metrics.value(PARTITIONS, "s", "read"),
        metrics.value(PARTITIONS, "s", "cache"),
        metrics.value(BYTES, "s"),
    )


def test_partitions_count_as_they_are_done() -> None:
    start = {"event": "pass_started", "total": 4}
    assert partitions(counted(start, unit(1, 0, 10), unit(2, 1, 10))) == (1, 1, 10)
    whole = [start, *(unit(n, min(n, 1), 10 * (n - 1)) for n in (1, 2, 3, 4)), finished(3, 1, 30)]
    metrics = counted(*whole)
    assert partitions(metrics) == (3, 1, 30)
    assert metrics.value("distfms_pass_partitions", "s") == 4
    assert metrics.value("distfms_pass_partitions_done", "s") == 4
    assert partitions(counted(*whole, *whole)) == (6, 2, 60)


START = {"event": "pass_started", "total": 4}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # News lost with a worker is made up for at the end.
        ([START, unit(1, 0, 10), finished(2, 2, 20)], (2, 2, 20)),
        ([START, finished(4, 0, 40)], (4, 0, 40)),
        # What was read, and found in the cache when read again, counts once.
        ([START, *(unit(n, 0, 10 * n) for n in (1, 2, 3, 4)), finished(1, 3, 10)], (4, 0, 40)),
        # A pass that failed leaves the next one alone.
        ([START, unit(1, 0, 10), START, unit(1, 0, 10), finished(4, 0, 40)], (5, 0, 50)),
    ],
)
def test_partitions_of_passes_with_mishaps(
    events: list[dict[str, Any]], expected: tuple[float, float, float]
) -> None:
    metrics = counted(*events)
    assert partitions(metrics) == expected
    assert metrics.value("distfms_passes_done_total", "s") == 1


def test_every_other_event_that_counts() -> None:
    metrics = counted(
        {"event": "begin", "run": "r1"},
        {"event": "retry", "key": "u", "n_retries": 2},
        {"event": "worker_lost", "n_losses": 1},
        {"event": "worker_lost", "n_losses": 2},
        {"event": "pool_step", "step": 1, "seconds": 0.5},
        {"event": "actor_lost", "actor": 1, "reason": "", "n_losses": 7},
        {"event": "actor_replayed", "actor": 1, "shards": 2, "steps": 6},
        {"event": "stage", "stage": "statistics 3 of 12"},
        {"event": "stage_done", "stage": "statistics 3 of 12", "seconds": 2.0, "n_candidates": 9},
        {"event": "note", "text": "counts nothing"},
        {"event": "failed", "error": "no"},
    )
    found = {key: value for key, value in metrics.values.items() if "pass" not in key[0]}
    assert found == {
        ("distfms_runs_total", ("begun",)): 1,
        ("distfms_runs_total", ("failed",)): 1,
        ("distfms_run_active", ()): 0,
        ("distfms_retries_total", ("s",)): 2,
        ("distfms_workers_lost_total", ("s",)): 2,
        ("distfms_pool_steps_total", ("s",)): 1,
        ("distfms_pool_step_seconds_total", ("s",)): 0.5,
        ("distfms_actors_lost_total", ("s",)): 1,
        ("distfms_states_rebuilt_total", ("s",)): 2,
        ("distfms_steps_replayed_total", ("s",)): 6,
        ("distfms_candidates_evaluated_total", ("statistics",)): 9,
        ("distfms_stages_done_total", ("statistics",)): 1,
        ("distfms_stage_seconds_total", ("statistics",)): 2.0,
    }
    names = {name for name, _ in [*metrics.values, *counted(finished(1, 3, 10)).values]}
    assert names | {"distfms_pass_partitions"} == {metric.name for metric in METRICS}


# --- where the numbers go


def test_a_receiver_that_fails_is_told_of_once_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr("ray.util.metrics.Counter", broken)
    told: list[str] = []
    path = tmp_path / "nowhere" / "m.prom"
    metrics = Metrics(LABELS, ray_address="here:6379", file=path, on_problem=told.append)
    metrics({"event": "begin"})
    metrics({"event": "done"})
    metrics.close()
    metrics.close()
    assert told == [
        "cannot write to Ray's metrics agent (nobody there)",
        f"cannot write the file {path} (No such file or directory)",
    ]
    assert not path.parent.exists()


def samples(path: Path) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(path.read_text())
    return {(s.name, s.labels.get("source", "")): s.value for f in families for s in f.samples}


def test_the_file_is_what_prometheus_reads(tmp_path: Path) -> None:
    path, now_s, labels = tmp_path / "m.prom", [0.0], LABELS | {"name": 'a "b"\\n'}
    metrics = Metrics(labels, file=path, clock=lambda: now_s[0])
    metrics({"event": "pass_started", "total": 4})
    metrics(unit(1, 0, 2**40 + 1))
    assert not path.exists()
    now_s[0] = 5.0
    metrics(unit(2, 1, 2**40 + 1))
    assert samples(path)[PARTITIONS, "cache"] == 1
    metrics(finished(3, 1, 2**41 + 1))
    metrics.close()
    assert samples(path) == {
        (PARTITIONS, "read"): 3,
        (PARTITIONS, "cache"): 1,
        (BYTES, ""): 2**41 + 1,
        ("distfms_passes_done_total", ""): 1,
        ("distfms_pass_partitions", ""): 4,
        ("distfms_pass_partitions_done", ""): 4,
    }
    (family,) = [f for f in text_string_to_metric_families(path.read_text()) if "bytes" in f.name]
    assert family.type == "counter"
    assert family.samples[0].labels == labels | {"stage": ""}


def test_a_driver_that_is_no_part_of_the_cluster_says_so() -> None:
    told: list[str] = []
    metrics = Metrics(LABELS, ray_address="ray://head:10001", on_problem=told.append)
    metrics({"event": "begin"})
    assert metrics.value("distfms_runs_total", "begun") == 1
    (text,) = told
    assert "ray://" in text


def test_the_table_for_people_is_the_table() -> None:
    text = (Path(distfms.__file__).parents[1] / "cluster" / "README.md").read_text()
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{metric.name}` | {metric.text} | {labels} |\n" in text
