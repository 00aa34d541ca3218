"""Small dense linear algebra that several methods share; all matrices are symmetric."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from distfms.errors import NumericalError


def nearest_psd(matrix: np.ndarray) -> np.ndarray:
    """Nearest positive semi-definite matrix in Frobenius norm ("MakePSD").

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric, finite; its symmetric part is used.

    Returns
    -------
    ndarray of shape (d, d)
        Symmetric, with the negative eigenvalues set to zero. The symmetric part of `matrix` itself,
        unrounded, where it has none.

    Raises
    ------
    NumericalError
        If `matrix` is not finite.

    References
    ----------
    .. [1] N. J. Higham, "Computing a nearest symmetric positive semidefinite matrix", Linear
       Algebra and its Applications 103, 1988, Theorem 2.1.
    """
    symmetric = _symmetric(matrix)
    # Cholesky ends only where no eigenvalue is negative beyond rounding; it costs a small part of
    # them. Where it breaks down the eigenvalues decide: a singular matrix may do either.
    if not symmetric.size or scipy.linalg.lapack.dpotrf(symmetric, lower=1)[1] == 0:
        return symmetric
    values, vectors = scipy.linalg.eigh(symmetric)
    if values[0] >= 0:
        return symmetric
    # Subtracting the negative part keeps more digits than summing up the positive one
    # where, as usual, few eigenvalues are negative.
    negative = values < 0
    part = vectors[:, negative]
    if 2 * int(negative.sum()) <= values.size:
        result = symmetric - (part * values[negative]) @ part.T
    else:
        part = vectors[:, ~negative]
        result = (part * values[~negative]) @ part.T
    return (result + result.T) / 2


def pinv_solve(matrix: np.ndarray, rhs: np.ndarray, rtol: float | None = None) -> np.ndarray:
    """Minimum-norm least-squares solution ``matrix⁺ rhs`` of a symmetric system.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric, finite.
    rhs : ndarray of shape (d,) or (d, m)
    rtol : float, optional
        Eigenvalues of magnitude at most `rtol` times the largest count as zero. Default: d·ε.

    Returns
    -------
    ndarray of the shape of `rhs`

    Raises
    ------
    NumericalError
        If `matrix` is not finite.
    """
    symmetric = _symmetric(matrix)
    rhs = np.asarray(rhs, dtype=np.float64)
    if not symmetric.size:
        return rhs.copy()
    values, vectors = scipy.linalg.eigh(symmetric)
    size = np.abs(values)
    limit = size.max() * (values.size * np.finfo(np.float64).eps if rtol is None else rtol)
    kept = size > limit
    basis = vectors[:, kept]
    coordinates = basis.T @ rhs
    return basis @ (coordinates.T / values[kept]).T


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Symmetric part of a finite square matrix."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise NumericalError("a matrix to be decomposed holds a value that is not a finite number")
    return (matrix + matrix.T) / 2
