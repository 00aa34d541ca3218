"""Small dense linear algebra that several methods share; all matrices are symmetric."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from distfms.errors import NumericalError

#: A pivot at most this part of its diagonal entry counts as zero.
SINGULAR_RTOL = 1e-10


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


class BorderedInverse:
    """Inverse of a symmetric positive definite matrix M that grows and changes on its diagonal.

    Parameters
    ----------
    capacity : int, default=16
        Rows to make room for at first; more are made as needed.
    rtol : float, default=1e-10
        An operation whose pivot is at most `rtol` times the diagonal entry it belongs to is
        refused: M would be singular to that precision.

    Notes
    -----
    Appending and updating cost O(n²). Rounding errors add up over many updates; call `refactor`
    with the true matrix now and then.
    """

    def __init__(self, capacity: int = 16, *, rtol: float = SINGULAR_RTOL) -> None:
        self._store = np.zeros((capacity, capacity))
        self._size = 0
        self._rtol = rtol

    @property
    def P(self) -> np.ndarray:  # noqa: N802 (the papers' name)
        """M⁻¹ of shape (n, n): a view, changed by the next operation."""
        return self._store[: self._size, : self._size]

    def __len__(self) -> int:
        return self._size

    def append(self, row: np.ndarray, diagonal: float) -> bool:
        """Add a row and column to M.

        Parameters
        ----------
        row : ndarray of shape (n,)
            Entries of M between the new index and the present ones.
        diagonal : float
            Entry of the new index with itself.

        Returns
        -------
        bool
            False, and nothing is changed, if M would be singular.
        """
        n = self._size
        inverse = self.P
        solution = inverse @ np.asarray(row, dtype=np.float64)
        schur = float(diagonal - row @ solution)
        if not schur > self._rtol * abs(diagonal):
            return False
        self._reserve(n + 1)
        inverse = self._store[: n + 1, : n + 1]
        inverse[:n, :n] += np.outer(solution, solution / schur)
        inverse[:n, n] = inverse[n, :n] = -solution / schur
        inverse[n, n] = 1.0 / schur
        self._size = n + 1
        return True

    def update_diagonal(self, index: int, delta: float) -> bool:
        """Add `delta` to ``M[index, index]`` (Sherman-Morrison).

        Returns
        -------
        bool
            False, and nothing is changed, if M would be singular or indefinite.
        """
        inverse = self.P
        column = inverse[:, index].copy()
        pivot = 1.0 + delta * column[index]
        if not pivot > self._rtol:
            return False
        inverse -= np.outer(column, column * (delta / pivot))
        return True

    def refactor(self, M: np.ndarray) -> bool:
        """Invert M afresh by Cholesky.

        Parameters
        ----------
        M : ndarray of shape (n, n)
            Symmetric; of any size.

        Returns
        -------
        bool
            False, and nothing is changed, if M is not positive definite to the relative tolerance.
        """
        n = M.shape[0]
        if n == 0:
            self._size = 0
            return True
        factor, info = scipy.linalg.lapack.dpotrf(np.asarray(M, dtype=np.float64), lower=1)
        pivots = np.diagonal(factor) ** 2
        if info != 0 or not (pivots > self._rtol * np.abs(np.diagonal(M))).all():
            return False
        inverse, info = scipy.linalg.lapack.dpotri(factor, lower=1)
        if info != 0:
            return False
        self._reserve(n)
        lower = np.tril(inverse)
        self._store[:n, :n] = lower + np.tril(lower, -1).T
        self._size = n
        return True

    def _reserve(self, n: int) -> None:
        """Make room for n rows."""
        if n <= self._store.shape[0]:
            return
        grown = np.zeros((max(n, 2 * self._store.shape[0]),) * 2)
        grown[: self._size, : self._size] = self.P
        self._store = grown


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Symmetric part of a finite square matrix."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise NumericalError("a matrix to be decomposed holds a value that is not a finite number")
    return (matrix + matrix.T) / 2
