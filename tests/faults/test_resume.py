"""A run that is killed at any point goes on where it stopped, with the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from tests.e2e.jobs import STAGES, judgments_job, results, stage, write_judgments

# Runs the job of `judgments_job` in a process that kills itself at the place asked for.
DYING = """
import os, signal, sys
from pathlib import Path
from distfms.engine.cache import PartialCache
from distfms.runs import driver, folder
from tests.e2e.jobs import STAGES, judgments_job

data, output, where, what = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if where == "partials":
    put, left = PartialCache.put, [int(what)]
    def counted(self, key, value):
        result = put(self, key, value)
        left[0] -= 1
        if left[0] == 0:
            die()
        return result
    PartialCache.put = counted
elif where == "before":
    write = folder.RunFolder.write_stage
    def killed(self, stage, *rest):
        if stage == what:
            die()
        return write(self, stage, *rest)
    folder.RunFolder.write_stage = killed
elif where == "between":
    update = folder.RunFolder.update
    def killed(self, **entries):
        if entries.get("stages") and entries["stages"][-1]["name"] == what:
            die()
        return update(self, **entries)
    folder.RunFolder.update = killed

driver.run_job(judgments_job(Path(data), Path(output)))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_judgments(tmp_path_factory.mktemp("data") / "judgments")


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return results(run_job(judgments_job(data, tmp_path_factory.mktemp("runs"))).folder)


def killed(data: Path, output: Path, where: str, what: str) -> None:
    command = [sys.executable, "-c", DYING, str(data), str(output), where, what]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert result.returncode == -9, result.stderr


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("where", "at"),
    [
        *(("before", name) for name in STAGES),
        # After the files are written and before the manifest says so: one stage of each kind.
        *(("between", name) for name in ("statistics", "evaluate", "plan")),
    ],
)
def test_killed_at_a_stage(data, undisturbed, tmp_path, where, at):
    killed(data, tmp_path, where, at)
    result = run_job(judgments_job(data, tmp_path))
    assert result.resumed
    assert list(result.skipped) == STAGES[: STAGES.index(at)]
    assert results(result.folder) == undisturbed
    entry = stage(manifest(result.folder), "statistics")
    if at == "statistics":
        # All four partials were kept, so the second attempt reads no partition again.
        assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    else:
        assert (entry["n_read"], entry["n_cached"]) == (4, 0)
    assert manifest(result.folder)["attempt"] == 2
    assert not list(result.folder.glob("**/*.tmp"))


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


@pytest.mark.parametrize("content", [b"", b'{"schema": 1, "identi', b'{"schema": 99}'])
def test_torn_manifest_is_in_nobodys_way(data, undisturbed, tmp_path, content):
    killed(data, tmp_path, "before", "model")
    (torn,) = (tmp_path / "small").glob("*/manifest.json")
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
