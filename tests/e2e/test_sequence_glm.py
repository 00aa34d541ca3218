"""Generalised linear sequencing jobs, from Parquet to predictions, against scikit-learn."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from distfms.data.rows.folds import assign_parts
from distfms.errors import SpecError
from distfms.methods.frame import passes
from distfms.methods.sequence import form
from distfms.runs import context as contexts
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, results, spec_of

RIDGE = 1e-3
GROUPS = {"left": ["a", "b"], "right": ["c", "d"], "noise": "n*"}
COSTS = {"left": 2.0, "right": 3.0, "noise": 1.5}


def write_rows(folder, target, n=360, n_files=3, seed=0, **more):
    """Write eight columns in odd units, in several files; `target` gives y from the scores."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 6))
    Z[:, 3] += 0.8 * Z[:, 0]
    scores = np.column_stack([Z[:, 0] - 0.5 * Z[:, 1], Z[:, 2], 0.8 * Z[:, 3]])
    X = Z * [1.0, 30.0, 0.01, 5.0, 1.0, 2.0] + [0.0, 10.0, 1e3, 0.0, 7.0, 0.0]
    names = ["a", "b", "c", "d", "n1", "n2"]
    columns = {"id": np.arange(n), "y": target(scores, rng), **dict(zip(names, X.T, strict=True))}
    columns |= {name: make(scores, rng) for name, make in more.items()}
    table = pa.table(columns)
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(n), n_files)):
        pq.write_table(table.take(rows), folder / f"part-{number}.parquet")
    return table


def labels(scores, rng):
    return (scores.sum(axis=1) + rng.logistic(size=len(scores)) > 0.4).astype(float)


def three_classes(scores, rng):
    return np.array([3, 5, 9])[(1.5 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]


def job(path, output, family, **changes):
    content = {
        "name": "glm",
        "method": "sequence",
        "data": {"path": str(path), "target": "y", "id": "id"},
        "sequence": {
            "groups": GROUPS,
            "costs": COSTS,
            "ridge": RIDGE,
            "model": "linear",
            "family": family,
        },
        "engine": {"workers": 1},
        "output": str(output),
    }
    return spec_of(content, changes)


def finished(spec, name):
    folder = run_job(spec, out=Path(spec.output.path) / name).folder
    return folder, *(content(folder, f"{n}.json") for n in ("selection", "metrics"))


def predicted(folder, data, out, budget=1e9):
    predict_file(folder, str(data), out, budget=budget)
    return pq.read_table(out)


def numbers(table, names):
    return np.column_stack([np.asarray(table.column(name), dtype=float) for name in names])


@pytest.mark.parametrize(
    ("family", "weights"),
    [("logistic", "balanced"), ("logistic", {"1": 5.0}), ("softmax", "balanced")],
)
def test_class_weights_are_those_of_scikit_learn_but_probabilities_are_of_the_true_classes(
    tmp_path, family, weights
):
    def rare(scores, rng):
        latent = scores.sum(axis=1) + rng.logistic(size=len(scores))
        return np.digitize(latent, [2.5] if family == "logistic" else [1.0, 2.5]).astype(float)

    table = write_rows(tmp_path / "data", rare, n=600)
    options = {"sequence": {"class_weights": weights}, "data": {"test": 0.4}}
    folder, _, metrics = finished(job(tmp_path / "data", tmp_path, family, **options), "run")
    X = numbers(table, ["a", "b", "c", "d", "n1", "n2"])
    y = np.asarray(table.column("y"))
    test = assign_parts(table.column("id").to_numpy(), n_folds=0, test=0.4, seed=0) == 1
    own = y.astype(int)
    known = np.array([1.0, 5.0])
    if weights == "balanced":
        rows = np.bincount(own[~test])
        known = rows.sum() / (len(rows) * rows)
    weight = known[own]
    assert metrics["class_weights"] == pytest.approx({f"{k}": w for k, w in enumerate(known)})
    other = LogisticRegression(
        C=1.0 / (RIDGE * weight[~test].sum()), tol=1e-10, max_iter=2000,
        class_weight=dict(enumerate(known)),
    )  # fmt: skip
    other = make_pipeline(StandardScaler(), other).fit(X[~test], y[~test])
    predictions = predicted(folder, tmp_path / "data", tmp_path / "all.parquet")
    names = [f"probability_{k}" for k in range(len(known))]
    shares = numbers(predictions, names)
    weighted = other.predict_proba(X)
    odds = weighted / known
    np.testing.assert_allclose(shares, odds / odds.sum(axis=1, keepdims=True), atol=1e-5)
    frequent = np.bincount(own[~test]) / (~test).sum()
    np.testing.assert_allclose(shares[~test].mean(axis=0), frequent, atol=0.015)
    decoded = np.asarray(predictions.column("predicted_y"))
    assert (decoded == other.predict(X)).all()
    stopped = predicted(folder, tmp_path / "data", tmp_path / "stopped.parquet", None)
    chosen = np.asarray(stopped.column("predicted_y"))[test]
    assert metrics["classes"]["confusion"] == confusion_matrix(y[test], chosen).tolist()
    if family == "logistic":
        assert metrics["classes"]["threshold"] == pytest.approx(known[0] / known.sum())
    # What is explained is explained of the weighted rows, against their own share.
    null = np.bincount(own[~test], weight[~test]) / weight[~test].sum()
    losses = [
        log_loss(y[test], p[test], sample_weight=weight[test])
        for p in (weighted, np.tile(null, (len(y), 1)))
    ]
    assert metrics["test"]["deviance"] == pytest.approx(2 * losses[0], rel=1e-4)
    explained = 1 - losses[0] / losses[1]
    assert metrics["test"]["explained_deviance"] == pytest.approx(explained, abs=1e-5)
    assert "weighs rows by class" in (folder / "report.html").read_text()


@pytest.mark.parametrize("threshold", ["f1", {"cost": [1, 9]}, 0.2])
def test_the_threshold_is_chosen_on_folds_and_decides_the_class(tmp_path, threshold):
    rare = lambda s, r: (s.sum(axis=1) + r.logistic(size=len(s)) > 2.5).astype(float)  # noqa: E731
    table = write_rows(tmp_path / "data", rare)
    options = {"sequence": {"threshold": threshold}, "data": {"folds": 3, "test": 0.3}}
    folder, _, metrics = finished(job(tmp_path / "data", tmp_path, "logistic", **options), "run")
    chosen = metrics["classes"]["threshold"]
    predictions = predicted(folder, tmp_path / "data", tmp_path / "p.parquet", None)
    y = np.asarray(table.column("y"))
    share = np.asarray(predictions.column("probability_1"))
    decoded = np.asarray(predictions.column("predicted_y"))
    assert (decoded == (share >= chosen)).all()
    assert chosen == 0.2 if threshold == 0.2 else 0.05 < chosen < 0.6
    test = assign_parts(table.column("id").to_numpy(), n_folds=3, test=0.3, seed=0) == 3
    assert metrics["classes"]["confusion"] == confusion_matrix(y[test], decoded[test]).tolist()
    assert "is at least" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("logistic", {}, "folds"),
        ("poisson", {"data": {"folds": 3}}, "only the families"),
        ("softmax", {"data": {"folds": 3}}, "two classes; 'y' has 3"),
    ],
)
def test_thresholds_that_cannot_be_chosen(tmp_path, family, changes, message):
    write_rows(tmp_path / "data", three_classes, n=60)
    changes = {"sequence": {"threshold": "f1"}, **changes}
    with pytest.raises(SpecError, match=message):
        finished(job(tmp_path / "data", tmp_path, family, **changes), "run")


def test_the_ridge_is_the_best_in_cross_validation(tmp_path):
    table = write_rows(tmp_path / "data", three_classes, n=60)
    spec = job(
        tmp_path / "data", tmp_path, "softmax", data={"folds": 3}, sequence={"ridge": "auto"}
    )
    folder, selection, metrics = finished(spec, "run")
    X = numbers(table, ["a", "b", "c", "d", "n1", "n2"])
    y = np.asarray(table.column("y"))
    parts = assign_parts(table.column("id").to_numpy(), n_folds=3, test=0.0, seed=0)
    part = np.bincount(parts) / len(parts)
    values = content(folder, "ridge.json")["tried"]
    means = []
    by_ridge = []
    for entry in values:
        nulls = []
        deviances = []
        for fold in range(3):
            train = parts != fold
            test = parts == fold
            model = LogisticRegression(
                C=1 / (entry["ridge"] * train.sum()), tol=1e-10, max_iter=5000
            )
            model = make_pipeline(StandardScaler(), model).fit(X[train], y[train])
            null = np.log([[(y == k).mean() for k in (3, 5, 9)]] * len(y))
            own = np.searchsorted([3, 5, 9], y)[test]
            losses = [
                -logs[test][np.arange(test.sum()), own].mean()
                for logs in (model.predict_log_proba(X), null)
            ]
            deviances.append(2 * losses[0])
            nulls.append(2 * losses[1])
        means.append(part @ deviances)
        mean = part @ nulls
        left = means[-1] / mean
        away = (deviances - left * np.array(nulls)) / np.clip(nulls, mean / 2, mean)
        by_ridge.append(1 - left - away + part @ away)
    np.testing.assert_allclose([entry["loss"] for entry in values], means, 1e-4, atol=1e-4)
    best = int(np.argmin(means))
    assert selection["ridge"] == values[best]["ridge"] > 1e-5
    folds = [fold["explained_deviance"] for fold in metrics["folds"]]
    np.testing.assert_allclose(folds, by_ridge[best], atol=1e-4)
    last = metrics["curves"][0]["points"][-1]["validation"]
    assert last["explained_deviance"] == pytest.approx(part @ by_ridge[best], abs=1e-4)
    # Without held-out rows the classes are told apart on the folds, each by the others' model.
    assert metrics["classes"]["rows"] == "validation"
    assert np.sum(metrics["classes"]["confusion"]) == 60


def test_bits_do_not_depend_on_where_rows_are_kept(tmp_path, monkeypatch):
    write_rows(tmp_path / "data", labels)
    folders = []
    reads = []
    for workers, kept in ((1, True), (2, False), (2, None)):
        if kept is not None:
            monkeypatch.setattr(form, "SAMPLED_ROWS", 200)
            monkeypatch.setattr(contexts, "ACTORS_PAY_OPERATIONS", 1e12)
            monkeypatch.setattr(passes, "keeps_rows", lambda n_bytes, kept=kept: kept)
        else:
            monkeypatch.undo()
        output = tmp_path / f"out-{len(folders)}"
        data = {"test": 0.25, "folds": 2}
        options = {"baselines": []}
        spec = job(
            tmp_path / "data", output, "logistic", data=data, sequence=options,
            engine={"workers": workers},
        )  # fmt: skip
        folder, selection, _ = finished(spec, "run")
        folders.append(folder)
        stages = content(folder, "manifest.json")["stages"]
        reads.append(next(s.get("n_read", 0) for s in stages if s["name"] == "select"))
        cached = list((output / ".kept").rglob("*.kept"))
        # Classes, and moments with rows for trees, of three partitions; nothing of passes.
        assert len(cached) == 3
    assert results(folders[0]) == results(folders[1])
    # Where all rows are in memory from the first, they are not read again.
    assert reads == [3, 3 * selection["n_passes"], 0]
    by_passes, in_memory = (content(folder, "metrics.json") for folder in folders[1:])
    for rows in ("train", "test"):
        assert in_memory[rows] == pytest.approx(by_passes[rows], rel=1e-5)
