"""Work on a Ray cluster: graphs as its tasks, pools of its actors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import Any

from distfms.engine import nodes
from distfms.engine.base import ActorPool, Executor
from distfms.engine.blas import limit_blas_threads
from distfms.engine.graph import USUAL, Graph, Partial, RetryPolicy, UnitReport, UnitRunner, Watch
from distfms.engine.memory import available_bytes, require_room
from distfms.engine.ray_session import RaySession, explained
from distfms.engine.replay_pool import ActorLoss, Host, ReplayPool, Reply, dump

_POLL_S = 0.5
# Above this a request goes through the object store, once to each node.
_INLINE_BYTES = 64 * 2**10


class RayExecutor(Executor):
    """Runs work on a Ray cluster.

    The tasks of the Dask graph are Ray tasks. Values stay on the nodes; the driver receives the
    root of the graph, and what leaves report. Leaves are handed out as others finish, two for
    each processor, so that merges are not queued behind all units and few values exist at the
    same time. Ray runs tasks of lost workers again, and those whose values were lost with a node.
    After an error or an interrupt, the few tasks handed out already run to their end: cancelling
    a task that is just finishing was seen to abort the whole driver in Ray 2.60
    (``task_manager.cc: Tried to complete task that was not pending``).

    Parameters
    ----------
    address, **options
        See `RaySession`.
    workers : int, optional
        Processors of a cluster started here; of one that is there, the most tasks at the same time.
    """

    name = "ray"

    def __init__(
        self, address: str | None = None, workers: int | None = None, **options: Any
    ) -> None:
        self.session = RaySession(address, workers, **options)
        try:
            self.address = self.session.address
            there = self.session.n_processors
            self.workers = self.actors = min(workers or there, there)
            if self.session.started_here:
                # Processes that start take seconds, which are not those of the first pass.
                self.map(abs, range(self.workers))
        except BaseException:
            self.session.close()
            raise

    def compute(
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy = USUAL
    ) -> Partial[Any]:
        """Run a graph and return its root; see `Executor.compute`."""
        import ray

        options = {"num_cpus": 1, "max_retries": retry.attempts - 1}
        run_leaf = ray.remote(num_returns=2, **options)(_run_leaf)
        run_merge = ray.remote(**options)(_run_merge)
        leaves = set(graph.leaves)
        values: dict[Any, Any] = {}
        reports: set[Any] = set()
        try:
            for key, (task, *needed) in graph.tasks.items():
                if key in leaves:
                    while len(reports) >= 2 * self.workers:
                        self._advance(reports, watch)
                    values[key], told = run_leaf.remote(task, *(values[k] for k in needed))
                    reports.add(told)
                elif needed:
                    # Let go of, so that what is merged can be forgotten.
                    values[key] = run_merge.remote(task, *(values.pop(k) for k in needed))
                else:
                    values[key] = ray.put(task())
            while reports or not ray.wait([values[graph.root]], timeout=_POLL_S)[0]:
                self._advance(reports, watch)
            return ray.get(values[graph.root])
        except BaseException as error:
            self.session.check()
            raise explained(error) from error.__cause__

    def probe(self, paths: Sequence[str]) -> None:
        """Check that every node sees these local paths as this machine does."""
        if self.session.started_here:
            return
        nodes.require_paths(paths, self.session.examine)

    def pool(self, n_actors: int | None = None, **options: Any) -> ActorPool:
        """Open a pool of Ray actors; see `Executor.pool`."""
        return RayPool(self.session, self.actors if n_actors is None else n_actors, **options)

    def available_bytes(self) -> int | None:
        """Return the memory for tasks over all nodes; for a cluster here, what is free of it."""
        total = sum(self.session.memory_bytes().values()) or None
        here = available_bytes() if self.address == "local" else None
        known = [value for value in (total, here) if value is not None]
        return min(known) if known else None

    def close(self) -> None:
        """Disconnect; stop the cluster when it was started here."""
        self.session.close()

    def _advance(self, reports: set[Any], watch: Watch | None) -> None:
        """Wait for a leaf to finish and hand on what it reports; raise the error of one."""
        import ray

        done = ray.wait(list(reports), timeout=_POLL_S)[0] if reports else []
        self.session.check()
        for ref in done:
            reports.discard(ref)
            for report in ray.get(ref):
                if watch is not None:
                    watch(report)


def _run_leaf(
    task: Callable[[Any], Partial[Any]], runner: UnitRunner[Any]
) -> tuple[Partial[Any], tuple[UnitReport, ...]]:
    done = task(runner)
    return Partial(done.value, done.account), done.reports


def _run_merge(task: Callable[..., Partial[Any]], *values: Partial[Any]) -> Partial[Any]:
    return task(*values)


class RayPool(ReplayPool):
    """One Ray actor for each number, with one BLAS thread; see `Executor.pool`.

    Ray does not restart these actors: it would run their constructor again and lose what was
    done since; the pool rebuilds them itself. Actors need no processor of their own, so tasks of
    the same job can run between steps; they are spread over the processors of the nodes in
    an order that depends on their numbers.
    """

    name = "ray"

    def __init__(
        self, session: RaySession, n_actors: int, *, actor_bytes: int = 0, **options: Any
    ) -> None:
        largest = max(session.memory_bytes().values())
        require_room(actor_bytes, largest, "the largest node of the Ray cluster")
        super().__init__(n_actors, **options)
        self._session = session
        self._actor_bytes = actor_bytes
        self._actors: dict[int, Any] = {}

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
            self._session.check()
            raise explained(error) from error

    def _end(self, actor: int) -> None:
        import ray

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

    def _send(self, actor: int, setup: bytes | None, request: Any) -> Any:
        return self._actors[actor].handle.remote(setup, request)

    def _done(self, answers: Sequence[Any], wait_s: float) -> Collection[Any]:
        import ray

        # Not by futures of Ray's: after the loss of a node, work of others then hangs.
        done, _ = ray.wait(answers, num_returns=1, timeout=wait_s)
        return ray.wait(answers, num_returns=len(answers), timeout=0)[0] if done else ()

    def _heard(self, answer: Any) -> bytes | ActorLoss:
        import ray

        try:
            reply: bytes = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            # Not the work, whose errors are in the reply: the actor could not be made.
            return dump(Reply(error=explained(error)))
        except ray.exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            return ActorLoss(f"Ray says {type(error).__name__}: {first[:200]}")
        return reply

    def _check(self) -> None:
        self._session.check()

    def _seats(self) -> list[str]:
        """Return node ids, one for each processor, going round the nodes."""
        nodes = self._session.living_nodes()
        fitting = [n for n in nodes if n["Resources"].get("memory", 0) >= self._actor_bytes]
        columns = [[n["NodeID"]] * int(n["Resources"]["CPU"]) for n in fitting or nodes]
        return [seat for row in zip_longest(*columns) for seat in row if seat is not None]


class _RayActor:
    """The actor: a host, and one BLAS thread."""

    def __init__(self) -> None:
        self._host = Host()

    def handle(self, setup: bytes | None, request: bytes) -> bytes:
        """Carry out one request."""
        limit_blas_threads()
        return self._host.handle(setup, request)
