"""What landmarks are compared with: kernel regression, and a linear model on the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.methods.contract import FoldAnswers
from distfms.methods.curves import number_or_none
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import COLUMNS, MEASURES, coded
from distfms.stats.base import Folded
from distfms.stats.fold_means import FoldMeans, over_folds
from distfms.stats.sample import RowSample

#: A sum of similarities counts as none where it is at most this part of the sum of their sizes.
_NO_WEIGHT = 1e-6
#: Rows that similarities to all rows of a sample are computed for at a time.
_JUDGED_ROWS = 512


def behind(validated: FoldAnswers, measure: str, one: int, other: int) -> FoldMeans:
    """Return how much worse the last model of one item is than that of another, by folds."""
    values = [np.array([a[measure][-1] for a in validated.answers[i]]) for i in (one, other)]
    worse = values[0] - values[1]
    return over_folds(-worse if MEASURES[measure] else worse, validated.weight)


def name_columns(
    found: dict[str, Any], names: tuple[str, str], measure: str, validated: FoldAnswers | None
) -> None:
    """Make baselines of the curve of the columns: the models on none and on all of them.

    Parameters
    ----------
    found : dict
        Content of ``metrics.json``, which is changed; the curve is the last.
    names : pair of str
        Of these models.
    measure : str
        By which the metrics say how far the chosen model is behind the linear one.
    validated : FoldAnswers or None
    """
    points = found["curves"].pop()["points"]
    del found["baselines"][COLUMNS]
    found["baselines"][names[0]] = points[0]
    if not points[-1]["budget"]:  # the columns are too many, or similarities
        return
    found["baselines"][names[1]] = points[-1]
    if validated is not None:
        by = behind(validated, measure, 0, len(validated.answers) - 1)
        found["linear"] = {
            "behind": number_or_none(by.mean),
            "standard_error": number_or_none(by.standard_error),
        }


# --- kernel regression --------------------------------------------------------------------------


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
    for start in range(0, rows.shape[1], _JUDGED_ROWS):
        own = slice(start, start + _JUDGED_ROWS)
        similarities = everyone(rows[:, own])
        total, size = similarities.sum(axis=0), np.abs(similarities).sum(axis=0)
        guarded = np.abs(total) <= _NO_WEIGHT * size
        total[guarded] = 1.0
        values[own] = np.where(guarded, target.mean(), target @ similarities / total)
        n_guarded += int(np.count_nonzero(guarded))
    return values, n_guarded


Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, int]]
"""From features and target of a sample, and features of rows, to predictions and n_guarded."""


def reference_errors(
    predict: Predict, classes: Sequence[float] | None, sample: Folded[RowSample], n: int
) -> dict[str, Any]:
    """Judge a reference of n features on samples of the held-out rows, and of each fold."""

    def errors(train: RowSample, held_out: RowSample) -> dict[str, Any]:
        target, truth = (coded(classes, own.values[n]) for own in (train, held_out))
        values, n_guarded = predict(train.values[:n], target, held_out.values[:n])
        if classes is not None:
            values = np.clip(np.round(values), 0, len(classes) - 1)
        return {
            "mse": float(np.mean((values - truth) ** 2)),
            "mae": float(np.mean(np.abs(values - truth))),
            "error": float(np.mean(values != truth)),
            "n_guarded": n_guarded,
            "n_train": train.n_rows,
            "n_rows": held_out.n_rows,
        }

    found: dict[str, Any] = {}
    if sample.n_folds > 1:
        parts = [f for f in range(sample.n_folds) if sample.folds[f].n_rows > 1]
        own = [errors(sample.train_without(f), sample.folds[f]) for f in parts]
        found["validation"] = {
            **{name: float(np.mean([e[name] for e in own])) for name in ("mse", "mae", "error")},
            **{name: sum(e[name] for e in own) for name in ("n_guarded", "n_rows")},
            "n_train": max(e["n_train"] for e in own),
        }
    if sample.test.n_rows > 1:
        found["test"] = errors(sample.train(), sample.test)
    return found
