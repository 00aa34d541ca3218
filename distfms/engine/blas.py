"""One BLAS thread per task.

A task that calls BLAS with several threads while other tasks do the same makes the pools fight:
two tasks with two BLAS threads each on two cores were measured five times slower than with one
each. One thread also makes the order of additions, and so the bits of a result, independent of
the number of cores.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_lock = threading.Lock()
_depth = 0
_limiter: Any = None
_environment: dict[str, str | None] = {}
_modules_when_limited = -1


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold every BLAS and OpenMP pool of this process at one thread while the context is open.

    The setting belongs to the process, so contexts are counted, and may overlap in any order across
    threads. A library that is loaded while one is open, as SciPy with a BLAS of its own, keeps to
    one thread afterwards too.
    """
    global _depth, _limiter, _environment, _modules_when_limited
    with _lock:
        if _depth == 0:
            from threadpoolctl import threadpool_limits

            _take_control()
            _limiter = threadpool_limits(limits=1)
            _environment = {name: os.environ.get(name) for name in THREAD_VARIABLES}
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _take_control()
                _limiter.restore_original_limits()
                _limiter = None
                _modules_when_limited = -1
                _take_control()
                for name, before in _environment.items():
                    os.environ.pop(name, None)
                    if before is not None:
                        os.environ[name] = before


def limit_blas_threads() -> None:
    """Set every BLAS and OpenMP pool of this process to one thread, for good.

    For tasks, which may run in several threads of a worker, where a restoring context would race;
    in a process with such a context, until that ends. It acts only when modules, and perhaps with
    them another BLAS, were loaded since the last call, and sets the environment variables that
    libraries loaded later obey.
    """
    global _modules_when_limited
    if len(sys.modules) == _modules_when_limited:
        return
    with _lock:
        from threadpoolctl import threadpool_limits

        for variable in THREAD_VARIABLES:
            os.environ[variable] = "1"
        _take_control()
        threadpool_limits(limits=1)
        _modules_when_limited = len(sys.modules)


def _take_control() -> None:
    """Let this thread, and afterwards any other, set the number of BLAS threads.

    Recent threadpoolctl (seen in 3.8) ignores, silently, every thread but the first that set a
    limit, for as long as that one lives.
    """
    import threadpoolctl

    controller = getattr(threadpoolctl, "OpenBLASController", None)
    clear = getattr(controller, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
