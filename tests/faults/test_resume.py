"""Runs that were begun by another version of the package."""

import json

from distfms.runs.driver import run_job
from tests.e2e.jobs import judgments_job, results
from tests.faults.cases import manifest
from tests.faults.dying import killed


def test_what_another_version_began_starts_anew(judgments, judgments_run, tmp_path):
    """Also where it has finished steps that this version does not have, or has in another order."""
    killed(judgments, tmp_path, "before", "evaluate")
    (run,) = (tmp_path / "small").iterdir()
    begun = manifest(run)
    stages = [{"name": "statistics", "files": {}}, {"name": "model", "files": {}}]
    (run / "manifest.json").write_text(json.dumps({**begun, "stages": stages, "distfms": "0.0.1"}))
    messages = []
    spec = judgments_job(judgments, tmp_path)
    result = run_job(spec, say=messages.append)
    assert (result.folder, result.resumed, result.skipped) == (run, False, ())
    assert any("Another version of distfms" in line for line in messages)
    assert results(run) == results(judgments_run)
