from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats

from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.model import LinearModel
from distfms.methods.multiselect.objective import (
    Problem,
    holdout_loss,
)
from distfms.stats.fold_means import over_folds
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.multiselect_cases import random_judgments, statistics


def folds_of(judgments, label, sizes) -> list[JudgmentStatistics]:
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return [statistics(judgments[a:b], label[a:b]) for a, b in pairwise(edges)]


def test_integer_sample_weights_equal_repetition_throughout():
    judgments, label, _ = random_judgments(1, m=40)
    weight = np.random.default_rng(0).integers(1, 4, 40)
    rows = np.repeat(np.arange(40), weight)
    weighted = Problem.from_estimates(
        statistics(judgments, label, weight.astype(float)).estimates()
    )
    repeated = Problem.from_estimates(statistics(judgments[rows], label[rows]).estimates())
    for algorithm in ("full", "scoring"):
        paths = [select(problem, 15, algorithm) for problem in (weighted, repeated)]
        np.testing.assert_array_equal(paths[0].attributes, paths[1].attributes)
        losses = [path.label_variance - path.objective for path in paths]
        np.testing.assert_allclose(*losses, rtol=1e-9)


def test_interval_of_the_cross_validated_loss_covers_the_loss():
    """Nominal 90 %; the count of 150 draws is within 4 binomial standard deviations."""
    rng = np.random.default_rng(0)
    weights, repeats, internal = np.array([1.0, -1.0]), np.array([1, 5]), np.array([1.0, 2.0])
    model = LinearModel(("a", "b"), repeats, weights, 0.2, np.zeros(2))
    expected = 0.3**2 + 0.25 + 0.2**2 + np.sum(weights**2 * internal / repeats)
    covered = 0
    for _ in range(150):
        truth = rng.standard_normal((80, 2))
        label = truth @ [1.3, -1.0] + 0.5 * rng.standard_normal(80)
        noise = np.sqrt(internal)[:, None] * rng.standard_normal((80, 2, 2))
        folds = folds_of(truth[:, :, None] + noise, label, [8] * 10)
        found = [
            holdout_loss(s.estimates(), model.weights, model.intercept, model.repeats)
            for s in folds
        ]
        means = over_folds(np.array(found), [8] * 10)
        covered += bool(abs(means.mean - expected) <= means.half_width(0.9))
    assert abs(covered - 135) <= 4 * np.sqrt(150 * 0.9 * 0.1)


def test_interval_of_the_mean_of_folds():
    losses = np.array([[3.0, 4.0, 8.0], [1.0, np.nan, 2.0], [5.0, np.nan, np.nan]])
    weights = np.array([10.0, 20.0, 30.0])
    half = over_folds(losses, weights).half_width(0.9)
    share, mean = weights / 60, (30 + 80 + 240) / 60
    error = np.sqrt(3 / 2 * np.sum(share**2 * (losses[0] - mean) ** 2))
    assert half[0] == pytest.approx(scipy.stats.t.ppf(0.95, 2) * error)
    assert half[1] == pytest.approx(
        scipy.stats.t.ppf(0.95, 1) * np.sqrt(2 * 2 * (0.25 * 0.75) ** 2)
    )
    assert np.isnan(half[2])
