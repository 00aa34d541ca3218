"""How many actors a stage gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distfms.engine import RetryPolicy
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.memory import n_processors
from distfms.runs.context import RunContext


class Record:
    def __call__(self, event: Mapping[str, Any]) -> None: ...

    def event(self, name: str, *line: str, **fields: Any) -> None: ...

    count = show = __call__


def test_pool_beside_a_dask_cluster_has_the_size_of_this_machine() -> None:
    """Its actors run here, however many threads the cluster has."""
    executor = DaskExecutor.__new__(DaskExecutor)
    executor.workers, executor.actors = 500, n_processors()
    inputs: Any = None
    context = RunContext(0, inputs, inputs, executor, RetryPolicy(), None, Record())  # type: ignore[arg-type]
    with context.pool(400, 1) as pool:
        assert pool.name == "local"
        assert pool.n_actors == min(400, n_processors())
