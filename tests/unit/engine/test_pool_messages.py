import gc
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distfms import engine
from distfms.engine.host import Host, dump
from distfms.engine.local import LocalExecutor
from distfms.errors import DataError
from tests.waiting import until


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_closed_pools_leave_no_descriptors():
    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(4):
        with LocalExecutor(1) as executor, executor.pool() as pool:
            pool.start(int, ["1"])
        pool.close()
    until(lambda: count() <= before + 1)  # multiprocessing keeps one for all


SCRIPT = """
import sys
from distfms.engine.host import dump

class Message:
    number = 7

def double(message):
    return 2 * message.number

sys.stdout.buffer.write(dump((double, Message())))
"""


def test_what_a_script_defines_is_known_elsewhere():
    """By name they would be those of this process's main module."""
    raw = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True).stdout
    function, message = pickle.loads(raw)
    assert function(message) == 14


UNGUARDED = """
from distfms.engine.local import LocalExecutor

with LocalExecutor(1) as threads:
    threads.map(print, ["worked"])
with LocalExecutor(1, processes=True) as executor:
    {}
"""


@pytest.mark.parametrize("work", ["executor.map(abs, [1])", "executor.pool().start(int, ['1'])"])
def test_script_without_a_guard_is_told_what_it_lacks(work, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(work))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    error = ended.stderr.strip().rpartition("\n")[2]
    assert "ended before it began. This happens when a script starts work outside `if" in error
    assert "memory" not in error
    assert ended.stdout == "worked\n"  # once


@pytest.mark.parametrize("number", [0, 1])
def test_code_of_the_readme(number, tmp_path):
    text = Path(engine.__file__).with_name("README.md").read_text()
    code = re.findall("```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "script.py").write_text(code[number])
    subprocess.run([sys.executable, tmp_path / "script.py"], check=True)


def test_errors_of_any_class_arrive():
    class LocalError(DataError):
        pass

    def build(shard):
        raise LocalError("only here")

    arguments = (dump(build), {0: dump(0)}, 1)
    results = pickle.loads(Host().handle(dump(arguments), b"", 1)).errors[0]
    assert (type(results).__name__, str(results)) == ("LocalError", "only here")
