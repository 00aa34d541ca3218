"""What folds choose of sequences, and what is reported of a choice."""

import numpy as np
import pytest

from distfms.methods.sequence.choice import (
    Candidate,
    best_candidate,
    chosen_on_other_folds,
    grid_of,
)

EVEN = np.ones(5)


def candidate(level, seed=0):
    """Losses of six prefixes that fall to a level, alike on all folds but for noise."""
    rng = np.random.default_rng(seed)
    falling = np.linspace(1.0, level, 6)[:, np.newaxis]
    return Candidate(falling + 0.01 * rng.normal(size=(6, 5)), [0, 1, 2, 3, 5])


def test_candidates_are_compared_over_the_grid():
    low = candidate(0.2)
    high = candidate(0.6)
    assert best_candidate([high, low], EVEN) == 1
    # One prefix that explodes off the grid decides nothing.
    exploded = Candidate(low.losses.copy(), low.grid)
    exploded.losses[4] = 1e6
    assert best_candidate([high, exploded], EVEN) == 1


def test_a_fold_that_chose_nothing_reports():
    candidates = [candidate(0.6), candidate(0.2, seed=1)]
    choices = chosen_on_other_folds(candidates, EVEN)
    assert choices == [(1, 5)] * 5
    # Without fold 3 another prefix, and without fold 0 another candidate is best.
    candidates[1].losses[5, [0, 1, 2, 4]] = 3.0
    candidates[1].losses[5, 3] = -50.0
    choices = chosen_on_other_folds(candidates, EVEN)
    assert choices[3] == (0, 5)
    assert choices[0][0] == 1


@pytest.mark.parametrize("n_prefixes", [3, 20])
def test_noise_is_not_claimed_to_explain_anything(n_prefixes):
    claims = []
    for seed in range(200):
        losses = 1.0 + 0.1 * np.random.default_rng(seed).normal(size=(n_prefixes, 5))
        losses[0] = 1.0
        (choices) = chosen_on_other_folds([Candidate(losses, [n_prefixes - 1])], EVEN)
        rows = [prefix for _, prefix in choices]
        claims.append(1.0 - losses[rows, np.arange(5)].mean())
    assert np.mean(claims) < 0.01


def test_the_grid_is_what_shares_of_the_cost_pay_for():
    assert grid_of(np.arange(21.0)) == [2, 5, 10, 15, 20]
    assert grid_of(np.array([0.0, 0.0, 0.0])) == [2] * 5
    assert grid_of(np.array([0.0, 90.0, 100.0])) == [0, 0, 0, 0, 2]
