"""Ray clusters that are not there, not ours or not fit: each its own error, before the work."""

import pytest

from distfms.engine import ray_cluster
from distfms.engine.base import map_reduce
from distfms.engine.graph import Unit
from distfms.engine.ray_cluster import RayExecutor
from distfms.engine.ray_session import RaySession
from distfms.errors import EngineError, SpecError
from tests.conformance import engine_tasks as tasks
from tests.conformance.pool_tasks import pool_of
from tests.ray_here import run_script


@pytest.mark.slow
def test_cluster_that_is_there_is_joined_and_left_running(executor):
    import ray

    answers = run_script("joining", ray.get_runtime_context().gcs_address)
    assert_joined(answers)
    assert executor.map(tasks.square, [3]) == [9]


@pytest.mark.slow
def test_cluster_behind_a_client_port():
    assert_joined(run_script("client"))


def assert_joined(found):
    assert found["squares"] == [0, 1, 4, 9]
    assert found["answers"] == [2, 3, 4]
    assert found["workers"] == 2
    expected = tasks.in_fixed_tree([tasks.gram(seed) for seed in range(5)], tasks.add)
    assert found["gram"] == expected.tobytes().hex()
    assert not found["connected"]


def test_an_address_of_the_environment_is_checked_too(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "tcp://127.0.0.1:8786")
    with pytest.raises(SpecError, match="not the address of a Ray cluster, which has the form"):
        RayExecutor()


def test_other_software_on_a_node(executor, monkeypatch):
    real = RaySession.examine

    def altered(self):
        nodes = real(self)
        (node,) = nodes.values()
        return {**nodes, "node other": node | {"Python": "3.1"}}

    monkeypatch.setattr(RaySession, "examine", altered)
    with pytest.raises(EngineError, match=r"Python 3\.1 on node other.*Install the same"):
        RayExecutor()
    assert executor.map(tasks.square, [2]) == [4]


def test_worker_without_a_module(executor, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def work(*arguments):\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    with pool_of("ray", 1) as pool, pytest.raises(EngineError, match="only_here"):
        pool.start(only_here.work, [1])
    with pytest.raises(EngineError, match=r"lack the module 'only_here'.*Install"):
        executor.map(only_here.work, [1])
    with pytest.raises(EngineError, match=r"lack the module 'only_here'.*Install"):
        map_reduce([Unit("a", 1)], only_here.work, max, executor)


def test_too_little_memory_for_one_block(executor):
    with pytest.raises(SpecError, match=r"one actor needs about 1\.0 PiB|1024\.0 TiB"):
        executor.pool(2, actor_bytes=2**50)
    assert executor.map(tasks.square, [2]) == [4]


def test_a_session_that_fails_to_begin_is_left(monkeypatch):
    closed = []

    class Failing:
        def __init__(self, *arguments, **options):
            self.address = "local"

        @property
        def n_processors(self):
            raise RuntimeError("no resources")

        def close(self):
            closed.append(True)

    monkeypatch.setattr(ray_cluster, "RaySession", Failing)
    with pytest.raises(RuntimeError, match="no resources"):
        RayExecutor(workers=1)
    assert closed == [True]
