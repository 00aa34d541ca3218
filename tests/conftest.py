"""Fixtures that all tests share."""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

from distfms.cli import main
from distfms.runs import context
from distfms.runs.driver import run_job
from tests import ray_here, s3_here
from tests.conformance.engine_tasks import dask_cluster
from tests.e2e.jobs import judgments_job, write_judgments

#: In the name of a test, its file or its parameters.
_ON_RAY = re.compile("(?<![a-z])ray(?![a-z])")


def pytest_configure(config):
    """Take signals that are ignored in the background; set up Ray and hypothesis."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    # Processes that tests start need not compile the package, each of them anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # No test cuts the power, and waiting for disks would be a third of the time.
    os.fsync = lambda descriptor: None
    # How long an example takes is a matter of what else the machine does. Examples are the same in
    # every run; `pytest --hypothesis-profile=search` looks for new ones.
    hypothesis.settings.register_profile("distfms", deadline=None, derandomize=True)
    hypothesis.settings.register_profile("search", deadline=None, derandomize=False)
    hypothesis.settings.load_profile("distfms")
    # Ray reads its settings once, when it is first imported, by whichever test that is.
    folder = tempfile.mkdtemp(prefix="r-", dir="/tmp")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.update(ray_here.environment(folder))


def pytest_collection_modifyitems(items):
    """Put tests on clusters first: those of a process share them, and others are stolen."""
    for item in items:
        on_ray = "ray_session" in getattr(item, "fixturenames", ())
        if on_ray and not _ON_RAY.search(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} uses a Ray cluster; name it so: test_…_ray_…")
    items.sort(key=lambda item: (not _ON_RAY.search(item.nodeid), "dask" not in item.nodeid))


@pytest.fixture(scope="session")
def realdata():
    """Folder of public data; a test that uses it is marked ``realdata`` too."""
    if not (folder := os.environ.get("DISTFMS_REALDATA")):
        pytest.skip("set DISTFMS_REALDATA to a folder of public data")
    return Path(folder)


@pytest.fixture(scope="session")
def s3():
    """An S3 service on this machine, for all tests that want one."""
    with s3_here.started() as service:
        yield service


@pytest.fixture
def s3_variables(s3, monkeypatch):
    """The service as what the environment names."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture(scope="session")
def ray_session():
    """A Ray cluster with 2 processors in this process, for all tests that want one."""
    from distfms.engine.ray_cluster import RayExecutor

    with RayExecutor(workers=2):
        yield


@pytest.fixture(scope="session")
def dask_session():
    """Address of a Dask cluster of two processes, which are started again when they die."""
    with dask_cluster() as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def engine(request):
    """Engine section by name: ``threads``, ``processes``, ``dask`` or ``ray``."""
    if request.param == "dask":
        address = request.getfixturevalue("dask_session")
        return {"kind": "dask", "address": address, "workers": None}
    if request.param == "ray":
        request.getfixturevalue("ray_session")
        return {"kind": "ray", "workers": 2}
    return {"kind": "local", "workers": 2, "processes": request.param == "processes"}


@pytest.fixture(scope="session")
def judgments(tmp_path_factory):
    """Folder with the data of `judgments_job`, not to be changed."""
    return write_judgments(tmp_path_factory.mktemp("data") / "judgments")


@pytest.fixture(scope="session")
def judgments_run(judgments, tmp_path_factory):
    """Folder of a finished run of that job, on one thread and undisturbed."""
    return run_job(judgments_job(judgments, tmp_path_factory.mktemp("runs"))).folder


@pytest.fixture
def actors_pay(monkeypatch):
    """Actors are used also where the work is too small to pay for them."""
    monkeypatch.setattr(context, "ACTORS_PAY_OPERATIONS", -1.0)


@pytest.fixture
def distfms(capsys):
    """Run a command in this process: its exit code, and what it printed."""

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code, out=out, err=err)

    return run
