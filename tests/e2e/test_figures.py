"""Figures of ``metrics.json`` are those of what `distfms predict` predicts of the same rows."""

import numpy as np
import pandas as pd
import pytest

from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, run_on
from tests.reference.landmarks import mean_ndcg

N = 240
LEVELS = [1.0, 2.0, 5.0]
JUDGED = ["tall", "warm", "loud"]
TREES = {"model": "lightgbm", "lightgbm": {"num_iterations": 5, "min_data_in_leaf": 5}}
REFIT = {"budget": 3, "model": "refit", "ridge": 0.1}
FEW = {"attributes_per_example": 2, "repeats": 0}

FAMILIES = {"number": "gaussian", "flag": "logistic", "name": "softmax", "count": "poisson"}
TASKS = {
    "numbers": ("number", "regression"),
    "sparse": ("number", "sparse"),
    "two classes": ("flag", "classification"),
    "classes": ("name", "classification"),
    "ordinal": ("level", "ordinal"),
    "ranking": ("grade", "ranking"),
}
#: Method, target and options of each form.
FORMS = {
    f"{model}, {family}": ("sequence", target, {**options, "family": family})
    for model, options in (("linear", {}), ("trees", TREES))
    for target, family in FAMILIES.items()
}
FORMS |= {
    f"landmarks, {name}": ("landmarks", target, {"task": task, "landmarks": 12})
    for name, (target, task) in TASKS.items()
}
FORMS |= {
    "splines": ("sequence", "number", {"expand": {"splines": 2, "missing": True}}),
    "judgments by position": ("multiselect", "number", {**REFIT, "raters": "positions"}),
    "judgments": ("multiselect", "number", {**REFIT, "raters": "ignore"}),
    "pairs": ("attribute_efficient", "number", {**FEW, "solver": "auto"}),
    "pairs, noise": ("attribute_efficient", "noise", {**FEW, "solver": "auto"}),
    "online": ("attribute_efficient", "number", {**FEW, "solver": "online"}),
}
#: Forms in which folds choose nothing and share nothing, as landmarks and knots of others.
APART = (*(form for form in FORMS if form.startswith(("linear", "trees"))), "online")
#: Fits of generalised linear models end near the minimum; others are exact.
OF_FITS = 1e-7
#: A form of each method is run on all engines, which give the same bits of the others, too.
EVERYWHERE = ("linear, softmax", "landmarks, ordinal", "judgments", "pairs")
CELLS = [pytest.param(form, "threads") for form in FORMS] + [
    pytest.param(form, engine, marks=pytest.mark.slow)
    for form in EVERYWHERE
    for engine in ("processes", "dask", "ray")
]


def rows():
    """Numbers with gaps, a category, judgments, queries, weights, and targets of all kinds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 4))
    signal = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=N)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[rng.random(N) < 0.1, "a"] = np.nan
    frame["kind"] = rng.choice(["x", "y"], N)
    for column, name in enumerate(JUDGED):
        given = rng.integers(0, 4, size=N)
        frame[name] = [X[i, column] + rng.normal(size=n) for i, n in enumerate(given)]
    frame["id"] = np.arange(N)
    frame["query"] = np.repeat(np.arange(N // 4), 4)
    frame["weight"] = rng.integers(1, 4, size=N)
    level = np.digitize(signal, [-0.5, 0.7])
    frame["number"] = 1e3 + signal
    frame["noise"] = rng.normal(size=N)
    frame["flag"] = np.where(level > 1, "yes", "no")
    frame["name"] = np.array(["p", "q", "r"])[level]
    frame["level"] = np.array(LEVELS)[level]
    frame["grade"] = level
    frame["count"] = rng.poisson(np.exp(0.4 * X[:, 0])).astype(float)
    return frame


def data_of(method, target):
    """The data section of a form."""
    features = {"multiselect": JUDGED, "attribute_efficient": list("bcd")}.get(method, list("abcd"))
    data = {"target": target, "features": features, "folds": 3, "test": 0.25}
    if method == "sequence":
        data["features"] = [*features, "kind"]
    if method in ("sequence", "landmarks"):
        data["missing"] = "mean"
    if target == "grade":
        return {**data, "query": "query"}
    data["id"] = "id"
    return data if method == "attribute_efficient" else {**data, "weight": "weight"}


def log_loss(truth, found, weight):
    """The mean logarithmic loss of probabilities."""
    shares = [found.loc[row, f"probability_{label}"] for row, label in truth.items()]
    return np.average(-np.log(shares), weights=weight)


def deviance(target, own, found):
    """The name and the value of the mean deviance of predictions of a sequence."""
    truth = own[target]
    weight = own["weight"]
    if target == "number":
        return "mse", np.average((truth - found["predicted_number"]) ** 2, weights=weight)
    if target == "count":
        mean = found["predicted_count"]
        logs = np.where(truth > 0, truth * np.log(np.maximum(truth, 1e-9) / mean), 0.0)
        return "deviance", np.average(2 * (logs - (truth - mean)), weights=weight)
    return "deviance", 2 * log_loss(truth, found, weight)


def measures(method, target, own, found):
    """Measures of predictions of rows, written out."""
    if method == "sequence":
        return dict([deviance(target, own, found)])
    truth = own[target]
    predicted = found[f"predicted_{target}"]
    weight = None if method == "attribute_efficient" else own["weight"]
    if target == "grade":
        ranked = predicted.to_numpy(), truth.to_numpy(), own["query"].to_numpy()
        return {"ndcg@5": mean_ndcg(*ranked, 5), "ndcg": mean_ndcg(*ranked, None)}
    if target in ("number", "noise"):
        mse = np.average((truth - predicted) ** 2, weights=weight)
        if method == "multiselect":
            return {"mse": mse, "n_objects_with_all_judgments": len(own)}
        if method != "landmarks":
            return {"mse": mse}
        variance = np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight)
        return {"mse": mse, "r2": 1.0 - mse / variance}
    error = np.average(truth != predicted, weights=weight)
    if target == "level":
        places = [np.searchsorted(LEVELS, values) for values in (truth, predicted)]
        return {"error": error, "mae": np.average(np.abs(places[0] - places[1]), weights=weight)}
    return {"error": error, "loss": log_loss(truth, found, weight)}


class Finished:
    """A finished job of a form."""

    def __init__(self, form, frame, output, engine):
        self.method, self.target, options = FORMS[form]
        if self.method == "sequence":
            options = {"ridge": 0.3, "model": "linear", "criterion": "fr", **options}
        if self.method in ("sequence", "landmarks"):
            options = {"baselines": [], **options}
        data = data_of(self.method, self.target)
        self.output = output
        self.folder = run_on(frame, output, self.method, options, data, engine=engine)
        self.metrics = content(self.folder, "metrics.json")

    def predictions(self, frame, budget=1e9):
        """Predict rows, but where judgments are lacking, of which no figure speaks."""
        frame.to_parquet(self.output / "new.parquet")
        out = self.output / "out.parquet"
        how = {"budget": budget} if self.method == "sequence" else {}
        predict_file(self.folder, str(self.output / "new.parquet"), out, with_folds=True, **how)
        found = pd.read_parquet(out).set_axis(frame.index)
        return found[found["judgments_lacking"] == 0] if self.method == "multiselect" else found

    def require(self, figures, frame, found, rel=1e-9):
        """Check figures against predictions of the same rows."""
        for name, value in measures(
            self.method, self.target, frame.loc[found.index], found
        ).items():
            assert figures[name] == pytest.approx(value, rel=rel), name


def require_curve(done, frame):
    """Check the shares that a sequence explains for each budget."""
    points = done.metrics["curves"][0]["points"]
    share = "explained_variance" if done.target == "number" else "explained_deviance"
    found = [done.predictions(frame, budget=point["budget"]) for point in points]
    held_out = found[0]["held_out"]
    for part, own in (("train", ~held_out), ("test", held_out)):
        losses = np.array([deviance(done.target, frame[own], of[own])[1] for of in found])
        shares = [point[part][share] for point in points]
        assert shares[-1] == done.metrics[part][share]
        np.testing.assert_allclose(shares, 1 - losses / losses[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("form", "engine"), CELLS, indirect=["engine"])
def test_figures_are_those_of_the_predictions(form, engine, tmp_path):
    frame = rows()
    done = Finished(form, frame, tmp_path / "all", engine)
    found = done.predictions(frame)
    done.require(done.metrics["train"], frame, found[~found["held_out"]])
    done.require(done.metrics["test"], frame, found[found["held_out"]])
    if done.method == "sequence":
        require_curve(done, frame)
    if form in APART:
        # A fold is judged by the model of a job that never saw its rows.
        fold = found["fold"] == 0
        others = Finished(form, frame[~fold], tmp_path / "others", engine)
        rel = OF_FITS if form.startswith("linear") else 1e-9
        others.require(done.metrics["folds"][0], frame, others.predictions(frame[fold]), rel)
