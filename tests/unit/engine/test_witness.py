"""A driver that ends without a word and the process that says so; a head that falls silent."""

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from distfms.engine.ray_session import watch_head
from distfms.engine.witness import Witness, children


def drive(end):
    """Start a process and a witness, and end as told."""
    others = children()
    command = ["sleep", "60"]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    witness = Witness(others, "It was killed.")
    print(started.pid, flush=True)
    if end == "dismissed":
        witness.dismiss()
        started.wait()
    elif end == "at once":
        os._exit(1)


@pytest.mark.parametrize("end", ["at once", "dismissed", "forgotten"])
def test_what_no_driver_can_say(end):
    ended = subprocess.run(
        [sys.executable, "-m", __name__, end],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = (ended.returncode, ended.stderr.count("\n"), ended.stderr)
    said = (1, 1, "Error: It was killed.\n")
    assert found == (said if end == "at once" else (0, 0, "")), ended.stderr
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.stdout)).wait(10)


# --- the watch over the head of a Ray cluster ----------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
def test_silent_head(closed):
    said, stopped = queue.SimpleQueue(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = (server.getsockname(), said.put, stopped, 0.4)
        threading.Thread(target=watch_head, args=watch, daemon=True).start()
        with pytest.raises(queue.Empty):
            said.get(timeout=1.0)
        if closed:
            stopped.set()
    if closed:
        with pytest.raises(queue.Empty):
            said.get(timeout=1.0)
    else:
        assert "has been unreachable" in said.get(timeout=30)
        stopped.set()


def test_only_a_command_ends_its_process():
    """It ends with words and code 1 whatever its main thread is doing; a library never does."""
    script = (
        "import sys, threading, time\n"
        "from distfms.engine.ray_session import watch_head\n"
        "from distfms.runs.interrupts import end_at_once\n"
        "end = end_at_once if sys.argv[1] == 'command' else lambda text: None\n"
        "watch = (('127.0.0.1', 9), end, threading.Event(), 0.2)\n"
        "threading.Thread(target=watch_head, args=watch, daemon=True).start()\n"
        "time.sleep(100 if sys.argv[1] == 'command' else 1)\n"
    )
    for kind, code in (("command", 1), ("library", 0)):
        ended = subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True)
        assert ended.returncode == code
        if kind == "command":
            text = "Error: The head of the Ray cluster at 127.0.0.1:9 has been unreachable"
            assert ended.stderr.startswith(text)
            assert ended.stderr.count("\n") == 1


if __name__ == "__main__":
    drive(*sys.argv[1:])
