"""What is judged is what ships: every figure of rows is that of their predictions."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, run_on
from tests.reference.landmarks import mean_ndcg

N = 160


def rows(task, weighted):
    """Rows of 40 queries or objects, whose target has a heavy tail."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    score = np.exp(X[:, 0] + 0.5 * X[:, 1]) + 0.3 * rng.normal(size=N)
    level = np.digitize(score, np.quantile(score, [0.5, 0.8]))
    targets = {
        "regression": score,
        "sparse": score,
        "two": np.where(level > 0, "yes", "no"),
        "classification": np.array(["a", "b", "c"])[level],
        "ordinal": np.array([1.0, 2.0, 5.0])[level],
        "ranking": level,
    }
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=targets[task])
    frame["q" if task == "ranking" else "id"] = np.repeat(np.arange(N // 4), 4)
    return frame.assign(w=rng.integers(1, 4, size=N)) if weighted else frame


def measures(task, found, weight):
    """Measures of predictions, written out."""
    truth = found["y"]
    predicted = found["predicted_y"]
    if task == "ranking":
        known = [found[name].to_numpy() for name in ("predicted_y", "y", "q")]
        return {"ndcg@5": mean_ndcg(*known, 5), "ndcg": mean_ndcg(*known, None)}
    if task in ("regression", "sparse"):
        mse = np.average((truth - predicted) ** 2, weights=weight)
        variance = np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight)
        return {"mse": mse, "r2": 1.0 - mse / variance}
    error = np.average(truth != predicted, weights=weight)
    if task == "ordinal":
        places = [np.searchsorted([1.0, 2.0, 5.0], own) for own in (truth, predicted)]
        return {"error": error, "mae": np.average(np.abs(places[0] - places[1]), weights=weight)}
    shares = [found.loc[n, f"probability_{label}"] for n, label in truth.items()]
    return {"error": error, "loss": np.average(-np.log(shares), weights=weight)}


WEIGHABLE = ("regression", "sparse", "two", "classification", "ordinal")


# The mean NDCG is over queries, which have no weights.
@pytest.mark.parametrize(
    ("task", "weighted"), [*product(WEIGHABLE, (False, True)), ("ranking", False)]
)
def test_figures_are_those_of_predictions(tmp_path, task, weighted):
    frame = rows(task, weighted)
    out = tmp_path / "out.parquet"
    data = {"folds": 3, "test": 0.3}
    data |= {"query": "q"} if task == "ranking" else {"id": "id"}
    data |= {"weight": "w"} if weighted else {}
    section = {"task": "classification" if task == "two" else task, "baselines": []}
    section |= {"keep": 6} if task == "sparse" else {"landmarks": 12}
    folder = run_on(frame, tmp_path, "landmarks", section, data)
    predict_file(folder, str(tmp_path / "rows.parquet"), out, with_folds=True)
    found = pd.read_parquet(out)
    found = found.assign(y=frame["y"], q=frame.get("q"))
    metrics = content(folder, "metrics.json")
    for part, held_out in (("train", False), ("test", True)):
        own = found["held_out"] == held_out
        weight = frame.loc[own, "w"].to_numpy() if weighted else np.ones(own.sum())
        for name, value in measures(task, found[own], weight).items():
            assert metrics[part][name] == pytest.approx(value, rel=1e-9), (part, name)
