"""Where work runs; it receives picklable callables and knows nothing of methods.

Executors for this machine and for Dask and Ray clusters start functions and bring results; on these
stand map-reduce, as explicit Dask graphs with a fixed merge tree, tasks, and pools of actors that
hold state. Importing it loads neither dask nor ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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


@contextmanager
def computing_on(kind: str, **engine: Any) -> Iterator[None]:
    """Compute Dask collections on a cluster, in this process, while the context is open.

    Those that estimators are given are computed there, by `fit` and `score`, and those that
    ``predict`` and ``transform`` return::

        with distfms.computing_on("ray", address="head:6379"):
            scores = selector.fit(X, y).predict(X).compute()

    Parameters
    ----------
    kind, **engine
        As in section `engine` of a job.

    Raises
    ------
    SpecError, EngineError
        There is no such option, or no usable cluster.
    """
    import dask

    from distfms.spec import EngineSection, parse_section

    section = parse_section(EngineSection, {"kind": kind, **engine}, "engine")
    with make_executor(section) as executor, dask.config.set(scheduler=executor.get):
        yield
