"""One run, one writer: also where two drivers cannot see each other's locks."""

import errno
import fcntl
import itertools
import json
import os
import shutil
from contextlib import nullcontext

import pytest

from distfms.errors import DataError, EngineError
from distfms.runs import driver
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from distfms.runs.job_spec import build_spec
from tests.e2e.jobs import STAGES, judgments_job, results


@pytest.fixture
def no_locks(monkeypatch):
    """Storage on which two machines do not see each other's locks."""
    monkeypatch.setattr(RunFolder, "locked", lambda self: nullcontext())


def snapshot(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.update(status="done"),
        lambda run: run.write_files({"selection.json": {"mine": True}}),
        lambda run: run.write_files({"plan": None}),
    ],
    ids=["manifest", "file", "folder written by itself"],
)
def test_overtaken_driver_writes_nothing(tmp_path, write):
    first = RunFolder(tmp_path)
    second = RunFolder(tmp_path)
    first.claim()
    second.claim()
    second.write_files({"selection.json": {"mine": False}})
    before = snapshot(tmp_path)
    with pytest.raises(EngineError, match=r"[Aa]nother driver has taken over .*attempt 2"):
        write(first)
    assert snapshot(tmp_path) == before


def test_same_attempt_number_is_not_enough(tmp_path):
    """A folder that was removed, and made anew by another driver, is that driver's."""
    first = RunFolder(tmp_path)
    first.claim()
    (tmp_path / "manifest.json").unlink()
    shutil.rmtree(tmp_path / ".owners")
    with pytest.raises(EngineError, match=r"was removed while the job was running"):
        first.update(status="done")
    assert RunFolder(tmp_path).claim().attempt == 1
    with pytest.raises(EngineError, match="taken over"):
        first.update(status="done")


def test_overtaken_driver_does_not_remove_the_folder(judgments, tmp_path, monkeypatch, no_locks):
    """A driver whose data are refused takes its new folder away, but not another's."""
    spec = judgments_job(judgments, tmp_path)
    second = []

    def refused(prepared, run):
        if second:
            return learn(prepared, run)
        second.append(None)
        second[0] = run_job(spec).folder
        raise DataError("a column is not as it should be")

    learn = driver._learn
    monkeypatch.setattr(driver, "_learn", refused)
    with pytest.raises(DataError):
        run_job(spec)
    assert json.loads((second[0] / "manifest.json").read_text())["status"] == "done"


def test_storage_without_locks(judgments, judgments_run, tmp_path, monkeypatch):
    answers = itertools.cycle([errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])

    def no_flock(descriptor, operation):
        raise OSError(next(answers), "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_flock)
    folder = run_job(judgments_job(judgments, tmp_path)).folder
    assert results(folder) == results(judgments_run)
    # A second run of the folder meets no lock that the first has left.
    assert run_job(judgments_job(judgments, tmp_path), out=folder).skipped == tuple(STAGES)


@pytest.mark.parametrize("event", ["stage_done", "done"])
def test_a_folder_that_is_removed_is_no_success(judgments, tmp_path, event):
    spec = judgments_job(judgments, tmp_path / "runs")
    folders = []

    def remove(told):
        if told["event"] == "begin":
            folders.append(tmp_path / "runs" / "small" / told["run"])
        if told["event"] == event and told.get("stage", "report") == "report":
            shutil.rmtree(folders[0])

    with pytest.raises(EngineError, match=r"was removed while the job was running.*to start over"):
        run_job(spec, progress=remove)
    second = run_job(spec)
    assert not second.resumed
    assert results(second.folder)


def test_what_a_killed_driver_left_is_no_obstacle(judgments, tmp_path):
    spec = judgments_job(judgments, tmp_path)
    folder = run_job(spec).folder
    (folder / ".lock").write_text("of a machine that is no more")
    (folder / "plan" / ".object.parquet.77-abc.tmp").write_bytes(b"half")
    partials = tmp_path / ".kept/partials"
    old = partials / ".a.kept.77-abc.tmp"
    old.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))
    assert run_job(spec, out=folder).resumed
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(list(partials.rglob("*.kept"))) == 4
    content = spec.to_mapping()
    content["output"]["cache_bytes"] = 1
    run_job(build_spec(content))
    assert not list(partials.rglob("*.kept"))
