"""Fixtures of the tests with whole jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.ray_cluster import RayExecutor
from distfms.runs.driver import run_job
from tests.faults.cases import CASES, contents, dask_cluster, small_blocks


@pytest.fixture(scope="session")
def job_data(judgments: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder with the data of a kind of job; made once."""
    made = {"multiselect": judgments, "blocks": judgments}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = CASES[kind].write(tmp_path_factory.mktemp(kind) / "data")
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def undisturbed(
    job_data: Callable[[str], Path], judgments_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, bytes]]:
    """What a kind of job writes when one thread does it all and nothing goes wrong."""
    made = {"multiselect": contents(judgments_run)}

    def expected(kind: str) -> dict[str, bytes]:
        if kind not in made:
            output = tmp_path_factory.mktemp("undisturbed")
            spec = CASES[kind].spec(job_data(kind), output, engine={"workers": 1})
            with small_blocks(kind):
                made[kind] = contents(run_job(spec).folder)
        return made[kind]

    return expected


@pytest.fixture(scope="module")
def dask_engine() -> Iterator[dict[str, Any]]:
    """Engine section of a Dask cluster of two processes, which are started again when they die."""
    with dask_cluster() as section:
        yield section


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Engine section by name: ``threads``, ``processes``, ``dask`` or ``ray``."""
    if request.param == "dask":
        return request.getfixturevalue("dask_engine")
    if request.param == "ray":
        request.getfixturevalue("ray_session")
        return {"kind": "ray", "workers": 2}
    # One process only: where one of several dies, the others' work is lost with it.
    processes = request.param == "processes"
    return {"kind": "local", "workers": 1 if processes else 2, "processes": processes}


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
