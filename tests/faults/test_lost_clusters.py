"""Whole jobs whose cluster loses its head: how a run goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distfms.runs.driver import run_job
from tests.e2e.jobs import stage
from tests.faults.cases import CASES, manifest
from tests.faults.disturbance import Plan, command_of
from tests.ray_here import run_script
from tests.waiting import until

# Nodes start and are missed slowly, the more so on a machine that has other work.
LIMIT_S = 600.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60.0)]


SAID = {"head": "its head is gone", "node": "the raylet of this machine is gone"}


@pytest.mark.parametrize("lost", ["head", "node"])
@pytest.mark.parametrize("kind", ["multiselect", "blocks"])
def test_head_or_own_node_gone_under_the_command_line(kind, lost, jobs, tmp_path):
    CASES[kind].write(tmp_path / "data")
    answers = run_script("lost_under_a_job", str(tmp_path), kind, lost, limit_s=LIMIT_S)
    first = answers["first"]
    second = answers["second"]
    assert first["code"] == 1
    error = first["error"][first["error"].index("Error: ") :]
    assert SAID[lost] in error
    assert error.count("\n") == 1
    assert "raylet)" not in first["said"]
    # Another cluster goes on from there.
    assert second["code"] == 0, second["error"]
    assert "Resuming" in second["said"]
    (run,) = (tmp_path / "runs" / "small").glob("20*")
    done = stage(manifest(run), "statistics" if kind == "multiselect" else "chosen")
    if kind == "multiselect":
        n_read = len(second["reads"][0])
        assert second["reads"] == [[1] * n_read]
        assert 1 <= n_read <= 4 - (len(first["reads"][0]) - 1) + 1
        assert (done["n_read"], done["n_cached"]) == (n_read, 4 - n_read)
    else:
        # The blocks are not read again; the search begins anew, with twelve choices.
        assert first["reads"] == [[1, 1, 1, 1]] * 3
        assert second["reads"] == [[1, 1, 1, 1]]
        assert second["pools"] == [{"n_steps": 18, "n_built": 3}]
    jobs.require_sound(kind, tmp_path / "runs", run)


@pytest.mark.parametrize("kind", ["multiselect", "glm"])
def test_killed_dask_scheduler_is_told_in_a_sentence(kind, jobs, tmp_path):
    dask = Path(sys.executable).with_name("dask")
    there = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--no-dashboard", f"--scheduler-file={there}"]
    scheduler = [dask, "scheduler", "--host=127.0.0.1", "--port=0", *options]
    worker = [dask, "worker", "--nthreads=1", "--no-nanny", "--death-timeout=60", *options]
    plan = Plan(str(tmp_path / "plan"), mishap="wait", partition=2)
    with subprocess.Popen(scheduler, **quiet) as head, subprocess.Popen(worker, **quiet) as hand:
        try:
            until(there.exists)
            address = json.loads(there.read_text())["address"]
            spec = jobs.spec(kind, tmp_path / "runs", engine={"kind": "dask", "address": address})
            command = command_of(plan, spec, tmp_path)
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                until(lambda: plan.happened or process.poll() is not None)
                head.kill()
                error = process.communicate(timeout=120)[1]
        finally:
            head.kill()
            hand.kill()
    assert process.returncode == 1
    said = f"The Dask scheduler at {address} dropped the work of this job: it stopped, was"
    assert error[error.index("Error: ") :].startswith(f"Error: {said}")
    assert "Traceback" not in error
    assert "distributed" not in error
    assert run_job(jobs.spec(kind, tmp_path / "runs")).resumed
    (run,) = (tmp_path / "runs" / spec.name).glob("20*")
    jobs.require_sound(kind, tmp_path / "runs", run)
