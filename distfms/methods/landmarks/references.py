"""What models on landmarks are compared with: a linear model, kernel regression, LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import Judge, JudgedRows
from distfms.methods.frame.outcomes import Numbers
from distfms.methods.landmarks.read import LandmarkData
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import coded
from distfms.solve.trees import FIXED, MOST_VALUES, fitted, scores
from distfms.stats.base import HELD_OUT, Folded
from distfms.stats.sample import RowSample

#: A sum of similarities counts as none where it is at most this part of the sum of their sizes.
_NO_WEIGHT = 1e-6
#: Rows that similarities to all rows of a sample are computed for at a time, and the most of these.
_BLOCK_ROWS, _SIMILARITIES = 512, 2**25
#: Rows of a fold, or of held-out rows, that references are judged on, and rows that kernel
#: regression compares with.
_JUDGED, _MOST_PAIRED = 4096, 50_000
#: What references are judged by.
_MEASURES = ("mse", "mae", "error")
CONSTANT = "constant"
LINEAR = "linear model on the columns"
TREES = "LightGBM"
#: Ridges of a linear model.
_RIDGES = np.logspace(-4.0, 6.0, 21)
#: Parameters of LightGBM that it has by itself.
_DEFAULTS = {"num_leaves": 31, "num_iterations": 100, "seed": 0}


def references(run: Run, data: LandmarkData) -> dict[str, Any]:
    """Return the errors of what is fitted to a sample of the rows, by name; within a step."""
    options = data.form.options
    n_features = data.plan.n_features
    classes = data.class_values
    if options.task == "ranking" or options.is_precomputed:
        return {}
    tried = dict[str, tuple[Predict, int]]()
    most_rows = max(MOST_VALUES // n_features, 2)
    if "columns" in options.baselines:
        plain = next(iter(data.plain.values()))
        tried[CONSTANT] = (partial(constant, options.task), _MOST_PAIRED)
        tried[LINEAR] = (partial(linear_model, options.task, plain), most_rows)
    has_several = options.task == "classification" and len(classes or ()) > 2
    if "kernel_regression" in options.baselines and not has_several:
        for label, mapping in data.plain.items():
            name = f"kernel regression, {label}"
            tried[name] = (partial(kernel_regression, mapping), _MOST_PAIRED)
    if "lightgbm" in options.baselines:
        tried[TREES] = (partial(boosted_trees, options.task), most_rows)
    errors = dict[str, Any]()
    for name, (predict, most) in tried.items():
        judge = partial(errors_on, predict, classes, n_features)
        errors[name] = reference_errors(run, judge, data.landmarks.sample, most)
    return errors


def constant(
    task: str, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict the most frequent class, or the mean."""
    answer = np.bincount(target.astype(int)).argmax() if task == "classification" else target.mean()
    return np.full(rows.shape[1], float(answer)), 0


def linear_model(
    task: str, plain: LandmarkMap, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict by logistic regression, or by the ridge that leaves rows out, on scaled columns."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not np.ptp(target):
        return constant(task, train, target, rows)
    kind = LogisticRegression(max_iter=1000) if task == "classification" else RidgeCV(_RIDGES)
    model = make_pipeline(StandardScaler(), kind)
    model.fit(plain.scaled(train).T, target)
    return np.asarray(model.predict(plain.scaled(rows).T), dtype=float), 0


def kernel_regression(
    mapping: LandmarkMap, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict Σ y_i K(x, x_i) / Σ K(x, x_i) over sampled rows, the paper's baseline.

    Parameters
    ----------
    mapping : LandmarkMap
        Its landmarks are not used.
    train : ndarray of shape (d, m)
        Features of the sample.
    target : ndarray of shape (m,)
    rows : ndarray of shape (d, n)
        Features of the rows to predict.

    Returns
    -------
    values : ndarray of shape (n,)
    n_guarded : int
        Rows whose similarities add up to about nothing, so that they were predicted by the mean.
    """
    to_all = replace(mapping, landmarks=np.ascontiguousarray(train.T))
    n_rows = rows.shape[1]
    predictions = np.empty(n_rows)
    n_guarded = 0
    step = min(_BLOCK_ROWS, max(_SIMILARITIES // max(len(target), 1), 1))
    for start in range(0, n_rows, step):
        block = slice(start, start + step)
        similarities = to_all(rows[:, block])
        total = similarities.sum(axis=0)
        is_guarded = np.abs(total) <= _NO_WEIGHT * np.abs(similarities).sum(axis=0)
        total[is_guarded] = 1.0
        means = target @ similarities / total
        predictions[block] = np.where(is_guarded, target.mean(), means)
        n_guarded += int(np.count_nonzero(is_guarded))
    return predictions, n_guarded


def boosted_trees(
    task: str, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict by LightGBM with its defaults: classes for `classification`, otherwise numbers."""
    n_classes = int(target.max(initial=0.0)) + 1 if task == "classification" else 0
    parameters: dict[str, Any] = {**FIXED, **_DEFAULTS, "objective": "regression"}
    if n_classes == 2:
        parameters["objective"] = "binary"
    elif n_classes > 2:
        parameters.update(objective="multiclass", num_class=n_classes)
    values = scores(fitted(train.T, target, parameters, np.zeros(len(target))), rows.T)
    if n_classes == 2:
        values = values > 0.0
    elif n_classes > 2:
        values = values.argmax(axis=1)
    return values.astype(float), 0


Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, int]]
"""From features and target of a sample, and features of rows, to predictions and n_guarded."""

#: Rows that a reference learns from, and rows that judge it.
Pair = tuple[RowSample, RowSample]


def reference_errors(
    run: Run, judge: Callable[[Pair], dict[str, float]], sample: Folded[RowSample], most_rows: int
) -> dict[str, Any]:
    """Judge a reference on held-out rows and on folds; it learns from so many others at most."""
    pairs = {HELD_OUT: (sample.train(), sample.test)}
    if sample.n_folds > 1:
        for fold, rows in enumerate(sample.folds):
            pairs[fold] = (sample.train_without(fold), rows)
    tasks = dict[int, Pair]()
    for part, (train, rows) in pairs.items():
        if min(train.n_rows, rows.n_rows) > 1:
            tasks[part] = (train.first(most_rows), rows)
    measured = run.map(judge, tasks.values(), "Fitting references")
    errors = dict(zip(tasks, measured, strict=True))
    answer: dict[str, Any] = {}
    if HELD_OUT in errors:
        answer["test"] = errors.pop(HELD_OUT)
    if errors:
        answer["validation"] = {}
        for name in next(iter(errors.values())):
            of_folds = [of_fold[name] for of_fold in errors.values()]
            answer["validation"][name] = float(np.mean(of_folds))
        answer["folds"] = [{"fold": fold, **of_fold} for fold, of_fold in errors.items()]
    return answer


def errors_on(
    predict: Predict, classes: Sequence[float] | None, n_features: int, pair: Pair
) -> dict[str, Any]:
    """Return the errors of a reference that learns from some rows, on the first of others."""
    train, held_out = pair
    held_out = held_out.first(_JUDGED)
    target = coded(classes, train.values[n_features])
    truth = coded(classes, held_out.values[n_features])
    features = held_out.values[:n_features]
    predictions, n_guarded = predict(train.values[:n_features], target, features)
    if classes is not None:
        predictions = np.clip(np.round(predictions), 0, len(classes) - 1)
    judge = Judge(Numbers(absolute=True, counts_errors=True))
    rows = JudgedRows(features, truth[np.newaxis])
    measures = judge.measures(judge.of_scores(predictions[np.newaxis, np.newaxis], rows))
    return {
        **{name: float(measures[name][0]) for name in _MEASURES},
        "n_guarded": n_guarded,
        "n_train": train.n_rows,
    }
