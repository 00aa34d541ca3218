"""Clusters whose machines have addresses, names, folders and processes of their own.

The nodes of the other tests share a loopback and a file system; what that hides is tried here: the
way from one host to another, folders that one host has alone, and cables that are pulled out.
"""

import time

import pytest

from tests.hosts import clusters, lab
from tests.hosts.clusters import distfms

pytestmark = lab.marks(400)


@pytest.fixture(scope="module")
def open_head(lan, ray):
    """Address of the dashboard of a head that lets everybody in."""
    return clusters.start_head(lan.open, lan.logs, token=False)


def test_submitted_from_outside(lan, ray, expected):
    result = distfms(lan.client, "submit", lan.job("out"), "--address", ray, "--wait")
    assert result.returncode == 0, result.stdout + result.stderr
    assert lan.succeeded("out", expected)


def test_head_that_asks_for_none(lan, open_head, expected):
    clusters.wait_for_nodes(lan.open, 1)
    given = ("--address", open_head, "--wait")
    accepted = distfms(lan.client, "submit", lan.job("open"), *given)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert lan.succeeded("open", expected)


def test_driver_on_a_node(lan, ray, expected):
    given = ("--engine", "ray", "--address", f"{lan.head.address}:{clusters.GCS}")
    result = distfms(lan.worker, "run", lan.job("node"), *given)
    assert result.returncode == 0, result.stderr
    assert lan.succeeded("node", expected)


def test_driver_on_a_machine_outside(lan, ray):
    given = ("--engine", "ray", "--address", f"{lan.head.address}:{clusters.GCS}")
    start_s = time.monotonic()
    result = distfms(lan.client, "run", lan.job("outside"), *given)
    assert result.returncode == 1
    assert "that this machine is a node of that cluster" in result.stderr
    # Ray itself looks for a minute.
    assert time.monotonic() - start_s < 50


def test_input_that_one_host_has_alone(lan, ray):
    copied = lan.head.run("cp", "-r", lab.SHARED / "data", lab.PRIVATE / "data")
    assert copied.returncode == 0
    job = lan.job("alone", "/tmp/shared/data", "/tmp/data")
    result = distfms(lan.client, "submit", job, "--address", ray, "--wait")
    assert result.returncode == 1
    assert "or a worker does not see it" in result.stderr
    assert not list((lan.shared / "alone").rglob("selection.json"))


def test_client_cut_off(lan, ray, expected):
    log = lan.logs / "client.log"
    words = ("submit", lan.job("client"), "--address", ray, "--wait")
    waiting = clusters.start_distfms(lan.client, *words, log=log)
    clusters.wait_for_line(log, "Running entrypoint")
    lan.client.plug(False)
    time.sleep(3)
    assert waiting.poll() is None
    lan.client.plug(True)
    assert waiting.wait(120) == 0, log.read_text()
    assert log.read_text().count("Running entrypoint") == 1
    assert lan.succeeded("client", expected)
