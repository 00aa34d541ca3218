"""A Ray cluster for tests: its own token and folder, so that it meets no other on the machine."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def started(workers: int = 2) -> Iterator[None]:
    """Start Ray in this process, stop it at the end."""
    from distfms.engine.ray_cluster import RayExecutor

    with own_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        with RayExecutor(workers=workers, object_store_bytes=STORE_BYTES):
            yield
