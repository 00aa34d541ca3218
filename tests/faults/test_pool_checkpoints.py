"""Checkpoints of pools that are torn, lost or have no room: found by hash, made good by replay."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.pools import Snapshots
from distfms.errors import EngineError
from tests.conformance import pool_tasks
from tests.conformance.pool_tasks import pool_of, walked


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "saved", "key", pool_tasks.save, pool_tasks.load)


def saved_files(snapshots: Snapshots, step: int, shard: int | None = None) -> list[Path]:
    which = "*" if shard is None else f"shard-{shard:06d}"
    return sorted(Path(snapshots.folder).glob(f"step-{step:010d}-{which}.state"))


def test_torn_checkpoint_is_replayed_from_the_one_before(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    shards = pool_tasks.shards(tmp_path, 4)
    events: list[Any] = []
    with pool_of("local", on_event=events.append) as pool:
        pool.start(pool_tasks.build, shards, snapshots=snapshots)
        for _ in range(2):
            pool.step(pool_tasks.walk, (2, None))
            pool.checkpoint()
        torn = saved_files(snapshots, 2, shard=3)[0]
        torn.write_bytes(torn.read_bytes()[:-8])
        answers = pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "kill")))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 3)
        # Shard 1 from checkpoint 2; shard 3 from checkpoint 1 and step 2 again.
        assert (pool.counts.n_replayed, pool.counts.n_damaged) == (1, 1)
    damaged = [event for event in events if event["event"] == "checkpoint_damaged"]
    assert damaged == [{"event": "checkpoint_damaged", "step": 2, "shard": 3}]


def test_single_torn_checkpoint_is_replayed_from_the_start(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    with pool_of("local") as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4), snapshots=snapshots)
        for _ in range(2):
            pool.step(pool_tasks.walk, (2, None))
        pool.checkpoint()
        for path in saved_files(snapshots, 2):
            path.write_bytes(b"")
        answers = pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "kill")))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 3)
        assert (pool.counts.n_replayed, pool.counts.n_damaged) == (4, 2)


def test_damage_beyond_repair_is_told(tmp_path: Path, snapshots: Snapshots) -> None:
    with pool_of("local") as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4), snapshots=snapshots)
        for _ in range(3):
            pool.step(pool_tasks.walk, (2, None))
            pool.checkpoint()
        assert saved_files(snapshots, 1) == []  # two are kept
        for path in [*saved_files(snapshots, 2), *saved_files(snapshots, 3)]:
            path.write_bytes(b"")
        with pytest.raises(EngineError, match=r"shard 1 are damaged.*same command again"):
            pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "kill")))
        # The next attempt finds nothing sound and begins anew.
        assert (
            pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4), snapshots=snapshots) == 0
        )


def test_resume_passes_over_a_torn_checkpoint(tmp_path: Path, snapshots: Snapshots) -> None:
    shards = pool_tasks.shards(tmp_path, 4)
    with pool_of("serial") as pool:
        pool.start(pool_tasks.build, shards, snapshots=snapshots)
        for _ in range(2):
            pool.step(pool_tasks.walk, (2, None))
            pool.checkpoint()
    saved_files(snapshots, 2, shard=0)[0].write_bytes(b"torn")
    (Path(snapshots.folder) / ".step-0000000003-shard-000000.state.0.tmp").write_bytes(b"half")
    with pool_of("serial") as pool:
        assert pool.start(pool_tasks.build, shards, snapshots=snapshots) == 1
        answers = pool.step(pool_tasks.walk, (2, None))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 2)
    assert not list(Path(snapshots.folder).glob("*.tmp"))


def test_full_disk_leaves_the_checkpoint_before(
    tmp_path: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool_of("serial") as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4), snapshots=snapshots)
        pool.step(pool_tasks.walk, (2, None))
        pool.checkpoint()
        pool.step(pool_tasks.walk, (2, None))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(EngineError, match=r"step 2 cannot be written.*No space left"):
            pool.checkpoint()
    names = sorted(path.name for path in Path(snapshots.folder).iterdir())
    assert len(names) == 5
    assert all(name.startswith("step-0000000001") for name in names)


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
