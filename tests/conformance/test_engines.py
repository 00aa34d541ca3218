"""Every executor keeps the same contract and gives the same bits."""

import json
import os
from functools import partial

import numpy as np
import pandas as pd
import pytest

import distfms
from distfms.engine.base import map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.engine.ray_cluster import RayExecutor
from distfms.errors import DataError, EngineError
from distfms.store.kept import PartialCache
from tests.conformance import engine_tasks as tasks
from tests.conformance.engine_tasks import attempts, run

N_UNITS = 11  # neither a power of two nor one less


@pytest.fixture(scope="module", params=["threads-1", "threads-2", "processes-2", "dask-2", "ray-2"])
def executor(request):
    kind, workers = request.param.split("-")
    if kind == "dask":
        made = DaskExecutor(request.getfixturevalue("dask_session"))
    elif kind == "ray":
        request.getfixturevalue("ray_session")
        made = RayExecutor(workers=int(workers))
    else:
        made = LocalExecutor(int(workers), processes=kind == "processes")
    with made:
        assert made.workers == int(workers)
        yield made


def units_of(folder, n=N_UNITS):
    return [Unit(f"unit-{t.index}", t, n_bytes=10 + t.index) for t in tasks.tickets(folder, n)]


@pytest.mark.parametrize("n", [1, 3, 32, 77])
def test_same_bits_as_the_tree_written_out(executor, n):
    units = [Unit(str(seed), seed) for seed in range(n)]
    expected = tasks.in_fixed_tree([tasks.gram(seed) for seed in range(n)], tasks.add)
    value = map_reduce(units, tasks.gram, tasks.add, executor).value
    assert value.tobytes() == expected.tobytes()


def test_the_tree_shows_in_the_bits():
    """Without this the test above would pass with any order of additions."""
    grams = [tasks.gram(seed) for seed in range(13)]
    in_a_row = grams[0]
    for other in grams[1:]:
        in_a_row = in_a_row + other
    assert in_a_row.tobytes() != tasks.in_fixed_tree(grams, tasks.add).tobytes()


def test_counts_and_events_add_up_to_the_result(executor, tmp_path):
    units = units_of(tmp_path)
    total_bytes = sum(unit.n_bytes for unit in units)
    events = []
    reduction = run(units, tasks.as_tuple, executor, on_event=events.append)
    assert reduction.value == tuple(range(N_UNITS))
    assert (reduction.n_computed, reduction.n_cached) == (N_UNITS, 0)
    assert reduction.bytes_read == total_bytes
    assert attempts(units) == [1] * N_UNITS
    assert events[0] == {"event": "pass_started", "total": N_UNITS}
    done = events[1:-1]
    assert [event["event"] for event in done] == ["unit"] * N_UNITS
    assert [event["done"] for event in done] == list(range(1, N_UNITS + 1))
    assert sorted(event["index"] for event in done) == list(range(N_UNITS))
    assert done[-1]["bytes"] == total_bytes
    assert events[-1] == {
        "event": "pass_finished",
        "total": N_UNITS,
        "computed": N_UNITS,
        "cached": 0,
        "bytes": total_bytes,
    }


def test_units_of_a_batch_are_cached_and_reported_one_by_one(executor, tmp_path):
    n = 70  # in batches of four on two processes, Dask or Ray workers
    cache = PartialCache(tmp_path / "cache", tasks.encode, tasks.decode, spec_key="v1")
    units = units_of(tmp_path, n)
    run(units[5:7] + units[40:43], tasks.as_tuple, executor, cache=cache)
    events = []
    reduction = run(units, tasks.as_tuple, executor, cache=cache, on_event=events.append)
    assert reduction.value == tuple(range(n))
    assert (reduction.n_computed, reduction.n_cached) == (n - 5, 5)
    cached = {5, 6, 40, 41, 42}
    assert reduction.bytes_read == sum(u.n_bytes for i, u in enumerate(units) if i not in cached)
    assert attempts(units) == [1] * n
    done = [event for event in events if event["event"] == "unit"]
    assert sorted(event["index"] for event in done) == list(range(n))
    assert [event["done"] for event in done] == list(range(1, n + 1))
    assert {e["index"] for e in done if e["from_cache"]} == cached
    assert run(units, tasks.as_tuple, executor, cache=cache).n_cached == n


def test_transient_failure_is_retried_once(executor, tmp_path):
    units = units_of(tmp_path)
    events = []
    reduction = run(units, tasks.fails_once_on_three, executor, on_event=events.append)
    assert reduction.value == tuple(range(N_UNITS))
    assert attempts(units) == [2 if i == 3 else 1 for i in range(N_UNITS)]
    assert reduction.n_retries == 1
    retries = [event for event in events if event["event"] == "retry"]
    assert retries == [{"event": "retry", "key": "unit-3", "n_retries": 1}]


def test_lasting_failure_ends_with_a_clear_error(executor, tmp_path):
    units = units_of(tmp_path, 5)
    with pytest.raises(
        EngineError, match=r"'unit-3' failed 3 times.*hung up.*run the same"
    ) as info:
        run(units, tasks.always_fails_on_three, executor)
    assert type(info.value) is EngineError
    assert units[3].payload.attempts == 3


def test_data_error_arrives_as_itself(executor, tmp_path):
    units = units_of(tmp_path)
    with pytest.raises(DataError, match=r"^column 'a' of unit \d+ is infinite$") as info:
        run(units, tasks.bad_from_five, executor)
    assert type(info.value) is DataError
    assert max(attempts(units)) == 1
    with pytest.raises(DataError, match=r"^column 'a' of unit \d+ is infinite$"):
        executor.map(tasks.bad_from_five, tasks.tickets(tmp_path, N_UNITS))


def test_no_units_is_an_error(executor):
    with pytest.raises(DataError, match="no partitions"):
        map_reduce([], tasks.square, max, executor)


def test_map_keeps_the_order_of_items_and_takes_closures(executor):
    assert executor.map(tasks.square, range(20)) == [i * i for i in range(20)]
    assert executor.map(tasks.square, []) == []
    offset = np.arange(3.0)
    results = executor.map(lambda x: offset + x, [1, 2])
    assert [r.tolist() for r in results] == [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]


def test_map_retries(executor, tmp_path):
    items = tasks.tickets(tmp_path, 6)
    assert executor.map(tasks.fails_once_on_three, items) == [(i,) for i in range(6)]
    assert [item.attempts for item in items] == [1, 1, 1, 2, 1, 1]


def test_tasks_run_with_one_blas_thread(executor):
    for threads in executor.map(blas_probe, range(4)):
        assert threads
        assert set(threads) == {1}
    units = [Unit(str(i), i) for i in range(4)]
    merged = map_reduce(units, blas_probe, lambda a, b: a + b, executor).value
    assert set(merged) == {1}


def blas_probe(index):
    return tasks.blas_threads(index)


# --- graphs of Dask itself ----------------------------------------------------------------------


def test_same_bits_of_arrays_trees_and_bags_of_dask(executor):
    import dask
    import dask.array as da
    import dask.bag as db

    chunked = da.from_array(np.random.default_rng(0).normal(size=(40, 6)), chunks=(7, 4))
    leaves = [dask.delayed(tasks.gram)(seed) for seed in range(5)]
    tree = tasks.in_fixed_tree(leaves, dask.delayed(tasks.add))
    bag = db.from_sequence(range(10), npartitions=3).map(tasks.square)
    lazy = (chunked.T @ chunked, chunked.std(axis=0), tree, bag.fold(tasks.add), leaves[0])
    expected = dask.compute(*lazy, scheduler="synchronous")
    for found, wanted in zip(dask.compute(*lazy, scheduler=executor.get), expected, strict=True):
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


def test_keys_of_a_graph_may_be_nested_constant_and_the_same(executor):
    dsk = {
        "a": 3,
        ("b", 0): (tasks.square, "a"),
        "list": ["a", ("b", 0), [("b", 0)]],
        "other": "list",
        "sum": (sum, ["a", ("b", 0)]),
        "never": (tasks.always_fails_on_three, "a"),
    }
    found = executor.get(dsk, [["a", ("b", 0)], ["sum", [], "a"], "other"])
    # In lists by a client of Dask's, in tuples by its schedulers here.
    assert json.dumps(found) == "[[3, 9], [12, [], 3], [3, 9, [9]]]"
    assert executor.get(dsk, "sum") == 12


def test_error_of_a_collection_arrives_as_itself(executor, tmp_path):
    import dask

    ticket = tasks.tickets(tmp_path, 6)[5]
    broken = dask.delayed(tasks.square)(dask.delayed(tasks.bad_from_five)(ticket))
    with pytest.raises(DataError, match="column 'a' of unit 5 is infinite"):
        broken.compute(scheduler=executor.get)


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_collections_of_estimators_are_computed_on_the_engine(engine, tmp_path, request):
    import dask.array as da
    import dask.dataframe as dd

    address = None
    if engine == "dask":
        address = request.getfixturevalue("dask_session")
    else:
        request.getfixturevalue("ray_session")
    rows = np.random.default_rng(1).normal(size=(120, 3))
    X = da.from_array(rows, chunks=(50, 3))
    watched = X.map_blocks(partial(_in_sight, tmp_path), dtype=float)
    frame = dd.from_pandas(pd.DataFrame(rows), npartitions=2).map_partitions(
        partial(_in_sight, tmp_path), meta=pd.DataFrame(rows)
    )
    y = rows[:, 0] > rows[:, 1] ** 2
    options = {"landmarks": 10, "keep": 4, "similarity": "linear", "metric": "none", "folds": 2}
    expected = distfms.LandmarkClassifier(**options).fit(X, y)
    with distfms.computing_on(engine, address=address):
        found = distfms.LandmarkClassifier(**options).fit(watched, y)
        scores = found.decision_function(watched).compute()
        similar = found.transform(watched).compute()
        assert found.score(watched, y) == expected.score(X, y)
        ordered = distfms.GroupSequencer(folds=0, model="linear").fit(frame, rows[:, 0])
    assert found.weights_.tobytes() == expected.weights_.tobytes()
    np.testing.assert_array_equal(scores, np.asarray(expected.decision_function(X)))
    np.testing.assert_array_equal(similar, np.asarray(expected.transform(X)))
    assert ordered.n_features_in_ == 3
    seen = {int(path.name) for path in tmp_path.iterdir()}
    assert seen
    assert os.getpid() not in seen
    # Afterwards Dask is where it was.
    watched.compute(scheduler="threads" if engine == "dask" else None)
    assert (tmp_path / str(os.getpid())).exists()


def _in_sight(folder, rows):
    if len(rows):  # Dask tries functions on nothing where it stands
        (folder / str(os.getpid())).touch()
    return rows
