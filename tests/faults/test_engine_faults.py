"""What breaks while work runs: exact counts of what is done again, same result, clear errors."""

import contextlib
import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from distfms.engine.base import map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.errors import EngineError
from distfms.store.kept import PartialCache
from tests.conformance import engine_tasks as tasks
from tests.conformance.engine_tasks import attempts, dask_cluster, run
from tests.waiting import until

N_UNITS = 8


def units_of(folder, n=N_UNITS):
    return [Unit(f"unit-{t.index}", t, n_bytes=100) for t in tasks.tickets(folder, n)]


# ---- worker processes of this machine


def test_process_killed_every_time_ends_with_what_to_do(tmp_path):
    units = units_of(tmp_path)
    before = multiprocessing.active_children()
    with LocalExecutor(1, processes=True) as executor:
        with pytest.raises(EngineError, match=r"died 2 times.*fewer\s+workers"):
            run(units, tasks.killed_on_three, executor, attempts=2)
        assert units[3].payload.attempts == 2
        assert executor.map(tasks.square, [2]) == [4]  # usable again
    assert set(multiprocessing.active_children()) <= set(before)


# ---- interrupts

INTERRUPTED = """
import sys, time
from distfms.engine.local import LocalExecutor
from distfms.engine.graph import Unit
from distfms.engine.base import map_reduce

def work(seconds):
    time.sleep(seconds)
    if not seconds:
        print("unit", flush=True)
    return 1

if __name__ == "__main__":
    with LocalExecutor(2, processes=sys.argv[1] == "processes") as executor:
        units = [Unit(str(i), float(sys.argv[2]) if i else 0.0) for i in range(30)]
        map_reduce(units, work, max, executor)
"""


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("threads", 0.5), ("processes", 60)],  # a thread finishes the unit it is at
)
def test_interrupt_stops_promptly(kind, seconds, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(INTERRUPTED)
    command = [sys.executable, str(script), kind, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first unit is done
        children = children_of(process.pid)
        begin_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - begin_s < 5
    assert b"KeyboardInterrupt" in stderr
    assert process.returncode != 0
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


# ---- the cache


@pytest.fixture
def cache(tmp_path):
    return PartialCache(tmp_path / "cache", tasks.encode, tasks.decode)


def test_damaged_entries_are_computed_again_and_replaced(cache, tmp_path):
    units = units_of(tmp_path)
    events = []
    with LocalExecutor(2) as executor:
        run(units, tasks.as_tuple, executor, cache=cache)
        cache.path("unit-2").write_bytes(b"torn")
        damaged = bytearray(cache.path("unit-5").read_bytes())
        damaged[-1] ^= 0x80
        cache.path("unit-5").write_bytes(damaged)
        again = run(units, tasks.as_tuple, executor, cache=cache, on_event=events.append)
        third = run(units, tasks.as_tuple, executor, cache=cache)
    assert again.value == third.value == tuple(range(N_UNITS))
    assert (again.n_computed, again.n_cached, again.n_corrupt) == (2, N_UNITS - 2, 2)
    assert again.bytes_read == 200
    corrupt = {event["key"] for event in events if event["event"] == "cache_corrupt"}
    assert corrupt == {"unit-2", "unit-5"}
    assert attempts(units) == [1, 1, 2, 1, 1, 2, 1, 1]
    assert (third.n_computed, third.n_cached) == (0, N_UNITS)


@pytest.mark.parametrize("reason", ["No space left", "Not a directory"])
def test_storage_that_takes_nothing_costs_the_cache_and_one_warning(
    cache, tmp_path, monkeypatch, reason
):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    if reason == "No space left":
        monkeypatch.setattr(os, "replace", full)
    else:
        (tmp_path / "cache").write_text("not a folder")
    units = units_of(tmp_path)
    events = []
    with LocalExecutor(2) as executor:
        reduction = run(units, tasks.as_tuple, executor, cache=cache, on_event=events.append)
    assert reduction.value == tuple(range(N_UNITS))
    assert attempts(units) == [1] * N_UNITS
    warnings = [event for event in events if event["event"] == "cache_unwritable"]
    assert len(warnings) == 1
    assert reason in warnings[0]["error"]
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


# ---- Dask clusters


@pytest.fixture(scope="module")
def cluster():
    """A cluster in this process, for tests that leave it as it was."""
    with dask_cluster(n_workers=1, processes=False) as made:
        yield made


def test_no_scheduler_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        threads = set(threading.enumerate())
        begin_s = time.monotonic()
        with pytest.raises(EngineError, match=rf"No Dask scheduler answers at {address}.*port"):
            DaskExecutor(address, timeout_s=1.0)
        assert time.monotonic() - begin_s < 30
    assert_threads_end(threads)


def test_something_else_listens_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 64)

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EngineError, match="No Dask scheduler answers"):
            DaskExecutor(address, timeout_s=1.0)


def test_the_address_of_a_worker(cluster):
    with pytest.raises(EngineError, match=r"No Dask scheduler .*a Dask worker answers"):
        DaskExecutor(cluster.workers[0].address)


def test_scheduler_without_workers():
    with (
        dask_cluster(n_workers=0, processes=False) as cluster,
        pytest.raises(EngineError, match=r"has no workers.*dask worker"),
    ):
        DaskExecutor(cluster.scheduler_address, timeout_s=0.5)


def test_other_versions_on_the_cluster(cluster, monkeypatch):
    real = DaskExecutor.examine

    def altered(self):
        return {name: node | {"numpy": "0.0.1"} for name, node in real(self).items()}

    monkeypatch.setattr(DaskExecutor, "examine", altered)
    with pytest.raises(EngineError, match=r"numpy 0\.0\.1 on Dask worker tcp.*Install the same"):
        DaskExecutor(cluster.scheduler_address)


def test_dask_workers_killed_when_the_driver_knows_that_they_have_finished(tmp_path):
    """What the driver was told of is lost before it is fetched, and done again."""
    units = units_of(tmp_path)
    with (
        dask_cluster(n_workers=2, processes=True) as cluster,
        DaskExecutor(cluster.scheduler_address) as executor,
    ):
        processes = executor.client.run(os.getpid).values()

        def kill_all(event):
            if event["event"] == "unit" and event["done"] == 1:
                for process in processes:
                    os.kill(process, signal.SIGKILL)
                while executor.client.nthreads().keys() & known:
                    time.sleep(0.01)

        known = executor.client.nthreads().keys()
        reduction = run(units, tasks.as_tuple, executor, on_event=kill_all)
    assert reduction.value == tuple(range(N_UNITS))
    assert reduction.n_computed == N_UNITS
    assert max(attempts(units)) == 2


@pytest.mark.slow
def test_dask_worker_killed_every_time(tmp_path):
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        dask_cluster(n_workers=1, processes=True) as cluster,
        DaskExecutor(cluster.scheduler_address) as executor,
        pytest.raises(EngineError, match=r"died repeatedly.*memory"),
    ):
        run(units_of(tmp_path), tasks.killed_on_three, executor)


def test_dask_cluster_after_failures(cluster, tmp_path):
    """What a failed pass leaves under way is dropped, and troubles no other work."""
    with DaskExecutor(cluster.scheduler_address) as executor:
        for _ in range(5):
            units = units_of(tmp_path, 13)
            with pytest.raises(EngineError, match="failed once"):
                run(units, tasks.always_fails_on_three, executor, attempts=1)
            assert executor.map(tasks.square, range(4)) == [0, 1, 4, 9]
        until(lambda: not cluster.scheduler.tasks)


def test_all_dask_workers_gone():
    with (
        dask_cluster(n_workers=1, processes=False) as cluster,
        DaskExecutor(cluster.scheduler_address, patience_s=0.5) as executor,
    ):
        cluster.scale(0)
        while executor.client.nthreads():
            time.sleep(0.05)
        with pytest.raises(EngineError, match="lost all its workers"):
            executor.map(tasks.square, [1])


def test_connection_that_breaks_while_workers_are_counted(cluster, monkeypatch):
    def broken():
        raise OSError("connection closed")

    monkeypatch.setattr("distfms.engine.dask_cluster.POLL_S", 0.02)
    with DaskExecutor(cluster.scheduler_address) as executor:
        monkeypatch.setattr(executor.client, "nthreads", broken)
        assert executor.map(time.sleep, [0.2]) == [None]


def test_scheduler_gone_in_the_middle(tmp_path):
    ticket = tasks.Ticket(0, str(tmp_path))

    def close_when_at_work():
        while not ticket.attempts:
            time.sleep(0.01)
        cluster.close()

    with dask_cluster(n_workers=1, processes=False) as cluster:
        executor = DaskExecutor(cluster.scheduler_address, timeout_s=1.0)
        closer = threading.Thread(target=close_when_at_work)
        closer.start()
        try:
            with pytest.raises(EngineError, match="stopped, was restarted"):
                executor.map(mark_and_sleep, [ticket])
            map_ = partial(executor.map, abs, [1])
            after = (map_, executor.available_bytes)
            for status, asks in (("closing", (map_,)), ("closed", after)):
                while executor.client.status not in (status, "closed"):
                    time.sleep(0.001)
                for ask in asks:
                    with pytest.raises(EngineError, match="stopped, was restarted"):
                        ask()
        finally:
            closer.join()
            executor.close()


def mark_and_sleep(ticket):
    ticket.mark()
    time.sleep(2.0)


def test_passes_leave_nothing_on_the_scheduler_and_the_client_no_thread(cluster):
    threads = set(threading.enumerate())
    with DaskExecutor(cluster.scheduler_address) as executor:
        for _ in range(3):
            map_reduce([Unit("a", 1), Unit("b", 2)], tasks.square, max, executor)
        assert not [
            topic for topic in executor.client.get_events() if str(topic).startswith("distfms")
        ]
    assert_threads_end(threads)


def assert_threads_end(before):
    until(lambda: all(map(is_dask_machinery, set(threading.enumerate()) - before)))


def is_dask_machinery(thread):
    """Threads of distributed's offload pool and of workers inside this process."""
    return thread.name.startswith("Dask-Offload") or "Dask-Default-Threads" in thread.name
