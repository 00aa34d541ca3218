"""The best weights within the bound, from all attributes of some examples."""

from __future__ import annotations

import warnings

import numpy as np

#: Penalties along the path of the lasso.
_PENALTIES = 60
#: Eigenvalues below this share of the largest are 0.
_RANK = 1e-12


def offline_ridge(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₂ ≤ bound.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        E[x xᵀ].
    cross : ndarray of shape (d,)
        E[y x].
    bound : float
    """
    from scipy.optimize import brentq

    values, vectors = np.linalg.eigh(gram)
    projected = vectors.T @ cross
    kept = values > _RANK * max(values[-1], 0.0)

    def weights(ridge: float) -> np.ndarray:
        shrunk = np.zeros_like(projected)
        shrunk[kept] = projected[kept] / (values[kept] + ridge)
        return vectors @ shrunk

    def excess(ridge: float) -> float:
        return float(np.linalg.norm(weights(ridge))) - bound

    if not kept.any() or excess(0.0) <= 0.0:
        return weights(0.0)
    upper = float(np.linalg.norm(cross)) / bound  # the norm is below ‖cross‖ / ridge
    return weights(brentq(excess, 0.0, upper, xtol=1e-14 * values[-1], rtol=1e-10))


def offline_lasso(gram: np.ndarray, cross: np.ndarray, bound: float) -> np.ndarray:
    """Minimise the squared loss over ‖w‖₁ ≤ bound, by coordinate descent on a square root of gram.

    Notes
    -----
    The path of the penalised problem is followed to the bound; between two of its points weights
    are interpolated, as the path is piecewise linear.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lasso_path

    values, vectors = np.linalg.eigh(gram)
    kept = values > _RANK * max(values[-1], 0.0)
    if not kept.any() or not cross.any():
        return np.zeros_like(cross)
    roots = np.sqrt(values[kept])
    design = np.asfortranarray((vectors[:, kept] * roots).T)
    target = vectors[:, kept].T @ cross / roots
    # The path is that of ‖target − design w‖² / 2n, with n the number of rows of the design.
    penalties = np.abs(cross).max() / len(roots) * np.geomspace(1.0, 1e-4, _PENALTIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, path, _ = lasso_path(design, target, alphas=penalties, max_iter=2000)
    norms = np.abs(path).sum(axis=0)
    beyond = np.flatnonzero(norms > bound)
    if not len(beyond):
        return path[:, -1]
    last = beyond[0]
    inside = path[:, last - 1] if last else np.zeros_like(cross)
    at = (bound - np.abs(inside).sum()) / (norms[last] - np.abs(inside).sum())
    return inside + at * (path[:, last] - inside)
