"""Judgments of raters with heavy tails, clipped where more than 1 % are far."""

import os

import numpy as np
import pytest

import distfms as package
from distfms.data.rows.folds import assign_parts
from distfms.methods.multiselect import read
from distfms.methods.multiselect.outliers import SomeJudgments
from distfms.runs.finished import read_run
from tests.e2e.multiselect_jobs import NAMES, lists, notes, run, write

N = 300
K = 3
IDS = [f"o{i}" for i in range(300)]
TRAIN = assign_parts(np.array(IDS, dtype=object), n_folds=3, test=0.2, seed=0) < 3


def judged(tails, seed=0):
    """Judgments (N, 3, K) with t-distributed noise or normal one, and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(N, 3))
    noise = rng.standard_t(2.5, size=(N, 3, K)) if tails else rng.normal(size=(N, 3, K))
    return truth[:, :, None] + noise, truth @ [1.0, 2.0, 3.0] + 0.3 * rng.normal(size=N)


def literal_limits(X):
    """The median ± 3 median absolute deviations of training judgments of each attribute."""
    some = [X[TRAIN, a].ravel() for a in range(3)]
    return np.array(
        [np.median(x) + 3 * np.median(abs(x - np.median(x))) * np.array([-1, 1]) for x in some]
    ).T


def clipped(X):
    low, high = literal_limits(X)[:, None, :, None]
    return np.clip(X, low, high)


def columns(X, y):
    named = {name: lists(X[:, a].tolist()) for a, name in enumerate(NAMES)}
    return {"id": IDS, "y": y, **named}


@pytest.mark.parametrize(("model", "budget"), [("projected", 6), ("refit", 3)])
def test_heavy_tails_are_clipped_as_if_the_data_were(tmp_path, model, budget):
    X, y = judged(tails=True)
    raw = write(tmp_path / "raw", columns(X, y))
    options = {"budget": budget, "model": model, "baselines": ["copies"]}
    folder, selection, metrics, manifest = run(raw, tmp_path / "a", multiselect=options)
    before = write(tmp_path / "clipped", columns(clipped(X), y))
    off = {**options, "robust": False}
    other, selection_, metrics_, _ = run(before, tmp_path / "b", multiselect=off)
    assert "Judgments are clipped to the median ± 3 median absolute deviations" in notes(manifest)
    assert selection["path"] == selection_["path"]
    assert metrics == metrics_
    mine = package.load(folder)
    theirs = package.load(other)
    rows = {name: X[:, a].tolist() for a, name in enumerate(NAMES)}
    within = {name: clipped(X)[:, a].tolist() for a, name in enumerate(NAMES)}
    for less in (None, 3) if model == "projected" else (None,):
        predicted = mine.predict(rows, budget=less)["predicted_y"]
        assert predicted == theirs.predict(within, budget=less)["predicted_y"]
        assert predicted != theirs.predict(rows, budget=less)["predicted_y"]
    worse = run(raw, tmp_path / "c", multiselect=off)[2]
    assert metrics["test"]["projected_loss"] < 0.95 * worse["test"]["projected_loss"]


def test_files_that_were_copied_later_give_the_same_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "_SOME", 700)
    data = write(tmp_path, columns(*judged(tails=True)))
    weights = []
    for seconds in (1, 2):
        os.utime(data, (seconds, seconds))
        folder, *_, manifest = run(data, tmp_path / str(seconds))
        assert "Judgments are clipped" in notes(manifest)
        weights.append((folder / "weights.npz").read_bytes())
    assert weights[0] == weights[1]


def some(values, labels=None):
    return SomeJudgments(values, np.zeros(values.shape) if labels is None else labels)


def test_limits_are_of_what_varies_and_far_judgments_have_to_be_many():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 2000))
    values[1] = rng.random(2000) < 0.3
    values[2] = np.nan
    limits = some(values).limits()
    assert np.isinf(limits[:, 1:]).all()
    assert np.isfinite(limits[:, 0]).all()
    values[0, :8] = 1e3  # 0.4 %
    assert some(values).far_share() < 0.01
    values[0, :40] = 1e3
    assert some(values).far_share() >= 0.02
    assert some(values[:, :9]).far_share() == 0  # too few to tell


@pytest.mark.parametrize("skewed", [True, False])
def test_far_judgments_of_far_objects_are_not_clipped(tmp_path, skewed):
    """Where attributes are skewed and raters exact, what is far tells most of the label."""
    rng = np.random.default_rng(1)
    truth = np.exp(rng.normal(size=(N, 3))) if skewed else rng.normal(size=(N, 3))
    noise = 0.3 * rng.normal(size=(N, 3, K)) if skewed else rng.standard_t(2, size=(N, 3, K))
    X = truth[:, :, None] + noise
    y = truth.sum(axis=1)
    folder, *_ = run(write(tmp_path / "data", columns(X, y)), tmp_path / "runs")
    limits = read_run(folder).open()[1].weights["limits"]
    assert np.isinf(limits).all() == skewed
