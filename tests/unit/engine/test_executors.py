from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from typing import Any

import pytest

from distfms.engine import LocalExecutor, Unit, make_executor, map_reduce
from distfms.engine.nodes import require_software
from distfms.errors import EngineError, SpecError
from tests.conformance import engine_tasks as tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "spark"}, "unknown kind 'spark'; it is one of: local, dask"),
        ({"kind": "dask"}, "needs the address"),
        ({"kind": "local", "address": "tcp://a:1"}, "kind is 'local', which needs none"),
        ({"kind": "local", "workers": 0}, "at least 1, not 0"),
    ],
)
def test_senseless_combinations(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_executor(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("ray://head:10001", "Ray cluster"),
        ("http://head:8787", "dashboard"),
        ("head:8786", "tcp://host:8786"),
        ("tcp://head", "tcp://host:8786"),
    ],
)
def test_addresses_of_other_things(address: str, hint: str) -> None:
    with pytest.raises(EngineError, match=hint):
        make_executor("dask", address=address)


def test_default_is_a_worker_for_each_processor() -> None:
    with make_executor() as executor:
        assert executor.workers >= 1
        assert executor.name == "local"


@pytest.mark.parametrize("processes", [False, True])
def test_nothing_is_left_after_close(processes: bool) -> None:
    threads, children = set(threading.enumerate()), set(multiprocessing.active_children())
    executor = LocalExecutor(2, processes=processes)
    executor.map(tasks.square, range(4))
    map_reduce([Unit("a", 1), Unit("b", 2)], tasks.square, max, executor)
    executor.close()
    executor.close()
    assert set(threading.enumerate()) <= threads
    assert set(multiprocessing.active_children()) <= children


def test_processes_are_other_processes() -> None:
    with LocalExecutor(1, processes=True) as executor:
        assert executor.map(tasks.square, [3]) == [9]
        names = executor.map(lambda _: multiprocessing.current_process().name, [0])
    assert names != [multiprocessing.current_process().name]


def test_importing_the_engine_loads_neither_dask_nor_ray() -> None:
    program = (
        "import sys, distfms.engine; "
        "print(*({'dask', 'distributed', 'ray', 'rich', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.stdout == b"\n"


def node(python: str = "3.11.9", **packages: str | None) -> dict[str, Any]:
    versions = {"distfms": "1", "dask": "2", "cloudpickle": "4", "numpy": "5"}
    return {"python": python, "packages": versions | packages}


def test_equal_software_is_no_problem() -> None:
    here = node(distfms=None)  # run from its sources
    require_software(here, {"a": node(), "b": node(python="3.11.2")}, "The cluster")


def test_each_difference_is_told_once() -> None:
    other = node(python="3.12.1", distfms=None, numpy="6")
    with pytest.raises(EngineError) as error:
        require_software(node(), {"node a": other, "node b": other}, "The cluster at x")
    assert (
        "The cluster at x does not run the same software as this machine: Python 3.12 on node a, "
        "3.11 here; distfms missing on node a, 1 here; numpy 6 on node a, 5 here. Install the same"
    ) in str(error.value)
