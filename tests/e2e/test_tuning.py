"""Jobs whose options are chosen by cross-validation."""

from functools import partial

import pytest

from distfms.errors import DataError
from distfms.methods import load_method
from distfms.methods.frame.tuning import options_to_tune
from distfms.runs.driver import run_job
from distfms.runs.job_spec import load_spec
from distfms.runs.prepare import prepare
from distfms.spec import TuneSection
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import GRID, mixed_job, mixed_rows, write_rows


def tuned_job(data, output):
    return mixed_job(data, output, tune={"grid": GRID, "measure": "explained_variance"})


@pytest.fixture(scope="module")
def folder(mixed_data, tmp_path_factory):
    return run_job(tuned_job(mixed_data, tmp_path_factory.mktemp("runs"))).folder


def test_the_best_point_is_used_and_written_down(folder):
    spec = load_spec(folder / "spec.yaml")  # the user's, without the choice
    assert (spec.options.ridge, spec.tune.grid["ridge"]) == (1e-5, (1e-5, 0.3, 3.0))
    tuning = content(folder, "tuning.json")
    selection = content(folder, "selection.json")
    best = max(tuning["points"], key=lambda p: p["mean"])
    assert best["best"]
    assert best["chosen"]
    assert tuning["chosen"] == best["options"]
    assert selection["ridge"] == best["options"]["ridge"]
    assert selection["criterion"] == best["options"]["criterion"]
    assert selection["tuning"] == {
        "measure": "explained_variance", "rule": "best", "chosen": best["options"],
    }  # fmt: skip
    assert content(folder, "metrics.json")["tuning"] == tuning
    assert "Options tried" in (folder / "report.html").read_text()
    names = [entry["name"] for entry in content(folder, "manifest.json")["stages"]]
    assert names[1:4] == ["statistics", "tune", "select"]
    # Six paths answer twelve points, on three folds.
    assert len(tuning["points"]) == 12
    assert content(folder, "manifest.json")["tuning"] == {"fits": 18}


def test_folds_without_rows_are_left_out(mixed_data, tmp_path):
    few = write_rows(tmp_path / "few", mixed_rows(12, seed=5), n_files=1)
    tune = {"grid": {"ridge": [0.1, 1.0]}}
    job = partial(mixed_job, few, tmp_path, tune=tune, sequence={"baselines": []})
    folder = run_job(job(data={"folds": 9, "test": 0})).folder
    tuning = content(folder, "tuning.json")
    assert 2 <= len(tuning["folds"]) < 9
    assert min(fold["n_rows"] for fold in tuning["folds"]) > 1
    assert "are ignored in tuning" in " ".join(content(folder, "manifest.json")["notes"])
    spec = job(data={"folds": 94, "test": 0})
    with pytest.raises(DataError, match="too few to tune by"):
        run_job(spec)


# --- said and refused before the run ------------------------------------------------------------


def test_check_says_what_will_be_tried(mixed_data, tmp_path):
    assert prepare(tuned_job(mixed_data, tmp_path)).describe()["tuned"] == (
        "criterion fr, omp; ridge 1e-05, 0.3, 3; max_groups 2, none: 12 points on 3 folds, "
        "18 evaluations; the best by explained_variance"
    )


def test_an_end_beyond_all_groups_is_none(mixed_data, tmp_path):
    tune = {"grid": {"max_groups": [2, 6], "ridge": [0.1]}}
    job = prepare(mixed_job(mixed_data, tmp_path, tune=tune)).job
    assert job.tune.grid["max_groups"] == (2, 6)
    # What is not tried is as it always was: an end beyond all groups is none.
    tune = {"grid": {"ridge": [0.1]}}
    prepare(mixed_job(mixed_data, tmp_path, sequence={"max_groups": 9}, tune=tune))


def test_until_one_is_chosen_there_are_as_many_landmarks_as_are_tried():
    tune = TuneSection(grid={"landmarks": [5, 20]})
    assert options_to_tune(load_method("landmarks"), None, tune).landmarks == 20
