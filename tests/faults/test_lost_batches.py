"""A worker that dies takes the batch it is at with it, and no other work."""

from __future__ import annotations

from typing import Any

import pytest

from distfms.engine.base import Executor, map_reduce
from distfms.engine.graph import Unit, batch_size
from distfms.engine.local import LocalExecutor
from distfms.store.kept import PartialCache
from tests.conformance import engine_tasks as tasks

N_UNITS = 66
BATCH = 4


@pytest.fixture(params=["processes", "ray"])
def executor(request):
    made: Executor
    if request.param == "ray":
        from distfms.engine.ray_cluster import RayExecutor

        request.getfixturevalue("ray_session")
        made = RayExecutor(workers=2)
    else:
        made = LocalExecutor(2, processes=True)
    with made:
        yield made


def units_for(executor, folder):
    assert batch_size(N_UNITS, executor.workers) == BATCH
    return [Unit(f"unit-{t.index}", t, n_bytes=100) for t in tasks.tickets(folder, N_UNITS)]


@pytest.mark.parametrize("cached", [False, True])
def test_the_batch_is_read_again_but_for_what_it_had_kept(executor, tmp_path, cached):
    """Units 0 to 2 of the batch may be in the cache when unit 3 kills its worker."""
    units = units_for(executor, tmp_path)
    events = list[Any]()
    kept = 3 * cached
    cache = PartialCache(tmp_path / "cache", tasks.encode, tasks.decode) if cached else None
    work = (units, tasks.killed_once_on_three, tasks.concatenate, executor)
    reduction = map_reduce(*work, cache=cache, on_event=events.append)
    n = len(units)
    assert reduction.value == tuple(range(n))
    assert (reduction.n_computed, reduction.n_cached) == (n - kept, kept)
    assert reduction.bytes_read == 100 * (n - kept)
    again = [1] * kept + [2] * (BATCH - kept)
    assert [unit.payload.attempts for unit in units] == again + [1] * (n - BATCH)
    messages = [event["index"] for event in events if event["event"] == "unit"]
    assert sorted(messages) == list(range(n))
