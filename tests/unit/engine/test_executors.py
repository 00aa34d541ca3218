from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import pytest

from distfms.engine import LocalExecutor, Unit, make_executor, map_reduce
from distfms.engine.nodes import require_software
from distfms.errors import EngineError, SpecError
from tests.conformance import engine_tasks as tasks


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "spark"}, SpecError, "unknown kind 'spark'; it is one of: local, dask"),
        ({"kind": "dask"}, SpecError, "needs the address"),
        (
            {"kind": "local", "address": "tcp://a:1"},
            SpecError,
            "kind is 'local', which needs none",
        ),
        ({"kind": "local", "workers": 0}, SpecError, "at least 1, not 0"),
        ({"kind": "dask", "address": "ray://head:10001"}, EngineError, "Ray cluster"),
        ({"kind": "dask", "address": "http://head:8787"}, EngineError, "dashboard"),
        ({"kind": "dask", "address": "head:8786"}, EngineError, "tcp://host:8786"),
        ({"kind": "dask", "address": "tcp://head"}, EngineError, "tcp://host:8786"),
    ],
)
def test_senseless_combinations(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_executor(**options)


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


def node(python: str = "3.11.9", **packages: str | None) -> dict[str, Any]:
    versions = {"distfms": "1", "dask": "2", "cloudpickle": "4", "numpy": "5"}
    return {"python": python, "packages": versions | packages}


def test_each_difference_is_told_once() -> None:
    other = node(python="3.12.1", distfms=None, numpy="6")
    with pytest.raises(EngineError) as error:
        require_software(node(), {"node a": other, "node b": other}, "The cluster at x")
    assert (
        "The cluster at x does not run the same software as this machine: Python 3.12 on node a, "
        "3.11 here; distfms missing on node a, 1 here; numpy 6 on node a, 5 here. Install the same"
    ) in str(error.value)
