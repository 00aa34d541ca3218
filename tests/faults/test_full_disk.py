"""A full disk, wherever in a job: a clear end, nothing half-written, and a run that goes on."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distfms.errors import EngineError
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from distfms.runs.job_spec import build_spec
from tests import ray_here
from tests.faults.cases import CASES, contents
from tests.faults.disturbance import Plan, disturbed, nothing_half_written

Expected = Callable[[str], dict[str, bytes]]
Data = Callable[[str], Path]


def no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def full_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let the disk be full when a stage has written some of its files."""
    write, fsync = RunFolder.write_stage, os.fsync

    def arrange(name: str, n_written: int) -> None:
        def full(self: Any, stage: str, *rest: Any) -> None:
            # Two for each file: the file's own, and its folder's.
            left = [2 * n_written]

            def counted(descriptor: int) -> None:
                left[0] -= 1
                (no_space if left[0] < 0 else fsync)(descriptor)

            if stage == name:
                monkeypatch.setattr(os, "fsync", counted)
            write(self, stage, *rest)

        monkeypatch.setattr(RunFolder, "write_stage", full)

    return arrange


@pytest.mark.parametrize("below", ["plan", ".data"])
def test_full_while_tables_are_written(below: str, tmp_path: Path, monkeypatch: Any) -> None:
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
    fsync = os.fsync

    def full_below(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        (no_space if f"/{below}/" in name else fsync)(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_below)
        with pytest.raises(EngineError, match="disk is full") as caught:
            run_job(spec)
    assert caught.value.exit_code == 1
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp") or ".partial-" in p.name]
    assert run_job(spec).resumed == (below == "plan")


STAGES = ["statistics", "select", "averages", "model", "evaluate", "plan", "report"]


@pytest.mark.parametrize(
    ("at", "n_written"),
    [("statistics", 0), ("select", 0), ("averages", 0), ("model", 1), ("plan", 0), ("report", 1)],
)
def test_full_at_a_stage(
    at: str,
    n_written: int,
    full_at: Callable[[str, int], None],
    job_data: Data,
    undisturbed: Expected,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES["multiselect"]
    spec = case.spec(job_data("multiselect"), tmp_path / "runs", engine={"cache": False})
    expected = undisturbed("multiselect")
    with disturbed(Plan(str(tmp_path / "marks"))) as plan:
        with monkeypatch.context():
            full_at(at, n_written)
            with pytest.raises(EngineError, match=r"disk is full.*could not be written.*goes on"):
                run_job(spec)
        monkeypatch.undo()
        assert not list((tmp_path / "runs").rglob("*.tmp"))
        result = run_job(spec)
    # Two passes, statistics and averages; the one whose result had no room is made again.
    assert plan.reads() == [[1] * 4] * (3 if at in ("statistics", "averages") else 2)
    assert list(result.skipped) == STAGES[: STAGES.index(at)]
    assert contents(result.folder) == expected
    nothing_half_written(tmp_path / "runs", result.folder)


@pytest.mark.parametrize(
    ("largest_bytes", "stopped_at", "finished"),
    [
        pytest.param(400, "spec.yaml", None, marks=pytest.mark.slow),
        (6_000, "statistics/judgments.npz", []),
        pytest.param(60_000, "report.html", STAGES[:-1], marks=pytest.mark.slow),
    ],
)
def test_files_cut_off_by_the_system(
    largest_bytes: int,
    stopped_at: str,
    finished: list[str] | None,
    job_data: Data,
    undisturbed: Expected,
    tmp_path: Path,
) -> None:
    """Writes that break off in the middle, as on a real full disk: no file may exceed a size."""
    case, output = CASES["multiselect"], tmp_path / "runs"
    spec = case.spec(job_data("multiselect"), output)
    (tmp_path / "job.yaml").write_text(spec.to_yaml())
    limit = (largest_bytes, largest_bytes)
    done = subprocess.run(
        [sys.executable, "-m", "distfms.cli", "run", str(tmp_path / "job.yaml")],
        cwd=ray_here.ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 1, done.stderr
    assert re.search(rf"Error: The disk is full, or a quota reached: .*/{stopped_at}", done.stderr)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.tmp"))
    result = run_job(spec)
    assert result.resumed == (finished is not None)
    assert list(result.skipped) == (finished or [])
    assert contents(result.folder) == undisturbed("multiselect")
    nothing_half_written(output, result.folder)
