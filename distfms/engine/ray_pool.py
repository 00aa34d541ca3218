"""A pool of Ray actors."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from distfms.engine.blas import limit_blas_threads
from distfms.engine.executors import Executor
from distfms.engine.pool_host import Host, Reply
from distfms.engine.pool_replay import Loss, ReplayPool
from distfms.engine.pools import EventHandler, require_room
from distfms.engine.ray_session import RaySession, explained
from distfms.engine.retry import RetryPolicy

# Above this a request goes through the object store, once to each node.
_INLINE_BYTES = 64 * 2**10


class RayPool(ReplayPool):
    """One Ray actor for each number, with one BLAS thread.

    Parameters
    ----------
    n_actors : int, optional
        Default: the processors of the cluster.
    address : str, optional
        Of the cluster; not used when an executor is given. See `RaySession`.
    executor : Executor, optional
        A RayExecutor whose connection is used; it must be closed after the pool.
    timeout_s : float, optional
        An actor that takes longer for one request is killed and replaced.
    retry : RetryPolicy, optional
        Attempts of one step on one actor.
    on_event : callable, optional
        Receives events; see `make_pool`.
    actor_bytes : int
        What one actor will hold; nodes that have less are not used.

    Raises
    ------
    EngineError
        No usable cluster.
    SpecError
        No node has memory for one actor.

    Notes
    -----
    Ray does not restart these actors: it would run their constructor again and lose what was
    done since; the pool rebuilds them itself. Actors need no processor of their own, so tasks of
    the same job can run between steps; they are spread over the processors of the nodes in
    an order that depends on their numbers.
    """

    name = "ray"

    def __init__(
        self,
        n_actors: int | None = None,
        address: str | None = None,
        *,
        executor: Executor | None = None,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        on_event: EventHandler | None = None,
        actor_bytes: int = 0,
    ) -> None:
        session = getattr(executor, "session", None)
        self._session: RaySession = session or RaySession(address, n_actors)
        self._owns_session = session is None
        try:
            largest = max(self._session.memory_bytes().values())
            require_room(actor_bytes, largest, "the largest node of the Ray cluster")
        except BaseException:
            self._leave()
            raise
        super().__init__(
            n_actors or self._session.n_processors,
            timeout_s=timeout_s,
            retry=retry,
            on_event=on_event,
        )
        self._actor_bytes = actor_bytes
        self._actors: dict[int, Any] = {}
        self._asked: dict[int, Any] = {}

    def close(self) -> None:
        """End the actors; disconnect when the pool made the connection."""
        super().close()
        self._leave()

    def handle(self, actor: int) -> Any:
        """Give the Ray handle of an actor."""
        return self._actors[actor]

    def _leave(self) -> None:
        if self._owns_session:
            self._session.close()

    def _spawn(self, actor: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        try:
            seats = self._seats()
            seat = NodeAffinitySchedulingStrategy(seats[actor % len(seats)], soft=True)
            remote = ray.remote(
                num_cpus=0,
                memory=self._actor_bytes or None,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=seat,
            )(_RayActor)
            self._actors[actor] = remote.remote()
        except ray.exceptions.RayError as error:
            raise explained(error) from error

    def _end(self, actor: int) -> None:
        import ray

        self._asked.pop(actor, None)
        handle = self._actors.pop(actor, None)
        if handle is None or not ray.is_initialized():
            return
        try:
            ray.kill(handle, no_restart=True)
        except Exception:
            # It died before, or its cluster did.
            return

    def _share(self, request: bytes) -> Any:
        import ray

        return request if len(request) <= _INLINE_BYTES else ray.put(request)

    def _send(self, actor: int, request: Any) -> None:
        self._asked[actor] = self._actors[actor].handle.remote(request)

    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, Reply | Loss]:
        import ray

        numbers = {self._asked[actor]: actor for actor in actors}
        done, _ = ray.wait(list(numbers), num_returns=1, timeout=wait_s)
        if done:
            done, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=0)
        return {numbers[ref]: _heard(ref) for ref in done}

    def _check(self) -> None:
        self._session.check()

    def _seats(self) -> list[str]:
        """Give node ids, one for each processor, going round the nodes."""
        nodes = self._session.living_nodes()
        fitting = [n for n in nodes if n["Resources"].get("memory", 0) >= self._actor_bytes]
        columns = [[n["NodeID"]] * int(n["Resources"]["CPU"]) for n in fitting or nodes]
        return [seat for row in zip_longest(*columns) for seat in row if seat is not None]


class _RayActor:
    """The actor: a host, and one BLAS thread."""

    def __init__(self) -> None:
        self._host = Host()

    def handle(self, request: bytes) -> bytes:
        """Carry out one request."""
        limit_blas_threads()
        return self._host.handle(request)


def _heard(ref: Any) -> Reply | Loss:
    import ray

    try:
        return pickle.loads(ray.get(ref))
    except ray.exceptions.RayTaskError as error:
        # Not the work, whose errors are in the reply: the actor could not be made.
        return Reply(error=explained(error))
    except ray.exceptions.RayError as error:
        first = str(error).strip().split("\n")[0]
        return Loss(f"Ray says {type(error).__name__}: {first[:200]}")
