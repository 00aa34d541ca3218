"""A Dask cluster whose scheduler, workers and driver are on hosts of their own."""

import pytest

from tests.hosts import clusters, lab
from tests.hosts.clusters import distfms

pytestmark = lab.marks(400)


@pytest.fixture(scope="module")
def dask(lan):
    """Options for a cluster with workers on two hosts, and the scheduler on one of them."""
    address = clusters.start_dask(lan.head, [lan.head, lan.worker], lan.logs)
    for host in (lan.head, lan.worker):
        clusters.wait_for_line(lan.logs / f"dask-{host.name}.log", "Registered to")
    return ("--engine", "dask", "--address", address)


def test_driver_on_a_third_host(lan, dask, expected):
    result = distfms(lan.client, "run", lan.job("dask"), *dask)
    assert result.returncode == 0, result.stderr
    assert lan.succeeded("dask", expected)


def test_input_that_one_host_has_alone(lan, dask):
    for host in (lan.head, lan.client):
        host.run("cp", "-r", lab.SHARED / "data", lab.PRIVATE / "data").check_returncode()
    job = lan.job("dask-alone", "/tmp/shared/data", "/tmp/data")
    result = distfms(lan.client, "run", job, *dask)
    assert result.returncode == 2
    assert "or a worker does not see it" in result.stderr


def test_worker_cut_off(lan, dask, expected):
    """The scheduler takes the worker for lost when its answers stay out."""
    log = lan.logs / "dask-cut.log"
    driver = clusters.start_distfms(lan.client, "run", lan.job("dask-cut"), *dask, log=log)
    clusters.wait_for_line(log, "Writing /tmp/shared")
    lan.worker.plug(False)
    assert driver.wait(400) == 0, log.read_text()
    assert lan.succeeded("dask-cut", expected)
