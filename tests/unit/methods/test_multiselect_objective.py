from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.multiselect.objective import (
    Problem,
    full_objective,
    holdout_loss,
    scoring_objective,
)
from distfms.methods.multiselect.options import resolve_costs
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_judgments, statistics


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_objectives_are_the_papers_formulas(seed, ridge):
    judgments, label, _ = random_judgments(seed, m=12)
    est = statistics(judgments, label).estimates()
    problem = Problem.from_estimates(est, ridge=ridge)
    repeats = np.random.default_rng(seed).integers(0, 4, 5)
    psd = literal.make_psd(est.external, est.v)
    sigma2 = np.maximum(0, np.diag(est.external))
    assert full_objective(problem, repeats) == pytest.approx(
        literal.full_objective(est.b, est.v, psd, repeats, ridge), rel=1e-10
    )
    assert scoring_objective(problem, repeats) == pytest.approx(
        literal.scoring_objective(est.b, est.v, sigma2, repeats, ridge), rel=1e-12
    )


@pytest.mark.parametrize("how", [{"psd": "none"}, {}])
def test_symmetric_part_of_an_external_covariance_counts(how):
    external = np.array([[2.0, 0.5, 0.1], [0.2, 2.0, 0.3], [0.1, 0.4, 2.0]])
    numbers = ([1.0, 0.5, 0.2], [0.1, 0.1, 0.1])
    problem = Problem.build(*numbers, external, label_variance=4.0, **how)
    same = Problem.build(*numbers, external.T, label_variance=4.0, **how)
    np.testing.assert_array_equal(problem.external, (external + external.T) / 2)
    np.testing.assert_array_equal(problem.external, same.external)
    assert full_objective(problem, [1, 2, 1]) == full_objective(same, [1, 2, 1])


def test_constant_attributes_are_no_candidates_and_worth_nothing():
    external = np.diag([1.0, 1e-27, -0.5])  # the second varies by rounding
    problem = Problem.build(
        [0.5, 0.0, 0.2], [0.1, 0.0, 1.0], external, label_variance=1.0, means=[0.0, 0.1, 0.0]
    )
    np.testing.assert_array_equal(problem.candidates, [True, False, True])
    assert full_objective(problem, [0, 3, 0]) == 0.0
    assert scoring_objective(problem, [0, 3, 0]) == 0.0
    assert full_objective(problem, [1, 3, 0]) == full_objective(problem, [1, 0, 0]) > 0


@pytest.mark.parametrize("k", [2, 3])
def test_holdout_loss_at_the_repeats_at_hand_is_the_mean_squared_error(k):
    judgments, label, _ = random_judgments(7, m=40, k=k)
    est = statistics(judgments, label).estimates()
    weights = np.array([0.5, 0.0, -1.0, 2.0, 0.1])
    predicted = 3.0 + judgments.mean(axis=2) @ weights
    # At r = k nothing is added or taken off: the estimate is the plain error, offset included.
    loss = holdout_loss(est, weights, 3.0, np.where(weights != 0, k, 0))
    assert loss == pytest.approx(np.mean((label - predicted) ** 2), rel=1e-10)


def test_holdout_loss_is_unbiased_at_other_repeats():
    """Monte Carlo: few held-out objects with 2 judgments estimate the loss with r judgments."""
    rng = np.random.default_rng(0)
    d, m, n_draws = 3, 5, 20_000
    weights, intercept, repeats = np.array([1.0, -0.5, 0.7]), 0.4, np.array([1, 4, 7])
    internal = np.array([0.5, 1.0, 2.0])
    mixing = rng.standard_normal((d, d))
    losses = np.empty(n_draws)
    truth = rng.standard_normal((n_draws, m, d)) @ mixing + 1.0
    label = truth @ np.array([0.8, -0.4, 0.9]) + 0.3 * rng.standard_normal((n_draws, m)) + 2.0
    noise = np.sqrt(internal)[:, None] * rng.standard_normal((n_draws, m, d, 2))
    judgments = truth[..., None] + noise
    for i in range(n_draws):
        averages, y = judgments[i].mean(axis=2), label[i]
        x, z = averages - averages.mean(axis=0), y - y.mean()
        v = judgments[i].var(axis=2, ddof=1).mean(axis=0)
        est = SimpleNamespace(
            b=x.T @ z / m, v=v, second_moment=x.T @ x / m, noise=v / 2,
            external=x.T @ x / m - np.diag(v) / 2, label_variance=np.mean(z**2),
            label_mean=y.mean(), means=averages.mean(axis=0), n_objects=m, noise_covariance=None,
        )  # fmt: skip
        losses[i] = holdout_loss(est, weights, intercept, repeats)
    error = label - intercept - truth @ weights
    expected = np.mean(error**2) + np.sum(weights**2 * internal / repeats)
    standard_error = np.std(losses - np.mean(error**2, axis=1)) / np.sqrt(n_draws)
    assert abs(losses.mean() - expected) < 4 * standard_error
    # The test can tell: dropping the offset's share of the mean is off by many standard errors.
    assert standard_error < 0.1 * expected / m


def test_costs_by_name_and_glob():
    names = ("bp_high", "bp_low", "age")
    for given, expected in (
        ({"default": 5, "bp_*": 2, "bp_low": 3}, [2, 3, 5]),
        ({"age": 4}, [1, 1, 4]),
    ):
        np.testing.assert_array_equal(resolve_costs(given, names), expected)
    with pytest.raises(SpecError, match=r"`costs` names 'aeg', .* Did you mean 'age'"):
        resolve_costs({"aeg": 4}, names)
