"""Work on an existing Dask cluster."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from distfms.engine import nodes
from distfms.engine.base import Executor
from distfms.engine.blas import limit_blas_threads
from distfms.engine.graph import UnitReport, resumable
from distfms.engine.host import Host
from distfms.engine.tasks import POLL_S, LostError, Task, reports_of, values_of
from distfms.errors import EngineError

# Tasks are pickled here and run there, and numpy does the sums: these must be the same.
_SAME_VERSION = ("distfms", "dask", "distributed", "cloudpickle", "numpy")


@dataclass(eq=False)
class _Seat:
    """A worker, and the future of the host that it keeps."""

    worker: str
    host: Any


@dataclass(eq=False)
class _Task(Task):
    """With the future of what comes to the driver."""

    reports: Any = None


class DaskExecutor(Executor):
    """Runs work on a Dask cluster that is already there, such as ``tcp://host:8786``.

    Workers that are lost are the scheduler's business, which runs their tasks again elsewhere;
    where it has none left, a job waits ``patience_s`` for new ones. A seat is a task whose value, a
    host, one worker keeps; what is asked of it are tasks that need this value and run there. The
    scheduler drops it with the pool, and with a driver that is gone. The BLAS of a worker process
    stays at one thread after it ran one of our tasks.
    Raises EngineError where no scheduler answers, or it has no workers, or of other versions.
    """

    name = "dask"
    n_out = 2

    def __init__(self, address: str, *, timeout_s: float = 5.0, patience_s: float = 60.0) -> None:
        super().__init__()
        import distributed  # noqa: F401

        self.address = address
        self._patience_s = patience_s
        self._seats: list[_Seat] = []
        self._alive_s = time.monotonic()
        self._silence = ExitStack()
        # Its import gives these a level and a handler; others inherit them.
        self._silence.enter_context(nodes.quiet_logs("distributed", "distributed.client"))
        self.client: Any = None
        try:
            self.client = _connect(address, timeout_s)
            self._require_workers(timeout_s)
            self.workers = sum(self.client.nthreads().values())
        except BaseException:
            self.close()
            raise

    def submit(self, function: Any, *arguments: Any, seat: Any = None, attempts: int = 3) -> Task:
        """Have the scheduler start a function; see `Tasks.submit`."""
        values = values_of(arguments)
        self._alive_s = time.monotonic()
        with self.asking(), warnings.catch_warnings(action="ignore"):
            if seat is not None:
                answer = self._submit_to(seat.worker, _on_seat, function, seat.host, *values)
                return Task(answer, self._coming(answer), seat)
            value = self.client.submit(function, *values, pure=False)
            # Before other tasks, as they are waited for.
            reports = self.client.submit(reports_of, value, pure=False, priority=1)
        task = _Task(value, self._coming(reports), reports=reports)
        task.answer.add_done_callback(lambda _: reports.release())
        return task

    def done(self, tasks: Sequence[Task], wait_s: float) -> list[Task]:
        """Wait for a task; see `Tasks.done`. What was asked of a worker that is gone is done."""
        done = super().done(tasks, min(wait_s, POLL_S))
        if done:
            return done
        workers = self._living()
        if workers is None:
            return []
        return [task for task in tasks if task.seat and task.seat.worker not in workers]

    def result(self, task: Task) -> Any:
        """Return the value of a task; see `Tasks.result`."""
        if task.seat is None:
            whole = Task(task.value, self._coming(task.value))
            while not self.done([whole], POLL_S):
                continue
            return self._answer(whole)
        if not task.answer.done():
            raise LostError("its worker is gone")
        try:
            return task.answer.result()
        except (Exception, asyncio.CancelledError) as error:
            self._living()
            raise LostError(f"Dask says {type(error).__name__}: {str(error)[:200]}") from error

    def reports(self, task: Task) -> tuple[UnitReport, ...]:
        """Return the reports of a task that is done."""
        reports: tuple[UnitReport, ...] = self._answer(task)
        return reports

    def forget(self, tasks: Sequence[Any]) -> None:
        """Have the scheduler drop what is under way.

        To cancel it was seen to break the connection of the client (`assert ts.who_wants` in
        distributed's scheduler). What is done comes, and is released then: a client fetches many
        values at once, and who no longer waited for one would end that for all others, later ones
        included.
        """
        for task in tasks:
            if task.reports.status == "pending":
                task.reports.release()
            task.value.release()

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run any graph of Dask, which may hold what is on the cluster; see `Executor.get`."""
        return self.client.get(dsk, keys, **options)

    def open_seat(self, actor_bytes: int, instead_of: _Seat | None) -> _Seat:
        """Take a worker: another than before, with the fewest seats for its threads."""
        before = None if instead_of is None else instead_of.worker
        while not (threads := self._living()):
            time.sleep(POLL_S)
        taken = [seat.worker for seat in self._seats]

        def cost(worker: str) -> tuple[bool, float, str]:
            return worker == before, taken.count(worker) / threads[worker], worker

        worker = min(threads, key=cost)
        with self.asking():
            seat = _Seat(worker, self._submit_to(worker, Host))
        self._seats.append(seat)
        return seat

    def keep(self, seat: _Seat) -> None:
        """Let go of a host, as another costs nothing."""
        self.leave(seat)

    def leave(self, seat: _Seat) -> None:
        """Let go of a host, and so of its states; a worker that hangs is left to itself."""
        self._seats.remove(seat)
        seat.host.release()

    def room(self, n_actors: int) -> tuple[int, int | None, str]:
        """Return the memory limit of the largest worker; see `Tasks.room`."""
        limits = self._memory_bytes()
        largest = max(limits) if limits and all(limits) else None
        return 1, largest, "the largest worker of the Dask cluster"

    def available_bytes(self) -> int | None:
        """Return the sum of the workers' memory limits, None when one has none."""
        limits = self._memory_bytes()
        return sum(limits) if limits and all(limits) else None

    def close(self) -> None:
        """Disconnect; the cluster stays."""
        client, self.client = self.client, None
        if client is not None:
            with warnings.catch_warnings(action="ignore"):
                client.close()
        self._silence.close()

    # --- the cluster ---

    def _memory_bytes(self) -> list[int]:
        """Return the memory limits of the workers, 0 for none."""
        with self.asking():
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return [worker["memory_limit"] or 0 for worker in workers.values()]

    def _require_workers(self, timeout_s: float) -> None:
        try:
            self.client.wait_for_workers(1, timeout=timeout_s)
        except TimeoutError as error:
            raise resumable(
                f"The Dask scheduler at {self.address} has no workers. Start some with "
                f"`dask worker {self.address}`"
            ) from error
        nodes.require_same(_SAME_VERSION, self.examine(), f"The Dask cluster at {self.address}")

    def examine(self) -> dict[str, dict[str, str | None]]:
        """Return the versions of software on each worker."""
        with self.asking(), warnings.catch_warnings(action="ignore"):
            workers = self.client.run(nodes.examiner(_SAME_VERSION)).items()
        return {f"Dask worker {worker} on {host}": there for worker, (host, there) in workers}

    def _submit_to(self, worker: str, function: Any, *arguments: Any) -> Any:
        place = {"workers": [worker], "allow_other_workers": False}
        return self.client.submit(function, *arguments, pure=False, priority=1, **place)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Raise EngineError for whatever the client raises when its scheduler is gone."""
        try:
            yield
        except Exception as error:
            if self.client.status == "running" and not isinstance(error, OSError):
                raise
            raise self._gone() from error

    def _gone(self) -> EngineError:
        return resumable(
            f"The Dask scheduler at {self.address} dropped the work of this job: it stopped, was "
            "restarted, or cancelled the work. Start it"
        )

    def _living(self) -> Mapping[str, int] | None:
        """Return the threads of the workers, or None where the connection is just made again.

        Raises EngineError where it is not, or there have been no workers for long: the scheduler
        would wait for ever.
        """
        if self.client.status in ("closing", "closed"):
            raise self._gone()
        try:
            threads: Mapping[str, int] = self.client.nthreads()
        except OSError:
            return None
        if threads or self.client.status != "running":
            self._alive_s = time.monotonic()
        elif time.monotonic() - self._alive_s > self._patience_s:
            raise resumable(
                f"The Dask scheduler at {self.address} lost all its workers and got no new ones "
                f"for {self._patience_s:.0f} s. Start workers"
            )
        return threads

    def _coming(self, future: Any) -> Any:
        """Have a value come here; where it is lost with its worker, when it is made again."""

        async def value_of() -> Any:
            # To gather what failed leaves tasks of asyncio behind, which say so when it ends.
            error = await future.exception(asynchronous=True)
            if error is not None:
                raise error
            if future.cancelled():
                raise asyncio.CancelledError
            return await self.client.gather(future, asynchronous=True)

        return asyncio.run_coroutine_threadsafe(value_of(), self.client.loop.asyncio_loop)

    def _answer(self, task: Task) -> Any:
        """Return what came of a task, or raise its error in words a user can act on."""
        try:
            return task.answer.result()
        except (Exception, asyncio.CancelledError) as error:
            # That a wait was cancelled is no Exception: the client closes.
            if task.value.status != "error" or not isinstance(error, Exception):
                raise self._gone() from error
            if type(error).__name__ != "KilledWorker":
                raise
            raise resumable(
                f"Workers of the Dask cluster at {self.address} died repeatedly on the same task: "
                f"{error}. They probably ran out of memory: give them more, or fewer threads"
            ) from error


def _on_seat(function: Callable[..., Any], host: Host, *arguments: Any) -> Any:
    """Call a function where the host is."""
    limit_blas_threads()
    return function(host, *arguments)


def _connect(address: str, timeout_s: float) -> Any:
    """Open a client that does not become the default for other users of Dask here."""
    from distributed import Client
    from distributed.utils import LoopRunner

    try:
        # A client that fails to connect leaves its thread and a traceback behind, so ask first.
        kind = LoopRunner().run_sync(_kind_of_server, address, timeout_s)
        if kind != "Scheduler":
            raise ConnectionError(f"a Dask {kind.lower()} answers")
        with warnings.catch_warnings(action="ignore"):
            return Client(address, timeout=timeout_s, set_as_default=False, name="distfms")
    except Exception as error:
        # What comes back from something that is not Dask may be any error of the decoder.
        raise EngineError(
            f"No Dask scheduler answers at {address} (tried for {timeout_s:.0f} s; "
            f"{type(error).__name__}: {error}). Start one with `dask scheduler`, or check host and "
            "port: use the port of the scheduler, not that of its dashboard or a worker."
        ) from error


async def _kind_of_server(address: str, timeout_s: float) -> str:
    """Return what answers: ``Scheduler``, ``Worker`` or ``Nanny``."""
    from distributed.core import rpc

    async with asyncio.timeout(timeout_s), rpc(address, timeout=timeout_s) as server:
        return str((await server.identity())["type"])
