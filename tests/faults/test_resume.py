"""Runs that are repeated from a step, or were begun by another version of the package."""

import json

import pytest

from distfms.errors import SpecError
from distfms.runs.driver import run_job
from tests.e2e.jobs import judgments_job, results
from tests.faults.cases import manifest
from tests.faults.dying import killed


def test_repeated_from_a_step(judgments, judgments_run, tmp_path):
    spec = judgments_job(judgments, tmp_path)
    folder = run_job(spec).folder
    with pytest.raises(
        SpecError, match=r"No step 'fit' .* Finished are: statistics, ridge, select"
    ):
        run_job(spec, out=folder, from_step="fit")
    assert manifest(folder)["status"] == "done"
    assert run_job(spec, out=folder, from_step="select").skipped == ("statistics", "ridge")
    assert results(folder) == results(judgments_run)


@pytest.mark.parametrize("from_step", [None, "model"])
@pytest.mark.parametrize("change", [{"distfms": "0.0.1"}])
def test_what_another_version_began_starts_anew(
    judgments, judgments_run, tmp_path, change, from_step
):
    """Also where it has finished steps that this version does not have, or has in another order."""
    killed(judgments, tmp_path, "before", "evaluate")
    (run,) = (tmp_path / "small").iterdir()
    begun = manifest(run)
    stages = [{"name": "statistics", "files": {}}, {"name": "model", "files": {}}]
    (run / "manifest.json").write_text(json.dumps({**begun, "stages": stages, **change}))
    said = []
    spec = judgments_job(judgments, tmp_path)
    result = run_job(spec, out=from_step and run, from_step=from_step, say=said.append)
    assert (result.folder, result.resumed, result.skipped) == (run, False, ())
    assert any("Another version of distfms" in line for line in said)
    assert results(run) == results(judgments_run)
