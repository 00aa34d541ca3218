"""L-BFGS of functions that are asked for elsewhere, against scipy."""

import numpy as np
from scipy.special import expit

from distfms.solve.lbfgs import minimise, side_by_side


def logistic(unit=1.0):
    """Mean logistic loss of labels in {−1, 1} with a small ridge, and the rows."""
    n = 400
    d = 8
    rng = np.random.default_rng(0)
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
