"""A process that says how a driver ended which had no time to say it itself.

Ray ends the process of a driver at once, without an exception, when the cluster's own processes,
or those of the driver's node, are gone. The witness waits for the driver's end; run as a program,
it imports nothing before.
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any

# Without these Ray ends every process that is connected.
_VITAL = ("gcs_server", "raylet")


class Witness:
    """Watches this process and those it has started, but for some others.

    When this process ends and has not dismissed it, the witness says these ``words`` and ends what
    was started, some of which would stay for a minute.
    """

    def __init__(self, others: Collection[Any], words: str) -> None:
        self._cluster = [process for process in children() if process not in others]
        self._vital = [process for process in self._cluster if process.name() in _VITAL]
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        cluster = [(process.pid, process.create_time()) for process in self._cluster]
        self._send((sys.path, cluster, words))
        atexit.register(self.dismiss)

    def lost(self) -> bool:
        """Whether the cluster has lost a process that it cannot do without."""
        return not all(p.is_running() and p.status() != "zombie" for p in self._vital)

    def dismiss(self) -> None:
        """End the witness and what is left of the cluster."""
        for process in self._cluster:
            with suppress(Exception):  # most have ended
                process.kill()
        atexit.unregister(self.dismiss)
        self._send(None)
        self._process.wait()

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # without a witness the work goes on
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()


def children() -> list[Any]:
    """Return the processes that this one, and they, have started."""
    import psutil

    return psutil.Process().children(recursive=True)


def _attend() -> None:
    """Wait for the end of the driver, and say what it could not."""
    sys.path[:], cluster, words = pickle.load(sys.stdin.buffer)
    with suppress(EOFError):
        pickle.load(sys.stdin.buffer)
        return
    print(f"Error: {words}", file=sys.stderr, flush=True)
    import psutil

    for pid, start_s in cluster:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.create_time() == start_s:  # else another that has its number
                process.kill()


if __name__ == "__main__":
    _attend()
