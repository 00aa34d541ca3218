"""Log losses of rows by logistic models of others, of one ridge after another."""

from __future__ import annotations

import numpy as np

#: Ridges that are tried.
LOGISTIC_RIDGES = np.logspace(-1.0, -8.0, 8)
#: Fall of the loss at which a fit ends, and the most steps: what is left of it decides nothing. And
#: how much more than the least of the mean losses so far ends the search: less of a ridge is worse.
_FALL, _STEPS, _WORSE = 1e-5, 50, 1.2


def log_losses(
    variance: np.ndarray,
    rows: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
    asked: np.ndarray,
    truth: np.ndarray,
) -> np.ndarray:
    """Return log losses (n_ridges, m) of rows, in units of that of equal shares of the classes.

    Once they have become much worse, those of still lower ridges are taken to be the same.

    Parameters
    ----------
    variance : ndarray of shape (r,)
        Of the features, which are uncorrelated: steps are in units of what they bend.
    rows, asked : ndarray of shape (r, n) and (r, m)
        Centred features of rows to fit to and of those that are asked; ½·ridge·‖w‖² is added to the
        mean loss of each class against the others.
    target, truth : ndarray of shape (P, n) and (P, m)
        Whether rows are of a class; of two classes only for the second.
    share : ndarray of shape (n,)
        Weights of sum 1.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, log_expit, logsumexp

    rows, asked = (np.vstack((own, np.ones(own.shape[1]))) for own in (rows, asked))
    shape, sign, found = (len(rows), len(target)), 2.0 * target - 1.0, []
    weights, n_more = np.zeros(shape), int(len(target) == 1)  # the first of two classes, too
    truth = np.vstack((truth, 1.0 - truth[:n_more]))

    def loss(at: np.ndarray, unit: np.ndarray, penalty: np.ndarray) -> tuple[float, np.ndarray]:
        own = at.reshape(shape) * unit
        margin = sign * (own.T @ rows)
        value = 0.5 * np.sum(penalty * own**2) - np.sum(log_expit(margin) @ share)
        slope = penalty * own - rows @ (sign * expit(-margin) * share).T
        return value, (slope * unit).ravel()

    for ridge in LOGISTIC_RIDGES:
        penalty = np.append(np.full(len(variance), ridge), 0.0)[:, np.newaxis]
        unit = 1.0 / np.sqrt(np.append(variance, 1.0)[:, np.newaxis] / 4.0 + penalty)
        own = {"args": (unit, penalty), "options": {"ftol": _FALL, "maxiter": _STEPS}}
        best = minimize(loss, (weights / unit).ravel(), method="L-BFGS-B", jac=True, **own)
        weights = best.x.reshape(shape) * unit
        scores = weights.T @ asked
        logs = log_expit(np.vstack((scores, -scores[:n_more])))
        found.append(logsumexp(logs, axis=0) - np.sum(logs * truth, axis=0))
        if found[-1].mean() > _WORSE * min(own.mean() for own in found):
            break
    found += found[-1:] * (len(LOGISTIC_RIDGES) - len(found))
    return np.array(found) / np.log(len(truth))
