"""A run that is killed at any point goes on where it stopped, with the same bits."""

import pytest

from distfms.errors import SpecError
from distfms.runs.driver import run_job
from tests.e2e.jobs import STAGES, judgments_job, results, stage, write_judgments
from tests.faults.cases import manifest
from tests.faults.dying import killed


def test_killed_again_and_again(judgments, judgments_run, tmp_path):
    """In the middle of the pass, then before and after the files of stages are written."""
    killed(judgments, tmp_path, "partials", "1")
    killed(judgments, tmp_path, "partials", "2")
    for name in STAGES:
        killed(judgments, tmp_path, "before", name)
        (run,) = (tmp_path / "small").iterdir()
        done = STAGES[: STAGES.index(name)]
        assert [entry["name"] for entry in manifest(run)["stages"]] == done
        if name in ("statistics", "evaluate", "plan"):  # one of each kind
            killed(judgments, tmp_path, "between", name)
            assert [entry["name"] for entry in manifest(run)["stages"]] == done
    result = run_job(judgments_job(judgments, tmp_path))
    assert (result.folder, result.resumed) == (run, True)
    assert list(result.skipped) == STAGES[:-1]
    assert manifest(run)["attempt"] == 12
    assert results(run) == results(judgments_run)
    # Attempts before had kept all four partials.
    entry = stage(manifest(run), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    assert not list(run.glob("**/*.tmp"))


def test_killed_in_the_middle_of_the_pass(judgments, judgments_run, tmp_path):
    killed(judgments, tmp_path, "partials", "3")
    result = run_job(judgments_job(judgments, tmp_path))
    entry = stage(manifest(result.folder), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (1, 3)
    assert results(result.folder) == results(judgments_run)


def test_damaged_file_is_found_and_made_again(judgments, judgments_run, tmp_path):
    spec = judgments_job(judgments, tmp_path)
    folder = run_job(spec).folder
    (folder / "selection.json").write_text("{}")
    result = run_job(spec, out=folder)
    assert [s for s in STAGES if s not in result.skipped] == ["select"]
    assert results(folder) == results(judgments_run)


def test_damaged_partial_is_computed_again(judgments, judgments_run, tmp_path):
    killed(judgments, tmp_path, "before", "statistics")
    entry = sorted(p for p in (tmp_path / ".partials").rglob("*") if p.is_file())[0]
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    result = run_job(judgments_job(judgments, tmp_path))
    counts = stage(manifest(result.folder), "statistics")
    assert (counts["n_read"], counts["n_cached"]) == (1, 3)
    assert results(result.folder) == results(judgments_run)


def test_torn_manifest_is_in_nobodys_way(judgments, judgments_run, tmp_path):
    killed(judgments, tmp_path, "before", "model")
    (torn,) = (tmp_path / "small").glob("*/manifest.json")
    for content in (b"", b'{"schema": 1, "identi', b'{"schema": 99}'):
        torn.write_bytes(content)
        result = run_job(judgments_job(judgments, tmp_path))
        assert not result.resumed
        # What had been read is in the cache still.
        counts = stage(manifest(result.folder), "statistics")
        assert (counts["n_read"], counts["n_cached"]) == (0, 4)
        assert results(result.folder) == results(judgments_run)
        assert torn.read_bytes() == content
        # Asked for by name, it is refused with what to do.
        with pytest.raises(SpecError, match=r"is damaged|newer than this"):
            run_job(judgments_job(judgments, tmp_path), out=torn.parent)


def test_appended_file_is_the_only_one_read(judgments, tmp_path):
    grown = tmp_path / "grown"
    grown.mkdir()
    for path in sorted(judgments.iterdir()):
        (grown / path.name).hardlink_to(path)
    spec = judgments_job(grown, tmp_path / "runs")
    run_job(spec)
    more = write_judgments(tmp_path / "more", n_objects=50, n_files=1, seed=9)
    (more / "part-0.parquet").rename(grown / "part-9.parquet")
    folder = run_job(spec).folder
    counts = stage(manifest(folder), "statistics")
    assert (counts["n_read"], counts["n_cached"]) == (1, 4)
    # The whole, read afresh, gives the same bits.
    fresh = run_job(judgments_job(grown, tmp_path / "fresh", engine={"cache": False}))
    assert stage(manifest(fresh.folder), "statistics")["n_read"] == 5
    assert results(fresh.folder) == results(folder)


def test_finished_run_is_not_continued(judgments, tmp_path):
    spec = judgments_job(judgments, tmp_path)
    first, second = run_job(spec), run_job(spec)
    assert first.folder != second.folder
    assert not second.resumed
