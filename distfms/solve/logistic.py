"""Scores of rows by logistic models of others, of one ridge after another."""

from __future__ import annotations

from functools import partial

import numpy as np

#: Fall of the loss at which a fit ends, and the most steps: what is left of it decides nothing.
_FALL, _STEPS = 1e-5, 50
#: How much more than the least of the mean losses so far ends the search: less of a ridge is worse.
_WORSE = 1.2


def logistic_scores(
    grid: np.ndarray,
    variance: np.ndarray,
    rows: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
    asked: np.ndarray,
    truth: np.ndarray,
) -> np.ndarray:
    """Return scores (n_ridges, P, m) of rows, each class against the others.

    Once they have become much worse, those of still lower ridges are taken to be the same.

    Parameters
    ----------
    grid : ndarray of shape (n_ridges,)
        Descending; ½·ridge·‖w‖² is added to the mean loss of each class against the others.
    variance : ndarray of shape (r,)
        Of the features, which are uncorrelated: steps are in units of their curvature.
    rows, asked : ndarray of shape (r, n) and (r, m)
        Centred features of rows to fit to and of those that are asked.
    target, truth : ndarray of shape (P, n) and (P, m)
        Whether rows are of a class; of two classes only for the second.
    share : ndarray of shape (n,)
        Weights of sum 1.
    """
    from scipy.optimize import minimize
    from scipy.special import log_expit

    rows = np.vstack((rows, np.ones(rows.shape[1])))
    asked = np.vstack((asked, np.ones(asked.shape[1])))
    variance = np.append(variance, 1.0)
    sign, asked_sign = 2.0 * target - 1.0, 2.0 * truth - 1.0
    weights = np.zeros((len(rows), len(target)))
    scores, least = np.empty((len(grid), len(target), asked.shape[1])), np.inf
    for number, ridge in enumerate(grid):
        penalty = np.append(np.full(len(variance) - 1, ridge), 0.0)[:, np.newaxis]
        unit = 1.0 / np.sqrt(variance[:, np.newaxis] / 4.0 + penalty)
        objective = partial(penalised_loss, rows, sign, share, unit, penalty)
        options = {"ftol": _FALL, "maxiter": _STEPS}
        start = (weights / unit).ravel()
        minimum = minimize(objective, start, method="L-BFGS-B", jac=True, options=options)
        weights = minimum.x.reshape(weights.shape) * unit
        scores[number:] = weights.T @ asked
        loss = float(-log_expit(asked_sign * scores[number]).sum(axis=0).mean())
        if loss > _WORSE * least:
            break
        least = min(least, loss)
    return scores


def penalised_loss(
    rows: np.ndarray,
    sign: np.ndarray,
    share: np.ndarray,
    unit: np.ndarray,
    penalty: np.ndarray,
    scaled: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return Σ log(1 + e^−m) of margins m with ½·wᵀPw, and its gradient, by weights in units."""
    from scipy.special import expit, log_expit

    weights = scaled.reshape(len(rows), len(sign)) * unit
    margin = sign * (weights.T @ rows)
    value = 0.5 * np.sum(penalty * weights**2) - np.sum(log_expit(margin) @ share)
    slope = penalty * weights - rows @ (sign * expit(-margin) * share).T
    return float(value), (slope * unit).ravel()
