"""Ridge regressions of all ridges by one decomposition.

Models minimise ½ uᵀCu − bᵀu + ½λ uᵀAu: C is the covariance (L, L) of columns, b theirs (L, P) with
targets. With a basis B for which BᵀAB = I and BᵀCB = diag(d), u = B (d + λ)⁻¹ Bᵀb (Golub, Van Loan,
"Matrix Computations", section 8.7.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

#: Part of the largest value below which all is rounding, which a ridge of 0 is taken to be.
_NOTHING = 1e-14
#: Part of the mean diagonal of a penalty that is added to it.
_REGULAR = 1e-6
#: As how many a parameter counts in generalised cross-validation.
_PARAMETER = 1.4


@dataclass(frozen=True, eq=False)
class Ridges:
    """Models of all ridges of one problem.

    Attributes
    ----------
    basis : ndarray of shape (L, L)
        B.
    values : ndarray of shape (L,)
        d.
    fitted : ndarray of shape (L, P)
        Bᵀb.
    """

    basis: np.ndarray
    values: np.ndarray
    fitted: np.ndarray

    @classmethod
    def of(
        cls, covariance: np.ndarray, target: np.ndarray, penalty: np.ndarray | None = None
    ) -> Ridges:
        """Decompose C, for a penalty A that is positive semi-definite; by default the identity.

        With A = UᵀU, d and V are eigenvalues and vectors of U⁻ᵀCU⁻¹, and B = U⁻¹V.
        """
        from scipy.linalg import cholesky, eigh, solve_triangular

        if penalty is None:
            values, basis = eigh(covariance, driver="evd", check_finite=False)
        else:
            factor = cholesky(regular(penalty))
            half_white = solve_triangular(factor, covariance, trans=1)
            white = solve_triangular(factor, half_white.T, trans=1)
            values, vectors = eigh((white + white.T) / 2, driver="evd")
            basis = solve_triangular(factor, vectors)
        return cls(basis, np.maximum(values, 0.0), basis.T @ target)

    def in_basis(self, grid: ArrayLike) -> np.ndarray:
        """Return weights (n_ridges, L, P) of the basis, (d + λ)⁻¹ Bᵀb."""
        least = max(_NOTHING * float(self.values.max()), np.finfo(float).tiny)
        ridges = np.maximum(grid, least)[:, np.newaxis]
        penalised = self.values + ridges
        return np.asarray(self.fitted / penalised[..., np.newaxis])

    def weights(self, grid: ArrayLike) -> np.ndarray:
        """Return the weights u (n_ridges, L, P) of models."""
        return np.asarray(self.basis @ self.in_basis(grid))

    def predictions(self, grid: ArrayLike, rows: np.ndarray) -> np.ndarray:
        """Return uᵀx (n_ridges, P, m) of centred rows (L, m)."""
        in_basis = self.basis.T @ rows
        return np.asarray(np.swapaxes(self.in_basis(grid), 1, 2) @ in_basis)


def generalised_loss(
    mse: np.ndarray | float, n_parameters: np.ndarray | float, n_rows: float
) -> np.ndarray:
    """Return mse / (1 − 1.4 p / n)², infinite where no row is free: the loss on new rows.

    That is generalised cross-validation [1]_ of models that are linear in the target, with p = tr H
    of their hat matrix H. Parameters count as 1.4, with which it rarely follows noise where rows
    are few [2]_.

    Parameters
    ----------
    mse : float or ndarray
        Mean squared errors of the rows that models learned from.
    n_parameters : float or ndarray
    n_rows : float

    References
    ----------
    .. [1] Golub, Heath, Wahba, "Generalized Cross-Validation as a Method for Choosing a Good Ridge
       Parameter", Technometrics 21 (1979), Equation 1.4.
    .. [2] Kim, Gu, "Smoothing spline Gaussian regression: more scalable computation via efficient
       approximation", JRSS B 66 (2004), Section 3.
    """
    free = 1.0 - _PARAMETER * np.asarray(n_parameters) / n_rows
    with np.errstate(divide="ignore"):
        return np.where(free > 0, mse / np.square(free), np.inf)


def regular(penalty: np.ndarray) -> np.ndarray:
    """Return A + ε·tr(A)/L·I, ε a millionth: a penalty that may be singular made regular."""
    added = _REGULAR * np.trace(penalty) / len(penalty)
    return np.asarray(penalty + added * np.eye(len(penalty)))
