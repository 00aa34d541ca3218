"""What breaks in pools of actors: exact counts of what is done again, clear errors."""

import os

import pytest

from distfms.engine.dask_cluster import DaskExecutor
from distfms.errors import EngineError
from tests.conformance import pool_tasks
from tests.conformance.engine_tasks import dask_cluster
from tests.conformance.pool_tasks import pool_of, walked
from tests.waiting import until

#: Actors on Ray are lost in the same way, which tests of conformance and of jobs show.
LOCALLY = pytest.mark.parametrize(
    "kind", ["local", pytest.param("ray", marks=pytest.mark.slow)], indirect=True
)


@LOCALLY
def test_killed_actor(kind, tmp_path):
    events = []
    with pool_of(kind, on_event=events.append) as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4))
        pool.step(pool_tasks.walk, (2, None))
        answers = pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "kill")))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 2)
        counts = {name: n for name, n in vars(pool.counts).items() if n}
    assert counts == {"n_steps": 2, "n_built": 6, "n_replayed": 2, "n_lost": 1}
    kinds = [event["event"] for event in events]
    assert kinds == ["pool_step", "actor_lost", "actor_replayed", "pool_step"]
    assert events[1]["actor"] == 1
    assert events[2] == {"event": "actor_replayed", "actor": 1, "shards": 2, "steps": 2}
    # Shards of the actor that lived did each step once; shard 1 did the second with its actor,
    # and again after it.
    n_walked = [shard.counted("walked") for shard in pool_tasks.shards(tmp_path, 4)]
    assert n_walked == [2, 4, 2, 4]


@LOCALLY
def test_actor_that_dies_every_time(kind):
    with pool_of(kind, 1, attempts=2) as pool:
        pool.start(int, ["1"])
        with pytest.raises(EngineError, match=r"Actor 0 was lost 2 times while step 1.*memory"):
            pool.step(die)
        pool.start(int, ["1"])
        assert pool.step(lambda state, message: (None, state)) == [1]


def die(state, message):
    os.kill(os.getpid(), 9)


@LOCALLY
def test_actor_that_dies_while_it_builds(kind, tmp_path):
    with pool_of(kind, 1) as pool:
        pool.start(dead_at_first_attempt, pool_tasks.shards(tmp_path, 1))
        assert pool.step(lambda state, message: (None, state)) == [0]
        assert (pool.counts.n_lost, pool.counts.n_built) == (1, 1)


def dead_at_first_attempt(shard):
    if shard.count("built") == 1:
        os.kill(os.getpid(), 9)
    return shard.index


@LOCALLY
def test_storage_that_keeps_failing_ends_the_start(kind):
    with pool_of(kind, attempts=2) as pool:
        with pytest.raises(EngineError, match=r"state of shard 0 failed 2 times.*hung up.*storage"):
            pool.start(hang_up, [0, 1, 2])
        pool.start(int, ["1"])
        assert pool.step(lambda state, message: (None, state)) == [1]


def hang_up(shard):
    raise ConnectionResetError("the storage hung up")


def test_actors_that_came_to_share_a_dask_worker_part_at_the_next_start(tmp_path):
    shards = pool_tasks.shards(tmp_path, 2)
    with (
        dask_cluster(2) as cluster,
        DaskExecutor(cluster.scheduler_address) as executor,
        executor.pool(2) as pool,
    ):
        pool.start(pool_tasks.build, shards)
        pool.step(pool_tasks.walk, (1, pool_tasks.Mishap(1, "kill")))
        until(lambda: len(executor.client.nthreads()) == 2)
        pool.start(pool_tasks.build, shards)
        assert len(set(pool.step(own_process))) == 2


def own_process(state, message):
    return None, os.getpid()
