"""Small dense linear algebra that several methods share; all matrices are symmetric."""

from __future__ import annotations

from collections.abc import Callable

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
    values, part_of = _eigenpairs(symmetric)
    negative = values < 0
    # Subtracting the negative part keeps more digits than summing up the positive one
    # where, as usual, few eigenvalues are negative.
    if 2 * int(negative.sum()) <= values.size:
        return symmetric + part_of(negative)
    return part_of(values > 0)


def _eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return ascending eigenvalues, and what sums up |λ| v vᵀ over a run of them.

    Half of the time of a whole decomposition goes into eigenvectors, of which few are wanted.
    """
    from scipy.linalg import eigh_tridiagonal
    from scipy.linalg.lapack import dormqr, dsytrd, dsytrd_lwork

    n = len(matrix)
    work = int(dsytrd_lwork(n, lower=1)[0])
    reflectors, diagonal, beside, scales, _ = dsytrd(matrix, lower=1, lwork=work)
    values = eigh_tridiagonal(diagonal, beside, eigvals_only=True, lapack_driver="sterf")

    def part_of(chosen: np.ndarray) -> np.ndarray:
        own = np.flatnonzero(chosen)
        if not own.size:
            return np.zeros_like(matrix)
        _, vectors = eigh_tridiagonal(
            diagonal,
            beside,
            select="i",
            select_range=(own[0], own[-1]),
            lapack_driver="stemr",
        )
        if n > 1:
            room = 64 * own.size
            vectors[1:], *_ = dormqr("L", "N", reflectors[1:, :-1], scales, vectors[1:], room)
        vectors *= np.sqrt(np.abs(values[own]))
        return vectors @ vectors.T

    return values, part_of


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
    diagonal = np.diagonal(symmetric)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = scipy.linalg.eigh(symmetric / scale / scale[:, None])
    relative = 10 * values.size * np.finfo(np.float64).eps if rtol is None else rtol
    kept = values > relative * max(values[-1], 0.0)
    basis = vectors[:, kept] / scale[:, None]
    return (basis / values[kept]) @ basis.T


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Symmetric part of a finite square matrix."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise NumericalError("a matrix to be decomposed holds a value that is not a finite number")
    return (matrix + matrix.T) / 2
