"""An end with words for a driver whose Ray cluster has fallen silent."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable

#: Seconds without an answer of the head after which nothing will come of waiting.
PATIENCE_S = 60.0

_PAUSE_S = 2.0
_KNOCK_S = 3.0


class HeadWatch:
    """Ends the process when the head of its cluster has been out of reach for too long.

    A head that is killed closes its connections, which the driver notices by itself. One that is
    cut off says nothing, and the driver may hang in a call of Ray's compiled part, which no
    exception reaches and which has no time limit. Ray itself ends a process that has lost its
    head, only later or, in such a call, never.

    Parameters
    ----------
    head : (str, int)
        Host and port of the head.
    patience_s : float
        How long the head may be out of reach.
    end : callable, optional
        What to do then; by default, say so on standard error and end the process with code 1.
    """

    def __init__(
        self,
        head: tuple[str, int],
        patience_s: float = PATIENCE_S,
        end: Callable[[str], None] | None = None,
    ) -> None:
        self._head = head
        self._patience_s = patience_s
        self._end = end or _end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="distfms-head", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()

    def _watch(self) -> None:
        answered_s = time.monotonic()
        while not self._stopped.wait(min(_PAUSE_S, self._patience_s / 4)):
            if _answers(self._head):
                answered_s = time.monotonic()
            elif time.monotonic() - answered_s > self._patience_s and not self._stopped.is_set():
                self._end(
                    f"The head of the Ray cluster at {':'.join(map(str, self._head))} is out of "
                    f"reach for {self._patience_s:.0f} s. See to it that it is up and to the "
                    "network, then run the same command again; finished work is kept."
                )
                return


def _answers(head: tuple[str, int]) -> bool:
    """Whether somebody accepts connections; the kernel does, however busy the head is."""
    try:
        with socket.create_connection(head, timeout=_KNOCK_S):
            return True
    except OSError:
        return False


def _end(text: str) -> None:
    """End this process as Ray does, but with words: its threads may hang for ever."""
    print(f"Error: {text}", file=sys.stderr, flush=True)
    os._exit(1)
