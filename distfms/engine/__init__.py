"""Where work runs; it receives picklable callables and knows nothing of methods.

Map-reduce as explicit Dask graphs with a fixed merge tree, executors for this machine and for Dask
and Ray clusters, pools of actors that hold state, the cache of partial results, retry rules and
memory projection. Importing it loads neither dask nor ray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distfms.engine.base import Executor
    from distfms.spec import EngineSection


def make_executor(
    engine: EngineSection, on_silence: Callable[[str], None] | None = None
) -> Executor:
    """Make the executor that a job asks for.

    Parameters
    ----------
    engine : EngineSection
    on_silence : callable, optional
        See `distfms.engine.ray_session.RaySession`.

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
    from distfms.engine.local import LocalExecutor

    return LocalExecutor(engine.workers, processes=engine.processes)
