"""A Ray cluster for tests: its own token and folder, so that it meets no other on the machine."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STORE_BYTES = 200 * 2**20
ROOT = Path(__file__).resolve().parents[1]


def environment(folder: str) -> dict[str, str]:
    """Settings of a Ray of its own; to be set before Ray is imported."""
    return {
        "RAY_TMPDIR": folder,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_MEMORY_MONITOR": "1",
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(STORE_BYTES),
        # Numbers for Prometheus go to the agents every second, not every ten.
        "RAY_metrics_report_interval_ms": "1000",
        # What workers import when a task names a function of the tests.
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(":"),
    }


@contextmanager
def own_folder() -> Iterator[str]:
    # Short, as sockets with long names stand below it.
    folder = tempfile.mkdtemp(prefix="r-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_script(
    name: str, *arguments: str, limit_s: float = 280.0, **settings: str
) -> dict[str, Any]:
    """Run a script of `tests.faults.ray_scripts` in a process of its own; gives what it found."""
    with own_folder() as folder:
        settled = os.environ | environment(folder)
        if name == "joining":
            # It meets the cluster of this session, and so needs its token.
            settled["RAY_AUTH_TOKEN"] = os.environ["RAY_AUTH_TOKEN"]
        command = [sys.executable, "-m", "tests.faults.ray_scripts", name, *arguments]
        done = subprocess.run(
            command,
            env=settled | settings,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().split("\n")[-1])
