"""Pools of actors."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import RetryPolicy
from distfms.engine.memory import n_processors
from distfms.runs.context import RunContext
from distfms.runs.steps import Steps


class Record:
    def __call__(self, event: Mapping[str, Any]) -> None: ...

    def event(self, name: str, *line: str, **fields: Any) -> None: ...

    count = show = __call__


def test_pool_beside_a_dask_cluster_has_the_size_of_this_machine() -> None:
    """Its actors run here, however many threads the cluster has."""
    executor = DaskExecutor.__new__(DaskExecutor)
    executor.workers, executor.actors = 500, n_processors()
    inputs: Any = None
    folder: Any = SimpleNamespace(path=Path())
    record: Any = Record()
    kept = Steps(None, record)
    kept.run = folder  # no file is touched
    context = RunContext(0, inputs, kept, executor, RetryPolicy(), None, record)
    with context.pool(400, 1, what="folds") as pool:
        assert pool.name == "local"
        assert pool.n_actors == min(400, n_processors())
