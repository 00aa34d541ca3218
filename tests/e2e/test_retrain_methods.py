"""Retraining by methods that learn from rows, and by multi-selection."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.methods.frame import mapped
from distfms.methods.sequence.form import Sizes
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import RESULTS, content, judgments_job, write_judgments
from tests.e2e.retrain_jobs import again, growing_job, retraining, write_day


def with_classes(path, *names):
    table = pq.read_table(path)
    labels = np.where(table["y"].to_numpy() > 0, *names)
    pq.write_table(table.drop(["y"]).append_column("y", pa.array(labels)), path)


LEARNERS = {
    "logistic": {"sequence": {"family": "logistic", "ridge": 0.01, "baselines": []}},
    "landmarks": {
        "method": "landmarks",
        "landmarks": {"task": "regression", "similarity": "gaussian", "landmarks": 20},
    },
    "classes": {
        "method": "landmarks",
        "landmarks": {"task": "classification", "similarity": "gaussian", "landmarks": 20},
    },
    "mapped": {"sequence": {"max_groups": 3, "baselines": []}},
    "budget": {"sequence": {"costs": {"a": 9}, "budget": 9.5, "baselines": []}},
    "trees": {
        "sequence": {
            "model": "lightgbm",
            "budgets": [1, 2],
            "baselines": [],
            "lightgbm": {"num_iterations": 10, "min_data_in_leaf": 5},
        }
    },
    "splines": {"sequence": {"expand": {"splines": 3, "missing": True}, "baselines": []}},
    "attribute_efficient": {
        "method": "attribute_efficient",
        "attribute_efficient": {"attributes_per_example": 3, "bound": 30.0},
    },
    "pairs": {
        "method": "attribute_efficient",
        "attribute_efficient": {"attributes_per_example": 3, "draws": "two_phase"},
    },
}


@pytest.mark.parametrize("name", LEARNERS)
def test_methods_that_learn_from_rows_are_judged_by_their_predictions(tmp_path, name, monkeypatch):
    if name == "mapped":
        monkeypatch.setattr(mapped, "ONE_PROCESS_BYTES", 0)
        monkeypatch.setattr(mapped, "PASS_ROWS", 2)
        monkeypatch.setattr(Sizes, "models_bytes", lambda self: 0)
    data, days = tmp_path / "data", (2, 3, 4)
    changes = LEARNERS[name]
    spec = growing_job(data, tmp_path / "runs", **changes)
    first = outcome = None
    for day in days:
        path = write_day(data, f"2026-01-0{day}", day)
        if name in ("logistic", "classes"):
            with_classes(path, *(("ill", "well") if name == "logistic" else (2, 1)))
        outcome = again(spec) if day > 2 else None
        first = first if day > 3 else outcome
    told = retraining(outcome)
    assert (told["drift"] is None) == (name in ("attribute_efficient", "mapped"))
    metric = "accuracy" if name in ("logistic", "classes") else "mse"
    compared = {entry["rows"]: entry for entry in told["compared"]}
    truth, held, errors = pq.read_table(data)["y"].to_numpy(), None, []
    for run in (first.folder, outcome.folder):
        predict_file(run, str(data), tmp_path / "out.parquet", with_folds=run != first.folder)
        table = pq.read_table(tmp_path / "out.parquet")
        value = table["predicted_y"].to_numpy()
        errors.append(value == truth if metric == "accuracy" else (value - truth) ** 2)
        held = table["held_out"].to_numpy() if "held_out" in table.column_names else held
    newest = held & (np.arange(len(truth)) >= 600)
    for rows, which in (("held_out", held), ("newest", newest)):
        found = compared[rows]
        assert (found["metric"], found["n_rows"]) == (metric, which.sum())
        assert (found["in_place"], found["new"]) == pytest.approx([e[which].mean() for e in errors])


def test_rows_without_weight_judge_no_model(tmp_path):
    data, weight = tmp_path / "data", np.tile([0.0, 1.0, 2.0], 100)
    spec = growing_job(data, tmp_path / "runs", **LEARNERS["logistic"], data={"weight": "w"})
    for day in (2, 3):
        path = write_day(data, f"2026-01-0{day}", day)
        with_classes(path, "ill", "well")
        pq.write_table(pq.read_table(path).append_column("w", pa.array(weight)), path)
        outcome = again(spec)
    predict_file(outcome.folder, str(data), tmp_path / "out.parquet", with_folds=True)
    held_out = pq.read_table(tmp_path / "out.parquet")["held_out"].to_numpy()
    found, _ = retraining(outcome)["compared"]
    assert found["n_rows"] == np.count_nonzero(held_out & (np.tile(weight, 2) > 0))


def test_half_life_is_refused_where_rows_teach(days, tmp_path):
    forget = {"forget": {"half_life": "2 days"}}
    changes = LEARNERS["attribute_efficient"] | {"retrain": forget}
    spec = growing_job(days, tmp_path / "runs", **changes)
    with pytest.raises(SpecError, match="learns from the rows themselves"):
        again(spec)


def test_multiselection_reads_what_is_new_and_compares_projected_losses(tmp_path):
    data = write_judgments(tmp_path / "data")
    spec = judgments_job(data, tmp_path / "runs")
    first = again(spec)
    (data / "part-9.parquet").write_bytes(
        (write_judgments(tmp_path / "more", n_files=1, seed=5) / "part-0.parquet").read_bytes()
    )
    outcome = again(spec)
    told = retraining(outcome)
    assert (told["data"]["n_read"], told["data"]["n_cached"]) == (1, 4)
    held_out, newest = told["compared"]
    assert (held_out["rows"], newest["rows"]) == ("held_out", "newest")
    metrics = content(outcome.folder, "metrics.json")
    assert held_out["new"] == pytest.approx(metrics["test"]["projected_loss"], rel=1e-9)
    assert held_out["n_rows"] > newest["n_rows"] > 0
    assert told["drift"]["columns"][0]["disagreement"]["shift"] is not None
    assert first.version == 1
    fresh = run_job(judgments_job(data, tmp_path / "fresh")).folder
    for name in RESULTS:
        assert (outcome.folder / name).read_bytes() == (fresh / name).read_bytes()


def test_a_category_whose_levels_change_is_judged_as_predictions_are(tmp_path):
    data, spec = tmp_path / "data", growing_job(tmp_path / "data", tmp_path / "runs")

    def with_ward(day, *levels):
        path = write_day(data, f"2026-01-0{day}", day)
        table = pq.read_table(path)
        ward = np.random.default_rng(day).choice(levels, len(table))
        pq.write_table(table.append_column("ward", pa.array(ward)), path, row_group_size=150)

    with_ward(2, "east", "north", "west")
    first = again(spec)
    with_ward(2, "east", "north")
    with_ward(3, "east", "north")
    outcome = again(spec)
    told = retraining(outcome)
    assert told["data"]["n_read"] == 4  # the columns are others than before
    predict_file(first.folder, str(data), tmp_path / "out.parquet")
    value = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
    predict_file(outcome.folder, str(data), tmp_path / "out.parquet", with_folds=True)
    held = pq.read_table(tmp_path / "out.parquet")["held_out"].to_numpy()
    errors = (value - pq.read_table(data)["y"].to_numpy()) ** 2
    assert told["compared"][0]["in_place"] == pytest.approx(errors[held].mean(), rel=1e-9)
