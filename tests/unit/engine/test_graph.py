import threading
import time
import uuid
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.engine.base import map_reduce
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
from distfms.store.kept import PACK_UNITS, PartialCache
from distfms.store.remote import RemotePath
from tests.conformance import engine_tasks as tasks


class Census:
    """Counts the values that are alive."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alive = self.peak = 0

    def value(self, content):
        born = Counted(content)
        with self.lock:
            self.alive += 1
            self.peak = max(self.peak, self.alive)
        weakref.finalize(born, self._died)
        return born

    def merge(self, earlier, later):
        return self.value(earlier.content + later.content)

    def _died(self):
        with self.lock:
            self.alive -= 1


class Counted:
    def __init__(self, content):
        self.content = content


def count_alive(executor, n, work):
    census = Census()

    def compute(i):
        work(i)
        return census.value(i)

    result = map_reduce([Unit(str(i), i) for i in range(n)], compute, census.merge, executor)
    assert result.value.content == n * (n - 1) // 2
    return census.peak


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_few_values_are_alive_at_a_time(workers):
    """256 units: log2 is 8. Breadth first would hold 128 and more."""
    with LocalExecutor(workers) as executor:
        # The bound is for units of like duration, which a busy machine does not always give.
        peaks = [count_alive(executor, 256, lambda i: time.sleep(0.001)) for _ in range(3)]
    of_batches = workers * (batch_size(256, workers).bit_length() - 1)
    assert min(peaks) <= 2 * workers + 8 + of_batches


def test_few_values_are_alive_on_a_dask_cluster():
    from distfms.engine.dask_cluster import DaskExecutor

    with (
        tasks.dask_cluster(processes=False) as cluster,  # so that values can be counted here
        DaskExecutor(cluster.scheduler_address) as executor,
    ):
        units = [Unit(str(i), i) for i in range(256)]
        # Module functions: a closure would arrive as a copy with a census of its own.
        result = map_reduce(units, _shared_value, _shared_merge, executor)
        assert result.value.content == 256 * 255 // 2
        # Assigning ahead, copies between workers and late messages add a few (14 to 16 seen).
        assert SHARED.peak <= (2 + 1) * 8


SHARED = Census()


def _shared_value(i):
    time.sleep(0.002)
    return SHARED.value(i)


def _shared_merge(a, b):
    return SHARED.merge(a, b)


# --- packs --------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "memory"])
def cache(request, tmp_path):
    place = tmp_path if request.param == "folder" else RemotePath(f"memory://{uuid.uuid4()}/cache")
    return PartialCache(place, str.encode, bytes.decode, "v1")


def bracketed(cache, keys, workers=1):
    """Merge texts in brackets, which show the tree; return what was computed, and events, too."""
    events = []
    computed = []

    def compute(text):
        computed.append(text)
        return text

    units = [Unit(key, key) for key in keys]
    join = "({} {})".format
    with LocalExecutor(workers) as executor:
        found = map_reduce(units, compute, join, executor, cache=cache, on_event=events.append)
    assert found.value == tasks.in_fixed_tree(keys, join)
    messages = [event["index"] for event in events if event["event"] == "unit"]
    assert sorted(messages) == list(range(len(keys)))
    return found, sorted(computed), events


def test_a_later_pass_reads_packs_alone(cache, monkeypatch):
    keys = [str(i) for i in range(2 * PACK_UNITS + 3)]
    bracketed(cache, keys)
    looked = list[str]()
    lookup = PartialCache.lookup
    monkeypatch.setattr(PartialCache, "lookup", lambda s, k: looked.append(k) or lookup(s, k))
    found, computed, _ = bracketed(cache, keys, workers=2)
    packs = cache.packs(keys)
    assert sorted(looked) == sorted([*(key for key, _ in packs.values()), *keys[-3:]])
    assert all(is_kept for _, is_kept in packs.values())
    assert (computed, found.n_cached) == ([], len(keys))
    # Nor does a pass that finishes each value merge what was merged without.
    with LocalExecutor(1) as executor:
        units = [Unit(key, key) for key in keys]
        finished = map_reduce(units, str, str.__add__, executor, cache=cache,
                              finish_fn=lambda key, value: value + ",")  # fmt: skip
    assert finished.value == "".join(key + "," for key in keys)


def test_a_damaged_pack_is_made_again_of_its_units(tmp_path):
    cache = PartialCache(tmp_path, str.encode, bytes.decode, "v1")
    keys = [str(i) for i in range(2 * PACK_UNITS)]
    bracketed(cache, keys)
    (damaged, _), (gone, _) = cache.packs(keys).values()
    cache.path(damaged).write_bytes(b"half")
    for key in keys[PACK_UNITS + 1 :]:
        cache.path(key).unlink()
    found, computed, events = bracketed(cache, keys)
    assert (computed, found.n_corrupt) == ([], 1)
    assert [e["key"] for e in events if e["event"] == "cache_corrupt"] == ["0"]
    cache.path(gone).unlink()
    found, computed, _ = bracketed(cache, keys)
    assert (len(computed), found.n_corrupt) == (PACK_UNITS - 1, 0)
    assert bracketed(cache, keys)[1] == []


# --- batches ------------------------------------------------------------------------------------

UNITS = st.integers(1, 5000)
WORKERS = st.integers(1, 300)


@given(UNITS, WORKERS)
def test_batches_are_small_parts_of_a_workers_share(n, workers):
    size = batch_size(n, workers)
    assert size & (size - 1) == 0
    assert size <= MOST_UNITS
    assert size > 1 or n < 16 * workers
    if workers < 2 * WORKERS_PER_DRIVER:
        assert size == 1 or size * TASKS_PER_WORKER <= n / workers
    else:
        assert size == 1 or size * workers <= n


@pytest.mark.parametrize(
    ("n", "workers", "expected"),
    [(80, 2, 4), (31, 2, 1), (240_000, 2048, 32), (240, 256, 1), (24_000, 256, 8)],
)
def test_batches_of_some_passes(n, workers, expected):
    assert batch_size(n, workers) == expected


@given(st.integers(0, 2**34), st.integers(1, 2**34))
def test_values_of_a_batch_take_no_more_than_a_unit(unit_bytes, value_bytes):
    size = batch_size(10**6, 2, unit_bytes=unit_bytes, value_bytes=value_bytes)
    assert size == MOST_UNITS or (size.bit_length() - 1) * value_bytes <= unit_bytes
    assert size == MOST_UNITS or size.bit_length() * value_bytes > unit_bytes


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 100), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_any_batches_make_the_same_tree(n, size):
    """Merging texts with brackets shows the shape of the tree."""
    units = [Unit(str(i), i) for i in range(n)]
    runner = UnitRunner(str, lambda a, b: f"({a} {b})")
    with LocalExecutor(1) as executor:
        value = executor.run_graph(build_graph(units, runner, size))
    assert value == tasks.in_fixed_tree([str(i) for i in range(n)], lambda a, b: f"({a} {b})")


@pytest.mark.parametrize("n", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("size", [1, 4, 32])
def test_batches_start_in_index_order(n, size):
    """Dask's own ordering decides; the names of our keys steer its ties."""
    from dask.order import order

    units = [Unit(str(i), i) for i in range(n)]
    runner = UnitRunner(str, str.__add__)
    graph = build_graph(units, runner, size).tasks
    position = order(graph)
    keys = [key for key in sorted(graph, key=position.__getitem__) if "unit" in key[0]]
    assert [n - int(key[2]) for key in keys] == list(range(0, n, size))
