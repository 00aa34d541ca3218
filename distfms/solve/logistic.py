"""Scores of rows by logistic models that were fitted to others, of one ridge after another."""

from __future__ import annotations

from functools import partial

import numpy as np

from distfms.solve.losses import LOGISTIC

#: Fall of the loss at which a fit ends, and the most steps: what is left of it decides nothing.
_FALL = 1e-5
_STEPS = 50
#: How much more than the least of the mean losses so far ends the search: less of a ridge is worse.
_WORSE = 1.2


def logistic_scores(
    grid: np.ndarray,
    variance: np.ndarray,
    rows: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
    new_rows: np.ndarray,
    truth: np.ndarray,
    intercept: bool = True,
) -> np.ndarray:
    """Return scores (n_ridges, P, m) of rows, each class against the others.

    The models minimise Σᵢ sᵢ (log(1 + e^ηᵢ) − yᵢηᵢ) + ½λ‖w‖² of each class, η = wᵀx + b. Once they
    have become much worse, those of still lower ridges are taken to be the same.

    Parameters
    ----------
    grid : ndarray of shape (n_ridges,)
        Ridges λ, descending.
    variance : ndarray of shape (r,)
        Of the features, which are uncorrelated: steps are in units of their curvature, that is
        1/√(σ²/4 + λ).
    rows, new_rows : ndarray of shape (r, n) and (r, m)
        Centred features of rows to fit to and of those to score.
    target, truth : ndarray of shape (P, n) and (P, m)
        Whether rows are of a class; of two classes only for the second.
    share : ndarray of shape (n,)
        Weights s of sum 1.
    intercept : bool
        Whether b is fitted, else it is 0.
    """
    from scipy.optimize import minimize

    is_penalised = np.ones(len(variance))
    if intercept:
        rows = np.vstack((rows, np.ones(rows.shape[1])))
        new_rows = np.vstack((new_rows, np.ones(new_rows.shape[1])))
        variance = np.append(variance, 1.0)
        is_penalised = np.append(is_penalised, 0.0)
    weights = np.zeros((len(rows), len(target)))
    scores = np.empty((len(grid), len(target), new_rows.shape[1]))
    least = np.inf
    for number, ridge in enumerate(grid):
        penalty = ridge * is_penalised[:, np.newaxis]
        unit = 1.0 / np.sqrt(variance[:, np.newaxis] / 4.0 + penalty)
        objective = partial(penalised_loss, rows, target, share, unit, penalty)
        options = {"ftol": _FALL, "maxiter": _STEPS}
        start = (weights / unit).ravel()
        minimum = minimize(objective, start, method="L-BFGS-B", jac=True, options=options)
        weights = minimum.x.reshape(weights.shape) * unit
        scores[number:] = weights.T @ new_rows
        loss = float(LOGISTIC.losses(scores[number], truth).sum(axis=0).mean())
        if loss > _WORSE * least:
            break
        least = min(least, loss)
    return scores


def penalised_loss(
    rows: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
    unit: np.ndarray,
    penalty: np.ndarray,
    scaled: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return the minimised sum with ½·wᵀPw, and its gradient, by weights in units."""
    weights = scaled.reshape(len(rows), len(target)) * unit
    eta = weights.T @ rows
    loss = np.sum(LOGISTIC.losses(eta, target) @ share)
    value = 0.5 * np.sum(penalty * weights**2) + loss
    away = (LOGISTIC.mean(eta) - target) * share
    slope = penalty * weights + rows @ away.T
    return float(value), (slope * unit).ravel()
