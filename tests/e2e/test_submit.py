"""Jobs submitted to a Ray cluster of several nodes on this machine, guarded by a token."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from distfms.runs.driver import run_job
from distfms.runs.job_spec import load_spec
from tests.e2e.jobs import judgments_job, results, stage, write_judgments
from tests.faults.dying import killed
from tests.ray_here import STORE_BYTES
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "jobs" / "multiselect-digits.yaml"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Cluster:
    """Two nodes with a processor each, started by `ray start` in a folder of its own."""

    def __init__(self, folder, settings):
        self.folder = folder
        self.token = secrets.token_hex(32)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(self.token)
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        # Short, as sockets with long names stand below it.
        self.temp = tempfile.mkdtemp(prefix="r-", dir="/tmp")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        # Jobs call `python`, which has to be this one.
        path = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
        self.environment = {**clean, **settings, **self.variables, "PATH": path}
        head = free_port()
        dashboard = free_port()
        self.address = f"http://127.0.0.1:{dashboard}"
        dashboard_options = ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
        own = ["--head", f"--port={head}", f"--temp-dir={self.temp}", *dashboard_options]
        self.nodes = [self.start(*own, f"--ray-client-server-port={free_port()}")]
        self.nodes.append(self.start(f"--address=127.0.0.1:{head}"))
        until(lambda: self.n_alive() == len(self.nodes), 120)

    def start(self, *options):
        """Start a node, in a session of its own with all that belongs to it."""
        shared = [
            "--block",
            "--num-cpus=1",
            f"--object-store-memory={STORE_BYTES}",
            "--node-ip-address=127.0.0.1",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--dashboard-agent-listen-port={free_port()}",
            "--disable-usage-stats",
        ]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, *shared]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def n_alive(self):
        """Return how many nodes the head knows as alive."""
        assert all(node.poll() is None for node in self.nodes), (self.folder / "log").read_text()
        bearer = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}/nodes?view=summary", headers=bearer)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                nodes = json.load(answer)["data"]["summary"]
        except OSError:
            return 0
        return sum(node["raylet"].get("state") == "ALIVE" for node in nodes)

    def stop(self):
        """End the nodes, the head last."""
        for node in reversed(self.nodes):
            node.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        shutil.rmtree(self.temp, ignore_errors=True)

    def distfms(self, *arguments, **variables):
        command = [sys.executable, "-m", "distfms.cli", *map(str, arguments)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        environment = {**clean, "COLUMNS": "200", **self.variables, **variables}
        return subprocess.run(
            [*command, "--address", self.address],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )

    def processes(self):
        """Command lines of all processes of the cluster's session folder."""
        return _command_lines(self.temp)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _command_lines(part):
    values = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if part in line:
            values.append(line)
    return values


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, s3):
    # Its nodes find object storage in their environment; who submits need not.
    made = Cluster(tmp_path_factory.mktemp("cluster"), s3.variables)
    yield made
    made.stop()


@pytest.fixture
def jobs(cluster):
    from ray.job_submission import JobSubmissionClient

    # Ray reads the token of its environment once a process, so that of other tests may be known.
    bearer = {"Authorization": f"Bearer {cluster.token}"}
    return JobSubmissionClient(cluster.address, headers=bearer)


@pytest.fixture(scope="module")
def digits(cluster, tmp_path_factory):
    """Run the ready job of the digits on the cluster, from the command line."""
    output = tmp_path_factory.mktemp("runs")
    result = cluster.distfms("submit", DIGITS, "--wait", "--set", f"output={output}")
    return output, result


def test_submitted_job_ends_with_its_report(digits):
    output, result = digits
    assert result.returncode == 0, result.stdout + result.stderr
    (folder,) = (output / "one-or-seven").glob("20*")
    assert f"Report: {folder}/report.html" in result.stdout
    assert result.stdout.rstrip().endswith("SUCCEEDED")
    assert "<svg" in (folder / "report.html").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["engine"]["kind"]) == ("done", "ray")


def test_same_bits_as_here(digits, tmp_path):
    (folder,) = (digits[0] / "one-or-seven").glob("20*")
    here = run_job(load_spec(DIGITS, [f"output={tmp_path}", "engine.workers=1"])).folder
    assert results(folder) == results(here)


def test_the_cluster_knows_the_job(jobs, digits):
    (id,) = [word for word in digits[1].stdout.split() if word.endswith("-1")][:1]
    (job,) = [job for job in jobs.list_jobs() if job.submission_id == id]
    assert job.status.value == "SUCCEEDED"
    logs = jobs.get_job_logs(id)
    assert logs in digits[1].stdout
    assert "Report: " in logs


def test_token_shows_nowhere(cluster, digits, jobs):
    output, result = digits
    assert cluster.token not in result.stdout + result.stderr
    for path in output.rglob("*"):
        assert not path.is_file() or cluster.token.encode() not in path.read_bytes(), path
    assert cluster.token not in str(jobs.list_jobs())
    assert not [line for line in cluster.processes() if cluster.token in line]
    assert (cluster.folder / "token").stat().st_mode & 0o077 == 0


def test_wrong_or_missing_token(cluster, tmp_path):
    (tmp_path / "token").write_text("f" * 64)
    wrong = cluster.distfms("submit", DIGITS, RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    assert wrong.returncode == 1
    assert "rejects the token" in wrong.stderr
    assert wrong.stderr.count("\n") == 1
    none = cluster.distfms("submit", DIGITS, RAY_AUTH_MODE="disabled")
    assert none.returncode == 1
    assert "requires a token" in none.stderr


def test_killed_run_goes_on_on_the_cluster(cluster, tmp_path):
    """A driver is killed on one machine; submitting the same spec goes on in the same folder."""
    data = write_judgments(tmp_path / "data")
    output = tmp_path / "runs"
    killed(data, output, "before", "model")
    job = tmp_path / "job.yaml"
    job.write_text(judgments_job(data, output).to_yaml())
    result = cluster.distfms("submit", job, "--wait")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Resuming" in result.stdout
    (folder,) = (output / "small").glob("20*")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["attempt"], manifest["status"]) == (2, "done")
    assert stage(manifest, "statistics")["n_read"] == 4
    fresh = run_job(judgments_job(data, tmp_path / "fresh")).folder
    assert results(folder) == results(fresh)
