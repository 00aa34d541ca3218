"""Figures of ``metrics.json`` are those of what `distfms predict` predicts of the same rows."""

from itertools import product

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, run_on

N_ROWS = 240
SMALL_TREES = {"num_iterations": 5, "min_data_in_leaf": 5}


def rows(seed):
    """Numbers with gaps, a category, weights, and targets of every family."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 3))
    signal = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=N_ROWS)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["kind"] = rng.choice(["x", "y"], N_ROWS)
    frame["w"] = rng.uniform(0.5, 2.0, N_ROWS)
    frame["gaussian"] = 1e3 + signal
    frame["other"] = 1e-3 * signal + X[:, 2]
    frame["logistic"] = np.where(signal > 0.7, "yes", "no")
    frame["softmax"] = np.array(["p", "q", "r"])[np.digitize(signal, [-0.5, 0.7])]
    frame["poisson"] = rng.poisson(np.exp(0.4 * X[:, 0])).astype(float)
    frame.loc[rng.random(N_ROWS) < 0.1, "a"] = np.nan
    return frame


def mean_loss(family, truth, predictions, weight):
    """The mean loss over rows of predictions, as the family has it."""
    if family == "gaussian":
        return np.average((truth - predictions["predicted_gaussian"]) ** 2, weights=weight)
    if family == "poisson":
        mean = predictions["predicted_poisson"]
        logs = np.where(truth > 0, truth * np.log(np.maximum(truth, 1e-9) / mean), 0.0)
        return np.average(2 * (logs - (truth - mean)), weights=weight)
    share = np.zeros(len(truth))
    for name in np.unique(truth):
        share = np.where(truth == name, predictions[f"probability_{name}"], share)
    return np.average(-2 * np.log(share), weights=weight)


@pytest.mark.parametrize(
    ("family", "model"),
    list(product(["gaussian", "logistic", "softmax", "poisson"], ["linear", "lightgbm"])),
)
def test_figures_are_those_of_the_predictions(family, model, tmp_path):
    frame = rows(1)
    data = {"target": family, "weight": "w", "features": ["a", "b", "c", "kind"]}
    data |= {"folds": 3, "test": 0.25, "missing": "mean"}
    section = {"family": family, "model": model, "ridge": 0.3, "baselines": []}
    section |= {"lightgbm": SMALL_TREES, "criterion": "fr"}
    if family == "gaussian":
        section["expand"] = {"splines": 2, "missing": True}
    folder = run_on(frame, tmp_path, "sequence", section, data)
    metrics = content(folder, "metrics.json")
    path = str(tmp_path / "rows.parquet")
    share = "explained_variance" if family == "gaussian" else "explained_deviance"
    points = metrics["curves"][0]["points"]
    assert points[-1]["train"][share] == metrics["train"][share]
    losses = {"train": [], "test": []}
    for point in points:
        out = tmp_path / f"{len(losses['train'])}.parquet"
        predict_file(folder, path, out, budget=point["budget"], with_folds=True)
        predictions = pq.read_table(out).to_pandas()
        is_test = predictions["held_out"].to_numpy()
        for name, chosen in (("train", ~is_test), ("test", is_test)):
            own = frame[chosen]
            loss = mean_loss(family, own[family].to_numpy(), predictions[chosen], own["w"])
            losses[name].append(loss)
    for name, found in losses.items():
        shares = [point[name][share] for point in points]
        np.testing.assert_allclose(shares, 1 - np.array(found) / found[0], rtol=1e-9, atol=1e-9)
