"""The command line is stopped or killed in the middle of a pass or a search: its exit code, what
it leaves running, and what the next attempt reads, with every engine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from distfms.runs.driver import run_job
from tests import ray_here
from tests.e2e.jobs import stage
from tests.faults.cases import CASES, manifest
from tests.faults.disturbance import Plan, command_of, disturbed

STRUCK = 2
CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9}
ENGINES = {
    "threads": {"kind": "local", "workers": 1},
    "processes": {"kind": "local", "workers": 1, "processes": True},
    "ray": {"kind": "ray", "workers": 1},
}


@dataclass
class Job:
    """A command line under way, and every process that descends from it."""

    process: subprocess.Popen[str]
    token: str
    folder: Path

    def relatives(self):
        """Its living processes, told by their environment, whoever their parent is now."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.token.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        return found

    def wait(self, condition, seconds=120.0):
        end_s = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end_s, self.relatives()
            time.sleep(0.05)


@contextmanager
def running(plan, spec, **settings):
    """Run a job on the command line; whatever it leaves is ended afterwards."""
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    with ray_here.own_folder() as folder, open(Path(plan.folder) / "said", "w") as said:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        process = subprocess.Popen(
            command_of(plan, spec, Path(plan.folder)),
            cwd=ray_here.ROOT,
            env=clean | ray_here.environment(folder) | settings | {"DISTFMS_TEST": folder},
            stdout=said,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        job = Job(process, f"DISTFMS_TEST={folder}", Path(folder))
        try:
            yield job
        finally:
            for pid in job.relatives():
                os.kill(pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize(
    ("engine", "signals"),
    [
        pytest.param("threads", "SIGHUP", marks=pytest.mark.slow),
        pytest.param("threads", "SIGTERM", marks=pytest.mark.slow),
        ("processes", "SIGKILL"),
        pytest.param("processes", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("ray", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("ray", "SIGKILL", marks=pytest.mark.slow),
        pytest.param("threads", "SIGINT", marks=pytest.mark.slow),
        pytest.param("processes", "SIGINT", marks=pytest.mark.slow),
        pytest.param("ray", "SIGINT", marks=pytest.mark.slow),
    ],
)
def test_stopped_in_the_middle_of_the_pass(engine, signals, jobs, tmp_path):
    output = tmp_path / "runs"
    n = CASES["multiselect"].n_partitions
    spec = jobs.spec("multiselect", output, engine=ENGINES[engine])
    plan = Plan(str(tmp_path / "marks"), partition=STRUCK, mishap="wait")
    with running(plan, spec) as job:
        job.wait(lambda: plan.happened or job.process.poll() is not None)
        assert len(job.relatives()) >= {"threads": 1, "processes": 2, "ray": 4}[engine]
        job.process.send_signal(getattr(signal, signals))
        if engine == "threads":
            (Path(plan.folder) / "go").touch()  # a thread ends the partition it is at
        job.wait(lambda: job.process.poll() is not None)
        assert job.process.returncode == CODES[signals]
        # Nobody is left, though the task would have gone on for minutes.
        job.wait(lambda: not job.relatives(), 60.0)
        # Nor is the session of the job's own Ray, where the job could end it.
        assert signals == "SIGKILL" or not list(job.folder.glob("ray/session_2*"))
    said = (Path(plan.folder) / "said").read_text()
    assert "Traceback" not in said
    assert "SIGTERM received" not in said
    assert ("again to resume" in said) == (signals != "SIGKILL")
    (before,) = plan.reads()
    with disturbed(Plan(str(tmp_path / "again"))) as again:
        result = run_job(jobs.spec("multiselect", output))
    assert result.resumed
    n_read = sum(again.reads()[0])
    assert 1 <= n_read <= n - STRUCK + (len(before) - STRUCK - 1)
    done = stage(manifest(result.folder), "statistics")
    assert (done["n_read"], done["n_cached"]) == (n_read, n - n_read)
    jobs.require_sound("multiselect", output, result.folder)
