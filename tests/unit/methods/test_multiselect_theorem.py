"""Theorem 3.1 of the paper on cases whose truth is known."""

import numpy as np
import pytest

from distfms.solve.buying import Problem, scoring_objective
from distfms.solve.purchases import select
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import statistics


@pytest.mark.parametrize(("budget", "expected"), [(1, 1.0), (2, 0.6), (3, 0.6), (9, 0.6)])
def test_least_eigenvalue_of_equal_correlations(budget, expected):
    external = np.full((4, 4), 0.4) + 0.6 * np.eye(4)
    assert literal.theorem_lambda(external, np.ones(4), budget) == pytest.approx(expected)


def test_an_attribute_that_is_too_dear_plays_no_part():
    external = np.diag([1.0, 0.5, 0.01])
    assert literal.theorem_lambda(external, [1.0, 1.0, 5.0], 2) == pytest.approx(0.5)


@pytest.mark.parametrize("m", [20, 80])
def test_scoring_loses_less_than_the_theorem_allows(m):
    """Independent attributes and judgments in [-1, 1], of which Σ, v and b are known."""
    rng, d, budget = np.random.default_rng(m), 4, 3
    truth = rng.uniform(-0.5, 0.5, (m, d))
    judgments = truth[:, :, None] + rng.uniform(-0.5, 0.5, (m, d, 2))
    weights = np.array([0.9, 0.5, 0.1, 0.0])
    variance = np.full(d, 1 / 12)
    known = Problem.build(weights / 12, variance, np.diag(variance), label_variance=1.0)
    learned = Problem.from_estimates(statistics(judgments, truth @ weights).estimates())
    reached = scoring_objective(known, select(learned, budget, "scoring").final_repeats)
    best = scoring_objective(known, select(known, budget, "scoring").final_repeats)
    bound = literal.theorem_error("scoring", variance.min(), budget, d, m, 0.05)
    assert 0 <= best - reached <= bound
    assert literal.theorem_objects("scoring", 0.5, budget, d, 0.05) == pytest.approx(4 * np.log(80))
