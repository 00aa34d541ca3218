"""A full disk, wherever in a job: a clear end, nothing half-written, and a run that goes on."""

import errno
import os
import re
import resource
import subprocess
import sys
from contextlib import contextmanager

import pytest

from distfms.errors import EngineError
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from tests import ray_here
from tests.e2e.jobs import STAGES
from tests.faults.disturbance import Plan, disturbed


@contextmanager
def full_at(monkeypatch, what):
    """Let the disk be full for files that have a text in their path."""
    fsync = os.fsync

    def full(descriptor):
        if what in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        yield


@pytest.mark.parametrize("below", ["plan", ".kept"])
def test_full_while_tables_are_written(below, tmp_path, monkeypatch):
    """What tasks and conversions write by themselves."""
    judgments = [
        f"{o},{a},{(o * 7 + w) % 5 + len(a)}"
        for o in range(60)
        for a in ("a", "bb", "y")
        for w in range(2)
    ]
    (tmp_path / "long.csv").write_text("\n".join(["object,attribute,value", *judgments]))
    long = {"object": "object", "attribute": "attribute", "value": "value", "label": "y"}
    spec = build_spec(
        {
            "name": "long",
            "method": "multiselect",
            "data": {"path": str(tmp_path / "long.csv"), "long": long},
            "multiselect": {"budget": 3, "plan": True},
            "output": str(tmp_path / "runs"),
        }
    )
    with (
        full_at(monkeypatch, f"/{below}/"),
        pytest.raises(EngineError, match="disk is full") as caught,
    ):
        run_job(spec)
    assert caught.value.exit_code == 1
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp") or ".partial-" in p.name]
    assert run_job(spec).resumed == (below == "plan")


@pytest.mark.parametrize(
    ("at", "file"),
    [("statistics", "/statistics/"), ("model", "weights.npz"), ("report", "report.html")],
)
def test_full_at_a_stage(at, file, jobs, tmp_path, monkeypatch):
    spec = jobs.spec("multiselect", tmp_path / "runs", engine={"cache": False})
    with disturbed(Plan(str(tmp_path / "marks"))) as plan:
        with (
            full_at(monkeypatch, file),
            pytest.raises(EngineError, match=r"disk is full.*could not be written.*to resume"),
        ):
            run_job(spec)
        assert not list((tmp_path / "runs").rglob("*.tmp"))
        result = run_job(spec)
    # The pass whose result had no room is made again.
    assert plan.reads() == [[1] * 4] * (2 if at == "statistics" else 1)
    assert list(result.skipped) == STAGES[: STAGES.index(at)]
    jobs.require_sound("multiselect", tmp_path / "runs", result.folder)


def test_files_cut_off_by_the_system(jobs, tmp_path):
    """Writes that break off in the middle, as on a real full disk: no file may exceed a size."""
    output = tmp_path / "runs"
    spec = jobs.spec("multiselect", output)
    (tmp_path / "job.yaml").write_text(spec.to_yaml())
    limit = (6_000, 6_000)
    done = subprocess.run(
        [sys.executable, "-m", "distfms.cli", "run", str(tmp_path / "job.yaml")],
        cwd=ray_here.ROOT,
        # Python would keep a module's compiled form that was cut off.
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"Error: The disk is full or a quota is reached: .*/statistics/", done.stderr)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.tmp"))
    result = run_job(spec)
    assert result.resumed
    assert list(result.skipped) == []
    jobs.require_sound("multiselect", output, result.folder)
