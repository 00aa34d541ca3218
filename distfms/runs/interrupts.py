"""An orderly end when a running job is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = (
    "Stopped. What was finished is kept: give the same command again and the run goes on from "
    "there."
)


@contextmanager
def orderly_end(tell: Callable[[str], None]) -> Iterator[None]:
    """Stop what was started on SIGINT and SIGTERM, then say that the run can go on.

    Parameters
    ----------
    tell : callable
        Told one line.

    Raises
    ------
    SystemExit
        With 130 after SIGINT and 143 after SIGTERM, as shells have it.

    Notes
    -----
    Python itself ends at once on SIGTERM, and worker processes would be cut off instead of ended.
    Outside the main thread, where signals cannot be received, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = signal.SIGINT

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = signal.SIGTERM  # noted, as Ray raises an interrupt of its own for this one
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        tell(_SAID)
        raise SystemExit(128 + received) from None
    finally:
        # None stands for a handler that was not set from Python, and cannot be set again.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
