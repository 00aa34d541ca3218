from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.engine.graph import (
    MOST_UNITS,
    TASKS_PER_WORKER,
    WORKERS_PER_DRIVER,
    Unit,
    UnitRunner,
    batch_size,
    build_graph,
)
from distfms.engine.local import LocalExecutor
from distfms.engine.retry import RetryPolicy
from tests.conformance import engine_tasks as tasks
from tests.unit.engine.test_graph import Census, Counted

UNITS = st.integers(1, 5000)
WORKERS = st.integers(1, 300)


@given(UNITS, WORKERS, st.sampled_from([1, 64]))
def test_batches_are_small_parts_of_a_workers_share(n: int, workers: int, coarse: int) -> None:
    size = batch_size(n, workers, coarse=coarse)
    assert size & (size - 1) == 0
    assert size <= MOST_UNITS
    assert size > 1 or n < 16 * workers * coarse
    if workers < 2 * WORKERS_PER_DRIVER * coarse:
        assert size == 1 or size * TASKS_PER_WORKER * coarse <= n / workers
    else:
        assert size == 1 or size * workers <= n


@pytest.mark.parametrize(
    ("n", "workers", "expected"),
    [
        (80, 2, 4),
        (31, 2, 1),
        (240_000, 2, 32),
        (240_000, 2048, 32),
        (24_000, 2048, 8),
        (2_000, 2048, 1),
        (240, 256, 1),
        (24_000, 256, 8),
    ],
)
def test_batches_of_some_passes(n: int, workers: int, expected: int) -> None:
    assert batch_size(n, workers) == expected


@given(st.integers(0, 2**34), st.integers(1, 2**34))
def test_values_of_a_batch_take_no_more_than_a_unit(unit_bytes: int, value_bytes: int) -> None:
    size = batch_size(10**6, 2, unit_bytes=unit_bytes, value_bytes=value_bytes)
    assert size == MOST_UNITS or (size.bit_length() - 1) * value_bytes <= unit_bytes
    assert size == MOST_UNITS or size.bit_length() * value_bytes > unit_bytes


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 100), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_any_batches_make_the_same_tree(n: int, size: int) -> None:
    """Merging texts with brackets shows the shape of the tree."""
    units = [Unit(str(i), i) for i in range(n)]
    runner: UnitRunner[str] = UnitRunner(str, lambda a, b: f"({a} {b})", None, RetryPolicy(), False)
    with LocalExecutor(1) as executor:
        root = executor.compute(build_graph(units, runner, size))
    assert root.value == tasks.in_fixed_tree([str(i) for i in range(n)], lambda a, b: f"({a} {b})")
    assert root.account.n_computed == n


@pytest.mark.parametrize("n", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("size", [1, 4, 32])
def test_batches_start_in_index_order(n: int, size: int) -> None:
    """Dask's own ordering decides; the names of our keys steer its ties."""
    from dask.order import order

    units = [Unit(str(i), i) for i in range(n)]
    runner: UnitRunner[Any] = UnitRunner(str, str.__add__, None, RetryPolicy(), False)
    graph = build_graph(units, runner, size).tasks
    position = order(graph)
    keys = [key for key in sorted(graph, key=position.__getitem__) if "unit" in key[0]]
    assert [n - int(key[1]) for key in keys] == list(range(0, n, size))


def test_a_batch_reports_its_units() -> None:
    runner: UnitRunner[Any] = UnitRunner(str, str.__add__, None, RetryPolicy(), False)
    done = runner.run(8, [Unit(str(i), i, n_bytes=i) for i in range(8, 16)])
    assert done.value == "89101112131415"
    assert [(r.index, r.account.bytes_read) for r in done.reports] == [(i, i) for i in range(8, 16)]


@pytest.mark.parametrize("size", [1, 4, 32])
def test_few_values_are_alive_in_a_batch(size: int) -> None:
    """One for each full subtree, the last unit's, and what a merge makes of two."""
    census = Census()

    def merge(a: Counted, b: Counted) -> Counted:
        return census.value(a.content + b.content)

    runner: UnitRunner[Any] = UnitRunner(census.value, merge, None, RetryPolicy(), False)
    units = [Unit(str(i), i) for i in range(size)]
    assert runner.run(0, units).value.content == size * (size - 1) // 2
    assert census.peak <= size.bit_length() + 1
