"""Models of squared loss with a penalty λ·uᵀAu, of all λ by one decomposition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Part of the largest value below which all is rounding, which a ridge of 0 is taken to be.
_NOTHING = 1e-14
#: Part of the mean diagonal of a penalty that is added to it.
_REGULAR = 1e-6


@dataclass(frozen=True, eq=False)
class Ridges:
    """Models u = argmin ½·E(uᵀk − y)² + ½·λ·uᵀAu of centred similarities k and targets y.

    Attributes
    ----------
    basis : ndarray of shape (L, L)
        B with BᵀAB = I, in which the covariance is diagonal.
    values : ndarray of shape (L,)
        That diagonal.
    fitted : ndarray of shape (L, P)
        Covariance of the basis with the targets.
    """

    basis: np.ndarray
    values: np.ndarray
    fitted: np.ndarray

    @classmethod
    def of(cls, covariance: np.ndarray, target: np.ndarray, penalty: np.ndarray) -> Ridges:
        """Decompose the covariance (L, L) of similarities, whose covariance with targets is (L, P).

        The penalty A (L, L) is positive semi-definite; a millionth of its mean diagonal is added.
        """
        from scipy.linalg import cholesky, eigh, solve_triangular

        factor = cholesky(regular(penalty))
        white = solve_triangular(factor, covariance, trans=1)
        white = solve_triangular(factor, white.T, trans=1)
        values, vectors = eigh((white + white.T) / 2, driver="evd")
        basis = solve_triangular(factor, vectors)
        return cls(basis, np.maximum(values, 0.0), basis.T @ target)

    def in_basis(self, grid: np.ndarray) -> np.ndarray:
        """Return weights (n_ridges, L, P) of the basis: (value + λ)⁻¹ times what is fitted."""
        least = max(_NOTHING * float(self.values.max()), np.finfo(float).tiny)
        ridges = np.maximum(grid, least)[:, np.newaxis]
        return np.asarray(self.fitted / (self.values + ridges)[..., np.newaxis])

    def weights(self, grid: np.ndarray) -> np.ndarray:
        """Return the weights (n_ridges, L, P) of models."""
        return np.asarray(self.basis @ self.in_basis(grid))

    def predictions(self, grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what models predict (n_ridges, P, m) of centred rows (L, m)."""
        moved = self.basis.T @ rows
        return np.asarray(np.swapaxes(self.in_basis(grid), 1, 2) @ moved)


def regular(penalty: np.ndarray) -> np.ndarray:
    """Return a penalty with a millionth of its mean diagonal added to that."""
    added = _REGULAR * np.trace(penalty) / len(penalty)
    return np.asarray(penalty + added * np.eye(len(penalty)))
