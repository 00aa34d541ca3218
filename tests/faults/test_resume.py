"""A run that is killed at any point goes on where it stopped, with the same bits."""

import json
from pathlib import Path

import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from tests.e2e.jobs import STAGES, judgments_job, results, stage, write_judgments
from tests.faults.dying import killed


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_judgments(tmp_path_factory.mktemp("data") / "judgments")


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return results(run_job(judgments_job(data, tmp_path_factory.mktemp("runs"))).folder)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def test_killed_again_and_again(data, undisturbed, tmp_path):
    """In the middle of the pass, then before and after the files of stages are written."""
    killed(data, tmp_path, "partials", "1")
    killed(data, tmp_path, "partials", "2")
    for name in STAGES:
        killed(data, tmp_path, "before", name)
        (run,) = (tmp_path / "small").iterdir()
        done = STAGES[: STAGES.index(name)]
        assert [entry["name"] for entry in manifest(run)["stages"]] == done
        if name in ("statistics", "evaluate", "plan"):  # one of each kind
            killed(data, tmp_path, "between", name)
            assert [entry["name"] for entry in manifest(run)["stages"]] == done
    result = run_job(judgments_job(data, tmp_path))
    assert (result.folder, result.resumed) == (run, True)
    assert list(result.skipped) == STAGES[:-1]
    assert manifest(run)["attempt"] == 12
    assert results(run) == undisturbed
    # Attempts before had kept all four partials.
    entry = stage(manifest(run), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    assert not list(run.glob("**/*.tmp"))


@pytest.mark.parametrize("kept", [1, 3])
def test_killed_in_the_middle_of_the_pass(data, undisturbed, tmp_path, kept):
    killed(data, tmp_path, "partials", str(kept))
    result = run_job(judgments_job(data, tmp_path))
    entry = stage(manifest(result.folder), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (4 - kept, kept)
    assert results(result.folder) == undisturbed


def test_damaged_file_is_found_and_made_again(data, undisturbed, tmp_path):
    spec = judgments_job(data, tmp_path)
    folder = run_job(spec).folder
    (folder / "selection.json").write_text("{}")
    result = run_job(spec, out=folder)
    assert [s for s in STAGES if s not in result.skipped] == ["select"]
    assert results(folder) == undisturbed


def test_damaged_partial_is_computed_again(data, undisturbed, tmp_path):
    killed(data, tmp_path, "before", "statistics")
    entry = sorted(p for p in (tmp_path / ".partials").rglob("*") if p.is_file())[0]
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    result = run_job(judgments_job(data, tmp_path))
    counts = stage(manifest(result.folder), "statistics")
    assert (counts["n_read"], counts["n_cached"]) == (1, 3)
    assert results(result.folder) == undisturbed


def test_torn_manifest_is_in_nobodys_way(data, undisturbed, tmp_path):
    killed(data, tmp_path, "before", "model")
    (torn,) = (tmp_path / "small").glob("*/manifest.json")
    for content in (b"", b'{"schema": 1, "identi', b'{"schema": 99}'):
        torn.write_bytes(content)
        result = run_job(judgments_job(data, tmp_path))
        assert not result.resumed
        # What had been read is in the cache still.
        counts = stage(manifest(result.folder), "statistics")
        assert (counts["n_read"], counts["n_cached"]) == (0, 4)
        assert results(result.folder) == undisturbed
        assert torn.read_bytes() == content
        # Asked for by name, it is refused with what to do.
        with pytest.raises(SpecError, match=r"is damaged|newer than this"):
            run_job(judgments_job(data, tmp_path), out=torn.parent)


def test_appended_file_is_the_only_one_read(data, tmp_path):
    grown = tmp_path / "grown"
    grown.mkdir()
    for path in sorted(data.iterdir()):
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


def test_finished_run_is_not_continued(data, tmp_path):
    spec = judgments_job(data, tmp_path)
    first, second = run_job(spec), run_job(spec)
    assert first.folder != second.folder
    assert not second.resumed


def test_two_writers_of_one_run(data, tmp_path):
    spec = judgments_job(data, tmp_path)
    folder = run_job(spec).folder
    with RunFolder(folder).locked(), pytest.raises(EngineError, match="Another process"):
        run_job(spec, out=folder)
