from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from distfms.engine.local_pool import LocalPool
from distfms.engine.pool_host import Outcome, Reply, dump, dump_reply
from distfms.errors import DataError


def test_what_modules_define_travels_by_name() -> None:
    message = {"numbers": np.arange(3.0), "outcome": Outcome(b"x", True)}
    raw = dump((np.add, message))
    assert raw == pickle.dumps((np.add, message), pickle.HIGHEST_PROTOCOL)
    function, copy = pickle.loads(raw)
    assert function is np.add
    assert copy["outcome"] == message["outcome"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_closed_pool_leaves_no_descriptor() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    pools = [LocalPool(1) for _ in range(3)]
    assert count() > before
    for pool in pools:
        pool.close()
        pool.close()
    assert count() == before


def test_local_functions_travel_by_value() -> None:
    factor = 3
    assert pickle.loads(dump(lambda x: factor * x))(2) == 6


SCRIPT = """
import sys
from distfms.engine.pool_host import dump

class Message:
    number = 7

def double(message):
    return 2 * message.number

sys.stdout.buffer.write(dump((double, Message())))
"""


def test_what_a_script_defines_is_known_elsewhere() -> None:
    """Plain pickle would name the script's classes as those of this process's main module."""
    raw = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True).stdout
    function, message = pickle.loads(raw)
    assert function(message) == 14


@pytest.mark.parametrize("where", ["reply", "outcome"])
def test_errors_of_any_class_arrive(where: str) -> None:
    class LocalError(DataError):
        pass

    error: Any = LocalError("only here")
    reply = Reply(error=error) if where == "reply" else Reply({0: Outcome(error=error)})
    copy = pickle.loads(dump_reply(reply))
    found = copy.error if where == "reply" else copy.outcomes[0].error
    assert (type(found).__name__, str(found)) == ("LocalError", "only here")
