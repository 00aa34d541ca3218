import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from distfms.engine import local, nodes
from distfms.engine.base import map_reduce
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.errors import EngineError, SpecError
from distfms.spec import EngineSection, parse_section
from tests.conformance import engine_tasks as tasks
from tests.waiting import until


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
def test_senseless_combinations(options, message):
    with pytest.raises(SpecError, match=message):
        parse_section(EngineSection, options, "engine")


@pytest.mark.parametrize("processes", [False, True])
def test_nothing_is_left_after_close(processes):
    threads = set(threading.enumerate())
    children = set(multiprocessing.active_children())
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


def test_a_process_that_begins_while_its_executor_closes_is_ended(monkeypatch):
    begun = threading.Event()

    def begin():
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


def test_a_process_may_be_ended_by_threads_together():
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            process = local._Process()
            together = threading.Barrier(4)
            endings = [threads.submit(_end_together, process, together) for _ in range(4)]
            for ending in endings:
                ending.result()


def _end_together(process, together):
    together.wait()
    process.end()


KILLED = """
import os, time
from distfms.engine.local import LocalExecutor

if __name__ == "__main__":
    executor = LocalExecutor(1, processes=True)
    print(executor.result(executor.submit(os.getpid)), flush=True)
    executor.submit(time.sleep, 60)
    time.sleep(0.5)
    print("busy", flush=True)
    time.sleep(60)
"""


def test_a_busy_process_ends_with_a_driver_that_is_killed(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as driver:
        child = psutil.Process(int(driver.stdout.readline()))
        assert driver.stdout.readline() == "busy\n"
        driver.kill()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_later_pools_have_the_processes_of_earlier_ones_and_none_of_their_states():
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


def _state_and_process(state, message):
    return state + 10, (state, multiprocessing.current_process().name)


def test_each_difference_is_told_once(monkeypatch):
    here = {"Python": "3.11", "distfms": "1", "dask": "2", "numpy": "5"}
    monkeypatch.setattr(nodes, "examiner", lambda packages: lambda: ("here", here))
    there = here | {"Python": "3.12", "distfms": None, "numpy": "6"}
    with pytest.raises(EngineError) as error:
        nodes.require_same((), {"node a": there, "node b": there}, "The cluster at x")
    assert (
        "The cluster at x does not run the same software as this machine: Python 3.12 on node a, "
        "3.11 here; distfms missing on node a, 1 here; numpy 6 on node a, 5 here. Install the same"
    ) in str(error.value)


def test_items_of_a_map_are_not_written_out():
    class Item:
        def __repr__(self):
            raise AssertionError

    assert LocalExecutor(1).map(type, [Item()]) == [Item]
