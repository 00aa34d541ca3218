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
    few = 2 * n_negative <= values.size
    own = slice(0, n_negative) if few else slice(n_negative, None)
    part = np.asfortranarray(vectors[:, own] * np.sqrt(np.abs(values[own])))
    rest = symmetric if few else np.zeros_like(symmetric)
    del vectors
    triangle = scipy.linalg.blas.dsyrk(1.0, part, beta=1.0, c=rest, lower=1)
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
    kept = values > relative * max(values[-1], 0.0)
    basis = vectors[:, kept] / scale[:, None]
    return (basis / values[kept]) @ basis.T


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
        (n, width), square = matrix.shape, self._square
        self.n, self._n_late = n, 0
        self._made = np.zeros((n + LATE, n + LATE if square else width))
        self._made[:n, :width] = matrix
        self._kappas, self._left = np.zeros(LATE), np.zeros((LATE, n + LATE))
        self._right = self._left if square else np.zeros((LATE, width))

    def row(self, at: int) -> np.ndarray:
        """Return a row of X."""
        late, made = slice(self._n_late), self._made[at]
        if self._square:
            made = np.concatenate([self._made[:at, at], made[at:]])
        found = made + (self._kappas[late] * self._left[late, at]) @ self._right[late]
        return found[: self.n] if self._square else found

    def combined(self, x: np.ndarray) -> np.ndarray:
        """Return xᵀX."""
        from scipy.linalg.blas import dsymv

        late = slice(self._n_late)
        shares = self._kappas[late] * (self._left[late, : self.n] @ x)
        if not self._square:
            return x @ self._made[: self.n] + shares @ self._right[late]
        padded = np.zeros(len(self._made))
        padded[: self.n] = x
        found = dsymv(1.0, self._made.T, padded, lower=1) + shares @ self._right[late]
        return found[: self.n]

    def add(self, kappa: float, q: np.ndarray, y: np.ndarray) -> None:
        """Take an update; `make` has to follow where it `is_full`."""
        self._kappas[self._n_late] = kappa
        self._left[self._n_late, : q.size] = q
        if not self._square:
            self._right[self._n_late] = y
        self.n, self._n_late = q.size, self._n_late + 1

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another update."""
        return self._n_late == LATE

    def make(self, kept: np.ndarray | None = None) -> None:
        """Make the updates; keep some columns only, by default all."""
        from scipy.linalg.blas import dgemm, dsyrk

        into = self._made.T
        if self._square:
            for sign in (1.0, -1.0):
                some = sign * self._kappas > 0
                half = np.sqrt(np.abs(self._kappas[some]))[:, None] * self._left[some]
                if len(half):
                    dsyrk(sign, half.T, beta=1.0, c=into, lower=1, overwrite_c=1)
        elif into.size:
            by_kappa = (self._kappas[:, None] * self._left).T
            dgemm(1.0, self._right.T, by_kappa, beta=1.0, c=into, trans_b=1, overwrite_c=1)
        self._n_late = 0
        if kept is not None and not kept.all():
            self._begin(self._made[: self.n, kept])
        elif self.n + LATE > len(self._made):
            self._begin(self._made[: self.n, : self.n if self._square else None])
