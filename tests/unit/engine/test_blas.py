import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from distfms.engine.base import map_reduce
from distfms.engine.blas import single_threaded_blas
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor


def blas_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    """Whatever the environment says, start from two BLAS threads."""
    with threadpool_limits(limits=2):
        yield


def test_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        _ = 1 // 0
    assert blas_threads() == {2}


def test_overlapping_contexts_of_two_threads():
    """The one that opened first closes first, and must not set the other's work free."""
    opened = threading.Event()
    closed = threading.Event()

    def first():
        with single_threaded_blas():
            opened.set()
            closed.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    opened.wait(10)
    with single_threaded_blas():
        closed.set()
        thread.join()
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_another_thread_than_the_one_that_set_a_limit_first():
    """threadpoolctl ignores, silently, all threads but the first that set a limit."""
    seen = []

    def work():
        with single_threaded_blas():
            seen.append(blas_threads())
        seen.append(blas_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [{1}, {2}]


def test_local_threads_hold_blas_at_one_thread_and_let_go():
    with LocalExecutor(2) as executor:
        units = [Unit(str(i), i) for i in range(3)]
        seen = map_reduce(units, lambda _: blas_threads(), lambda a, b: a | b, executor).value
        assert seen == {1}
        assert executor.map(lambda _: blas_threads(), [0, 1]) == [{1}, {1}]
    assert blas_threads() == {2}


SETUP = """
import os
os.environ.pop("OMP_NUM_THREADS", None); os.environ["OPENBLAS_NUM_THREADS"] = "2"
import numpy
from threadpoolctl import threadpool_info
threads = lambda: [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]
"""


def run_with_two_threads(program):
    subprocess.run([sys.executable, "-c", SETUP + program], check=True, timeout=60)


def test_worker_processes_limit_what_is_loaded_before_and_after():
    run_with_two_threads("""
assert threads() == [2], threads()
from distfms.engine.blas import limit_blas_threads
limit_blas_threads()
assert threads() == [1], threads()
import scipy.linalg
assert threads() == [1, 1], threads()
limit_blas_threads()
assert threads() == [1, 1], threads()
""")


def test_a_library_that_is_loaded_inside_has_one_thread():
    """The driver imports SciPy, which brings its own BLAS, where the first search needs it."""
    run_with_two_threads("""
from distfms.engine.blas import single_threaded_blas
with single_threaded_blas():
    import scipy.linalg
    assert threads() == [1, 1], threads()
assert os.environ["OPENBLAS_NUM_THREADS"] == "2"
assert "OMP_NUM_THREADS" not in os.environ
""")
