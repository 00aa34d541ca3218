from __future__ import annotations

import numpy as np
import pytest

from distfms.errors import NumericalError
from distfms.linalg import nearest_psd, pinv_solve


def symmetric(rng: np.random.Generator, d: int) -> np.ndarray:
    a = rng.normal(size=(d, d))
    return a + a.T


def spd(rng: np.random.Generator, d: int) -> np.ndarray:
    a = rng.normal(size=(d, 2 * d + 1))
    return a @ a.T


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_nearest_psd_drops_the_negative_part(d: int) -> None:
    rng = np.random.default_rng(d)
    for lift in (0.0, 3.0, -3.0):  # few, and many, negative eigenvalues
        A = symmetric(rng, d) + lift * np.eye(d)
        values, vectors = np.linalg.eigh(A)
        want = (vectors * np.maximum(values, 0)) @ vectors.T
        got = nearest_psd(A)
        np.testing.assert_allclose(got, want, atol=1e-12 * np.abs(A).max() * d)
        np.testing.assert_array_equal(got, got.T)


def test_nearest_psd_leaves_a_psd_matrix_as_it_is() -> None:
    A = spd(np.random.default_rng(0), 5)
    A = (A + A.T) / 2
    np.testing.assert_array_equal(nearest_psd(A), A)
    assert nearest_psd(np.empty((0, 0))).shape == (0, 0)
    assert not nearest_psd(-A).any()


def test_nearest_psd_is_nearer_than_other_psd_matrices() -> None:
    rng = np.random.default_rng(1)
    A = symmetric(rng, 4)
    best = np.linalg.norm(A - nearest_psd(A))
    for _ in range(50):
        other = nearest_psd(A) + 0.1 * nearest_psd(symmetric(rng, 4))
        assert np.linalg.norm(A - other) >= best - 1e-12


@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_pinv_solve_of_a_singular_system(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    half = rng.normal(size=(6, 3))
    M, rhs = half @ half.T, rng.normal(size=shape)
    want = np.linalg.pinv(M, rcond=1e-10, hermitian=True) @ rhs
    np.testing.assert_allclose(pinv_solve(M, rhs), want, atol=1e-10)
    np.testing.assert_allclose(pinv_solve(1e-200 * M, rhs * 1e-200), want, atol=1e-10)
    assert not pinv_solve(np.zeros((6, 6)), rhs).any()
    assert pinv_solve(np.empty((0, 0)), np.empty(0)).shape == (0,)


def test_pinv_solve_cuts_at_rtol() -> None:
    M = np.diag([1.0, 1e-6])
    np.testing.assert_allclose(pinv_solve(M, np.ones(2)), [1.0, 1e6])
    np.testing.assert_allclose(pinv_solve(M, np.ones(2), rtol=1e-5), [1.0, 0.0])


def test_non_finite_matrices_are_refused() -> None:
    A = np.array([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(NumericalError, match="finite"):
        nearest_psd(A)
    with pytest.raises(NumericalError, match="finite"):
        pinv_solve(A, np.ones(2))
