"""Newton steps against functions whose minimum is known."""

import numpy as np
import pytest

from distfms.solve.newton import Domain


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [1 - 2e-16, 1 - 1e-12, 1 - 1e-6, 0.5, 1e-6, 1e-100])
def test_a_bound_of_any_size_is_met_at_the_optimum(seed, share):
    rng = np.random.default_rng(seed)
    k = 6
    A = rng.normal(size=(k + 1, k + 1)) * np.logspace(0, -seed, k + 1)
    H = A.T @ A
    c = rng.normal(size=(k + 1, 1))
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
