"""A head of a Ray cluster that falls silent, and who then ends."""

import queue
import socket
import subprocess
import sys
import threading

import pytest

from distfms.engine.ray_session import watch_head


@pytest.mark.parametrize("closed", [False, True])
def test_silent_head(closed):
    said = queue.SimpleQueue()
    stopped = threading.Event()
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
            text = "Error: The connection to the Ray cluster was lost: its head at 127.0.0.1:9 has"
            assert ended.stderr.startswith(text)
            assert ended.stderr.count("\n") == 1
