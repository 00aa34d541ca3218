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
    epsilon = np.finfo(float).eps
    rounding = len(values) * epsilon * values[-1]
    is_kept = values > rounding
    values = values[is_kept]
    vectors = vectors[:, is_kept]
    rotated = vectors.T @ cross

    def excess(penalty: float) -> float:
        norm = float(np.linalg.norm(rotated / (values + penalty)))
        return 1.0 / bound - 1.0 / norm

    penalty = 0.0
    largest = np.linalg.norm(rotated / values)
    if largest > bound:
        most = 2.0 * np.linalg.norm(rotated) / bound
        penalty = brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-15)
    weights: np.ndarray = vectors @ (rotated / (values + penalty))
    return weights


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
    is_kept = values > _RANK * values[-1]
    vectors = vectors[:, is_kept]
    root = np.sqrt(values[is_kept])
    target = vectors.T @ (cross / scale) / root
    columns = bound * scale * (vectors * root).T
    origin = np.zeros_like(target)
    corners = np.column_stack((columns, -columns, origin))
    away = corners - target[:, None]
    away /= np.linalg.norm(target)
    n_corners = away.shape[1]
    points = np.vstack((away, np.ones(n_corners)))
    lengths = np.linalg.norm(points, axis=0)
    sums_to_one = np.append(origin, 1.0)
    most_steps = 30 * n_corners
    scaled, _ = nnls(points / lengths, sums_to_one, maxiter=most_steps)
    shares = scaled / lengths
    shares /= shares.sum()
    d = len(cross)
    positive, negative, _ = np.split(shares, [d, 2 * d])
    return bound * (positive - negative)
