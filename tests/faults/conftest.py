"""Fixtures of the tests with whole jobs."""

import pytest

from distfms.engine.ray_cluster import RayExecutor
from tests.faults.cases import Jobs


@pytest.fixture(scope="session")
def jobs(judgments, judgments_run, tmp_path_factory):
    """Jobs of each kind."""
    return Jobs(judgments, judgments_run, tmp_path_factory.mktemp)


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
