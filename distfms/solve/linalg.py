"""Small dense linear algebra that several methods share; all matrices are symmetric."""

from __future__ import annotations

import numpy as np

from distfms.errors import NumericalError

#: Updates of a matrix that are made at once, by one product of matrices.
LATE = 64


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


class Growing:
    """A matrix X that takes updates X ← X + κ q yᵀ, LATE of them by one product of matrices.

    A q with one value more than the last adds a row to X, and a column too if X is `square` (its
    updates are then symmetric, y = q); of a square X only one triangle is kept.
    """

    def __init__(self, matrix: np.ndarray, square: bool = False) -> None:
        self._square = square
        self._begin(matrix)

    def _begin(self, matrix: np.ndarray) -> None:
        n_rows, width = matrix.shape
        n_places = n_rows + LATE
        self.n = n_rows
        self._n_late = 0
        self._matrix = np.zeros((n_places, n_places if self._square else width))
        self._matrix[:n_rows, :width] = matrix
        self._kappas = np.zeros(LATE)
        self._left = np.zeros((LATE, n_places))
        self._right = self._left if self._square else np.zeros((LATE, width))

    def row(self, number: int) -> np.ndarray:
        """Return a row of X: that of the matrix, and Σ κ q_i y of the late updates."""
        late = slice(self._n_late)
        shares = self._kappas[late] * self._left[late, number]
        updates = shares @ self._right[late]
        if not self._square:
            return self._matrix[number] + updates
        # Of the upper triangle: the column down to the diagonal, and the row from there on.
        row = self._matrix[number].copy()
        row[:number] = self._matrix[:number, number]
        return (row + updates)[: self.n]

    def combined(self, x: np.ndarray) -> np.ndarray:
        """Return xᵀX."""
        from scipy.linalg.blas import dsymv

        late = slice(self._n_late)
        shares = self._kappas[late] * (self._left[late, : self.n] @ x)
        updates = shares @ self._right[late]
        if not self._square:
            return x @ self._matrix[: self.n] + updates
        padded = np.zeros(len(self._matrix))
        padded[: self.n] = x
        product = dsymv(1.0, self._matrix.T, padded, lower=1)
        return (product + updates)[: self.n]

    def add(self, kappa: float, q: np.ndarray, y: np.ndarray) -> None:
        """Take an update; `make` has to follow where it `is_full`."""
        self._kappas[self._n_late] = kappa
        self._left[self._n_late, : q.size] = q
        if not self._square:
            self._right[self._n_late] = y
        self.n = q.size
        self._n_late += 1

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another update."""
        return self._n_late == LATE

    def make(self, kept: np.ndarray | None = None) -> None:
        """Make the updates; keep some columns only, by default all."""
        if self._square:
            self._make_symmetric(1.0)
            self._make_symmetric(-1.0)
        elif self._matrix.size:
            self._make_general()
        self._n_late = 0
        if kept is not None and not kept.all():
            self._begin(self._matrix[: self.n, kept])
        elif self.n + LATE > len(self._matrix):
            width = self.n if self._square else None
            self._begin(self._matrix[: self.n, :width])

    def _make_symmetric(self, sign: float) -> None:
        """Make the updates whose κ has this sign: X ← X ± HᵀH, with rows √|κ| q of H."""
        from scipy.linalg.blas import dsyrk

        chosen = sign * self._kappas > 0
        if chosen.any():
            roots = np.sqrt(np.abs(self._kappas[chosen]))
            half = roots[:, None] * self._left[chosen]
            dsyrk(sign, half.T, beta=1.0, c=self._matrix.T, lower=1, overwrite_c=1)

    def _make_general(self) -> None:
        """Make the updates: X ← X + Qᵀ diag(κ) Y."""
        from scipy.linalg.blas import dgemm

        by_kappa = self._kappas[:, None] * self._left
        dgemm(1.0, self._right.T, by_kappa.T, beta=1.0, c=self._matrix.T, trans_b=1, overwrite_c=1)
