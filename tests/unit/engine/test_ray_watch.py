"""The watch over the head of a Ray cluster."""

import queue
import socket
import subprocess
import sys

import pytest

from distfms.engine.ray_watch import HeadWatch


def test_silent_head():
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = server.getsockname()
        said = queue.SimpleQueue()
        watch = HeadWatch(head, 0.4, said.put)
        with pytest.raises(queue.Empty):
            said.get(timeout=1.0)
    assert "out of reach" in said.get(timeout=30)
    watch.stop()


def test_stopped_watch_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = server.getsockname()
        said = queue.SimpleQueue()
        watch = HeadWatch(head, 0.2, said.put)
        watch.stop()
    with pytest.raises(queue.Empty):
        said.get(timeout=1.0)


def test_end_of_a_process_that_hangs():
    """It ends with words and code 1 whatever its main thread is doing."""
    script = (
        "import time\n"
        "from distfms.engine.ray_watch import HeadWatch\n"
        "HeadWatch(('127.0.0.1', 9), 0.2)\n"
        "time.sleep(100)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: The head of the Ray cluster at 127.0.0.1:9 is out of")
    assert ended.stderr.count("\n") == 1


def test_watch_ends_with_a_session_that_cannot_leave(monkeypatch):
    """Else it would end this process later, when the cluster that was left goes away."""
    import ray

    from distfms.engine import ray_session

    def fail():
        raise RuntimeError("not now")

    with socket.create_server(("127.0.0.1", 0)) as server:
        session = ray_session.RaySession.__new__(ray_session.RaySession)
        session._open, session._shared = True, False
        session._watch = HeadWatch(server.getsockname(), 60.0)
        monkeypatch.setattr(ray_session, "_n_users", 1)
        monkeypatch.setattr(ray, "shutdown", fail)
        with pytest.raises(RuntimeError, match="not now"):
            session.close()
    assert session._watch._stopped.is_set()
