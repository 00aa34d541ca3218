"""Stopping row by row, against all policies, on rows whose truth is known, and what it claims."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.methods.sequence.stopping import (
    StagedRows,
    Stopping,
    find_stopping,
    induced,
    means,
    stops,
)
from tests.reference.stopping import best_objective, objective, walked

SPENT = (0.0, 1.0, 2.0, 5.0, 7.0, 15.0)


def toy(seed, zero_costs=False):
    """Rows of two stages of four bins each, whose next bin depends on the present one alone."""
    rng = np.random.default_rng(seed)
    first, second = (own.ravel() for own in np.meshgrid(range(4), range(4), indexing="ij"))
    weight = (rng.dirichlet(np.ones(4))[:, None] * rng.dirichlet(np.ones(4), 4)).ravel()
    of_first, *of_second = rng.uniform(0, 1, (3, 4))
    losses = np.array([of_first[first], *(own[second] for own in of_second)])
    steps = np.zeros(2) if zero_costs else rng.uniform(0, 1, 2)
    return np.array([first, second]), losses, weight, steps


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 0.3, 1.0, 1e9]), st.booleans())
@settings(max_examples=25, deadline=None)
def test_backward_induction_finds_the_best_of_all_policies(seed, price, zero_costs):
    bins, losses, weight, steps = toy(seed, zero_costs)
    _, goes = induced(bins, losses, weight, steps, [2e9, price])  # no price changes the next
    found = objective(goes, bins, losses, weight, steps, price)
    assert found == pytest.approx(best_objective(bins, losses, weight, steps, price), rel=1e-9)
    assert stops(goes, bins).tolist() == [walked(goes, bins, row) for row in range(16)]
    if price == 0 or zero_costs:
        # What costs nothing is taken where it helps: the least loss that a bin can have.
        last = [losses[1:, bins[1] == b].min(axis=0)[0] for b in range(4)]
        later = [weight[bins[0] == b] @ last / weight[bins[0] == b].sum() for b in range(4)]
        least = np.minimum(losses[0, ::4], later)
        assert found == pytest.approx(least @ weight.reshape(4, 4).sum(axis=1))
    elif price == 1e9 and steps.min() > 1e-6:
        assert not stops(goes, bins).any()


def simulated(n, seed):
    """Rows of two classes, with the true probability after each of five tests."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.3).astype(int)
    strength = np.array([1.0, 0.6, 1.4, 0.0, 0.8])
    x = (2 * label - 1)[:, None] * strength + rng.normal(size=(n, 5))
    odds = np.log(0.3 / 0.7) + np.cumsum(np.c_[np.zeros(n), 2 * strength * x], axis=1).T
    p = 1 / (1 + np.exp(-odds))
    loss = -np.where(label == 1, np.log(p), np.log1p(-p))
    right = 1.0 * ((p > 0.5) == label)
    return StagedRows(p, loss, right, np.ones(n), rng.integers(0, 5, n) * 1.0, label * 1.0)


OUTLINE = Stopping(tuple(range(6)), SPENT, (), ())


@pytest.fixture(scope="module")
def many():
    return simulated(100_000, 10**6)


def claimed(many, seeds):
    """Return how often truth on fresh rows is in the interval of a claim: of cost and of loss."""
    inside = []
    for seed in seeds:
        found, claim = find_stopping(simulated(3000, seed), OUTLINE, recommended=5)
        policy = found.policies[found.default]
        truth = means(many, SPENT, stops(policy.decisions, found.bins(many.states)))
        gaps = truth - claim.default.mean
        widths = claim.default.half_width(0.95)
        inside.append(np.abs(gaps[:2]) <= widths[:2])
    return np.mean(inside, axis=0), found, claim, truth


def test_fresh_rows_confirm_the_claim(many):
    inside, found, claim, truth = claimed(many, range(8))
    assert (inside >= 0.75).all()
    # All tests cost 15; their loss is had for less than half.
    loss_of_all = means(many, SPENT, 5)[1]
    assert truth[0] < 0.5 * SPENT[-1]
    assert truth[1] < 1.15 * loss_of_all
    assert claim.gain.mean > 3 * claim.gain.standard_error
    costs = [policy.mean_cost for policy in found.policies]
    losses = [policy.loss for policy in found.policies]
    assert costs == sorted(costs)
    assert losses == sorted(losses, reverse=True)
    assert costs[0] == 0.0
    assert Stopping.from_dict(json.loads(json.dumps(asdict(found)))) == found


@pytest.mark.slow
def test_claims_hold_as_often_as_they_say(many):
    inside, *_ = claimed(many, range(100, 200))
    assert (inside >= 0.88).all(), inside
    assert (inside <= 0.99).all(), inside


def test_nothing_is_gained_where_states_tell_nothing():
    rng = np.random.default_rng(0)
    n = 3000
    fold = rng.integers(0, 5, n) * 1.0
    label = rng.integers(0, 2, n) * 1.0
    losses = np.array([0.7, 0.5, 0.4, 0.35])[:, None] + 0.1 * rng.normal(size=n)
    rows = StagedRows(rng.random((4, n)), losses, losses * 0, np.ones(n), fold, label)
    outline = Stopping((0, 1, 2, 3), (0.0, 1.0, 2.0, 3.0), (), ())
    _, claim = find_stopping(rows, outline, recommended=3)
    assert abs(claim.gain.mean) < 0.01
    assert not claim.gain.mean > max(3 * claim.gain.standard_error, 1e-9)


def walk(stopping, rows, **asked):
    """Walk through a rule; predictions are the probabilities of a stage."""

    def predict(n_groups, numbers):
        return rows.states[n_groups, numbers, np.newaxis]

    return stopping.rule(**asked).walk(len(rows.weight), predict, 1)


def test_budgets_and_confidence_say_where_rows_stop():
    rows = simulated(3000, 3)
    found, _ = find_stopping(rows, OUTLINE, recommended=5)
    for number, mean_budget in enumerate(policy.mean_cost for policy in found.policies):
        probability, n_groups, cost = walk(found, rows, mean_budget=mean_budget).T
        assert cost.mean() == pytest.approx(found.policies[number].mean_cost)
        np.testing.assert_array_equal(probability, rows.states[n_groups.astype(int), range(3000)])
        np.testing.assert_array_equal(cost, np.array(SPENT)[n_groups.astype(int)])
    assert walk(found, rows, mean_budget=6.0, budget=4.0)[:, 2].max() == 2.0
    probability, n_groups, _ = walk(found, rows, confidence=0.95).T
    sure = np.maximum(probability, 1 - probability) >= 0.95
    assert (sure | (n_groups == 5)).all()
    assert 0.5 < sure.mean() < 1
    before = np.maximum(rows.states, 1 - rows.states)[:5].T
    assert all((own[: int(k)] < 0.95).all() for own, k in zip(before, n_groups, strict=True))


def test_before_the_first_group_all_rows_are_alike():
    """Folds of other shares of classes: a row's state then tells its fold."""
    rows = simulated(3000, 4)
    share = np.array([np.mean(rows.label[rows.fold != fold]) for fold in range(5)])
    rows.states[0] = share[rows.fold.astype(int)]
    stopping, _ = find_stopping(rows, OUTLINE, recommended=5)
    assert stopping.edges[0] == ()
    for policy in stopping.policies:
        ends = stops(policy.decisions, stopping.bins(rows.states))
        assert (ends == 0).all() or (ends > 0).all()
    cheapest = stopping.policies[1].mean_cost
    assert cheapest >= SPENT[1]
    assert walk(stopping, rows, mean_budget=0.99 * cheapest)[:, 2].max() == 0
