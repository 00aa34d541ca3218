"""A pool of threads or processes as Dask's local scheduler sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from types import TracebackType
from typing import Any


class WatchedPool:
    """A pool as Dask's local scheduler sees it, that remembers which tasks failed."""

    def __init__(self, pool: Pool, workers: int) -> None:
        self._pool = pool
        self._max_workers = workers  # read by Dask
        self._changed = threading.Condition()
        self._n_running = 0
        self._failures: list[tuple[Hashable, Any]] = []

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Submit a batch of Dask tasks."""
        with self._changed:
            self._n_running += 1
        try:
            future = self._pool.submit(fn, *args)
        except BaseException:
            with self._changed:
                self._n_running -= 1
            raise
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Future[Any]) -> None:
        failures = []
        if not future.cancelled() and future.exception() is None:
            failures = [(key, info) for key, info, failed in future.result() if failed]
        with self._changed:
            self._failures += failures
            self._n_running -= 1
            self._changed.notify_all()

    def first_failure(self, tasks: dict[Hashable, Any], error: Exception) -> Exception:
        """Wait for the tasks still running and give the error that comes first in graph order.

        Tasks start in that order, so whichever failure was noticed first, the same one is told.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._n_running == 0)
        if len(self._failures) < 2:
            return error
        from dask.order import order

        position = order(tasks)
        _, info = min(self._failures, key=lambda failure: position[failure[0]])
        if isinstance(info, bytes):
            import cloudpickle

            info = cloudpickle.loads(info)
        first, trace = info
        return first.with_traceback(trace) if isinstance(trace, TracebackType) else first
