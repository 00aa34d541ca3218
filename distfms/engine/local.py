"""Work on this machine: graphs in threads or processes, pools of one process for each actor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import Executor as Workers
from functools import partial
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_process
from multiprocessing.synchronize import SemLock
from typing import Any

from distfms.engine.base import ActorPool, Executor
from distfms.engine.blas import limit_blas_threads, single_threaded_blas
from distfms.engine.graph import (
    USUAL,
    Graph,
    Partial,
    RetryPolicy,
    Watch,
    WorkerLoss,
    itself,
    times,
)
from distfms.engine.memory import available_bytes, n_processors, require_room
from distfms.engine.replay_pool import ActorLoss, Host, ReplayPool
from distfms.errors import EngineError

# A task in a thread costs a third of a millisecond, a tenth of one that goes to another process.
_THREADS_COARSE = 64


class LocalExecutor(Executor):
    """Runs work on this machine, in threads or in processes.

    Processes (started by spawn, so nothing of this process's threads and locks is copied) are for
    work that holds the GIL. BLAS is held at one thread: around the work for threads, for good in
    worker processes. After an interrupt, processes are ended; threads, which Python cannot stop,
    finish the one task they are at.
    """

    name = "local"

    def __init__(self, workers: int | None = None, processes: bool = False) -> None:
        self.workers = self.actors = workers or n_processors()
        self.processes = processes
        self.limit_blas = processes
        self.coarse_batches = 1 if processes else _THREADS_COARSE
        self._pool: Workers | None = None

    def compute(
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy = USUAL
    ) -> Partial[Any]:
        """Run a graph and return its root; see `Executor.compute`."""
        hooks = (None, None, None, partial(_after_task, watch), None)
        tasks = dict(graph.tasks)
        n_losses = 0
        while True:
            finished: dict[Hashable, Any] = {}
            try:
                root: Partial[Any] = self.get(tasks, graph.root, cache=finished, callbacks=[hooks])
                return root
            except BrokenExecutor as error:
                self._abandon()
                n_losses += 1
                if watch is not None:
                    watch(WorkerLoss(n_losses))
                if not retry.allows(n_losses):
                    raise EngineError(_died(n_losses)) from error
            except Exception as error:
                # Dask hands on an error of another process in one of its own.
                raise getattr(error, "exception", error) from error.__cause__
            except BaseException:
                self._abandon()
                raise
            # Only what was lost is done again: results at hand become constants of the graph.
            tasks.update({key: (partial(itself, value),) for key, value in finished.items()})

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run any graph of Dask; see `Executor.get`."""
        from dask import multiprocessing, threaded

        options["pool"] = self._open_pool()
        if self.processes:
            # Neither fusion nor batching: a task is what is scheduled and what is lost.
            return multiprocessing.get(dsk, keys, optimize_graph=False, chunksize=1, **options)
        with single_threaded_blas():
            return threaded.get(dsk, keys, **options)

    def pool(self, n_actors: int | None = None, **options: Any) -> ActorPool:
        """Open a pool of processes of this machine; see `Executor.pool`."""
        return LocalPool(self.actors if n_actors is None else n_actors, **options)

    def available_bytes(self) -> int | None:
        """Return the memory free for this process and its children."""
        return available_bytes()

    def close(self) -> None:
        """Wait for running tasks and stop all threads and processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            _register_again()
            pool.shutdown(wait=True, cancel_futures=True)

    def _open_pool(self) -> Workers:
        if self._pool is None:
            self._pool = (
                _processes(self.workers)
                if self.processes
                else ThreadPoolExecutor(self.workers, thread_name_prefix="distfms")
            )
        return self._pool

    def _abandon(self) -> None:
        """Drop the pool without waiting for its tasks; threads end with the task they are at."""
        pool, self._pool = self._pool, None
        if isinstance(pool, ProcessPoolExecutor):
            _kill(pool)
        elif pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


class SerialPool(ReplayPool):
    """All states in this process, one shard after the other; the reference for other pools.

    Takes the options of `Executor.pool`; nothing can end a request that takes too long.
    """

    name = "serial"

    def __init__(self, *, actor_bytes: int = 0, **options: Any) -> None:
        require_room(actor_bytes, available_bytes(), "this machine")
        super().__init__(1, **options)

    def _spawn(self, actor: int) -> None:
        self._host = Host()

    def _end(self, actor: int) -> None:
        self._host = Host()

    def _send(self, actor: int, setup: bytes | None, request: bytes) -> Future[bytes]:
        answer: Future[bytes] = Future()
        with single_threaded_blas():
            answer.set_result(self._host.handle(setup, request, self._log))
        return answer


class LocalPool(ReplayPool):
    """One process of this machine for each actor, with one BLAS thread; see `Executor.pool`.

    Processes are started by spawn, so a script must guard its work by
    ``if __name__ == "__main__":``. They end with this process, however it ends.
    """

    name = "local"

    def __init__(self, n_actors: int, *, actor_bytes: int = 0, **options: Any) -> None:
        room = actor_bytes * n_actors
        require_room(room, available_bytes(), "this machine", f"{n_actors} actors")
        super().__init__(n_actors, **options)
        self._seats: dict[int, ProcessPoolExecutor] = {}
        self._pipes: dict[int, tuple[Connection, Connection]] = {}
        self._asked: dict[Future[bytes], int] = {}

    def _spawn(self, actor: int) -> None:
        reader, writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._pipes[actor] = reader, writer
        self._seats[actor] = _processes(1, writer)

    def _end(self, actor: int) -> None:
        _kill(self._seats.pop(actor))
        for end in self._pipes.pop(actor):
            end.close()

    def _send(self, actor: int, setup: bytes | None, request: bytes) -> Future[bytes]:
        try:
            log = [] if setup is None else [*self._log]
            answer = self._seats[actor].submit(_handle, setup, request, log)
        except BrokenExecutor as error:
            answer = Future()
            answer.set_exception(error)
        self._asked[answer] = actor
        return answer

    def _heard(self, answer: Future[bytes]) -> bytes | ActorLoss:
        reader, _ = self._pipes[self._asked.pop(answer)]
        try:
            return answer.result()
        except BrokenExecutor:
            if reader.poll():
                return ActorLoss("its process ended")
            return ActorLoss("its process ended before it began", advice=_UNGUARDED)


#: The states of an actor; in its process, which belongs to it alone.
_host = Host()


def _handle(setup: bytes | None, request: bytes, log: Sequence[bytes]) -> bytes:
    """Carry out a request in an actor's process."""
    limit_blas_threads()
    return _host.handle(setup, request, log)


_UNGUARDED = (
    'This happens when a script starts work outside `if __name__ == "__main__":`, as each process '
    "runs the script, too: put the work below that line"
)


def _processes(n: int, begun: Connection | None = None) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=_start_worker, initargs=(begun,))


def _kill(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes, whatever they do."""
    _register_again()
    # Read before shutdown, which forgets them.
    children = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.kill()
    pool.shutdown(wait=True)


def _register_again() -> None:
    """Register this process's semaphores, which are about to go, with Python's tracker of them.

    One that died and was started again knows none, and would print an error for each.
    """
    inside: Any = util
    semaphore: Any = SemLock
    for finalizer in list(inside._finalizer_registry.values()):
        if finalizer._callback is semaphore._cleanup:
            resource_tracker.register(finalizer._args[0], "semaphore")


def _start_worker(begun: Connection | None) -> None:
    """Prepare a process: interrupts are the driver's business, and it ends with the driver.

    A killed driver cannot end its workers, and they would wait for their next task forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_outlive, daemon=True).start()
    limit_blas_threads()
    if begun is not None:
        begun.send_bytes(b"begun")


def _outlive() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


def _after_task(
    watch: Watch | None, key: Hashable, value: Any, tasks: Any, state: Any, worker: Any
) -> None:
    """Hand on the reports of a leaf; called by Dask in the thread that called it."""
    if watch is not None and isinstance(value, Partial):
        for report in value.reports:
            watch(report)


def _died(n: int) -> str:
    return (
        f"Worker processes died {times(n)} while working, without an error message. The "
        "system probably killed them for lack of memory: use fewer workers, or threads instead "
        "of processes. This also happens when a script starts processes outside "
        '`if __name__ == "__main__":`. Then run the same command again; finished work is kept.'
    )
