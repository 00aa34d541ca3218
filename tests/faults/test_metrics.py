"""Counts of whole jobs: the same on every engine, and those of the manifest, come what may."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distfms.runs.driver import run_job
from distfms.runs.metrics import FILE_VARIABLE, METRICS, RUN_LABELS
from tests.faults.cases import CASES, Jobs, manifest, small_blocks
from tests.faults.disturbance import Plan, disturbed
from tests.ray_here import run_script

Numbers = dict[tuple[str, ...], float]

#: A metric's own labels, in its order.
OWN = {metric.name: metric.labels for metric in METRICS}


def parsed(text: str, run: str) -> Numbers:
    """Numbers of one run, by name and own labels, whoever exports them; times left out."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("ray_")
            if name in OWN and sample.labels["run"] == run and "seconds" not in name:
                assert set(RUN_LABELS) <= set(sample.labels)
                found[name, *(sample.labels[label] for label in OWN[name])] = sample.value
    return found


def of_manifest(folder: Path) -> Numbers:
    """What the counters have to be, from the manifest; nothing for what is 0."""
    found: Numbers = {}
    for stage in manifest(folder)["stages"]:
        label = stage["name"].split(" ")[0]
        for key, name, *rest in (
            ("n_read", "partitions_done", "read"),
            ("n_cached", "partitions_done", "cache"),
            ("bytes_read", "bytes_read"),
            ("n_candidates", "candidates_evaluated"),
        ):
            if stage.get(key):
                counter = (f"distfms_{name}_total", label, *rest)
                found[counter] = found.get(counter, 0) + stage[key]
        counter = ("distfms_stages_done_total", label)
        found[counter] = found.get(counter, 0) + 1
    return found | {("distfms_runs_total", status): 1.0 for status in ("begun", "done")}


def counters(numbers: Numbers, among: Numbers) -> Numbers:
    """Those of some numbers that are counted by the same metrics as others."""
    names = {key[0] for key in among}
    return {key: value for key, value in numbers.items() if key[0] in names}


# --- every engine


def numbers_of(kind: str, engine: dict[str, Any], data: Path, output: Path) -> Numbers:
    """Run a job and read the file of its metrics."""
    with pytest.MonkeyPatch.context() as patch, small_blocks(kind):
        patch.setenv(FILE_VARIABLE, str(output / "m.prom"))
        folder = run_job(CASES[kind].spec(data, output / "runs", engine=engine)).folder
    found = parsed((output / "m.prom").read_text(), folder.name)
    expected = of_manifest(folder)
    assert counters(found, expected) == expected
    assert found["distfms_run_active",] == 0
    return found


@pytest.fixture(scope="module")
def expected(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Numbers]:
    """Numbers of a kind of job in one thread."""
    made: dict[str, Numbers] = {}

    def numbers(kind: str) -> Numbers:
        if kind not in made:
            output = tmp_path_factory.mktemp("expected")
            made[kind] = numbers_of(kind, {"workers": 1}, jobs.data(kind), output)
        return made[kind]

    return numbers


@pytest.mark.parametrize(
    "engine",
    [
        "threads",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("processes", "dask", "ray")),
    ],
    indirect=True,
)
def test_same_counts_on_every_engine(
    engine: Any, jobs: Jobs, expected: Callable[[str], Numbers], tmp_path: Path
) -> None:
    assert numbers_of("blocks", engine, jobs.data("blocks"), tmp_path) == expected("blocks")


def test_what_a_search_evaluates(expected: Callable[[str], Numbers]) -> None:
    """Five attributes at each of 12 steps and once more, in blocks or not; 5 groups, 4, 3, …"""
    for kind in ("blocks", "multiselect"):
        assert expected(kind)["distfms_candidates_evaluated_total", "select"] == 5 * 13
    assert expected("blocks")["distfms_pool_steps_total", "select"] == 18  # with four rows
    sequence = expected("sequence")
    assert sequence["distfms_candidates_evaluated_total", "select"] == 5 + 4 + 3 + 2 + 1


# --- what Prometheus gets from Ray


def scrape(run: str) -> Numbers:
    """Ask the metrics agents of the cluster, as Prometheus does, until they know of the end."""
    import ray

    targets = [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()
        if node["Alive"]
    ]
    proxyless = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end_s = time.monotonic() + 60
    while True:
        found: Numbers = {}
        for target in targets:
            with proxyless.open(target, timeout=10) as answer:
                found |= parsed(answer.read().decode(), run)
        if ("distfms_runs_total", "done") in found:
            return found
        assert time.monotonic() < end_s, "no metrics of the run"
        time.sleep(0.2)


def after_a_killed_worker(data: Path, output: Path) -> None:
    spec = CASES["multiselect"].spec(data, output / "runs", engine={"kind": "ray", "workers": 2})
    with disturbed(Plan(str(output / "marks"), partition=2, mishap="kill")) as plan:
        folder = run_job(spec).folder
    assert plan.reads()[0] == [1, 1, 2, 1]
    found, expected = scrape(folder.name), of_manifest(folder)
    assert counters(found, expected) == expected
    assert expected["distfms_partitions_done_total", "statistics", "read"] == 4
    assert expected["distfms_bytes_read_total", "statistics"] == manifest(folder)["n_bytes"]


def after_a_killed_actor(data: Path, output: Path) -> None:
    spec = CASES["blocks"].spec(data, output / "runs", engine={"kind": "ray", "workers": 2})
    plan = Plan(str(output / "marks"), step=5, mishap="kill")
    with small_blocks(), disturbed(plan), pytest.MonkeyPatch.context() as patch:
        patch.setattr("distfms.runs.context.ACTORS_PAY_OPERATIONS", 0)
        folder = run_job(spec).folder
    (pool,) = plan.pools()
    found, expected = scrape(folder.name), of_manifest(folder)
    assert counters(found, expected) == expected
    assert pool["n_lost"] == 1
    steps = {name: found[f"distfms_{name}_total", "select"] for name in
             ("pool_steps", "actors_lost", "steps_replayed", "candidates_evaluated")}  # fmt: skip
    assert steps == {
        "pool_steps": pool["n_steps"],
        "actors_lost": 1,
        "steps_replayed": pool["n_replayed"],
        "candidates_evaluated": 5 * 13,
    }


@pytest.mark.parametrize(
    ("kind", "mishap"),
    [
        ("blocks", "after_a_killed_actor"),
        pytest.param("multiselect", "after_a_killed_worker", marks=pytest.mark.slow),
    ],
)
def test_scraped_from_ray(kind: str, mishap: str, jobs: Jobs, tmp_path: Path) -> None:
    """On a cluster that is there; one that a job starts has no agent that keeps them."""
    run_script("scraped", mishap, str(jobs.data(kind)), str(tmp_path))
