"""Work on a Ray cluster: tasks of Ray, and actors for states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from distfms.engine.base import Executor
from distfms.engine.blas import limit_blas_threads
from distfms.engine.graph import Leaf, UnitReport
from distfms.engine.host import Host
from distfms.engine.memory import available_bytes
from distfms.engine.ray_session import RaySession
from distfms.engine.tasks import LostError, Task, values_of

# Above this a request goes through the object store, once to each node.
_INLINE_BYTES = 64 * 2**10
_FETCH_S = 5.0


class RayExecutor(Executor):
    """Runs work on a Ray cluster.

    Values stay on the nodes, and Ray starts a task where most of what it needs is. Ray runs tasks
    of lost workers again, and those whose values were lost with a node; it restarts actors and
    repeats what they were asked. After an error or an interrupt, the few tasks handed out already
    run to their end: cancelling a task that is just finishing was seen to abort the whole driver in
    Ray 2.60 (``task_manager.cc: Tried to complete task that was not pending``).

    A seat is an actor that needs no processor of its own, so that tasks of the same job can run
    between steps; they are spread over the nodes.

    Parameters
    ----------
    address, **options
        See `RaySession`.
    workers : int, optional
        Processors of a cluster started here; of one that is there, the most tasks at the same time.
    """

    name = "ray"
    n_out = 2

    def __init__(
        self, address: str | None = None, workers: int | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.session = RaySession(address, workers, **options)
        import ray

        self._call = ray.remote(num_returns=2, num_cpus=1)(_call)
        self._n_seats = 0
        try:
            self.address = self.session.address
            n_processors = self.session.n_processors
            self.workers = min(workers or n_processors, n_processors)
            if self.session.started_here:
                # Processes that start take seconds, which are not those of the first pass.
                self.map(abs, range(self.workers))
        except BaseException:
            self.session.close()
            raise

    def submit(self, function: Any, *arguments: Any, seat: Any = None, attempts: int = 3) -> Task:
        """Start a task of Ray, or ask an actor; see `Tasks.submit`."""
        values = values_of(arguments)
        if seat is not None:
            ask = seat.call.options(max_task_retries=attempts - 1)
            answer = ask.remote(function, *values)
            return Task(answer, answer, seat)
        call = self._call.options(max_retries=attempts - 1)
        return Task(*call.remote(function, *values))

    def done(self, tasks: Sequence[Task], wait_s: float) -> list[Task]:
        """Wait for a task; see `Tasks.done`."""
        import ray

        # Not by futures of Ray's: after the loss of a node, work of others then hangs.
        answers = [task.answer for task in tasks]
        with self.session.asking():
            done, _ = ray.wait(answers, timeout=wait_s)
            self.session.check()
            if done:
                done, _ = ray.wait(answers, num_returns=len(answers), timeout=0)
        return [task for task in tasks if task.answer in done]

    def result(self, task: Task) -> Any:
        """Return the value of a task; see `Tasks.result`."""
        import ray

        with self.session.asking():
            while True:
                try:
                    return ray.get(task.value, timeout=_FETCH_S)
                except ray.exceptions.GetTimeoutError:
                    self.session.check()
                except ray.exceptions.RayTaskError:
                    raise  # of an actor, too, that could not be made
                except ray.exceptions.RayError as error:
                    if task.seat is None:
                        raise
                    first = str(error).strip().split("\n")[0]
                    raise LostError(f"Ray says {type(error).__name__}: {first[:200]}") from error

    def reports(self, task: Task) -> tuple[UnitReport, ...]:
        """Return the reports of a task that is done."""
        reports: tuple[UnitReport, ...] = self.result(Task(task.answer, task.answer))
        return reports

    def open_seat(self, actor_bytes: int, instead_of: Any) -> Any:
        """Start an actor, on the next node in turn that has the memory."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with self.session.asking():
            memory_bytes = self.session.memory_bytes()
            ids = [n for n, room in memory_bytes.items() if room >= actor_bytes]
            ids = ids or [*memory_bytes]
            node = ids[self._n_seats % len(ids)]
            self._n_seats += 1
            # No memory is claimed, as Ray would wait for it without an end.
            strategy = NodeAffinitySchedulingStrategy(node, soft=True)
            options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": strategy}
            return ray.remote(**options)(_Actor).remote()

    def leave(self, seat: Any) -> None:
        """Kill an actor."""
        import ray

        # It may have died before, or its cluster.
        with suppress(Exception):
            if ray.is_initialized():
                ray.kill(seat, no_restart=True)

    def share(self, request: bytes) -> Any:
        """Put a large request into the object store."""
        import ray

        return request if len(request) <= _INLINE_BYTES else ray.put(request)

    def room(self, n_actors: int) -> tuple[int, int | None, str]:
        """Return the memory of the largest node; see `Tasks.room`."""
        largest = max(self.session.memory_bytes().values())
        return 1, largest, "the largest node of the Ray cluster"

    def available_bytes(self) -> int | None:
        """Return the memory for tasks over all nodes; for a cluster here, what is free of it."""
        total = sum(self.session.memory_bytes().values())
        return min(total, available_bytes()) if self.address == "local" else total

    def close(self) -> None:
        """Disconnect; stop the cluster when it was started here."""
        super().close()
        self.session.close()


def _call(function: Callable[..., Any], *values: Any) -> tuple[Any, tuple[UnitReport, ...]]:
    """Call a function in a task of Ray; return reports beside its value."""
    value = function(*values)
    return (value.value, value.reports) if isinstance(value, Leaf) else (value, ())


class _Actor:
    """A host in an actor of Ray, and one BLAS thread."""

    def __init__(self) -> None:
        import ray

        self._host = Host()
        self._is_anew = ray.get_runtime_context().was_current_actor_reconstructed

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with the host; once nothing, where this process replaces another."""
        if self._is_anew:
            self._is_anew = False
            return b""
        limit_blas_threads()
        return function(self._host, *arguments)
