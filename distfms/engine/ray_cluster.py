"""Work on a Ray cluster: graphs as its tasks, pools of its actors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from distfms.engine import nodes
from distfms.engine.base import ActorPool, Executor
from distfms.engine.blas import limit_blas_threads
from distfms.engine.graph import USUAL, Graph, Partial, RetryPolicy, UnitReport, Watch
from distfms.engine.memory import available_bytes, require_room
from distfms.engine.ray_session import RaySession, explained
from distfms.engine.replay_pool import ActorLoss, Host, ReplayPool, Reply, dump

_POLL_S = 0.5
# Above this a request goes through the object store, once to each node.
_INLINE_BYTES = 64 * 2**10


class RayExecutor(Executor):
    """Runs work on a Ray cluster.

    Dask's own scheduler decides what is next; its tasks are Ray tasks. Values stay on the nodes,
    and Ray starts a task where most of what it needs is; the driver receives the values that were
    asked for, and what leaves report. Two tasks are out for each processor, so that merges are not
    queued behind all units and few values exist at the same time. Ray runs tasks of lost workers
    again, and those whose values were lost with a node. After an error or an interrupt, the few
    tasks handed out already run to their end: cancelling a task that is just finishing was seen to
    abort the whole driver in Ray 2.60 (``task_manager.cc: Tried to complete task that was not
    pending``).

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
        root: Partial[Any] = self.get(graph.tasks, graph.root, watch=watch, retry=retry)
        return root

    def get(
        self, dsk: Any, keys: Any, *, watch: Any = None, retry: RetryPolicy = USUAL, **options: Any
    ) -> Any:
        """Run any graph of Dask; see `Executor.get`."""
        from dask.local import get_async

        tasks = _RayTasks(self.session.check, watch, retry)
        settled = {"num_workers": 2 * self.workers, **options, "chunksize": 1}
        try:
            return _fetched(keys, get_async(tasks.submit, dsk=dsk, result=keys, **settled))
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


class _RayTasks:
    """The Ray tasks of a graph that are out, in the place of Dask's pool and of all its futures.

    A future that says at once that it is done, and waits for whichever task is next when it is
    asked, keeps all waiting in the calling thread.
    """

    def __init__(self, check: Callable[[], None], watch: Watch | None, retry: RetryPolicy) -> None:
        import ray

        options = {"num_returns": 2, "num_cpus": 1, "max_retries": retry.attempts - 1}
        self._run = ray.remote(**options)(_run_task)
        self._check = check
        self._watch = watch
        self._out: dict[Any, tuple[Any, Any]] = {}

    def submit(self, _: Any, batch: Sequence[Any]) -> _RayTasks:
        """Start the only task of a batch."""
        ((key, (task, needed), *_),) = batch
        value, told = self._run.remote(task, tuple(needed), *needed.values())
        self._out[told] = key, value
        return self

    def add_done_callback(self, call: Callable[[_RayTasks], None]) -> None:
        """Say that a task is done."""
        call(self)

    def result(self) -> list[tuple[Any, Any, bool]]:
        """Wait for a task; return its key and value as Dask takes them, or raise its error."""
        import ray

        done: list[Any] = []
        while not done:
            done, _ = ray.wait([*self._out], timeout=_POLL_S)
            self._check()
        key, value = self._out.pop(done[0])
        for report in ray.get(done[0]):
            if self._watch is not None:
                self._watch(report)
        return [(key, (value, None), False)]


def _run_task(task: Any, keys: Sequence[Any], *values: Any) -> tuple[Any, tuple[UnitReport, ...]]:
    """Run a task of Dask's where the values of these keys are; return reports beside its value."""
    value = task(dict(zip(keys, values, strict=True)))
    if isinstance(value, Partial):
        return replace(value, reports=()), value.reports
    return value, ()


def _fetched(keys: Any, found: Any) -> Any:
    """Return values, which are on the nodes or constants, in tuples as keys are in lists."""
    import ray

    if isinstance(keys, list):
        return tuple(map(_fetched, keys, found))
    return ray.get(found) if isinstance(found, ray.ObjectRef) else found


class RayPool(ReplayPool):
    """One Ray actor for each number, with one BLAS thread; see `Executor.pool`.

    Ray restarts these actors and repeats what they were asked. Each request names what the states
    are made of, and the steps that changed them, so that an actor which has none makes them first.
    Actors need no processor of their own, so tasks of the same job can run between steps; they are
    spread over the processors of the nodes in an order that depends on their numbers.
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
        self._setups: dict[int, Any] = {}
        self._n_sent = 0

    def _spawn(self, actor: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        try:
            seats = self._seats()
            seat = NodeAffinitySchedulingStrategy(seats[actor % len(seats)], soft=True)
            remote = ray.remote(
                num_cpus=0,
                memory=self._actor_bytes or None,
                max_restarts=-1,
                max_task_retries=self._retry.attempts - 1,
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
        import ray

        if setup is not None:
            self._setups[actor] = ray.put(setup)
        self._n_sent += 1
        # In a list, so that an actor fetches it when it needs it.
        made_of = [self._setups[actor]]
        is_first = setup is not None
        return self._actors[actor].handle.remote(
            self._n_sent, is_first, made_of, [*self._log], request
        )

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
            reason = f"Ray says {type(error).__name__}: {first[:200]}"
            return ActorLoss(reason, self._retry.attempts)
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
        import ray

        self._has_states = False
        self._host = Host(int(ray.get_runtime_context().was_current_actor_reconstructed))

    def handle(
        self, number: int, is_first: bool, made_of: list[Any], log: list[Any], request: bytes
    ) -> bytes:
        """Carry out one request, after states are made where it is the first of a process."""
        import ray

        limit_blas_threads()
        if self._has_states and not is_first:
            return self._host.handle(None, request, (), number)
        self._has_states = True
        calls = [ray.get(call) if isinstance(call, ray.ObjectRef) else call for call in log]
        return self._host.handle(ray.get(made_of[0]), request, calls, number)
