"""Small dense linear algebra that several methods share; all matrices are symmetric."""

from __future__ import annotations

import numpy as np

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
    import scipy.linalg

    symmetric = _symmetric(matrix)
    # Cholesky ends only where no eigenvalue is negative beyond rounding; it costs a small part of
    # them. Where it breaks down the eigenvalues decide: a singular matrix may do either.
    if not symmetric.size or scipy.linalg.lapack.dpotrf(symmetric, lower=1)[1] == 0:
        return symmetric
    values, vectors = scipy.linalg.eigh(symmetric, driver="evd", check_finite=False)
    if values[0] >= 0:
        return symmetric
    # Taking the negative part away keeps more digits than summing up the positive one where, as
    # usual, few eigenvalues are negative.
    n_negative = int(np.count_nonzero(values < 0))
    if 2 * n_negative <= values.size:
        part = slice(0, n_negative)
        base = symmetric
    else:
        part = slice(n_negative, None)
        base = np.zeros_like(symmetric)
    half = vectors[:, part] * np.sqrt(np.abs(values[part]))
    del vectors
    triangle = scipy.linalg.blas.dsyrk(1.0, np.asfortranarray(half), beta=1.0, c=base, lower=1)
    return mirrored(triangle)


def symmetric_pinv(matrix: np.ndarray, rtol: float | None = None) -> np.ndarray:
    """Symmetric generalised inverse of a positive semi-definite matrix, whatever its units.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric, finite.
    rtol : float, optional
        Eigenvalues of the matrix scaled to a unit diagonal count as zero up to `rtol` times the
        largest. Default: 10·n·ε.

    Returns
    -------
    ndarray of shape (n, n)
        The inverse where there is one; otherwise the pseudo-inverse of the scaled matrix, scaled
        back, so that the rank does not depend on the units of the columns.

    Raises
    ------
    NumericalError
        If `matrix` is not finite.
    """
    import scipy.linalg

    symmetric = _symmetric(matrix)
    if not symmetric.size:
        return symmetric
    scaled, scale = unit_diagonal(symmetric)
    values, vectors = scipy.linalg.eigh(scaled)
    relative = 10 * values.size * np.finfo(np.float64).eps if rtol is None else rtol
    is_positive = values > relative * max(values[-1], 0.0)
    basis = vectors[:, is_positive] / scale[:, None]
    return (basis / values[is_positive]) @ basis.T


def unit_diagonal(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix with its rows and columns divided by the roots of its diagonal, and these.

    A diagonal value of 0 stays; its root counts as 1.
    """
    diagonal = np.diagonal(matrix)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return matrix / scale / scale[:, None], scale


def mirrored(triangle: np.ndarray) -> np.ndarray:
    """Symmetric matrix of a lower triangle; what is above it does not count."""
    result = np.tril(triangle)
    result += np.tril(triangle, -1).T
    return result


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Symmetric part of a finite square matrix."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise NumericalError("a matrix to decompose holds a value that is not finite")
    return (matrix + matrix.T) / 2
