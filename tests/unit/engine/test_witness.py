"""A driver that ends without a word, and the process that says so."""

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from distfms.engine.witness import Witness, children


def drive(path, end):
    """Start a process and a witness, and end as told."""
    others = children()
    command = ["sleep", "60"]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    witness = Witness(others)
    witness.heed(partial(Path.write_text, Path(path)))
    print(started.pid, flush=True)
    if end == "dismissed":
        witness.dismiss()
        started.wait()
    elif end == "at once":
        os._exit(1)


@pytest.mark.parametrize("end", ["at once", "dismissed", "forgotten"])
def test_what_no_driver_can_say(tmp_path, end):
    told = tmp_path / "told"
    ended = subprocess.run(
        [sys.executable, "-m", __name__, str(told), end],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = (ended.returncode, ended.stderr.count("\n"), told.exists())
    assert found == ((1, 1, True) if end == "at once" else (0, 0, False)), ended.stderr
    if told.exists():
        assert ended.stderr == f"Error: {told.read_text()}\n"
        assert "was ended at once" in ended.stderr
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.stdout)).wait(10)


if __name__ == "__main__":
    drive(*sys.argv[1:])
