"""Newton steps against functions whose minimum is known."""

import numpy as np
import pytest

from distfms.methods.frame.newton import Domain, Quadratic, minimise


def huber(at, targets, width=1e-3):
    """Σ of |θ − t|, rounded over a width, each coordinate of each column on its own."""
    away = at - targets
    inside = np.abs(away) <= width
    value = np.where(inside, away**2 / (2 * width), np.abs(away) - width / 2)
    slope = np.clip(away / width, -1, 1)
    hessian = np.array([np.diag(own / width) for own in inside.T.astype(float)])
    return Quadratic(value.sum(axis=0), slope, hessian)


@pytest.mark.parametrize("radius", [None, 1.0])
def test_steps_do_not_run_away_where_nothing_is_curved(radius):
    targets, values = np.array([[3.0, -40.0], [0.5, 8.0]]), []

    def function(at):
        found = huber(at, targets)
        values.append(found.value.sum())
        return found

    found = minimise(
        function, np.zeros((2, 2)), 1e3 * np.eye(2), Domain(1, radius), tol=1e-9, max_iter=100_000
    )
    assert found.status == "converged"
    assert found.gap <= 1e-9
    np.testing.assert_allclose(found.parameters[1], targets[1], atol=1e-5)
    if radius is None:
        np.testing.assert_allclose(found.parameters[0], targets[0], atol=1e-5)
    else:
        # Slopes of one size: the nearest point of the ball to the middle of the targets.
        np.testing.assert_allclose(found.parameters[0], np.array([1, -1]) / np.sqrt(2), atol=1e-4)
    assert values[-1] == min(values)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [1 - 2e-16, 1 - 1e-12, 1 - 1e-6, 0.5, 1e-6, 1e-100])
def test_a_bound_of_any_size_is_met_at_the_optimum(seed, share):
    rng, k = np.random.default_rng(seed), 6
    A = rng.normal(size=(k + 1, k + 1)) * np.logspace(0, -seed, k + 1)
    H, c = A.T @ A, rng.normal(size=(k + 1, 1))
    radius = share * np.linalg.norm(Domain(k).best(H[np.newaxis], c)[:k])
    found = Domain(k, radius).best(H[np.newaxis], c)
    assert np.linalg.norm(found[:k]) <= radius * (1 + 1e-12)
    # At the optimum the weights' slope points along them, towards zero, and the offset has none.
    slope = H @ found - c
    along = -slope[:k] / max(np.linalg.norm(slope[:k]), 1e-300)
    size = np.abs(H) @ np.abs(found) + np.abs(c)
    assert np.abs(slope[k]) <= 1e-9 * size[k]
    if np.linalg.norm(slope[:k]) > 1e-6 * size.max():
        np.testing.assert_allclose(along, found[:k] / radius, atol=1e-5)
