from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from distfms.engine.graph import Account, Unit
from distfms.engine.local import LocalExecutor
from distfms.engine.mapreduce import map_reduce
from distfms.errors import DistfmsError
from tests.conformance import engine_tasks as tasks


def test_appended_units_leave_full_subtrees() -> None:
    def merged(n: int) -> set[str]:
        seen = set()

        def merge(a: str, b: str) -> str:
            seen.add(f"({a} {b})")
            return f"({a} {b})"

        with LocalExecutor(1) as executor:
            map_reduce([Unit(str(i), i) for i in range(n)], str, merge, executor)
        return seen

    before, after = merged(12), merged(21)
    root = next(text for text in before if text.count("(") == 11)
    assert before - {root} <= after


class Census:
    """Counts the values that are alive."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.alive = self.peak = 0

    def value(self, content: int) -> Any:
        born = Counted(content)
        with self.lock:
            self.alive += 1
            self.peak = max(self.peak, self.alive)
        weakref.finalize(born, self._died)
        return born

    def _died(self) -> None:
        with self.lock:
            self.alive -= 1


class Counted:
    def __init__(self, content: int) -> None:
        self.content = content


def count_alive(executor: Any, n: int, work: Callable[[int], None]) -> int:
    census = Census()

    def compute(i: int) -> Counted:
        work(i)
        return census.value(i)

    def merge(a: Counted, b: Counted) -> Counted:
        return census.value(a.content + b.content)

    result = map_reduce([Unit(str(i), i) for i in range(n)], compute, merge, executor)
    assert result.value.content == n * (n - 1) // 2
    return census.peak


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_few_values_are_alive_at_a_time(workers: int) -> None:
    """256 units: log2 is 8. Breadth first would hold 128 and more."""
    with LocalExecutor(workers) as executor:
        # The bound is for units of like duration, which a busy machine does not always give.
        peaks = [count_alive(executor, 256, lambda i: time.sleep(0.001)) for _ in range(3)]
    assert min(peaks) <= 2 * workers + 8


def test_few_values_are_alive_on_a_dask_cluster() -> None:
    from distributed import LocalCluster

    from distfms.engine.dask_cluster import DaskExecutor

    with (
        tasks.blas_as_before(),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,  # so that values can be counted here
            protocol="tcp",
            dashboard_address=":0",
        ) as cluster,
        DaskExecutor(cluster.scheduler_address) as executor,
    ):
        units = [Unit(str(i), i) for i in range(256)]
        # Module functions: a closure would arrive as a copy with a census of its own.
        result = map_reduce(units, _shared_value, _shared_merge, executor)
        assert result.value.content == 256 * 255 // 2
        # Assigning ahead, copies between workers and late messages add a few (14 to 16 seen).
        assert SHARED.peak <= (2 + 1) * 8


SHARED = Census()


def _shared_value(i: int) -> Counted:
    time.sleep(0.002)
    return SHARED.value(i)


def _shared_merge(a: Counted, b: Counted) -> Counted:
    return SHARED.value(a.content + b.content)


def test_payloads_are_opaque_to_dask() -> None:
    """A payload may hold anything, even a text that is also a graph key."""
    payload = {"key": ("distfms-unit", "000000000001"), "list": [1, (2, 3)], "unit": Unit("x", 1)}
    with LocalExecutor(2) as executor:
        got: list[Any] = map_reduce(
            [Unit("a", payload), Unit("b", payload)],
            lambda p: [p],
            lambda a, b: a + b,
            executor,
        ).value
    assert got[0] is payload
    assert got[1] is payload


def test_a_merge_that_loses_a_unit_cannot_happen_silently() -> None:
    """Counts come from the value that reached the root."""

    class Forgetful(LocalExecutor):
        def compute(self, graph: Any, **options: Any) -> Any:
            root = super().compute(graph, **options)
            return type(root)(root.value, Account(n_computed=1))

    with Forgetful(1) as executor, pytest.raises(DistfmsError, match="accounts for 1 of 2 units"):
        map_reduce([Unit("a", 1), Unit("b", 2)], str, lambda a, b: a + b, executor)
