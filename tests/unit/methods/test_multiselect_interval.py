from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats

from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.evaluate import delete_m_jackknife, half_width
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.model import LinearModel
from distfms.methods.multiselect.objective import (
    Problem,
    holdout_loss,
)
from distfms.stats.base import merge_tree
from distfms.stats.fold_means import over_folds
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_judgments


def statistics(judgments: np.ndarray, label: np.ndarray, weight=None) -> JudgmentStatistics:
    columns = [Ragged.from_matrix(judgments[:, a]) for a in range(judgments.shape[1])]
    return JudgmentStatistics.from_block(columns, label, weight)


def folds_of(judgments, label, sizes) -> list[JudgmentStatistics]:
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return [statistics(judgments[a:b], label[a:b]) for a, b in pairwise(edges)]


def jackknife(folds, statistic, level=0.95):
    """Leave out one fold at a time."""
    everything = statistic(merge_tree(folds))
    without = [statistic(merge_tree([*folds[:j], *folds[j + 1 :]])) for j in range(len(folds))]
    return delete_m_jackknife(everything, without, [f.means.weight for f in folds], level)


def test_estimates_of_the_statistics_are_the_papers():
    """Ties this package's arithmetic to the statistics it is fed with."""
    judgments, label, _ = random_judgments(0, m=30, k=3)
    estimates = statistics(judgments, label).estimates()
    expected = literal.estimates(judgments, label)
    for field in ("b", "v", "external", "second_moment", "noise", "means", "label_variance"):
        np.testing.assert_allclose(
            getattr(estimates, field), getattr(expected, field), rtol=1e-9, atol=1e-12
        )


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
        np.testing.assert_allclose(paths[0].projected_loss, paths[1].projected_loss, rtol=1e-9)


@pytest.mark.parametrize("sizes", [[10, 10, 10, 10], [5, 20, 8, 7]])
def test_jackknife_of_a_mean_is_the_textbook_formula(sizes):
    judgments, label, _ = random_judgments(2, m=40)
    folds = folds_of(judgments, label, sizes)
    interval = jackknife(folds, lambda s: s.means.mean[-1], level=0.9)
    groups = np.split(label, np.cumsum(sizes)[:-1])
    h = 40 / np.array(sizes)
    squares = (np.array([g.mean() for g in groups]) - label.mean()) ** 2
    standard_error = np.sqrt(np.mean(squares / (h - 1)))
    assert interval.estimate == pytest.approx(label.mean())
    assert interval.standard_error == pytest.approx(standard_error)
    assert interval.bias == pytest.approx(0.0, abs=1e-9)
    half = scipy.stats.t.ppf(0.95, 3) * standard_error
    assert interval.upper - interval.estimate == pytest.approx(half)
    assert interval.estimate - interval.lower == pytest.approx(half)


def test_jackknife_estimates_the_bias_of_the_population_variance():
    """The variance with denominator n is too small by variance/n; exact for shards of 1."""
    judgments, label, _ = random_judgments(3, m=12)
    folds = folds_of(judgments, label, [1] * 12)
    interval = jackknife(folds, lambda s: s.means.covariance(pairwise=True)[-1, -1])
    assert interval.estimate - interval.bias == pytest.approx(np.var(label, ddof=1))


def test_jackknife_needs_two_folds_and_a_level():
    with pytest.raises(DataError, match="at least 2 folds, all with objects; there are 2, 1 of"):
        delete_m_jackknife(1.0, [1.0, 1.0], [10.0, 0.0])
    with pytest.raises(DataError, match="there are 1, 1 of"):
        delete_m_jackknife(1.0, [1.0], [10.0])
    with pytest.raises(SpecError, match="level"):
        delete_m_jackknife(1.0, [0.9, 1.1], [5.0, 5.0], level=1.0)


def test_jackknife_of_an_array_is_that_of_its_numbers():
    judgments, label, _ = random_judgments(5, m=80)
    folds = folds_of(judgments, label, [20, 25, 15, 20])
    together = jackknife(folds, lambda s: s.means.mean)
    alone = [jackknife(folds, lambda s, a=a: s.means.mean[a]) for a in range(6)]
    for end in ("lower", "upper", "bias"):
        np.testing.assert_array_equal(getattr(together, end), [getattr(i, end) for i in alone])


def test_interval_of_the_held_out_loss_covers_the_loss():
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
        interval = jackknife(
            folds,
            lambda s: holdout_loss(s.estimates(), model.weights, model.intercept, model.repeats),
            level=0.9,
        )
        covered += bool(interval.lower <= expected <= interval.upper)
    assert abs(covered - 135) <= 4 * np.sqrt(150 * 0.9 * 0.1)


def test_interval_of_the_mean_of_folds():
    losses = np.array([[3.0, 4.0, 8.0], [1.0, np.nan, 2.0], [5.0, np.nan, np.nan]])
    weights = np.array([10.0, 20.0, 30.0])
    half = half_width(over_folds(losses, weights), 0.9)
    share, mean = weights / 60, (30 + 80 + 240) / 60
    error = np.sqrt(3 / 2 * np.sum(share**2 * (losses[0] - mean) ** 2))
    assert half[0] == pytest.approx(scipy.stats.t.ppf(0.95, 2) * error)
    assert half[1] == pytest.approx(
        scipy.stats.t.ppf(0.95, 1) * np.sqrt(2 * 2 * (0.25 * 0.75) ** 2)
    )
    assert np.isnan(half[2])
