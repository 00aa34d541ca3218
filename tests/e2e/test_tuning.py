"""Jobs whose options are chosen by cross-validation."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distfms.errors import DataError, SpecError
from distfms.methods import slab_job
from distfms.runs import context as run_context
from distfms.runs.driver import prepare, run_job
from distfms.runs.job_spec import load_spec
from tests.e2e.jobs import judgments_job, results, stage, write_judgments
from tests.e2e.sequence_jobs import LiteralRows, mixed_job, mixed_rows, write_rows

GRID = {"criterion": ["fr", "omp"], "ridge": [1e-5, 0.3, 3.0], "max_groups": [2, None]}
FILES = ("selection.json", "model.json", "weights.npz", "metrics.json", "tuning.json")

# Runs the job of the tests with two actors in a process that kills itself when so many answers are
# written, or once the stage has written its file.
DYING = """
import os, sys
from pathlib import Path
from distfms.methods.cross_validation import AnswerLog
from distfms.runs import context, folder
from distfms.runs.driver import run_job
from tests.e2e.test_tuning import tuned_job

if __name__ == "__main__":
    data, output, step = sys.argv[1:]
    context.ACTORS_PAY_OPERATIONS = 0
    append, written = AnswerLog.append, []
    def dying(self, unit, answer):
        append(self, unit, answer)
        written.append(unit)
        if len(written) == int(step):
            os.kill(os.getpid(), 9)
    AnswerLog.append = dying
    update = folder.RunFolder.update
    def killed(self, **entries):
        if step == "0" and entries.get("stages") and entries["stages"][-1]["name"] == "tune":
            os.kill(os.getpid(), 9)
        return update(self, **entries)
    folder.RunFolder.update = killed
    run_job(tuned_job(Path(data), Path(output), workers=2))
"""


def tuned_job(data, output, workers=1, kind="local", **tune):
    return mixed_job(
        data,
        output,
        tune={"grid": GRID, "measure": "explained_variance", **tune},
        engine={"kind": kind, "workers": workers},
    )


@pytest.fixture(scope="module")
def columns():
    return mixed_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows", columns)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    return run_job(tuned_job(data, tmp_path_factory.mktemp("runs"))).folder


@pytest.fixture
def actors_pay(monkeypatch):
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", 0)


def read(folder, name):
    return json.loads((folder / name).read_text())


def bytes_of(folder):
    return {**results(folder), "tuning.json": (folder / "tuning.json").read_bytes()}


def test_values_are_those_of_fits_on_rows(columns, folder):
    rows = LiteralRows(columns)
    tuning = read(folder, "tuning.json")
    for point in tuning["points"]:
        if point["options"]["max_groups"] is not None:
            continue
        # With all groups the order plays no part.
        literal = []
        for fold in range(3):
            own = rows.parts == fold
            X, Y, X_out, Y_out = (part for part in split(rows, own))
            ridge = point["options"]["ridge"]
            w = np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(X.shape[1]), X.T @ Y / len(X))
            literal.append(1 - ((Y_out - X_out @ w) ** 2).sum() / (Y_out**2).sum())
        assert point["folds"] == pytest.approx(literal, rel=1e-9)
        weight = np.array([(rows.parts == fold).sum() for fold in range(3)])
        assert point["mean"] == pytest.approx(np.average(literal, weights=weight), rel=1e-9)
    assert [fold["n_rows"] for fold in tuning["folds"]] == weight.tolist()


def split(rows, held_out):
    """Standardised training and held-out rows, the test rows in neither."""
    kept = LiteralRows.__new__(LiteralRows)
    inside = ~rows.test
    kept.X, kept.y = rows.X[inside], rows.y[inside]
    return kept.split(held_out[inside])


def test_the_best_point_is_used_and_written_down(folder):
    tuning, selection = read(folder, "tuning.json"), read(folder, "selection.json")
    best = max(tuning["points"], key=lambda p: p["mean"])
    assert best["best"]
    assert best["chosen"]
    assert tuning["chosen"] == best["options"]
    assert selection["ridge"] == best["options"]["ridge"]
    assert selection["criterion"] == best["options"]["criterion"]
    assert selection["tuning"] == {
        "measure": "explained_variance", "rule": "best", "chosen": best["options"],
    }  # fmt: skip
    assert read(folder, "metrics.json")["tuning"] == tuning
    assert "Options tried" in (folder / "report.html").read_text()
    names = [entry["name"] for entry in read(folder, "manifest.json")["stages"]]
    assert names[1:4] == ["statistics", "tune", "select"]
    # Six paths answer twelve points, on three folds.
    assert len(tuning["points"]) == 12
    assert read(folder, "manifest.json")["tuning"] == {"fits": 18, "kept": 0}


def test_the_rest_is_the_job_with_these_options(data, folder, tmp_path):
    chosen = read(folder, "tuning.json")["chosen"]
    plain = run_job(mixed_job(data, tmp_path, sequence=chosen)).folder
    for name in ("model.json", "weights.npz"):
        assert (plain / name).read_bytes() == (folder / name).read_bytes()
    for name in ("selection.json", "metrics.json"):
        tuned = read(folder, name)
        del tuned["tuning"]
        assert tuned == read(plain, name)


def test_spec_of_the_run_is_the_users(folder):
    spec = load_spec(folder / "spec.yaml")
    assert spec.options.ridge == 1e-5
    assert spec.tune.grid["ridge"] == (1e-5, 0.3, 3.0)


def test_rule_of_one_standard_error_takes_the_first(data, tmp_path):
    spec = tuned_job(data, tmp_path, rule="one_standard_error")
    tuning = read(run_job(spec).folder, "tuning.json")
    best = next(p for p in tuning["points"] if p["best"])
    limit = best["mean"] - best["standard_error"]
    first = next(p for p in tuning["points"] if p["mean"] >= limit)
    assert tuning["chosen"] == first["options"]


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_actors_do_not_change_a_bit(data, folder, tmp_path, actors_pay, kind, request):
    if kind == "ray":
        request.getfixturevalue("ray_session")
    run = run_job(tuned_job(data, tmp_path, workers=2, kind=kind)).folder
    assert bytes_of(run) == bytes_of(folder)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    opened = [(e["kind"], e["n_actors"]) for e in events if e["event"] == "pool"]
    assert opened == [(kind, 2)] * 2  # for the grid, and for the chosen sequence with baselines
    assert not (run / ".tuning").exists()


@pytest.mark.parametrize(("step", "kept"), [(7, 7), pytest.param(0, 18, marks=pytest.mark.slow)])
def test_killed_driver_goes_on(data, folder, tmp_path, actors_pay, step, kept):
    root = Path(__file__).resolve().parents[2]
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    result = subprocess.run(
        [sys.executable, str(script), str(data), str(tmp_path / "runs"), str(step)],
        capture_output=True, text=True, cwd=root, env={"PYTHONPATH": str(root), "PATH": ""},
    )  # fmt: skip
    assert result.returncode == -9, result.stderr
    done = run_job(tuned_job(data, tmp_path / "runs", workers=2))
    assert done.resumed
    assert done.skipped == ("categories", "statistics")
    assert read(done.folder, "manifest.json")["tuning"] == {"fits": 18 - kept, "kept": kept}
    assert bytes_of(done.folder) == bytes_of(folder)
    assert not (done.folder / ".tuning").exists()


def test_budgets_of_a_multi_selection(tmp_path):
    data = write_judgments(tmp_path / "judgments")
    tune = {"grid": {"budget": [2, 4, 8, 16], "ridge": [0, 0.1]}, "rule": "one_standard_error"}
    folder = run_job(judgments_job(data, tmp_path / "runs", tune=tune)).folder
    tuning, selection = read(folder, "tuning.json"), read(folder, "selection.json")
    assert selection["budget"] == tuning["chosen"]["budget"] == selection["spent"]
    assert read(folder, "manifest.json")["tuning"] == {"fits": 6, "kept": 0}
    # The cross-validation of the chosen job has the same losses.
    metrics, chosen = read(folder, "metrics.json"), [p for p in tuning["points"] if p["chosen"]]
    losses = [fold["projected_loss"] for fold in metrics["folds"]]
    assert chosen[0]["folds"] == pytest.approx(losses, rel=1e-12)
    assert metrics["curves"][0]["points"][-1]["validation_loss"] == pytest.approx(
        chosen[0]["mean"], rel=1e-12
    )
    assert "Options tried" in (folder / "report.html").read_text()
    assert stage(read(folder, "manifest.json"), "plan")


def test_folds_without_rows_are_left_out(data, tmp_path):
    few = write_rows(tmp_path / "few", mixed_rows(12, seed=5), n_files=1)
    grid = {"ridge": [0.1, 1.0]}
    spec = mixed_job(few, tmp_path / "runs", data={"folds": 9, "test": 0}, tune={"grid": grid})
    folder = run_job(spec).folder
    tuning, manifest = read(folder, "tuning.json"), read(folder, "manifest.json")
    assert 2 <= len(tuning["folds"]) < 9
    assert all(fold["n_rows"] > 1 for fold in tuning["folds"])
    assert any("play no part in tuning" in note for note in manifest["notes"])


def test_too_few_rows_for_any_fold(tmp_path):
    few = write_rows(tmp_path / "few", mixed_rows(12, seed=5), n_files=1)
    grid = {"ridge": [0.1, 1.0]}
    spec = mixed_job(few, tmp_path / "runs", data={"folds": 200, "test": 0}, tune={"grid": grid})
    with pytest.raises(DataError, match="nothing to tune by"):
        run_job(spec)


# --- said and refused before the run ------------------------------------------------------------


def test_check_says_what_will_be_tried(data, tmp_path):
    said = prepare(tuned_job(data, tmp_path)).describe()["tuned"]
    assert said == (
        "criterion fr, omp; ridge 1e-05, 0.3, 3; max_groups 2, none: 12 points on 3 folds, "
        "36 evaluations; the best by explained_variance"
    )


@pytest.mark.parametrize("grid", [{"ridge": [0.1, 1.0]}, {"psd": ["none", "nearest"]}])
def test_slabs_refuse(tmp_path, monkeypatch, grid):
    monkeypatch.setattr(slab_job, "ONE_PROCESS_BYTES", 0)
    data = write_judgments(tmp_path / "judgments")
    spec = judgments_job(data, tmp_path / "runs", multiselect={"psd": "none"}, tune={"grid": grid})
    with pytest.raises(SpecError, match=r"which `multiselect` does not do in slabs"):
        prepare(spec)


def test_values_that_only_together_ask_for_slabs_leave_the_job_in_one_process(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(slab_job, "ONE_PROCESS_BYTES", 0)
    data = write_judgments(tmp_path / "judgments")
    spec = judgments_job(
        data,
        tmp_path / "runs",
        multiselect={"algorithm": "scoring", "psd": "nearest", "baselines": []},
        tune={"grid": {"algorithm": ["full"], "psd": ["none"]}},
    )
    folder = run_job(spec).folder
    assert read(folder, "selection.json")["tuning"]["chosen"] == {
        "algorithm": "full",
        "psd": "none",
    }
    assert len(read(folder, "metrics.json")["folds"]) == 3


def test_budget_that_buys_nothing_is_named(tmp_path):
    data = write_judgments(tmp_path / "judgments")
    tune = {"grid": {"budget": [5, 0.5]}}
    with pytest.raises(SpecError, match=r"`tune.grid.budget\[1\]` is 0.5, which buys nothing"):
        prepare(judgments_job(data, tmp_path / "runs", tune=tune))


def test_ends_that_no_sequence_reaches_are_named(data, tmp_path):
    tune = {"grid": {"max_groups": [2, 6, 7]}}
    with pytest.raises(
        SpecError, match=r"`tune.grid.max_groups\[2\]` is 7, and there are 6 groups"
    ):
        prepare(mixed_job(data, tmp_path, tune=tune))
    tune = {"grid": {"max_groups": [2, 6], "ridge": [0.1]}}
    assert len(prepare(mixed_job(data, tmp_path, tune=tune)).tuning.points) == 2
    # What is not tried is as it always was: an end beyond all groups is none.
    prepare(mixed_job(data, tmp_path, sequence={"max_groups": 9}, tune={"grid": {"ridge": [0.1]}}))
