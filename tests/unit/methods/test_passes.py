"""Sums over passes, and L-BFGS on them, against scipy."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from distfms.methods.frame.passes import Sums, minimise, side_by_side
from distfms.stats.base import merge_tree


def logistic(n=400, d=8, seed=0, unit=1.0):
    """Mean logistic loss of labels in {−1, 1} with a small ridge, and the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d))) * unit
    y = np.where((X / unit) @ rng.normal(size=d) / 3 + rng.logistic(size=n) > 0, 1.0, -1.0)

    def loss(w):
        margin = y * (X @ w[:, 0])
        value = np.logaddexp(0, -margin).mean() + 0.5e-3 * (w**2).sum()
        return value, (X.T @ (-y * expit(-margin)) / n)[:, None] + 1e-3 * w

    return X, loss


def least(function, start, **options):
    """The minimum of a function that asks for its values."""

    def asking(weights):
        return (yield weights)

    return side_by_side([minimise(asking, start, **options)], lambda asked: map(function, asked))[0]


def test_the_minimum_is_that_of_scipy():
    X, loss = logistic()
    factor = np.linalg.cholesky(X.T @ X / len(X) / 4).T
    found = least(loss, np.zeros((8, 1)), factor=factor, tol=1e-10)
    peer = minimize(lambda w: loss(w[:, None])[0], np.zeros(8), method="BFGS",
                    jac=lambda w: loss(w[:, None])[1][:, 0], options={"gtol": 1e-10})  # fmt: skip
    np.testing.assert_allclose(found.weights[:, 0], peer.x, atol=1e-7)
    assert found.status == "converged"
    assert found.gradient_norm <= 1e-10
    assert found.n_iterations < 25
    assert found.value == pytest.approx(peer.fun, rel=1e-12)


def test_units_of_the_columns_cost_no_iterations_on_whitened_coordinates():
    n_iterations = []
    for unit in (np.ones(8), np.geomspace(1e-4, 1e4, 8)):
        X, loss = logistic(unit=unit)
        gram = X.T @ X / len(X) / 4
        found = least(
            lambda w, loss=loss: ridgeless(loss, w), np.zeros((8, 1)),
            factor=np.linalg.cholesky(gram).T, tol=1e-6 * np.sqrt(np.diagonal(gram).max()),
        )  # fmt: skip
        assert found.status == "converged"
        n_iterations.append(found.n_iterations)
    assert n_iterations[1] <= n_iterations[0] + 2


def ridgeless(loss, w):
    value, gradient = loss(w)
    return value - 0.5e-3 * (w**2).sum(), gradient - 1e-3 * w


def test_the_value_never_rises_from_far_away_and_columns_are_fitted_together():
    _, loss = logistic()
    values = []

    def both(w):
        parts = [loss(w[:, [0]]), loss(2.0 * w[:, [1]])]
        values.append(parts[0][0] + parts[1][0])
        return values[-1], np.hstack([parts[0][1], 2.0 * parts[1][1]])

    found = least(both, np.full((8, 2), 20.0), tol=1e-8)
    assert found.status == "converged"
    np.testing.assert_allclose(found.weights[:, 0], 2 * found.weights[:, 1], atol=1e-5)
    assert values[-1] < values[0]


def test_how_far_a_search_came_is_said():
    _, loss = logistic()
    few = least(loss, np.zeros((8, 1)), tol=1e-10, max_iter=2)
    assert (few.status, few.n_iterations) == ("max_iter", 2)
    assert few.gradient_norm > 1e-10
    there = least(loss, least(loss, np.zeros((8, 1)), tol=1e-6).weights, tol=1e-6)
    assert (there.status, there.n_iterations) == ("converged", 0)
    # A kink has no step that lowers the value enough.
    kink = least(lambda w: (float(np.abs(w).sum()), np.where(w < 0, -1.0, 1.0)),
                    np.zeros((1, 1)), tol=1e-6)  # fmt: skip
    assert kink.status == "stalled"


def test_sums_of_shards_are_those_of_all_partitions():
    rng = np.random.default_rng(0)
    parts = [Sums({"a": rng.normal(size=3), "b": rng.normal(size=())}) for _ in range(37)]
    bounds = [*range(0, 37, 16), 37]
    shards = [merge_tree(parts[low:high]) for low, high in pairwise(bounds)]
    whole = merge_tree(parts)
    for name, array in merge_tree(shards).arrays.items():
        np.testing.assert_array_equal(array, whole[name])
    assert Sums({}).merge(parts[0]).arrays.keys() == {"a", "b"}


def test_searches_side_by_side_ask_together_and_end_alone():
    rounds = []

    def answer(asked):
        rounds.append(asked)
        return [2 * question for question in asked]

    def search(start, n_asked):
        found = start
        for _ in range(n_asked):
            found = yield found
        return found

    searches = [search(*of) for of in ((1, 3), (3, 0), (10, 1), (4, 1))]
    assert side_by_side(searches, answer) == [8, 3, 20, 8]
    assert rounds == [[1, 10, 4], [2], [4]]
    assert side_by_side([], answer) == []

    def fails():
        raise ValueError((yield 5))

    with pytest.raises(ValueError, match="10"):
        side_by_side([search(1, 3), fails()], answer)
