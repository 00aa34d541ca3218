"""Sequences whose prefixes have models of LightGBM, against LightGBM on the same columns."""

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.errors import SpecError
from distfms.runs.predict import predict_file
from distfms.solve.trees import DEFAULTS, FIXED, inputs_of
from tests.e2e.jobs import content, run_on

OWN = {"num_iterations": 15, "min_data_in_leaf": 5}
CLASSES = ["high", "low", "mid"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of a gappy number, a category with gaps, and two other numbers, in two files."""
    folder = tmp_path_factory.mktemp("trees")
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame({name: rng.normal(size=n) for name in ("a", "b", "c")})
    frame["ward"] = rng.choice(["east", "north", "west"], n)
    score = np.sin(2 * frame["a"]) + (frame["ward"] == "north") - 0.5 * frame["b"] ** 2
    frame["y"] = score + 0.2 * rng.normal(size=n)
    frame["kind"] = np.array(CLASSES)[np.digitize(frame["y"], [-0.5, 0.5])]
    frame["flag"] = (frame["y"] > 0.2).astype(float)
    frame.loc[::7, "a"] = np.nan
    frame.loc[::11, "ward"] = None
    frame["id"] = np.arange(n)
    for part, own in enumerate(np.array_split(np.arange(n), 2)):
        pq.write_table(pa.Table.from_pandas(frame.iloc[own]), folder / f"{part}.parquet")
    return folder, frame


TARGETS = {"gaussian": "y", "logistic": "flag", "softmax": "kind"}


def run(rows, output, family="gaussian", sequence=(), **roles):
    folder, _ = rows
    data = {"target": TARGETS[family], "id": "id", "missing": "mean", "folds": 2, "test": 0.25}
    data["exclude"] = [name for name in ("y", "kind", "flag") if name != TARGETS[family]]
    options = {"family": family, "model": "lightgbm", "lightgbm": OWN, "ridge": 1e-3}
    return run_on(folder, output, "sequence", options | dict(sequence), data | roles)


@pytest.mark.parametrize(
    ("family", "objective", "own"),
    [
        ("gaussian", "regression", OWN),
        ("logistic", "binary", OWN),
        ("softmax", "multiclass", OWN),
        ("logistic", "binary", {"min_data_in_leaf": 5}),  # as many trees as folds find best
    ],
)
def test_models_are_those_of_lightgbm_on_the_columns_of_a_prefix(
    rows, tmp_path, monkeypatch, family, objective, own
):
    monkeypatch.setattr("distfms.methods.sequence.problem._FEW", 3)
    folder = run(rows, tmp_path, family, {"lightgbm": own})
    selection = content(folder, "selection.json")
    assert selection["refit_at"] == [1, 2, 4]
    _, frame = rows
    frame = frame.assign(ward=pd.Categorical(frame["ward"]).codes)
    frame["ward"] = frame["ward"].where(frame["ward"] >= 0)
    parts = assign_parts(frame["id"].to_numpy(), n_folds=2, test=0.25, seed=0)
    # Rows of a batch come file by file and fold by fold.
    order = np.concatenate([np.flatnonzero((frame["id"] // 200 == f) & (parts == p))
                            for f in (0, 1) for p in (0, 1)])  # fmt: skip
    y = frame[TARGETS[family]]
    y = y.map(CLASSES.index) if family == "softmax" else y
    for budget, length in ((1.0, 1), (3.0, 2), (4.0, 4)):
        steps = {step["group"] for step in selection["sequence"][:length]}
        names = [name for name in ("a", "b", "c", "ward") if name in steps]
        out = tmp_path / "p.parquet"
        summary = predict_file(folder, str(rows[0]), out, budget=budget)
        parameters = {**DEFAULTS, **FIXED, **own, "objective": objective}
        parameters |= {"num_class": 3} if family == "softmax" else {}
        X = frame[names].to_numpy(dtype=float)
        category = [names.index("ward")] if "ward" in names else []
        data = lightgbm.Dataset(
            X[order], y.to_numpy()[order], categorical_feature=category, params=parameters
        )
        if own is not OWN:
            first, other = (np.flatnonzero(parts[order] == fold) for fold in (0, 1))
            stop = [lightgbm.early_stopping(20, verbose=False)]
            valid = [data.subset(first)]
            tried = lightgbm.train(parameters, data.subset(other), 300, valid, callbacks=stop)
            parameters["num_iterations"] = tried.best_iteration
            assert 2 < tried.best_iteration < 200
        expected = lightgbm.train(parameters, data).predict(X).reshape(len(X), -1)
        found = pq.read_table(out).to_pandas()
        columns = [f"predicted_{TARGETS[family]}"]
        if family != "gaussian":
            columns = [c for c in found.columns if c.startswith("probability")][
                -expected.shape[1] :
            ]
        np.testing.assert_allclose(found[columns], expected, rtol=1e-6)
    assert "taken by LightGBM as missing: " in summary


def test_codes_of_categories_stay_where_levels_are_not_read():
    # Rows of a batch: a number, then the third and the fourth of four levels; a second number.
    spans = np.array([[0, 1, 0], [1, 5, 4], [5, 6, 0]])
    rows = np.array([0, -1, -1, 1, 2, -1])
    values = np.array([[7.0, 8.0, np.nan, 9.0], [1, 0, 0, np.nan], [0, 1, 0, np.nan]])
    found = inputs_of(values, rows, spans)
    np.testing.assert_array_equal(found[:, 0], values[0])
    np.testing.assert_array_equal(found[:, 1], [2.0, 3.0, np.nan, np.nan])
    assert np.isnan(found[:, 2]).all()


def test_what_lightgbm_cannot_do_is_said(rows, tmp_path):
    with pytest.raises(SpecError, match="`num_threads`, which the job decides"):
        run(rows, tmp_path, sequence={"lightgbm": {"num_threads": 4}})
    with pytest.raises(SpecError, match=r"names 2"):
        run(rows, tmp_path, target=["y", "flag"], exclude=["kind"])
