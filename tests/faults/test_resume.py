"""A run that is killed at any point goes on where it stopped, with the same bits."""

from distfms.runs.driver import run_job
from tests.e2e.jobs import STAGES, judgments_job, results, stage
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
    assert manifest(run)["attempt"] == 13
    assert results(run) == results(judgments_run)
    # Attempts before had kept all four partials.
    entry = stage(manifest(run), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    assert not list(run.glob("**/*.tmp"))
