"""A run that is killed at any point goes on where it stopped, with the same bits."""

import json

import pytest

from distfms.runs.driver import run_job
from tests.e2e.jobs import STAGES, judgments_job, results, stage
from tests.faults.cases import manifest
from tests.faults.dying import killed


@pytest.mark.parametrize("change", [{"steps": 0}, {"distfms": "0.0.1"}])
def test_what_another_version_began_starts_anew(judgments, judgments_run, tmp_path, change):
    """Also where it has finished steps that this version does not have, or has in another order."""
    killed(judgments, tmp_path, "before", "evaluate")
    (run,) = (tmp_path / "small").iterdir()
    begun = manifest(run)
    stages = [{"name": "statistics", "files": {}}, {"name": "model", "files": {}}]
    (run / "manifest.json").write_text(json.dumps({**begun, "stages": stages, **change}))
    said = []
    result = run_job(judgments_job(judgments, tmp_path), say=said.append)
    assert (result.folder, result.resumed, result.skipped) == (run, False, ())
    assert any("Another version of distfms" in line for line in said)
    assert results(run) == results(judgments_run)


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
    assert manifest(run)["attempt"] == 13
    assert results(run) == results(judgments_run)
    # Attempts before had kept all four partials.
    entry = stage(manifest(run), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    assert not list(run.glob("**/*.tmp"))
