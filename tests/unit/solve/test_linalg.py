import numpy as np
import pytest

from distfms.errors import NumericalError
from distfms.solve.linalg import nearest_psd, symmetric_pinv


def symmetric(rng, d):
    a = rng.normal(size=(d, d))
    return a + a.T


def spd(rng, d):
    a = rng.normal(size=(d, 2 * d + 1))
    return a @ a.T


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_nearest_psd_drops_the_negative_part(d):
    rng = np.random.default_rng(d)
    for lift in (0.0, 3.0, -3.0):  # few, and many, negative eigenvalues
        A = symmetric(rng, d) + lift * np.eye(d)
        values, vectors = np.linalg.eigh(A)
        want = (vectors * np.maximum(values, 0)) @ vectors.T
        got = nearest_psd(A)
        np.testing.assert_allclose(got, want, atol=1e-12 * np.abs(A).max() * d)
        np.testing.assert_array_equal(got, got.T)


def test_nearest_psd_of_eigenvalues_that_are_all_alike():
    # LAPACK's fastest eigenvectors of a run of eigenvalues do not converge here.
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(500, 500)))[0]
    positive = np.arange(500) % 3 > 0
    A = (basis * np.where(positive, 1.0, -1.0)) @ basis.T
    want = basis[:, positive] @ basis[:, positive].T
    np.testing.assert_allclose(nearest_psd((A + A.T) / 2), want, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-70, 1e-9, 1.0, 1e9])
def test_symmetric_pinv_inverts_what_can_be_inverted_in_any_units(factor):
    rng = np.random.default_rng(2)
    units = np.array([1.0, factor, 1.0, 1.0, 1.0, factor])
    half = rng.normal(size=(6, 3))
    singular, regular = (units * (m * units).T for m in (half @ half.T, spd(rng, 6)))
    for matrix in (singular, regular):
        again = matrix @ symmetric_pinv(matrix) @ matrix
        np.testing.assert_allclose(again, matrix, rtol=1e-8)
    inverse = np.linalg.inv(regular / np.outer(units, units)) / np.outer(units, units)
    np.testing.assert_allclose(symmetric_pinv(regular), inverse, rtol=1e-9)


def test_symmetric_pinv_cuts_at_rtol_of_the_correlations():
    M = np.array([[1.0, 1.0 - 1e-6], [1.0 - 1e-6, 1.0]])
    np.testing.assert_allclose(symmetric_pinv(M) @ M, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(symmetric_pinv(M, rtol=1e-5), np.full((2, 2), 0.25), rtol=1e-5)
    np.testing.assert_allclose(symmetric_pinv(np.diag([1.0, 1e-20])), np.diag([1.0, 1e20]))
    assert not symmetric_pinv(np.zeros((6, 6))).any()
    assert symmetric_pinv(np.empty((0, 0))).shape == (0, 0)


def test_non_finite_matrices_are_refused():
    A = np.array([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(NumericalError, match="finite"):
        nearest_psd(A)
    with pytest.raises(NumericalError, match="finite"):
        symmetric_pinv(A)
