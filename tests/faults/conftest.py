"""Fixtures of the tests with whole jobs."""

import pytest

from distfms.engine.ray_cluster import RayExecutor
from tests.faults.cases import Jobs


@pytest.fixture(scope="session")
def jobs(judgments, judgments_run, tmp_path_factory):
    """Jobs of each kind."""
    return Jobs(judgments, judgments_run, tmp_path_factory.mktemp)


@pytest.fixture
def dask_engine(dask_session):
    """Engine section of the Dask cluster of the session."""
    return {"kind": "dask", "address": dask_session, "workers": None}


@pytest.fixture
def engine(request):
    """Engine section by name: ``threads``, ``processes``, ``dask`` or ``ray``."""
    if request.param == "dask":
        return request.getfixturevalue("dask_engine")
    if request.param == "ray":
        request.getfixturevalue("ray_session")
        return {"kind": "ray", "workers": 2}
    return {"kind": "local", "workers": 2, "processes": request.param == "processes"}


@pytest.fixture
def executor(ray_session):
    """Executor on the Ray cluster of the session."""
    with RayExecutor(workers=2) as made:
        yield made


@pytest.fixture(params=["local", "ray"])
def kind(request):
    """Kind of pool whose actors are processes."""
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    return request.param
