"""Generalised linear models and their group sequence, written row by row as the paper has them.

Appendix B of Hu, Grubb, Bagnell, Hebert: risk (equation 21), gradient (22), Algorithm 3. Slow on
purpose; the rows are in memory, standardised here; the model on a prefix comes from a general
optimiser, and every prefix is fitted anew from zero.
"""

import numpy as np
from scipy.optimize import minimize


def standardise(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


#: φ of the scores of a row, and its gradient, the means that they stand for.
PHI = {
    "gaussian": lambda eta: 0.5 * (eta**2).sum(),
    "logistic": lambda eta: np.log1p(np.exp(eta)).sum(),
    "poisson": lambda eta: np.exp(eta).sum(),
    "softmax": lambda eta: np.log(np.exp(eta).sum()),
}
MEAN = {
    "gaussian": lambda eta: eta,
    "logistic": lambda eta: 1.0 / (1.0 + np.exp(-eta)),
    "poisson": np.exp,
    "softmax": lambda eta: np.exp(eta) / np.exp(eta).sum(),
}


def risk(W, X, Y, family, ridge=0.0):
    """Equation 21; W (d + 1, P) with the intercept last, which the ridge spares."""
    total = 0.0
    for i in range(len(X)):
        eta = W[:-1].T @ X[i] + W[-1]
        total += PHI[family](eta) - Y[i] @ eta
    return total / len(X) + 0.5 * ridge * (W[:-1] ** 2).sum()


def gradient(W, X, Y, family, ridge=0.0):
    """Equation 22."""
    total = np.zeros_like(W)
    for i in range(len(X)):
        eta = W[:-1].T @ X[i] + W[-1]
        total += np.outer(np.append(X[i], 1.0), MEAN[family](eta) - Y[i])
    total /= len(X)
    total[:-1] += ridge * W[:-1]
    return total


def fit(X, Y, family, support, ridge):
    """Least risk over the support, by BFGS from zero."""
    active = [*support, X.shape[1]]
    shape = (len(active), Y.shape[1])

    def full(flat):
        W = np.zeros((X.shape[1] + 1, Y.shape[1]))
        W[active] = flat.reshape(shape)
        return W

    result = minimize(
        lambda flat: risk(full(flat), X, Y, family, ridge),
        np.zeros(shape).ravel(),
        jac=lambda flat: gradient(full(flat), X, Y, family, ridge)[active].ravel(),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    return full(result.x)


def sequence(X, Y, groups, costs, family, ridge, *, whiten=True, cost_aware=True):
    """Algorithm 3 on standardised rows: groups in order, coefficients of each prefix."""
    chosen = []
    weights = [fit(X, Y, family, [], ridge)]
    while len(chosen) < len(groups):
        slope = gradient(weights[-1], X, Y, family, ridge)
        best = -1
        best_score = -1.0
        for g, columns in enumerate(groups):
            if g in chosen:
                continue
            white = X[:, columns].T @ X[:, columns] / len(X) if whiten else np.eye(len(columns))
            part = slope[columns]
            score = np.trace(part.T @ np.linalg.pinv(white) @ part)
            score /= costs[g] if cost_aware else 1.0
            if score > best_score:
                best = g
                best_score = score
        chosen.append(best)
        support = [j for g in chosen for j in groups[g]]
        weights.append(fit(X, Y, family, support, ridge))
    return chosen, weights
