"""What models on landmarks are compared with: kernel regression and boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import Judge, JudgedRows
from distfms.methods.frame.outcomes import Numbers
from distfms.methods.frame.trees import FIXED, MOST_VALUES, fitted, scores
from distfms.methods.landmarks.read import LandmarkData, SampleReader
from distfms.methods.landmarks.similarity import RANDOM, LandmarkMap, of_source
from distfms.methods.landmarks.squared import LIGHTGBM, coded
from distfms.stats.base import Folded
from distfms.stats.sample import RowSample

#: A sum of similarities counts as none where it is at most this part of the sum of their sizes.
_NO_WEIGHT = 1e-6
#: Rows that similarities to all rows of a sample are computed for at a time, and the most of these.
_JUDGED_ROWS, _SIMILARITIES = 512, 2**25
#: Square of the number of training rows up to which kernel regression compares with all of them, if
#: they are no more numbers than this.
_MOST_PAIRS, _MOST_VALUES = 4_000_000_000, 2**27
#: What references are judged by, and what is told of fits.
_MEASURES, _WHAT = ("mse", "mae", "error"), "Fitting LightGBM"
TREES = "LightGBM"
#: Parameters of LightGBM that it has by itself.
_DEFAULTS = {"num_leaves": 31, "num_iterations": 100, "seed": 0}


def references(run: Run, data: LandmarkData) -> dict[str, Any]:
    """Return the errors of what is fitted to a sample of the rows, by name; within a step."""
    options, sample, n = data.form.options, data.landmarks.sample, data.plan.n_features
    classes, found = data.class_values, dict[str, Any]()
    several = options.task == "ranking" or (
        options.task == "classification" and len(classes or ()) > 2
    )
    if "kernel_regression" in options.baselines and not (several or options.is_precomputed):
        rows = all_rows(run, data)
        for label, mapping in {of_source(n, RANDOM): f for n, f in data.plain.items()}.items():
            predict = partial(kernel_regression, mapping)
            errors = reference_errors(map, predict, classes, rows, n, options.sample)
            found[f"kernel regression, {label}"] = errors
    on_rows = options.task != "ranking" and not options.is_precomputed
    if LIGHTGBM in options.baselines and on_rows:
        predict, fit = partial(boosted_trees, options.task), partial(run.map, what=_WHAT)
        most, taught = data.form.sample_size, max(MOST_VALUES // n, 2)
        found[TREES] = reference_errors(fit, predict, classes, sample, n, most, taught)
    return found


def all_rows(run: Run, data: LandmarkData) -> Folded[RowSample]:
    """Return all rows of each part by another pass over them, or the sample if they are many."""
    sample = data.landmarks.sample
    n = int(next(iter(data.statistics.members.values())).train().n_samples)
    many = n**2 > _MOST_PAIRS or n * data.plan.n_features > _MOST_VALUES
    if not many and sample.train().n_rows < n:
        source = partial(data.form.source, data.plan)
        found = run.reduce(lambda *of: SampleReader.of(source(*of), n), cache=False)
        sample = found["sample"]
    return sample


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
    everyone = replace(mapping, landmarks=np.ascontiguousarray(train.T))
    values, n_guarded = np.empty(rows.shape[1]), 0
    step = min(_JUDGED_ROWS, max(_SIMILARITIES // max(len(target), 1), 1))
    for start in range(0, rows.shape[1], step):
        own = slice(start, start + step)
        similarities = everyone(rows[:, own])
        total, size = similarities.sum(axis=0), np.abs(similarities).sum(axis=0)
        guarded = np.abs(total) <= _NO_WEIGHT * size
        total[guarded] = 1.0
        values[own] = np.where(guarded, target.mean(), target @ similarities / total)
        n_guarded += int(np.count_nonzero(guarded))
    return values, n_guarded


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


def reference_errors(
    fit: Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]],
    predict: Predict,
    classes: Sequence[float] | None,
    sample: Folded[RowSample],
    n: int,
    most: int,
    taught: int | None = None,
) -> dict[str, Any]:
    """Judge a reference of n features on so many of the held-out rows, and of each fold.

    `fit` does tasks, as ``map`` does; `taught` rows at most are learned from.
    """
    pairs: dict[int, tuple[RowSample, RowSample]] = {}
    if sample.n_folds > 1:
        pairs = {f: (sample.train_without(f), own) for f, own in enumerate(sample.folds)}
    pairs[-1] = sample.train(), sample.test
    known = {f: own for f, own in pairs.items() if min(one.n_rows for one in own) > 1}
    pairs = {f: (train.first(taught or train.n_rows), own) for f, (train, own) in known.items()}
    errors = fit(partial(errors_on, predict, classes, n, most), list(pairs.values()))
    folds = dict(zip(pairs, errors, strict=True))
    found = {"test": folds.pop(-1)} if -1 in folds else {}
    if own := list(folds.values()):
        found["validation"] = {
            **{name: float(np.mean([e[name] for e in own])) for name in _MEASURES},
            **{name: sum(e[name] for e in own) for name in ("n_guarded", "n_rows")},
            "n_train": max(e["n_train"] for e in own),
        }
        found["folds"] = [{"fold": f, **{m: e[m] for m in _MEASURES}} for f, e in folds.items()]
    return found


def errors_on(
    predict: Predict,
    classes: Sequence[float] | None,
    n: int,
    most: int,
    pair: tuple[RowSample, RowSample],
) -> dict[str, Any]:
    """Return the errors of a reference that learns from some rows, on others."""
    train, held_out = pair[0], pair[1].first(most)
    target, truth = (coded(classes, own.values[n]) for own in (train, held_out))
    values, n_guarded = predict(train.values[:n], target, held_out.values[:n])
    if classes is not None:
        values = np.clip(np.round(values), 0, len(classes) - 1)
    judge = Judge(Numbers(absolute=True, counts_errors=True))
    rows = JudgedRows(held_out.values[:n], truth[np.newaxis])
    measures = judge.measures(judge.of_scores(values[np.newaxis, np.newaxis], rows))
    return {
        **{name: float(measures[name][0]) for name in _MEASURES},
        "n_guarded": n_guarded,
        "n_train": train.n_rows,
        "n_rows": held_out.n_rows,
    }
