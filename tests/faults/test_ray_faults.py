"""What breaks on Ray clusters and in pools: exact counts of what is done again, clear errors."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distfms.engine import LocalExecutor, RetryPolicy, Unit, make_executor, map_reduce, ray_session
from distfms.engine.pool_host import Build, Host, Step, dump
from distfms.engine.pools import ActorPool, Snapshots, make_pool
from distfms.engine.ray_cluster import RayExecutor
from distfms.errors import EngineError
from distfms.spec import EngineSection
from tests import ray_here
from tests.conformance import engine_tasks as tasks
from tests.conformance import pool_tasks

N_UNITS = 8


@pytest.fixture
def executor(ray_session: None) -> Iterator[RayExecutor]:
    with RayExecutor(workers=2) as made:
        yield made


def units_of(folder: Path, n: int = N_UNITS) -> list[Unit]:
    return [Unit(f"unit-{t.index}", t, n_bytes=100) for t in tasks.tickets(folder, n)]


def attempts(units: list[Unit]) -> list[int]:
    return [unit.payload.attempts for unit in units]


# ---- workers


def test_killed_ray_worker(executor: RayExecutor, tmp_path: Path) -> None:
    units = units_of(tmp_path)
    events: list[Any] = []
    reduction = map_reduce(
        units, tasks.killed_once_on_three, tasks.concatenate, executor, on_event=events.append
    )
    assert reduction.value == tuple(range(N_UNITS))
    assert (reduction.n_computed, reduction.bytes_read) == (N_UNITS, 100 * N_UNITS)
    assert attempts(units) == [1, 1, 1, 2, 1, 1, 1, 1]
    # News that a dying worker had not sent is lost with it; the counts at the end are not.
    told = [event["index"] for event in events if event["event"] == "unit"]
    assert len(told) == len(set(told))
    assert events[-1]["event"] == "pass_finished"
    assert events[-1]["computed"] == N_UNITS


def test_ray_worker_killed_every_time(executor: RayExecutor, tmp_path: Path) -> None:
    units = units_of(tmp_path, 5)
    retry = RetryPolicy(attempts=2)
    with pytest.raises(EngineError, match=r"again and again.*WorkerCrashedError.*memory"):
        map_reduce(units, tasks.killed_on_three, tasks.concatenate, executor, retry=retry)
    assert units[3].payload.attempts == 2
    with pytest.raises(EngineError, match="again and again"):
        executor.map(tasks.killed_on_three, tasks.tickets(tmp_path, 5), retry=retry)
    assert executor.map(tasks.square, [2]) == [4]  # usable again


def test_failure_is_told_before_all_units_ran(executor: RayExecutor, tmp_path: Path) -> None:
    units = units_of(tmp_path, 60)
    with pytest.raises(EngineError, match="'unit-3' failed once"):
        map_reduce(units, slow_but_three, tasks.concatenate, executor, retry=RetryPolicy(1))
    assert sum(attempts(units)) < 40


def slow_but_three(ticket: tasks.Ticket) -> tuple[int, ...]:
    time.sleep(0.1)
    return tasks.always_fails_on_three(ticket)


@pytest.mark.parametrize("kind", ["ray", "processes"])
def test_hanging_task_is_done_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    units = units_of(tmp_path)
    made: Any = (
        request.getfixturevalue("executor") if kind == "ray" else LocalExecutor(1, processes=True)
    )
    retry = RetryPolicy(timeout_s=2.0)
    with made as executor:
        reduction = map_reduce(units, hangs_once_on_three, tasks.concatenate, executor, retry=retry)
        assert reduction.value == tuple(range(N_UNITS))
        assert attempts(units) == [1, 1, 1, 2, 1, 1, 1, 1]
        items = tasks.tickets(tmp_path, 5)
        items[3].path.unlink()
        assert executor.map(hangs_once_on_three, items, retry=retry) == [(i,) for i in range(5)]
        assert items[3].attempts == 2


def hangs_once_on_three(ticket: tasks.Ticket) -> tuple[int, ...]:
    if ticket.mark() == 1 and ticket.index == 3:
        time.sleep(60)
    return (ticket.index,)


@pytest.mark.slow
def test_lost_nodes(tmp_path: Path) -> None:
    found = run_script("node_lost", str(tmp_path))
    with pool_of("serial") as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4))
        pool.step(pool_tasks.walk, (3, None))
        expected = pool.step(pool_tasks.walk, (3, None))
    assert found["walked"] == [weights.tobytes().hex() for weights in expected]
    # Shards 1 and 3 were on the lost node: built again, one step replayed each.
    counts = {name: n for name, n in found["counts"].items() if n}
    assert counts == {"n_steps": 2, "n_built": 6, "n_replayed": 2, "n_lost": 1}
    assert found["value"] == list(range(N_UNITS))
    assert (found["n_computed"], found["bytes_read"]) == (N_UNITS, 100 * N_UNITS)
    assert found["attempts"] == [1, 1, 1, 2, 1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pass", "map", "pool"])
def test_head_gone(what: str) -> None:
    found = run_script("head_lost", what)
    assert found["kind"] == "EngineError"
    assert "is gone. Start the cluster again" in found["text"]
    assert found["seconds"] < 20
    assert found["alive"]


def test_head_that_does_not_answer_is_gone(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = executor.session
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        monkeypatch.setattr(session, "_head", unheard.getsockname())
        monkeypatch.setattr(session, "_timeout_s", 0.3)
        with pytest.raises(EngineError, match=r"head of the Ray cluster.*is gone.*kept"):
            executor.map(time.sleep, [0.2] * 40)


# ---- actors


@contextlib.contextmanager
def pool_of(kind: str, n_actors: int = 2, **options: Any) -> Iterator[ActorPool]:
    with make_pool(kind, n_actors, **options) as pool:
        yield pool


@pytest.fixture(params=["local", "ray"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    return request.param


def walked(folder: Path, n_steps: int, n_shards: int = 4) -> list[bytes]:
    """The undisturbed answers."""
    (folder / "undisturbed").mkdir()
    with pool_of("serial") as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(folder / "undisturbed", n_shards))
        for _ in range(n_steps):
            answers = pool.step(pool_tasks.walk, (2, None))
    return [answer.tobytes() for answer in answers]


def test_killed_actor(kind: str, tmp_path: Path) -> None:
    events: list[Any] = []
    with pool_of(kind, on_event=events.append) as pool:
        pool.start(pool_tasks.build, pool_tasks.shards(tmp_path, 4))
        pool.step(pool_tasks.walk, (2, None))
        answers = pool.step(pool_tasks.walk, (2, pool_tasks.Mishap(3, "kill")))
        assert [a.tobytes() for a in answers] == walked(tmp_path, 2)
        counts = {name: n for name, n in vars(pool.counts).items() if n}
    assert counts == {"n_steps": 2, "n_built": 6, "n_replayed": 2, "n_lost": 1}
    assert [event["event"] for event in events] == ["actor_lost", "actor_replayed"]
    assert events[0]["actor"] == 1
    assert events[1] == {"event": "actor_replayed", "actor": 1, "shards": 2, "steps": 2}
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
    import pickle

    return pickle.loads(reply)


# ---- checkpoints


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
    (Path(snapshots.folder) / "step-0000000003-shard-000000.state.0.tmp").write_bytes(b"half")
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
    import errno

    raise OSError(errno.ENOSPC, "No space left on device")


# ---- bad use


def test_wrong_addresses_and_tokens(executor: RayExecutor) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    token = "0" * 64
    found = run_script("connecting", address, RAY_AUTH_TOKEN=token)
    assert all(entry["kind"] == "EngineError" for entry in found.values())
    assert all(entry["seconds"] < 15 for entry in found.values())
    assert "No Ray cluster answers at 127.0.0.1" in found["nobody"]["text"]
    assert "No Ray cluster answers at ray://127.0.0.1" in found["nobody_client"]["text"]
    assert "is not the head of a Ray cluster" in found["other"]["text"]
    assert "is not the head of a Ray cluster" in found["other_client"]["text"]
    assert "asks for a token" in found["token"]["text"]
    assert token not in json.dumps(found)


def test_cluster_that_is_there_is_joined_and_left_running(executor: RayExecutor) -> None:
    import ray

    found = run_script("joining", ray.get_runtime_context().gcs_address)
    assert_joined(found)
    assert "already and cannot use the one at 192.0.2.77:6379" in found["elsewhere"]["text"]
    assert executor.map(tasks.square, [3]) == [9]


@pytest.mark.slow
def test_cluster_behind_a_client_port() -> None:
    assert_joined(run_script("client"))


def assert_joined(found: dict[str, Any]) -> None:
    assert found["squares"] == [0, 1, 4, 9]
    assert found["answers"] == [2, 3, 4]
    assert found["workers"] == 2
    expected = tasks.in_fixed_tree([tasks.gram(seed) for seed in range(5)], tasks.add)
    assert found["gram"] == expected.tobytes().hex()
    assert not found["connected"]


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("tcp://127.0.0.1:8786", "looks like the address of a Dask scheduler"),
        ("http://127.0.0.1:8265", r"looks like the dashboard.*distfms submit"),
        ("somewhere", "it has the form host:6379"),
    ],
)
def test_not_the_address_of_a_ray_cluster(address: str, hint: str) -> None:
    with pytest.raises(EngineError, match=rf"not the address of a Ray cluster.*{hint}"):
        RayExecutor(address)


def test_spec_with_the_address_of_the_other_kind() -> None:
    with pytest.raises(ValueError, match=r"address of a Dask scheduler, and `kind` is ray"):
        EngineSection(kind="ray", address="tcp://head:8786")
    for address in ("ray://head:10001", "auto"):
        with pytest.raises(ValueError, match=r"address of a Ray cluster, and `kind` is dask"):
            EngineSection(kind="dask", address=address)
    with pytest.raises(EngineError, match=r"looks like the address of a Ray cluster"):
        make_executor("dask", address="ray://head:10001")
    for address in (None, "auto", "head:6379", "ray://head:10001"):
        assert EngineSection(kind="ray", address=address).address == address


def test_no_cluster_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    def nothing(address: str, folder: None) -> str:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(services, "get_ray_address_from_environment", nothing)
    with pytest.raises(EngineError, match=r"No Ray cluster was found on this machine"):
        ray_session._require_cluster("auto", 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"packages": {"distfms": "0.0.1"}}, r"distfms 0\.0\.1 on node other, .* here"),
        ({"packages": {"numpy": None}}, r"numpy missing on node other"),
        ({"python": "3.1.4"}, r"Python 3\.1 on node other, 3\.\d+ here"),
    ],
)
def test_other_software_on_a_node(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch, change: Any, message: str
) -> None:
    real = ray_session.RaySession._examine

    def altered(self: Any, packages: Any, paths: Any) -> Any:
        nodes = real(self, packages, paths)
        node = nodes[0] | {"host": "other"}
        for key, value in change.items():
            node[key] = node[key] | value if isinstance(value, dict) else value
        return [*nodes, node]

    monkeypatch.setattr(ray_session.RaySession, "_examine", altered)
    with pytest.raises(EngineError, match=rf"{message}.*Install the same versions"):
        RayExecutor()
    assert executor.map(tasks.square, [2]) == [4]


def test_other_ray_on_the_cluster() -> None:
    said = RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n")
    error = ray_session._not_connected("head:6379", said)
    assert "Ray: 2.9.0" in str(error)
    assert "Install the same versions" in str(error)


def test_input_that_a_node_does_not_see(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present, absent = tmp_path / "a.parquet", tmp_path / "b.parquet"
    present.write_bytes(b"rows")
    absent.write_bytes(b"rows")
    executor.probe([str(present), str(absent), "s3://bucket/c.parquet"])
    with pytest.raises(EngineError, match=r"nowhere\.parquet cannot be read"):
        executor.probe([str(tmp_path / "nowhere.parquet")])
    real = ray_session.RaySession._examine

    def elsewhere(self: Any, packages: Any, paths: Any) -> Any:
        node = real(self, packages, paths)[0]
        return [node, node | {"host": "other", "sizes": {str(present): 5, str(absent): None}}]

    monkeypatch.setattr(ray_session.RaySession, "_examine", elsewhere)
    message = r"Node other .*a\.parquet is another file \(5 bytes, 4 here\); .*b\.parquet cannot be"
    with pytest.raises(EngineError, match=message):
        executor.probe([str(present), str(absent)])


def test_worker_without_a_module(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def work(*arguments):\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    with pool_of("ray", 1) as pool, pytest.raises(EngineError, match="only_here"):
        pool.start(only_here.work, [1])
    with pytest.raises(EngineError, match=r"lack the module 'only_here'.*Install"):
        executor.map(only_here.work, [1])
    with pytest.raises(EngineError, match=r"lack the module 'only_here'.*Install"):
        map_reduce([Unit("a", 1)], only_here.work, max, executor)


def test_too_little_memory_for_one_block(executor: RayExecutor) -> None:
    with pytest.raises(EngineError, match=r"one actor takes about 1\.0 PiB|1024\.0 TiB"):
        make_pool("ray", 2, executor=executor, actor_bytes=2**50)
    assert executor.map(tasks.square, [2]) == [4]


# ---- releases of Ray


def test_dask_on_ray_canary(executor: RayExecutor) -> None:
    """Red when a release of Ray or Dask changes what `RayExecutor.compute` stands on."""
    import dask
    from dask import delayed
    from ray import ObjectRef
    from ray.util.dask import ray_dask_get
    from ray.util.dask.callbacks import CBS, RayCallback

    assert set(CBS) >= {"ray_presubmit", "ray_postsubmit"}
    assert dask.persist.__module__ == "dask.base"  # importing Dask on Ray did not replace it
    seen: list[Any] = []

    class Pool:
        _pool = (None,)

        def apply_async(self, fn: Any, args: Any = (), kwds: Any = None, callback: Any = None):
            callback(fn(*args, **(kwds or {})))

    def submitted(task: Any, key: Any, deps: Any, ref: Any) -> None:
        seen.append((task.func, key, ref))

    graph = delayed(sum)(
        [delayed(tasks.square)(i, dask_key_name=f"square-{i}") for i in range(3)],
        dask_key_name="total",
    )
    hooks = RayCallback(**dict.fromkeys(CBS) | {"ray_postsubmit": submitted})
    root = ray_dask_get(
        dict(graph.__dask_graph__()),
        graph.key,
        pool=Pool(),
        ray_callbacks=[hooks],
        ray_persist=True,
        ray_remote_args={"num_cpus": 1, "max_retries": 0},
    )
    import ray

    assert isinstance(root, ObjectRef)
    assert ray.get(root) == 5
    squares = [entry for entry in seen if entry[0] is tasks.square]
    assert sorted(key for _, key, _ in squares) == ["square-0", "square-1", "square-2"]
    assert all(isinstance(ref, ObjectRef) for _, _, ref in squares)


def run_script(name: str, *arguments: str, **settings: str) -> dict[str, Any]:
    """Run a script of `ray_scripts` in a process of its own; gives what it found."""
    with ray_here.own_folder() as folder:
        environment = os.environ | ray_here.environment(folder)
        if name in ("connecting", "joining"):
            # These meet the cluster of this session, and so need its token.
            environment["RAY_AUTH_TOKEN"] = os.environ["RAY_AUTH_TOKEN"]
        command = [sys.executable, "-m", "tests.faults.ray_scripts", name, *arguments]
        done = subprocess.run(
            command,
            env=environment | settings,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().split("\n")[-1])
