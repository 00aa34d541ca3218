"""Ends worker processes: those whose task hangs, and those whose driver is gone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait


@contextmanager
def deadline(limit_s: float | None) -> Iterator[None]:
    """End this process, with all it does, when the context is still open after ``limit_s``.

    Only for worker processes, whose loss their scheduler makes good; None means no limit. Works
    however the task hangs, unless it keeps the interpreter's lock.
    """
    if limit_s is None:
        yield
        return
    timer = threading.Timer(limit_s, _end, [limit_s])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(limit_s: float) -> None:
    sys.stderr.write(f"distfms: a task took longer than {limit_s:g} s; its process is ended.\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """End this process, even in the middle of its work, once the one that started it has died.

    A killed driver cannot end its workers, and they would wait for their next task forever.
    """
    threading.Thread(target=_outlive, daemon=True).start()


def _outlive() -> None:
    """Wait for the end of the parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
