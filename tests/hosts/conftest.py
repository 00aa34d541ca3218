"""Hosts on one switch, a folder that they share, and a small job for them."""

import json
import secrets

import pytest

from tests.e2e.jobs import results, write_judgments
from tests.hosts import clusters, lab

N_FILES = 24
SPEC = """
name: small
method: multiselect
data: {path: /tmp/shared/data, target: y, id: id, folds: 3, test: 0.2}
multiselect: {budget: 12, plan: true}
output: /tmp/shared/OUTPUT
"""


class Lan:
    """Hosts, and the folder that they share as this process sees it."""

    def __init__(self, hosts, shared, logs):
        self.head, self.worker, self.client = (hosts[n] for n in ("head", "worker", "client"))
        self.open = hosts["open"]
        self.shared = shared
        self.logs = logs

    def job(self, name, old="", new=""):
        """Write a job's spec; its name is that of its output."""
        text = SPEC.replace("OUTPUT", name).replace(old or "OUTPUT", new)
        (self.shared / f"{name}.yaml").write_text(text)
        return lab.SHARED / f"{name}.yaml"

    def run_folder(self, name):
        (folder,) = (self.shared / name / "small").glob("20*")
        return folder

    def succeeded(self, name, expected):
        """Whether a job is done, with these results."""
        manifest = json.loads((self.run_folder(name) / "manifest.json").read_text())
        return manifest["status"] == "done" and results(self.run_folder(name)) == expected


@pytest.fixture(scope="module")
def lan(tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared")
    logs = tmp_path_factory.mktemp("logs")
    (shared / "token").write_text(secrets.token_hex(32))
    write_judgments(shared / "data", n_objects=480, n_files=N_FILES)
    with lab.hosts("head", "worker", "client", "open", shared=shared, log=logs) as hosts:
        yield Lan(hosts, shared, logs)


@pytest.fixture(scope="module")
def expected(lan):
    """What the job gives on one host without a cluster."""
    result = clusters.distfms(lan.client, "run", lan.job("here"), "--set", "engine.workers=1")
    assert result.returncode == 0, result.stderr
    return results(lan.run_folder("here"))


@pytest.fixture(scope="module")
def ray(lan):
    """Address of the dashboard of a cluster on two hosts, which asks for a token."""
    address = clusters.start_head(lan.head, lan.logs)
    clusters.start_worker(lan.worker, lan.head, lan.logs)
    clusters.wait_for_nodes(lan.head, 2)
    return address
