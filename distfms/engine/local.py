"""Work on this machine: graphs in threads or processes, pools of one process for each actor."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures import Executor as Workers
from contextlib import AbstractContextManager, nullcontext
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from multiprocessing.connection import wait as wait_for_process
from typing import Any

from distfms.engine.base import EventHandler, Executor, ignore
from distfms.engine.blas import limit_blas_threads, single_threaded_blas
from distfms.engine.graph import Graph, Partial, Watch, WorkerLoss
from distfms.engine.memory import available_bytes, n_processors
from distfms.engine.pool_host import Host, dump, portable
from distfms.engine.replay_pool import Loss, ReplayPool
from distfms.engine.retry import RetryPolicy
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
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Partial[Any]:
        """Run a graph and return its root; see `Executor.compute`."""
        policy = retry or RetryPolicy()
        progress = _Progress(graph)
        n_losses = 0
        with self._blas():
            while graph.root not in progress.values:
                try:
                    self._advance(progress, watch)
                except BrokenExecutor as error:
                    self._abandon()
                    progress.lose_running()
                    n_losses += 1
                    if watch is not None:
                        watch(WorkerLoss(n_losses))
                    if not policy.another(error, n_losses):
                        raise EngineError(_died(n_losses)) from error
                except Exception:
                    raise
                except BaseException:
                    self._abandon()
                    raise
        return progress.values[graph.root]

    def available_bytes(self) -> int | None:
        """Return the memory free for this process and its children."""
        return available_bytes()

    def close(self) -> None:
        """Wait for running tasks and stop all threads and processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
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

    def _blas(self) -> AbstractContextManager[None]:
        return nullcontext() if self.processes else single_threaded_blas()

    def _advance(self, progress: _Progress, watch: Watch | None) -> None:
        """Keep all workers busy until a task is finished, and take the values of those that are."""
        pool = self._open_pool()
        while len(progress.running) < self.workers and (key := progress.next()) is not None:
            call = progress.call(key)
            submitted = (_call, dump(call)) if self.processes else call
            progress.running[pool.submit(*submitted)] = key
        done = wait(progress.running, return_when="FIRST_COMPLETED").done
        if any(future.exception() for future in done):
            done = wait(progress.running).done
        for future in done:
            if future.exception() is not None:
                continue
            value = pickle.loads(future.result()) if self.processes else future.result()
            progress.finish(future, value)
            if watch is not None and isinstance(value, Partial):
                for report in value.reports:
                    watch(report)
        progress.raise_first_failure()


class _Progress:
    """What of a graph can run, the first in its order first, and the values that are needed yet."""

    def __init__(self, graph: Graph) -> None:
        self.values: dict[Hashable, Any] = {}
        self.running: dict[Future[Any], Hashable] = {}
        self._graph = graph
        self._position = {key: n for n, key in enumerate(graph.tasks)}
        self._leaves = set(graph.leaves)
        self._sorter = TopologicalSorter({k: needed for k, (_, *needed) in graph.tasks.items()})
        self._sorter.prepare()
        self._ready: list[tuple[int, Hashable]] = []  # a heap

    def next(self) -> Hashable | None:
        """Return the task to start next; None where all others wait for those that run."""
        self._push(self._sorter.get_ready())
        return heappop(self._ready)[1] if self._ready else None

    def call(self, key: Hashable) -> tuple[Any, ...]:
        """Return the function of a task and its arguments."""
        task, *needed = self._graph.tasks[key]
        return (task, *(self.values[n] for n in needed))

    def finish(self, future: Future[Any], value: Any) -> None:
        """Take the value of a task; what it has merged is needed no more."""
        key = self.running.pop(future)
        self.values[key] = value
        self._sorter.done(key)
        if key not in self._leaves:
            for merged in self._graph.tasks[key][1:]:
                del self.values[merged]

    def lose_running(self) -> None:
        """Let the tasks that run be started again."""
        self._push(self.running.values())
        self.running.clear()

    def raise_first_failure(self) -> None:
        """Raise the error that comes first in the graph's order, in which tasks are started.

        So the same one is told, whichever was noticed first.
        """
        failed = [future for future in self.running if future.done()]
        if failed:
            first = min(failed, key=lambda future: self._position[self.running[future]])
            first.result()

    def _push(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            heappush(self._ready, (self._position[key], key))


class SerialPool(ReplayPool):
    """All states in this process, one shard after the other; the reference for other pools."""

    name = "serial"

    def __init__(
        self, *, retry: RetryPolicy | None = None, on_event: EventHandler = ignore
    ) -> None:
        super().__init__(1, retry=retry, on_event=on_event)
        self._reply = b""

    def _spawn(self, actor: int) -> None:
        self._host = Host()

    def _end(self, actor: int) -> None:
        self._host = Host()

    def _send(self, actor: int, request: bytes) -> None:
        with single_threaded_blas():
            self._reply = self._host.handle(request)

    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, bytes | Loss]:
        return {0: self._reply}


class LocalPool(ReplayPool):
    """One process of this machine for each actor, with one BLAS thread; see `make_pool`.

    Processes are started by spawn, so a script must guard its work by
    ``if __name__ == "__main__":``. They end with this process, however it ends.
    """

    name = "local"

    def __init__(
        self,
        n_actors: int,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        on_event: EventHandler = ignore,
    ) -> None:
        super().__init__(n_actors, timeout_s=timeout_s, retry=retry, on_event=on_event)
        self._seats: dict[int, ProcessPoolExecutor] = {}
        self._asked: dict[int, Future[bytes]] = {}

    def _spawn(self, actor: int) -> None:
        self._seats[actor] = _processes(1)

    def _end(self, actor: int) -> None:
        self._asked.pop(actor, None)
        _kill(self._seats.pop(actor))

    def _send(self, actor: int, request: bytes) -> None:
        try:
            self._asked[actor] = self._seats[actor].submit(_handle, request)
        except BrokenExecutor as error:
            self._asked[actor] = Future()
            self._asked[actor].set_exception(error)

    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, bytes | Loss]:
        wait([self._asked[actor] for actor in actors], wait_s, return_when="FIRST_COMPLETED")
        return {a: _heard(self._asked.pop(a)) for a in actors if self._asked[a].done()}


def _heard(answer: Future[bytes]) -> bytes | Loss:
    try:
        return answer.result()
    except BrokenExecutor:
        return Loss("its process ended")


#: The states of an actor; in its process, which belongs to it alone.
_host = Host()


def _handle(request: bytes) -> bytes:
    """Carry out a request in an actor's process."""
    limit_blas_threads()
    return _host.handle(request)


def _call(call: bytes) -> bytes:
    """Run a task in a worker process."""
    try:
        task, *arguments = pickle.loads(call)
        return dump(task(*arguments))
    except Exception as error:
        raise portable(error) from error.__cause__


def _processes(n: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=_start_worker)


def _kill(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes, whatever they do."""
    # Read before shutdown, which forgets them.
    children = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.kill()
    pool.shutdown(wait=True)


def _start_worker() -> None:
    """Prepare a process: interrupts are the driver's business, and it ends with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    limit_blas_threads()


def end_with_parent() -> None:
    """End this process, even in the middle of its work, once the one that started it has died.

    A killed driver cannot end its workers, and they would wait for their next task forever.
    """
    threading.Thread(target=_outlive, daemon=True).start()


def _outlive() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


def _died(n: int) -> str:
    times = "once" if n == 1 else f"{n} times"
    return (
        f"Worker processes died {times} in the middle of their work, without an error of "
        "their own. Most often the system stopped them for want of memory: use fewer "
        "workers, or threads instead of processes. It also happens when a script starts "
        'processes outside `if __name__ == "__main__":`. Run the same command again '
        "afterwards; finished work is kept."
    )
