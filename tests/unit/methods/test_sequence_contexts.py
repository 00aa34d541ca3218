"""Contexts: what screens them, co-moments by leaf, and what sends a row to its leaf."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms.methods.frame.leaves import Router
from distfms.methods.sequence.problem import GroupCosts, SharedCost
from distfms.methods.sequence.read_contexts import Screen, _bins, between_leaves, is_better
from tests.reference.sequence import literal_between_leaves


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
def test_the_difference_between_leaves_is_the_literal_one(seed, n_leaves, n_targets):
    rng = np.random.default_rng(seed)
    leaf = np.append(np.arange(n_leaves), rng.integers(n_leaves, size=40))
    columns, rest = rng.normal(size=(len(leaf), 4)), rng.normal(size=(len(leaf), n_targets))
    found = between_leaves(columns, rest - rest.mean(axis=0), leaf)
    expected = literal_between_leaves(columns, rest - rest.mean(axis=0), leaf)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_linear_truth_leaves_chance_to_any_leaves():
    """Also where leaves are bins of what tells the target, which narrow its range."""
    errors, gains = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2000, 6))
        y = X @ rng.normal(size=6) + rng.normal(size=2000)
        screen = Screen.of(X.T, y[np.newaxis])
        leaf = np.digitize(X[:, 0], [-0.7, 0.0, 0.7])
        gain, by = screen.gain(leaf)
        gains.append(gain)
        errors.append(by)
    assert abs(np.mean(errors)) < 0.5
    assert max(gains) < 0.01
    crossed = np.sign(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=2000)
    assert Screen.of(X.T, crossed[np.newaxis]).gain(leaf)[0] > 0.9


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(2, 4))
def test_bins_divide_where_they_say(values, n_bins):
    values = np.array(values)
    router, names = _bins("x", values, n_bins)
    assert len(router) == len(names)
    leaf = router.leaf_of({"x": values})
    low = [values[leaf == k] for k in range(len(router))]
    ends = [(own.min(), own.max()) for own in low if len(own)]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert router.leaf_of({"x": np.array([np.nan])}) == router.leaf_of({"x": router.centre})


@given(st.integers(0, 2**32 - 1))
def test_a_row_goes_to_its_leaf_whatever_the_others_are(seed):
    rng = np.random.default_rng(seed)
    router = Router(
        np.array(["a", "b"]), rng.normal(size=2), rng.normal(size=(4, 2)), rng.normal(size=4)
    )
    values = rng.normal(size=(2, 30))
    values[rng.random(values.shape) < 0.2] = np.nan
    whole = router.leaf_of(dict(zip("ab", values, strict=True)))
    alone = [int(router.leaf_of(dict(zip("ab", row[:, None], strict=True)))[0]) for row in values.T]
    assert whole.tolist() == alone


def test_what_is_paid_is_free_for_all():
    shared = (SharedCost("visit", (0, 1), 2.0), SharedCost("blood", (1, 2), 3.0))
    costs = GroupCosts(np.array([1.0, 4.0, 5.0]), shared)
    paid = costs.paid((0,))
    assert paid.alone.tolist() == [0.0, 7.0, 8.0]
    for rest in ([], [1], [2], [1, 2]):
        assert paid.total(rest) == pytest.approx(costs.total([0, *rest]) - costs.total([0]))


def test_a_tree_is_no_worse_where_predictions_stop():
    good, bad, weights = np.array([0.02, 0.03, 0.025]), np.array([-0.01, -0.02, -0.015]), (1, 1, 1)
    assert is_better(good, good, weights)
    assert not is_better(good, bad, weights)
    assert not is_better(np.array([0.03, -0.02, 0.0]), good, weights)


def test_leaves_of_co_moments_merge_and_add_up_to_all_rows():
    from distfms.methods.sequence.read_contexts import by_leaf
    from distfms.stats.comoments import CoMoments

    rng = np.random.default_rng(0)
    values, weight = rng.normal(size=(3, 90)), rng.random(90)
    router = Router(
        np.array(["a"]), np.zeros(1), np.array([[0.0], [1.0], [2.0]]), np.array([0, 0.5, 0])
    )

    def batch(rows):
        own = values[:, rows]
        return SimpleNamespace(
            part_slices=(slice(0, own.shape[1]),), features=own[:2], target=own[2:], values=own,
            names=("a", "b", "y"), weight=weight[rows],
        )  # fmt: skip

    whole = by_leaf([router], None, batch(slice(None)), 0)
    halves = [by_leaf([router], None, batch(rows), 0) for rows in (slice(0, 31), slice(31, None))]
    total = None
    for name, expected in whole.items():
        merged = halves[0][name].merge(halves[1][name])
        np.testing.assert_allclose(merged.comoment, expected.comoment, atol=1e-10)
        assert merged.n_samples == expected.n_samples
        total = expected if total is None else total.merge(expected)
    np.testing.assert_allclose(
        total.comoment, CoMoments.from_block(values, weight).comoment, atol=1e-9
    )
