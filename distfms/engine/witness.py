"""A process that says how a driver ended which had no time to say it itself.

Ray ends the process of a driver at once, without an exception, when the cluster's own processes
are gone. The witness waits for the driver's end; run as a program, it imports nothing before.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_ENDED = (
    "The job was ended at once: it was killed, or the Ray cluster that it had started lost a "
    "process, most often for want of memory. Run the same command again; finished work is kept."
)

# Without these Ray ends every process that is connected.
_VITAL = ("gcs_server", "raylet")

#: Name, number and start.
Process = tuple[str, int, float]

# How long the driver itself may try to end in an orderly way.
_PATIENCE_S = 10.0


class Witness:
    """Watches the processes of a cluster that this process has started, and this process.

    When this process ends and has not dismissed it, the witness says so, calls the functions of
    `heed` with the words, and ends what is left of the cluster.
    """

    def __init__(self, others: Sequence[Process]) -> None:
        """Watch the processes that this one has started, but for some others."""
        self._watched = [process for process in children() if process not in others]
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, start_new_session=True
        )
        self._send(sys.path, self._watched)
        atexit.register(self.dismiss)

    def heed(self, tell: Callable[[str], None]) -> None:
        """Have a picklable function called with words should this process end without them."""
        self._send(pickle.dumps(tell))

    def lost(self) -> bool:
        """Whether the cluster has lost a process that it cannot do without."""
        living = {process.pid for process in _living(self._watched)}
        return any(name in _VITAL and pid not in living for name, pid, _ in self._watched)

    def end_when_lost(self, closed: threading.Event) -> None:
        """End this process when it hangs in a call of the lost cluster, in a thread."""
        while not closed.wait(1.0):
            if self.lost() and not closed.wait(_PATIENCE_S):
                os._exit(1)

    def dismiss(self) -> None:
        """End the witness and what is left of the cluster."""
        _end(self._watched)
        atexit.unregister(self.dismiss)
        self._send(None)
        self._process.wait()

    def _send(self, *messages: Any) -> None:
        assert self._process.stdin is not None
        # Without a witness the work goes on.
        with suppress(OSError):
            for message in messages:
                pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()


def children() -> list[Process]:
    """Return the processes that this one, and they, have started."""
    import psutil

    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found.append((child.name(), child.pid, child.create_time()))
    return found


def _end(watched: Sequence[Process]) -> None:
    for process in _living(watched):
        with suppress(Exception):
            process.kill()


def _living(watched: Sequence[Process]) -> list[Any]:
    import psutil

    found = []
    for _, pid, start in watched:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.create_time() == start and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _attend() -> None:
    """Wait for the end of the driver, and say what it could not."""
    received = []
    with suppress(EOFError):
        while (message := pickle.load(sys.stdin.buffer)) is not None:
            received.append(message)
        return
    sys.path[:], watched, *heeding = received
    _end(watched)
    print(f"Error: {_ENDED}", file=sys.stderr, flush=True)
    for tell in heeding:
        pickle.loads(tell)(_ENDED)


if __name__ == "__main__":
    _attend()
