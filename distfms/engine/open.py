"""The factories: what a job asks for by name, with the implementation that keeps the contract."""

from __future__ import annotations

from collections.abc import Callable

from distfms.engine.base import ActorPool, EventHandler, Executor, ignore
from distfms.engine.local import LocalExecutor, LocalPool, SerialPool
from distfms.engine.memory import available_bytes, n_processors, require_room
from distfms.engine.retry import RetryPolicy
from distfms.errors import SpecError


def make_executor(
    kind: str = "local",
    workers: int | None = None,
    address: str | None = None,
    processes: bool = False,
    on_silence: Callable[[str], None] | None = None,
) -> Executor:
    """Make the executor that a job asks for.

    Parameters
    ----------
    kind : {"local", "dask", "ray"}
        Threads or processes here, an existing Dask cluster, or a Ray cluster.
    workers : int, optional
        Tasks at the same time, for local and ray; default: the processors there are.
    address : str, optional
        Of the Dask scheduler (``tcp://host:8786``), or of the Ray cluster (``host:6379``,
        ``ray://host:10001``, ``auto``); for ray, without one, a cluster is started here.
    processes : bool
        Local processes instead of threads: for work that holds the GIL.
    on_silence : callable, optional
        See `distfms.engine.ray_cluster.RayExecutor`.

    Raises
    ------
    SpecError
        The combination makes no sense.
    EngineError
        No usable cluster at the address.
    """
    if workers is not None and workers < 1:
        raise SpecError(f"engine: workers must be at least 1, not {workers}.")
    if kind == "local":
        if address:
            raise SpecError(
                f"engine: address {address!r} is given but kind is 'local', which needs none. "
                "Set kind: dask to use a cluster, or leave the address out."
            )
        return LocalExecutor(workers, processes=processes)
    if kind == "dask":
        from distfms.engine.dask_cluster import DaskExecutor

        if not address:
            raise SpecError(
                "engine: kind 'dask' needs the address of a running Dask scheduler, such as "
                "tcp://host:8786."
            )
        return DaskExecutor(address)
    if kind == "ray":
        from distfms.engine.ray_cluster import RayExecutor

        return RayExecutor(address, workers, on_silence=on_silence)
    raise SpecError(f"engine: unknown kind {kind!r}; it is one of: local, dask, ray.")


def make_pool(
    kind: str = "local",
    n_actors: int | None = None,
    address: str | None = None,
    *,
    executor: Executor | None = None,
    timeout_s: float | None = None,
    retry: RetryPolicy | None = None,
    on_event: EventHandler = ignore,
    actor_bytes: int = 0,
) -> ActorPool:
    """Make a pool of actors.

    Parameters
    ----------
    kind : {"serial", "local", "dask", "ray"}
        In this process; in processes of this machine (also for ``dask``, whose own actors cannot
        be rebuilt); on a Ray cluster.
    n_actors : int, optional
        Default: as many as the executor has, else the processors here.
    address : str, optional
        Of the Ray cluster when no executor is given; None starts one here.
    executor : Executor, optional
        One of the same kind, whose connection is used.
    timeout_s : float, optional
        An actor that takes longer for one request is taken for hung; default: never.
    retry : RetryPolicy, optional
        How often the build of a state is attempted, and a request whose actor is lost.
    on_event : callable, optional
        Called in the calling thread with ``{"event": "pool_step", "step", "seconds"}`` after each
        completed step, ``{"event": "actor_lost", "actor", "reason", "n_losses"}``,
        ``{"event": "actor_replayed", "actor", "shards", "steps"}`` and
        ``{"event": "retry", "key", "n_retries"}``.
    actor_bytes : int
        What one actor will hold; SpecError when there is not as much.
    """
    if kind not in ("serial", "local", "dask", "ray"):
        raise SpecError(f"engine: unknown kind of pool {kind!r}; one of: serial, local, dask, ray.")
    if n_actors is not None and n_actors < 1:
        raise SpecError(f"engine: a pool needs at least 1 actor, not {n_actors}.")
    if kind == "ray":
        from distfms.engine.ray_cluster import RayPool

        return RayPool(
            n_actors,
            address,
            executor=executor,
            timeout_s=timeout_s,
            retry=retry,
            on_event=on_event,
            actor_bytes=actor_bytes,
        )
    if kind == "serial":
        require_room(actor_bytes, available_bytes(), "this machine")
        return SerialPool(retry=retry, on_event=on_event)
    n = n_actors or (executor.actors if executor is not None else n_processors())
    require_room(actor_bytes * n, available_bytes(), "this machine", f"{n} actors")
    return LocalPool(n, timeout_s=timeout_s, retry=retry, on_event=on_event)
