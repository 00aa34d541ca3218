"""From the section `engine` of a spec to the executor that it asks for."""

from __future__ import annotations

from collections.abc import Callable

from distfms.engine.base import Executor
from distfms.engine.local import LocalExecutor
from distfms.spec import EngineSection


def make_executor(
    engine: EngineSection, on_silence: Callable[[str], None] | None = None
) -> Executor:
    """Make the executor that a job asks for.

    Parameters
    ----------
    engine : EngineSection
    on_silence : callable, optional
        See `distfms.engine.ray_cluster.RayExecutor`.

    Raises
    ------
    EngineError
        No usable cluster at the address.
    """
    if engine.kind == "dask":
        from distfms.engine.dask_cluster import DaskExecutor

        assert engine.address is not None
        return DaskExecutor(engine.address)
    if engine.kind == "ray":
        from distfms.engine.ray_cluster import RayExecutor

        return RayExecutor(engine.address, engine.workers, on_silence=on_silence)
    return LocalExecutor(engine.workers, processes=engine.processes)
