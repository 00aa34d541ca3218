"""The best weights within the bound, from all attributes of some examples."""

from __future__ import annotations

import numpy as np

from distfms.linalg import unit_diagonal

#: Eigenvalues below this are 0, of attributes with a second moment of 1.
_RANK = 1e-12
#: Most steps of Newton's method, and how far beyond the bound it may end, as a share of it.
_MOST_STEPS = 100
_CLOSE = 1e-10


def offline_ridge(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₂ ≤ bound, by Newton's method for the ridge.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        E[x xᵀ].
    cross : ndarray of shape (d,)
        E[y x].
    bound : float

    References
    ----------
    Moré and Sorensen, "Computing a trust region step" (1983): 1/‖w‖ is a concave function of the
    ridge, so that its tangents never lead beyond the bound.
    """
    from scipy.linalg import cho_factor, cho_solve

    unit, scale = unit_diagonal(gram)
    unit[np.diag_indices_from(unit)] += _RANK
    ridge = 0.0
    for _ in range(_MOST_STEPS):
        factor = cho_factor(unit + np.diag(ridge / scale**2))
        weights = cho_solve(factor, cross / scale) / scale
        length = np.linalg.norm(weights)
        if length <= (1.0 + _CLOSE) * bound:
            break
        slope = (weights / scale) @ cho_solve(factor, weights / scale)
        ridge += (length / bound - 1.0) * length**2 / slope
    return weights / max(1.0, length / bound)


def offline_lasso(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₁ ≤ bound, exactly.

    Notes
    -----
    With a square root D of `gram`, the least ‖D w − t‖ is the distance from t to the convex hull of
    0 and the columns of D, times ±bound. That is a problem of non-negative least squares: its
    solution divided by its sum has the shares of these points.

    References
    ----------
    Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23.
    """
    from scipy.optimize import nnls

    if not cross.any():
        return np.zeros_like(cross)
    unit, scale = unit_diagonal(gram)
    values, vectors = np.linalg.eigh(unit)
    kept = values > _RANK * values[-1]
    root = np.sqrt(values[kept])
    target = vectors[:, kept].T @ (cross / scale) / root
    columns = bound * scale * (vectors[:, kept] * root).T
    points = np.column_stack((columns, -columns, 0.0 * target)) - target[:, None]
    points = np.vstack((points / np.linalg.norm(target), np.ones(points.shape[1])))
    lengths = np.linalg.norm(points, axis=0)
    wanted = np.append(0.0 * target, 1.0)
    shares = nnls(points / lengths, wanted, maxiter=30 * len(lengths))[0] / lengths
    positive, negative, _ = np.split(shares / shares.sum(), [len(cross), 2 * len(cross)])
    return bound * (positive - negative)
