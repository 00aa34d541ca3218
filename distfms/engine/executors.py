"""Where work runs: the contract of executors, and the one for this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures import Executor as Pool
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from distfms.engine.blas import limit_blas_threads, single_threaded_blas
from distfms.engine.deadline import deadline, end_with_parent
from distfms.engine.graph import Announce, Partial, Watch, WorkerLoss
from distfms.engine.memory import available_bytes
from distfms.engine.retry import RetryPolicy, call_with_retry
from distfms.engine.watched_pool import WatchedPool
from distfms.errors import EngineError, SpecError

A = TypeVar("A")
R = TypeVar("R")

# A task in a thread costs a third of a millisecond, a tenth of one that goes to another process.
_THREADS_COARSE = 64


@runtime_checkable
class Executor(Protocol):
    """What runs graphs and independent tasks.

    Attributes
    ----------
    name : str
        ``"local"``, ``"dask"`` or ``"ray"``.
    workers : int
        Tasks that run at the same time.
    limit_blas : bool
        Whether tasks must hold the BLAS of their process at one thread themselves, because they
        run in processes that the executor does not hold.
    announce : callable or None
        Picklable; tasks of the next graph call it where they run when their results do not pass
        the driver.
    coarse_batches : int
        1 where a task costs milliseconds; more where it costs less, and batches are of less use.
    """

    name: str
    workers: int
    limit_blas: bool
    coarse_batches: int

    @property
    def announce(self) -> Announce | None:
        """What the tasks of the next graph call."""

    def compute(
        self, graph: Any, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Any:
        """Run a ``dask.delayed`` graph as it is, without optimisation, and give its value.

        ``watch`` is called in the calling thread with news of units and lost workers.
        """

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        watch: Callable[[int], None] | None = None,
        retry: RetryPolicy | None = None,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items.

        ``watch`` is called in the calling thread with the index of each finished item. Transient
        failures are retried; of several other failures the first in item order is raised.
        """

    def probe(self, paths: Sequence[str]) -> None:
        """Raise EngineError unless every worker sees these local paths as this process does."""

    def available_bytes(self) -> int | None:
        """Give the memory that work may use, over all workers, or None when not known."""

    def close(self) -> None:
        """Stop what was started; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_executor(
    kind: str = "local",
    workers: int | None = None,
    address: str | None = None,
    processes: bool = False,
) -> Executor:
    """Make the executor that a job asks for.

    Parameters
    ----------
    kind : {"local", "dask", "ray"}
        Threads or processes here, an existing Dask cluster, or a Ray cluster.
    workers : int, optional
        Tasks at the same time, for local and ray; default: the processors this process may use,
        or those of the cluster.
    address : str, optional
        Of the Dask scheduler (``tcp://host:8786``), or of the Ray cluster (``host:6379``,
        ``ray://host:10001``, ``auto``); for ray, without one, a cluster is started here.
    processes : bool
        Local processes instead of threads: for work that holds the GIL.

    Raises
    ------
    SpecError
        The combination makes no sense.
    EngineError
        No usable cluster at the address.

    Notes
    -----
    With a Ray cluster that was there before, the whole process ends if the head is out of reach
    for a minute; see :class:`~distfms.engine.ray_cluster.RayExecutor`.
    """
    _check_workers(workers)
    if kind == "local":
        if address:
            raise SpecError(
                f"engine: address {address!r} is given but kind is 'local', which needs none. "
                "Set kind: dask to use a cluster, or leave the address out."
            )
        return LocalExecutor(workers, processes=processes)
    if kind == "dask":
        from distfms.engine.cluster import DaskExecutor

        if not address:
            raise SpecError(
                "engine: kind 'dask' needs the address of a running Dask scheduler, such as "
                "tcp://host:8786."
            )
        return DaskExecutor(address)
    if kind == "ray":
        from distfms.engine.ray_cluster import RayExecutor

        return RayExecutor(address, workers)
    raise SpecError(f"engine: unknown kind {kind!r}; it is one of: local, dask, ray.")


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise SpecError(f"engine: workers must be at least 1, not {workers}.")


def n_processors() -> int:
    """Give the number of processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalExecutor:
    """Runs work on this machine, in threads or in processes.

    Parameters
    ----------
    workers : int, optional
        Threads or processes, at least 1; default: the processors this process may use.
    processes : bool
        Processes (started by spawn, so nothing of this process's threads and locks is copied)
        for work that holds the GIL; threads for numpy, BLAS and Arrow, which release it.

    Notes
    -----
    BLAS is held at one thread: around the work for threads, for good in worker processes. After
    an interrupt, processes are terminated; threads, which Python cannot stop, finish the one
    task they are at.
    """

    name = "local"
    announce: Announce | None = None

    def __init__(self, workers: int | None = None, processes: bool = False) -> None:
        _check_workers(workers)
        self.workers = workers or n_processors()
        self.processes = processes
        self.limit_blas = processes
        self.coarse_batches = 1 if processes else _THREADS_COARSE
        self._pool: Pool | None = None

    def compute(
        self, graph: Any, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Any:
        """Run a ``dask.delayed`` graph as it is and give its value; see `Executor.compute`.

        Raises
        ------
        EngineError
            Worker processes kept dying.
        """
        tasks = dict(graph.__dask_graph__())
        losses = _Losses(retry or RetryPolicy(), watch)
        while True:
            finished: dict[Hashable, Any] = {}
            try:
                with self._blas():
                    return self._get(tasks, graph.key, finished, watch)
            except BrokenExecutor as error:
                self._abandon()
                losses.add(error)
            # Only what was lost is done again: results at hand become constants of the graph.
            tasks.update({key: (partial(_itself, value),) for key, value in finished.items()})

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        watch: Callable[[int], None] | None = None,
        retry: RetryPolicy | None = None,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items; see `Executor.map`.

        Raises
        ------
        EngineError
            A task kept failing for a transient reason, or worker processes kept dying.
        """
        policy = retry or RetryPolicy()
        losses = _Losses(policy, None)
        waiting = dict(enumerate(items))
        n_items = len(waiting)
        results: dict[int, R] = {}
        call = partial(_attempt, fn, policy, self.processes)
        while waiting:
            try:
                with self._blas():
                    self._map_some(call, waiting, results, watch)
            except BrokenExecutor as error:
                self._abandon()
                losses.add(error)
        return [results[index] for index in range(n_items)]

    def probe(self, paths: Sequence[str]) -> None:
        """Do nothing: the workers are on this machine and see what this process sees."""

    def available_bytes(self) -> int | None:
        """Give the memory free for this process and its children, in bytes."""
        return available_bytes()

    def close(self) -> None:
        """Wait for running tasks and stop all threads and processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open_pool(self) -> Pool:
        if self._pool is None:
            if self.processes:
                self._pool = ProcessPoolExecutor(
                    self.workers,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_start_worker,
                )
            else:
                self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="distfms")
        return self._pool

    def _abandon(self) -> None:
        """Drop the pool without waiting for its tasks."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        # Read before shutdown, which forgets them.
        children = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        # Without its children a pool of processes ends at once; threads end with their task.
        pool.shutdown(wait=self.processes)

    def _blas(self) -> AbstractContextManager[None]:
        return nullcontext() if self.processes else single_threaded_blas()

    def _scheduler(self) -> Callable[..., Any]:
        """Give Dask's scheduler for threads or processes."""
        if not self.processes:
            from dask.threaded import get

            return get
        from dask.multiprocessing import get as get_in_processes

        # Neither fusion nor batching: a task is the unit of scheduling and of loss.
        return partial(get_in_processes, optimize_graph=False, chunksize=1)

    def _get(
        self,
        tasks: dict[Hashable, Any],
        key: Hashable,
        finished: dict[Hashable, Any],
        watch: Watch | None,
    ) -> Any:
        """Run a graph with Dask's local scheduler; results still needed stay in ``finished``."""
        pool = WatchedPool(self._open_pool(), self.workers)
        hooks = (None, None, None, partial(_after_task, watch), None)
        try:
            return self._scheduler()(tasks, key, pool=pool, cache=finished, callbacks=[hooks])
        except BrokenExecutor:
            raise
        except Exception as error:
            raise pool.first_failure(tasks, error) from error.__cause__
        except BaseException:
            self._abandon()
            raise

    def _map_some(
        self,
        call: Callable[[A], R],
        waiting: dict[int, A],
        results: dict[int, R],
        watch: Callable[[int], None] | None,
    ) -> None:
        """Move items from ``waiting`` to ``results`` until done or until something fails."""
        pool = self._open_pool()
        futures = {self._submit(pool, call, item): index for index, item in waiting.items()}
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, return_when="FIRST_COMPLETED")
                if any(future.exception() is not None for future in done):
                    raise _first_error(futures, pending)
                for future in done:
                    index = futures.pop(future)
                    results[index] = future.result()
                    del waiting[index]
                    if watch is not None:
                        watch(index)
        except BrokenExecutor:
            _keep_finished(futures, waiting, results, watch)
            raise
        except Exception:
            raise
        except BaseException:
            self._abandon()
            raise

    def _submit(self, pool: Pool, call: Callable[[A], R], item: A) -> Future[R]:
        if not self.processes:
            return pool.submit(call, item)
        import cloudpickle

        return pool.submit(_call_pickled, cloudpickle.dumps((call, item)))


class _Losses:
    """Counts how often the worker processes broke, and says when it is enough."""

    def __init__(self, policy: RetryPolicy, watch: Watch | None) -> None:
        self._policy = policy
        self._watch = watch
        self._n = 0

    def add(self, error: BrokenExecutor) -> None:
        """Note one more loss; EngineError when the policy allows no further attempt."""
        self._n += 1
        if self._watch is not None:
            self._watch(WorkerLoss(self._n))
        if not self._policy.another(error, self._n):
            times = "once" if self._n == 1 else f"{self._n} times"
            raise EngineError(
                f"Worker processes died {times} in the middle of their work, without an error of "
                "their own. Most often the system stopped them for want of memory: use fewer "
                "workers, or threads instead of processes. It also happens when a script starts "
                'processes outside `if __name__ == "__main__":`. Run the same command again '
                "afterwards; finished work is kept."
            ) from error


def _after_task(
    watch: Watch | None, key: Hashable, value: Any, tasks: Any, state: Any, worker: Any
) -> None:
    """Hand on the reports of a leaf; called by Dask in the thread that called it."""
    if watch is not None and isinstance(value, Partial):
        for report in value.reports:
            watch(report)


def _first_error(futures: dict[Future[R], int], pending: set[Future[R]]) -> BaseException:
    """Cancel what has not begun, wait for the rest, give the error of the first failed item."""
    for future in pending:
        future.cancel()
    wait([future for future in pending if not future.cancelled()])
    failed = {
        index: error
        for future, index in futures.items()
        if not future.cancelled() and (error := future.exception()) is not None
    }
    # An error of the work itself says more than the death of a worker.
    own = {i: error for i, error in failed.items() if not isinstance(error, BrokenExecutor)}
    return min((own or failed).items())[1]


def _keep_finished(
    futures: dict[Future[R], int],
    waiting: dict[int, Any],
    results: dict[int, R],
    watch: Callable[[int], None] | None,
) -> None:
    """Take over what had finished before the pool broke."""
    for future, index in futures.items():
        if future.done() and not future.cancelled() and future.exception() is None:
            results[index] = future.result()
            del waiting[index]
            if watch is not None:
                watch(index)


def _attempt(fn: Callable[[A], R], policy: RetryPolicy, replaceable: bool, item: A) -> R:
    # Only a worker process may be ended when it hangs.
    with deadline(policy.timeout_s if replaceable else None):
        return call_with_retry(fn, item, policy=policy, what=f"Task {_short(item)}")[0]


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else text[:57] + "..."


def _call_pickled(call_and_item: bytes) -> Any:
    import cloudpickle

    call, item = cloudpickle.loads(call_and_item)
    limit_blas_threads()
    return call(item)


def _itself(value: Any) -> Any:
    return value


def _start_worker() -> None:
    """Prepare a worker process: one BLAS thread, interrupts are the driver's, as is its life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    limit_blas_threads()
