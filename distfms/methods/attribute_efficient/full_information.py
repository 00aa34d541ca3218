"""Weights within the bound from all attributes of some examples: the limits of learning from few.

This module imports numba; import it where it is used.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.optimize import brentq, nnls

from distfms.solve.linalg import unit_diagonal

#: Eigenvalues below this are 0, of attributes with a second moment of 1.
_RANK = 1e-12


@njit(cache=True)
def online(
    rows: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray,
    total: np.ndarray,
    is_lasso: bool,
    step: float,
    bound: float,
) -> None:
    """Learn from rows (n, d), one by one: gradient descent, or exponentiated gradient.

    `weights` (d,) are those of ridge, or the logarithms of lasso; `total` is the sum of all weights
    that predicted.
    """
    current = weights
    for row in range(len(rows)):
        if is_lasso:
            size = np.abs(weights)
            shares = np.exp(size - size.max()) * (1.0 + np.exp(-2.0 * size))
            current = bound * shares / shares.sum() * np.tanh(weights)
        total += current
        moves = step * ((current * rows[row]).sum() - target[row]) * rows[row]
        if is_lasso:
            weights -= np.minimum(np.maximum(moves, -1.0), 1.0)
        else:
            weights -= moves
            weights /= max(1.0, np.sqrt((weights**2).sum()) / bound)


def offline_ridge(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₂ ≤ bound, exactly.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        E[x xᵀ].
    cross : ndarray of shape (d,)
        E[y x].
    bound : float

    Notes
    -----
    The weights are (gram + λI)⁻¹ cross, with λ = 0 if they are within the bound then, and otherwise
    the λ at which they are on it. 1/‖w‖ is nearly a straight line in λ, and λ ‖w‖ < ‖cross‖.

    References
    ----------
    Conn, Gould and Toint, "Trust-Region Methods" (2000), section 7.3.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    rotated = vectors.T @ cross

    def excess(penalty: float) -> float:
        return 1.0 / bound - 1.0 / float(np.linalg.norm(rotated / (values + penalty)))

    penalty = 0.0
    if np.linalg.norm(rotated / values) > bound:
        most = 2.0 * np.linalg.norm(rotated) / bound
        penalty = brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-15)
    found: np.ndarray = vectors @ (rotated / (values + penalty))
    return found


def offline_lasso(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₁ ≤ bound, exactly.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        E[x xᵀ].
    cross : ndarray of shape (d,)
        E[y x].
    bound : float

    Notes
    -----
    With a square root D of `gram`, the least ‖D w − t‖ is the distance from t to the convex hull of
    0 and the columns of D, times ±bound. That is a problem of non-negative least squares: its
    solution divided by its sum has the shares of these points.

    References
    ----------
    Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23.
    """
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
