from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from distfms.engine import local, nodes
from distfms.engine.base import map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.errors import EngineError, SpecError
from distfms.spec import EngineSection, parse_section
from tests.conformance import engine_tasks as tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "spark"}, "'local', 'dask' or 'ray'"),
        ({"kind": "dask"}, "needs the `address` of the scheduler"),
        ({"kind": "local", "address": "tcp://a:1"}, "`kind: local` takes no `address`"),
        ({"kind": "dask", "address": "ray://head:10001"}, "not the address of a Dask scheduler"),
        ({"kind": "dask", "address": "http://head:8787"}, "dashboard"),
        ({"kind": "ray", "address": "http://127.0.0.1:8265"}, "dashboard.*distfms submit"),
        ({"kind": "ray", "address": "somewhere"}, "which has the form host:6379"),
    ],
)
def test_senseless_combinations(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_section(EngineSection, options, "engine")


@pytest.mark.parametrize("processes", [False, True])
def test_nothing_is_left_after_close(processes: bool) -> None:
    threads, children = set(threading.enumerate()), set(multiprocessing.active_children())
    executor = LocalExecutor(2, processes=processes)
    assert executor.map(tasks.square, range(4)) == [0, 1, 4, 9]
    map_reduce([Unit("a", 1), Unit("b", 2)], tasks.square, max, executor)
    here = multiprocessing.current_process().name
    names = executor.map(lambda _: multiprocessing.current_process().name, [0])
    assert (names == [here]) == (not processes)
    executor.close()
    executor.close()
    assert set(threading.enumerate()) <= threads
    assert set(multiprocessing.active_children()) <= children


def test_a_process_that_begins_while_its_executor_closes_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = threading.Event()

    def begin() -> Any:
        begun.set()
        time.sleep(0.5)
        return process()

    process = local._Process
    monkeypatch.setattr(local, "_Process", begin)
    executor = LocalExecutor(1, processes=True)
    task = executor.submit(time.sleep, 60)
    begun.wait()
    executor.close()
    with pytest.raises(EngineError):
        executor.result(task)


def test_a_process_may_be_ended_by_threads_together() -> None:
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            process = local._Process()
            together = threading.Barrier(4)
            endings = [threads.submit(_end_together, process, together) for _ in range(4)]
            for ending in endings:
                ending.result()


def _end_together(process: Any, together: threading.Barrier) -> None:
    together.wait()
    process.end()


def test_later_pools_have_the_processes_of_earlier_ones_and_none_of_their_states() -> None:
    children = set(multiprocessing.active_children())
    with LocalExecutor(2) as executor:
        answers = []
        for shards in ("12", "34"):
            with executor.pool() as pool:
                pool.start(int, shards)
                answers.append(pool.step(_state_and_process))
        assert [[state for state, _ in step] for step in answers] == [[1, 2], [3, 4]]
        first, second = [{process for _, process in step} for step in answers]
        assert first == second
        with executor.pool(1) as pool, pytest.raises(ZeroDivisionError):
            pool.start(lambda shard: 1 // shard, [0])
    assert set(multiprocessing.active_children()) <= children


def _state_and_process(state: int, message: None) -> tuple[int, tuple[int, str]]:
    return state + 10, (state, multiprocessing.current_process().name)


def node(python: str = "3.11.9", **packages: str | None) -> dict[str, Any]:
    versions = {"distfms": "1", "dask": "2", "cloudpickle": "4", "numpy": "5"}
    return {"python": python, "packages": versions | packages}


def test_each_difference_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "examine", lambda packages, paths: node())
    other = node(python="3.12.1", distfms=None, numpy="6")
    with pytest.raises(EngineError) as error:
        nodes.require_software(
            (), lambda packages, paths: {"node a": other, "node b": other}, "The cluster at x"
        )
    assert (
        "The cluster at x does not run the same software as this machine: Python 3.12 on node a, "
        "3.11 here; distfms missing on node a, 1 here; numpy 6 on node a, 5 here. Install the same"
    ) in str(error.value)


def test_one_worker_of_each_host_is_asked_for_paths_a_thousand_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = [str(tmp_path / f"{number}") for number in range(2_500)]
    for path in paths:
        Path(path).touch()
    asked: list[tuple[int, list[str]]] = []
    there = {f"tcp://{host}:{port}": {"host": host} for host in "ab" for port in range(3)}

    class Client:
        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": there}

        def run(self, function: Any, packages: Any, paths: Any, workers: Any) -> dict[str, Any]:
            asked.append((len(paths), workers))
            return {worker: function(packages, paths) for worker in workers}

    executor = object.__new__(DaskExecutor)
    executor.client = Client()
    executor.probe(paths)
    hosts = ["tcp://a:2", "tcp://b:2"]
    assert asked == [(1_000, hosts), (1_000, hosts), (500, hosts)]
    del asked[:]

    def blind(packages: Any, paths: Any) -> dict[str, Any]:
        return {"the worker b": {"sizes": dict.fromkeys(paths)}}

    monkeypatch.setattr(executor, "_examine_hosts", blind)
    with pytest.raises(EngineError, match="The worker b sees other input than this machine"):
        executor.probe(paths)
