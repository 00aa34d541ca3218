"""An orderly end when a running job is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_SAID = "Stopped. Finished work is kept; run the same command again to resume."
#: What ends Python at once, so that worker processes are cut off instead of ended.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle signals; outside the main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            # None stands for a handler that was not set from Python, and cannot be set again.
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


@contextmanager
def orderly_end(tell: Callable[[str], None]) -> Iterator[None]:
    """Stop what was started on SIGINT, SIGTERM and SIGHUP, then say that the run can be resumed.

    Exits with 128 and the number of the signal, as shells have it. A signal that is ignored, as
    SIGHUP under nohup, stays ignored; outside the main thread nothing is changed.
    """
    received: int = signal.SIGINT

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = number  # noted, as Ray raises an interrupt of its own for SIGTERM
        raise KeyboardInterrupt

    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    with handled(heard, stop):
        try:
            yield
        except KeyboardInterrupt:
            if threading.current_thread() is not threading.main_thread():
                raise
            with suppress(OSError):  # after SIGHUP the terminal is gone
                tell(_SAID)
            raise SystemExit(128 + received) from None


def end_at_once(text: str) -> NoReturn:
    """End a command with words while its threads may hang for ever; called in a thread."""
    print(f"Error: {text}", file=sys.stderr, flush=True)
    os._exit(1)
