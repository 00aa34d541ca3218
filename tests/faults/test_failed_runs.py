"""What a run says of itself after an error or an interrupt, in its first stage already."""

import errno
import json

import pytest

from distfms.errors import EngineError
from distfms.runs import context
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from tests.e2e.jobs import judgments_job, results
from tests.faults.cases import manifest


def the_run(output):
    (folder,) = output.glob("*/*/manifest.json")
    return folder.parent


@pytest.mark.parametrize(
    ("error", "text"),
    [(EngineError("Workers were lost."), "Workers were lost."), (MemoryError(), "MemoryError")],
)
def test_failure_in_the_first_stage(judgments, judgments_run, tmp_path, monkeypatch, error, text):
    def fail(*args, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(context, "map_reduce", fail)
        with pytest.raises(type(error)):
            run_job(judgments_job(judgments, tmp_path / "runs"))
    folder = the_run(tmp_path / "runs")
    assert manifest(folder)["status"] == "failed"
    assert manifest(folder)["error"] == text
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [(e["event"], e.get("error")) for e in events][-1] == ("failed", text)
    # It goes on, to the same end as any other.
    second = run_job(judgments_job(judgments, tmp_path / "runs"))
    assert (second.folder, second.resumed) == (folder, True)
    assert results(folder) == results(judgments_run)


def test_a_full_disk_at_the_start_leaves_nothing(judgments, tmp_path, monkeypatch):
    def full(self, **entries):
        raise EngineError("The disk is full") from OSError(errno.ENOSPC, "No space")

    monkeypatch.setattr(RunFolder, "update", full)
    with pytest.raises(EngineError, match="disk is full"):
        run_job(judgments_job(judgments, tmp_path / "runs"))
    assert not (tmp_path / "runs" / "small").exists()


def test_storage_that_fails_at_the_very_end(judgments, tmp_path, monkeypatch):
    update = RunFolder.update

    def fail(self, **entries):
        if entries.get("status") == "done":
            raise EngineError("The disk is full.")
        return update(self, **entries)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "update", fail)
        with pytest.raises(EngineError):
            run_job(judgments_job(judgments, tmp_path / "runs"))
    assert manifest(the_run(tmp_path / "runs"))["status"] == "failed"


def test_interrupted_run_is_not_done(judgments, tmp_path, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(context, "map_reduce", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_job(judgments_job(judgments, tmp_path / "runs"))
    assert manifest(the_run(tmp_path / "runs"))["status"] == "running"
