"""What folds choose among candidates, and what they say of the choice."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV

from distfms import LandmarkClassifier, LandmarkRegressor
from distfms.methods.frame.choose import best
from distfms.methods.landmarks.candidates import (
    CONSTANT,
    FoldChoice,
    Form,
    Judging,
    SampledRows,
    comparison,
    forms_of,
)
from distfms.methods.landmarks.similarity import LandmarkMap, Similarity
from distfms.stats.folds import FoldAnswers
from tests.e2e.jobs import content, run_on


def judging_of(X, y, fold):
    """Judging of numbers by products with all rows."""
    rows = SampledRows(X.T, y[np.newaxis], np.ones(len(X)), fold)
    zeros = np.zeros(X.shape[1])
    maps = {"linear": LandmarkMap(Similarity("linear"), zeros, zeros + 1, zeros, X)}
    return Judging(rows, maps, forms_of(maps, ("none",), {}), False, False)


def compared(judging):
    n_folds = judging.rows.fold.max() + 1
    return comparison(judging, [judging(fold) for fold in range(n_folds)])


@pytest.mark.parametrize("intercept", [True, False])
def test_the_constant_and_ridges_are_judged_as_their_formulas_say(intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    fold = np.arange(60) % 3
    y = X[:, 0] + 0.3 * rng.normal(size=60) + 1.0
    judging = replace(judging_of(X, y, fold), intercept=intercept)
    found = compared(judging)
    constant = [np.mean((y[fold == f] - y[fold != f].mean()) ** 2) for f in range(3)]
    np.testing.assert_allclose(found.losses[0] * y.var(), constant)
    place = 1 + int(np.argmin(np.abs(judging.grid - 0.1)))
    for f in range(3):
        train = X[fold != f]
        held_out = X[fold == f]
        centre = train.mean(axis=0) if intercept else np.zeros(3)
        level = y[fold != f].mean() if intercept else 0.0
        A = train - centre
        left = y[fold != f] - level
        w = np.linalg.solve(A.T @ A / 40 + found.candidates[place][1] * np.eye(3), A.T @ left / 40)
        expected = (held_out - centre) @ w + level
        mse = np.mean((expected - y[fold == f]) ** 2)
        assert found.losses[place, f] * y.var() == pytest.approx(mse, rel=1e-3)
    assert found.forms[0] == Form(CONSTANT)


def test_corrections_are_what_a_fold_gained_by_having_a_say():
    losses = np.array([[1.0, 1.0, 1.0], [0.0, 1.4, 1.4]])
    of_folds = tuple({"mse": losses[:, fold]} for fold in range(3))
    answers = FoldAnswers((0, 1, 2), (1, 1, 1), (1.0, 1.0, 1.0), (of_folds,))
    # All choose the second (.93); without the first fold, the first one is chosen.
    choice = FoldChoice.of(np.array([5.0, 7.0]), answers, 0, best)
    assert choice.value == 7.0
    np.testing.assert_allclose(choice.added, [1.0, 0.0, 0.0])


def test_landmarks_are_no_worse_than_a_ridge_where_all_columns_matter():
    scores = []
    ridges = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1150, 60))
        y = X @ rng.normal(size=60) / np.sqrt(60) + rng.normal(size=1150)
        model = LandmarkRegressor().fit(X[:150], y[:150])
        scores.append(model.score(X[150:], y[150:]))
        ridge = RidgeCV(np.logspace(0, 3)).fit(X[:150], y[:150])
        ridges.append(ridge.score(X[150:], y[150:]))
    assert np.mean(scores) > 0.8 * np.mean(ridges)


@pytest.mark.parametrize("classes", [False, True])
def test_noise_is_said_to_be_noise(classes):
    rng = np.random.default_rng(3)
    for _ in range(4):
        X = rng.normal(size=(60, 10))
        y = rng.normal(size=60)
        y = np.where(y > 0.8, "yes", "no") if classes else y
        model = (LandmarkClassifier if classes else LandmarkRegressor)(baselines=()).fit(X, y)
        answer = "`no`" if classes else "the mean"
        assert model.model_.headline().startswith(
            f"Do not use this model: always answering {answer} is"
        )


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_a_metric_that_is_asked_for_is_not_far_worse_than_none(kind):
    """On few rows of many columns, all of which matter, so that no metric helps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(808, 60))
    y = X @ rng.normal(size=60) + 3.0 * rng.normal(size=808) > 0
    losses = []
    for metric in ("none", kind):
        model = LandmarkClassifier("gaussian", metric=metric, baselines=())
        shares = np.asarray(model.fit(X[:208], y[:208]).predict_proba(X[208:]))
        losses.append(-np.log(shares[np.arange(600), y[208:].astype(int)]).mean())
    assert losses[1] < min(1.2 * losses[0], np.log(2))


@pytest.mark.parametrize("task", ["regression", "classification", "ordinal"])
def test_twins_and_constant_weights_change_nothing(tmp_path, task):
    """A row that occurs twice is a row of weight 2, and weights count beside their mean."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=90)
    y = score if task == "regression" else np.digitize(score, [-0.5, 0.5])
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y, id=[f"i{n}" for n in range(90)])
    twice = pd.concat([frame, frame], ignore_index=True)
    known = {"plain": frame, "twice": twice, "heavy": frame.assign(w=40.0)}
    section = {"task": task, "landmarks": 30, "baselines": []}
    results = {}
    for name, rows in known.items():
        data = {"id": "id", "folds": 3}
        if name == "heavy":
            data["weight"] = "w"
        folder = run_on(rows, tmp_path / name, "landmarks", section, data)
        selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
        point = metrics["curves"][0]["points"][-1]["validation"]
        results[name] = selection["landmarks"], selection["ridge"], point
    for name in ("twice", "heavy"):
        assert results[name][0] == results["plain"][0]
        assert results[name][1] == pytest.approx(results["plain"][1])
        for measure, value in results["plain"][2].items():
            assert results[name][2][measure] == pytest.approx(value, rel=1e-5, abs=1e-8), measure


def test_a_fold_without_which_no_metric_is_learned_judges_nothing():
    """Of eight objects of ten rows, whose classes their centres hardly tell."""
    rng = np.random.default_rng([3, 80])
    centres = rng.normal(size=(8, 3))
    is_high = centres[:, 0] + 0.8 * rng.normal(size=8) > 0
    objects = np.repeat(np.arange(8), 10)
    X = centres[objects] + 0.1 * rng.normal(size=(80, 3))
    y = np.where(is_high[objects], "high", "low")
    model = LandmarkClassifier(baselines=(), random_state=3)
    model.fit(X, y, groups=[f"o{i}" for i in objects])
    assert np.isfinite(model.predict_proba(X)).all()


def test_the_error_of_a_share_is_small_where_nearly_all_is_explained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    model = LandmarkRegressor(baselines=()).fit(X, 3 * np.exp(X[:, 0]))
    assert "explains 98 ± 2%" in model.model_.headline().replace("\u00a0", " ")
