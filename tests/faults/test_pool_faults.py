"""What breaks in pools of actors: exact counts of what is done again, clear errors."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from distfms.engine import RetryPolicy
from distfms.engine.pool_host import Build, Host, Step, dump
from distfms.errors import EngineError
from tests.conformance import pool_tasks
from tests.conformance.pool_tasks import pool_of, walked


def test_killed_actor(kind: str, tmp_path: Path) -> None:
    events: list[Any] = []
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


def test_hanging_actor(kind: str, tmp_path: Path) -> None:
    events: list[Any] = []
    with pool_of(kind, on_event=events.append) as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4))
        hang = (2, pool_tasks.Mishap(3, "hang"))
        answers = pool.step(pool_tasks.walk, hang, timeout_s=3.0)
        assert [a.tobytes() for a in answers] == walked(tmp_path, 1)
        assert (pool.counts.n_lost, pool.counts.n_built) == (1, 6)
    assert "did not answer in time (step 1)" in events[0]["reason"]


def test_step_that_raises_once(kind: str, tmp_path: Path) -> None:
    with pool_of(kind) as pool:
        shards = pool_tasks.shards(tmp_path, 4)
        pool.start(pool_tasks.build, shards)
        pool.step(pool_tasks.walk, (2, None))
        answers = pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "raise")))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 2)
        counts = {name: n for name, n in vars(pool.counts).items() if n}
    # The half-changed state of one shard is made anew; the actor and its other shard stay.
    assert counts == {"n_steps": 2, "n_built": 5, "n_replayed": 1, "n_retries": 1}
    assert [shard.counted("walked") for shard in shards] == [2, 2, 2, 4]


def test_actor_that_dies_every_time(kind: str) -> None:
    with pool_of(kind, 1, retry=RetryPolicy(attempts=2)) as pool:
        pool.start(int, ["1"])
        with pytest.raises(EngineError, match=r"Actor 0 was lost 2 times while step 1.*memory"):
            pool.step(die)
        pool.start(int, ["1"])
        assert pool.step(lambda state, message: (None, state)) == [1]


def die(state: int, message: None) -> None:
    os.kill(os.getpid(), 9)


def test_actor_that_dies_while_it_builds(kind: str, tmp_path: Path) -> None:
    with pool_of(kind, 1) as pool:
        pool.start(build_at_second_attempt, pool_tasks.shards(tmp_path, 1))
        assert pool.step(lambda state, message: (None, state)) == [0]
        assert (pool.counts.n_lost, pool.counts.n_built) == (1, 1)


def build_at_second_attempt(shard: pool_tasks.Shard) -> int:
    if shard.count("built") == 1:
        os.kill(os.getpid(), 9)
    return shard.index


def test_a_step_delivered_twice_is_done_once(tmp_path: Path) -> None:
    shard = pool_tasks.shards(tmp_path, 1)[0]
    host = Host()
    host.handle(dump(Build(dump((pool_tasks.build, None)), {0: dump(shard)}, {}, (), 0)))
    request = dump(Step(1, dump((pool_tasks.walk, (2, None))), None))
    first, second = (load(host.handle(request)) for _ in range(2))
    assert first.outcomes[0].answer == second.outcomes[0].answer
    assert (first.n_duplicates, second.n_duplicates) == (0, 1)
    assert shard.counted("walked") == 1
    skipped = load(host.handle(dump(Step(3, dump((pool_tasks.walk, (2, None))), None))))
    assert "stands at step 1 and was given step 3" in str(skipped.outcomes[0].error)
    assert shard.counted("walked") == 1


def load(reply: bytes) -> Any:

    return pickle.loads(reply)
