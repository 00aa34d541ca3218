"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ray_here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests on a Ray cluster first: Ray reads its settings once, when it is first imported."""
    items.sort(key=lambda item: "ray_session" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Folder of public data; a test that uses it is marked ``realdata`` too."""
    named = os.environ.get("DISTFMS_REALDATA")
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(named) if named else default.resolve()
    if not (folder / "judgments").is_dir():
        pytest.skip(f"no public data at {folder}: set DISTFMS_REALDATA to the folder that has them")
    return folder


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A Ray cluster with 2 processors in this process, for all tests that want one."""
    with ray_here.started(workers=2):
        yield
