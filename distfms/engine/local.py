"""Work on this machine: in threads or processes; pools of one process for each actor."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_process
from typing import Any

from distfms.engine.base import Executor
from distfms.engine.blas import limit_blas_threads, single_threaded_blas
from distfms.engine.graph import ATTEMPTS, EventHandler, ignore, resumable, times
from distfms.engine.host import Host, dump, portable
from distfms.engine.memory import available_bytes, n_processors
from distfms.engine.pool import ActorPool
from distfms.engine.tasks import LostError, Task
from distfms.errors import EngineError

_END_S = 5.0
#: Of the processes that are started here, until they have begun.
_NAME = "distfms-beginning"


class LocalExecutor(Executor):
    """Runs work on this machine, in threads or in processes.

    Processes (started by spawn, so nothing of this process's threads and locks is copied) are for
    work that holds the GIL. BLAS is held at one thread: around the work for threads, for good in
    worker processes. After an interrupt, processes are ended; threads, which Python cannot stop,
    finish the one task they are at.
    """

    name = "local"

    def __init__(self, workers: int | None = None, processes: bool = False) -> None:
        if multiprocessing.current_process().name == _NAME:
            raise EngineError(_UNGUARDED)
        super().__init__()
        self.workers = workers or n_processors()
        self.processes = processes
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="distfms")
        self._of_thread = threading.local()
        self._running: set[_Process] = set()

    def follow(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run any graph of Dask; see `Executor.follow`."""
        with single_threaded_blas():
            return super().follow(dsk, keys, **options)

    def submit(self, function: Any, *arguments: Any, seat: Any = None, attempts: int = 3) -> Task:
        """Start a function in a thread, on which a process may wait; see `Tasks.submit`."""
        values = [self.result(value) if isinstance(value, Task) else value for value in arguments]
        if seat is not None:
            future = seat.thread.submit(seat.ask, dump((function, values, True)))
        elif self.processes:
            future = self._threads.submit(self._in_process, function, values, attempts)
        else:
            future = self._threads.submit(function, *values)
        return Task(future, future, seat)

    def result(self, task: Task) -> Any:
        """Return the value of a task; see `Tasks.result`."""
        return task.value.result()

    def forget(self, tasks: Sequence[Task]) -> None:
        """Cancel what has not begun."""
        for task in tasks:
            task.value.cancel()

    def open_seat(self, actor_bytes: int, instead_of: Any) -> _Process:
        """Start a process."""
        return _Process()

    def leave(self, seat: _Process) -> None:
        """End a process."""
        seat.end()

    def room(self, n_actors: int) -> tuple[int, int | None, str]:
        """Return what is free for all actors together; see `Tasks.room`."""
        return n_actors, available_bytes(), "this machine"

    def available_bytes(self) -> int | None:
        """Return the memory free for this process and its children."""
        return available_bytes()

    def close(self) -> None:
        """Stop all threads, after the tasks they are at, and processes at once."""
        super().close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._running:
            self._running.pop().end()
        self._threads.shutdown(wait=True)

    def _in_process(self, function: Any, values: Sequence[Any], attempts: int) -> Any:
        """Run a function in the process of this thread, and in another where that one is lost."""
        question = dump((function, values, False))
        n_lost = 0
        while True:
            process = getattr(self._of_thread, "process", None) or _Process()
            self._of_thread.process = process
            self._running.add(process)
            if self._is_closed:  # meanwhile, which may have passed over a process that began
                process.end()
            try:
                return process.ask(question)
            except LostError as loss:
                self._of_thread.process = None
                self._running.discard(process)
                process.end()
                n_lost += 1
                if n_lost >= attempts or self._is_closed:
                    raise resumable(
                        f"Worker processes died {times(n_lost)} while working, without an error "
                        "message. The system probably killed them for lack of memory: use fewer "
                        "workers, or threads instead of processes"
                    ) from loss


class _Process:
    """A process that answers one question after the other, and ends with this one."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, inner = context.Pipe()
        self._process = context.Process(target=_serve, args=(inner,), name=_NAME, daemon=True)
        self._has_begun = False
        #: Puts the questions to a process that is a seat.
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="distfms-seat")
        self._process.start()
        inner.close()

    def ask(self, question: bytes) -> Any:
        """Return the answer to a function with arguments; raise `LostError`, or its error."""
        try:
            if not self._has_begun:
                self._pipe.recv_bytes()
                self._has_begun = True
            self._pipe.send_bytes(question)
            answer = self._pipe.recv_bytes()
        except (EOFError, OSError):
            self._process.join(_END_S)
            # A process that is killed has a negative code.
            if not self._has_begun and (self._process.exitcode or 0) > 0:
                raise EngineError(_UNGUARDED) from None
            raise LostError("its process ended") from None
        value, error = pickle.loads(answer)
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Kill the process, from any thread: the pipe closes when nobody refers to it anymore."""
        self._process.kill()
        self.thread.shutdown(wait=True, cancel_futures=True)
        self._process.join()


_UNGUARDED = (
    "A process that this script started ended before it began. This happens when a script starts "
    'work outside `if __name__ == "__main__":`, as each process runs the script, too: put the work '
    "below that line, in a file, then run it again."
)


def _serve(pipe: Connection) -> None:
    """Answer questions, in a process: interrupts are the driver's business."""
    multiprocessing.current_process().name = "distfms"  # it has begun
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    host = Host()
    with suppress(EOFError, OSError):
        pipe.send_bytes(b"begun")
        while True:
            pipe.send_bytes(_answer(host, pipe.recv_bytes()))


def _answer(host: Host, question: bytes) -> bytes:
    limit_blas_threads()
    try:
        function, arguments, is_seat = pickle.loads(question)
        value = function(host, *arguments) if is_seat else function(*arguments)
        return dump((value, None))
    except Exception as error:
        return dump((None, portable(error)))


def _end_with_driver() -> None:
    """End this process when its parent does, which may be killed while a task runs here."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


class _Here(LocalExecutor):
    """Seats in this process, for the states of one actor."""

    def submit(self, function: Any, *arguments: Any, seat: Any = None, **options: Any) -> Task:
        """Call a function at once."""
        answer: Future[Any] = Future()
        with single_threaded_blas():
            answer.set_result(function(seat, *arguments))
        return Task(answer, answer)

    def open_seat(self, actor_bytes: int, instead_of: Any) -> Any:
        """Make a host."""
        return Host()

    def leave(self, seat: Any) -> None:
        """Leave a host to itself."""


class SerialPool(ActorPool):
    """All states in this process, one shard after the other; the reference for other pools.

    Takes the options of `Executor.pool`.
    """

    def __init__(
        self, *, attempts: int = ATTEMPTS, on_event: EventHandler = ignore, actor_bytes: int = 0
    ) -> None:
        super().__init__(_Here(1), "serial", 1, attempts, on_event, actor_bytes)
