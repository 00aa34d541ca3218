"""Fixtures of the tests with whole jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.ray_cluster import RayExecutor
from tests.faults import cases
from tests.faults.cases import Jobs


@pytest.fixture(scope="session")
def jobs(judgments: Path, judgments_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Jobs of each kind."""
    return Jobs(judgments, judgments_run, tmp_path_factory.mktemp)


@pytest.fixture(scope="module")
def dask_engine() -> Iterator[dict[str, Any]]:
    """Engine section of a Dask cluster of two processes, which are started again when they die."""
    with cases.dask_engine() as section:
        yield section


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Engine section by name: ``threads``, ``processes``, ``dask`` or ``ray``."""
    if request.param == "dask":
        return request.getfixturevalue("dask_engine")
    if request.param == "ray":
        request.getfixturevalue("ray_session")
        return {"kind": "ray", "workers": 2}
    return {"kind": "local", "workers": 2, "processes": request.param == "processes"}


@pytest.fixture
def executor(ray_session: None) -> Iterator[RayExecutor]:
    """Executor on the Ray cluster of the session."""
    with RayExecutor(workers=2) as made:
        yield made


@pytest.fixture(params=["local", "ray"])
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of pool whose actors are processes."""
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    return request.param
