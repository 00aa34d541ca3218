"""Retraining by methods that learn from rows, and by multi-selection."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.methods.frame import mapped
from distfms.methods.sequence.form import SequenceForm
from distfms.runs.predict import predict_file
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


#: Learners that are judged by the code of another one, but for their models.
SLOWLY = ("classes", "trees", "splines", "pairs")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOWLY else ()) for name in LEARNERS],
)
def test_methods_that_learn_from_rows_are_judged_by_their_predictions(tmp_path, name, monkeypatch):
    if name == "mapped":
        monkeypatch.setattr(mapped, "ONE_PROCESS_BYTES", 0)
        monkeypatch.setattr(mapped, "PASS_ROWS", 2)
        monkeypatch.setattr(SequenceForm, "models_bytes", 0)
    data = tmp_path / "data"
    days = (2, 3, 4)
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
    truth = pq.read_table(data)["y"].to_numpy()
    held = None
    errors = []
    for run in (first.folder, outcome.folder):
        predict_file(run, str(data), tmp_path / "out.parquet", with_folds=run != first.folder)
        table = pq.read_table(tmp_path / "out.parquet")
        value = table["predicted_y"].to_numpy()
        errors.append(value == truth if metric == "accuracy" else (value - truth) ** 2)
        held = table["held_out"].to_numpy() if "held_out" in table.column_names else held
    newest = held & (np.arange(len(truth)) >= 600)
    for rows, which in (("held_out", held), ("newest", newest)):
        results = compared[rows]
        assert (results["metric"], results["n_rows"]) == (metric, which.sum())
        assert (results["in_place"], results["new"]) == pytest.approx(
            [e[which].mean() for e in errors]
        )


def test_half_life_is_refused_where_rows_teach(days, tmp_path):
    forget = {"forget": {"half_life": "2 days"}}
    changes = LEARNERS["attribute_efficient"] | {"retrain": forget}
    spec = growing_job(days, tmp_path / "runs", **changes)
    with pytest.raises(SpecError, match="learns from the rows themselves"):
        again(spec)
