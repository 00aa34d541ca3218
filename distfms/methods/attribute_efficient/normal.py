"""A normal model of rows of which some values are known, by maximum likelihood.

Attributes and the target, in units of their deviations, are taken for one normal vector. Each step
takes the expected sums S of squares and products of n whole rows, given what is known of each, and
from these (expectation, then conditional maximisation)

    Σ = (S_xx + p I) / (n + p),   w = (S_xx + λ I)⁻¹ s_xy,   σ² = (s_yy − wᵀ s_xy) / n.

No constant is chosen on folds. 1/p is the mean square of correlations, from pairs, less what chance
adds. The evidence gives λ = d σ² / (wᵀw + σ² tr (f S_xx + λ I)⁻¹): weights are known no better
than by the share f of values that was observed. A row that has the attributes S is predicted with
weights Σ_SS⁻¹ (Σ w)_S.

References
----------
.. [1] A. P. Dempster, N. M. Laird and D. B. Rubin, "Maximum likelihood from incomplete data via the
   EM algorithm", Journal of the Royal Statistical Society B 39 (1977).
.. [2] X.-L. Meng and D. B. Rubin, "Maximum likelihood estimation via the ECM algorithm",
   Biometrika 80 (1993).
.. [3] D. J. C. MacKay, "Bayesian interpolation", Neural Computation 4 (1992).
"""

from __future__ import annotations

import numpy as np

from distfms.methods.attribute_efficient.predictors import Gaps
from distfms.stats.comoments import Moments

#: Multiplications of a step, up to which models are learned: some tenths of a second.
MOST_OPERATIONS = 5e7
#: Most steps, and the change of a weight, in deviations, at which they end.
_STEPS, _CLOSE = 100, 3e-4
#: The first and the greatest λ, and the least share of the target's variance that is noise.
_RIDGE, _GREATEST_RIDGE, _LEAST_NOISE = 10.0, 1e4, 1e-6
#: Least λ, of which folds choose: 1 where the evidence trusts outliers too much, .1 where the
#: differences of columns that are correlated at .97 matter.
LEAST_RIDGES = (1.0, 0.1)
#: Numbers of matrices that are inverted at a time, so that they stay near the processor.
_HELD = 2**17


def normal_models(observed: np.ndarray, target: np.ndarray) -> list[Gaps]:
    """Return what rows are predicted from, by each of `LEAST_RIDGES`.

    They are learned from rows (d, n), NaN where nothing is known. There is none where no attribute
    varies.
    """
    models: list[Gaps] = []
    for least_ridge in LEAST_RIDGES:
        fitted = _fitted(observed, target, least_ridge)
        if fitted is None:
            return []
        model, ridge = fitted
        models.append(model)
        if ridge > least_ridge:  # as with any smaller limit
            break
    n_lacking = len(LEAST_RIDGES) - len(models)
    return models + models[-1:] * n_lacking


def _fitted(
    observed: np.ndarray, target: np.ndarray, least_ridge: float
) -> tuple[Gaps, float] | None:
    """Return the model with a least λ, and the λ that it has."""
    rows = np.vstack([observed, target])
    moments = Moments.from_block(rows)
    own = np.append(np.flatnonzero(~moments.constant_columns()[:-1]), len(observed))
    mean, scale, d = moments.mean[own], np.sqrt(moments.variance[own]), len(own) - 1
    if not d or not scale[-1]:
        return None
    rows = ((rows[own] - mean[:, None]) / scale[:, None]).T
    seen, n = ~np.isnan(rows), len(rows)
    rows = np.where(seen, rows, 0.0)
    share, prior, ridge = seen[:, :-1].mean(), _prior(rows[:, :-1], seen[:, :-1]), _RIDGE
    centre, covariance, weights, unit = np.zeros(d + 1), np.eye(d + 1), np.zeros(d), np.eye(d)
    for _ in range(_STEPS):
        whole, rest = _expected(rows, seen, centre, covariance)
        centre = whole.mean(axis=0)
        away = whole - centre
        sums = away.T @ away + rest
        gram, cross, before = sums[:-1, :-1], sums[:-1, -1], weights
        weights = np.linalg.solve(gram + ridge * unit, cross)
        noise = max((sums[-1, -1] - weights @ cross) / n, _LEAST_NOISE)
        doubt = noise * np.trace(np.linalg.inv(share * gram + ridge * unit))
        ridge = float(d * noise / (weights @ weights + doubt))
        ridge = min(max(ridge, least_ridge), _GREATEST_RIDGE)
        gram = (gram + prior * unit) / (n + prior)
        covariance[:-1, :-1] = gram
        covariance[:-1, -1] = covariance[-1, :-1] = gram @ weights
        covariance[-1, -1] = weights @ gram @ weights + noise
        if np.abs(weights - before).max() <= _CLOSE:
            break
    labels = np.isin(target, (-1.0, 1.0)).all()
    model = Gaps(
        own[:-1],
        covariance[:-1, :-1],
        covariance[:-1, -1] * scale[-1],
        scale[:-1],
        mean + scale * centre,
        float(labels * scale[-1] ** 2),
    )
    return model, ridge


def _prior(rows: np.ndarray, seen: np.ndarray) -> float:
    """Return p for standardised rows (n, d), 0 where nothing is known: from 1 to n."""
    counts = seen.T.astype(float) @ seen
    np.fill_diagonal(counts, 0.0)
    known = counts > 0
    squares = ((rows.T @ rows)[known] ** 2 / counts[known]).sum() - np.count_nonzero(known)
    return float(1.0 / np.clip(squares / max(counts.sum(), 1.0), 1.0 / len(rows), 1.0))


def _expected(
    rows: np.ndarray, seen: np.ndarray, centre: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return expected rows (n, D), and sums (D, D) of the covariances of what is not known.

    Of a row with the values S, with C the covariance and z = C_SS⁻¹ (x_S − centre_S), 0 elsewhere,
    they are centre + C z and C − C_·S C_SS⁻¹ C_S·. So inverses are all that is made of each row.
    """
    n_rows, n_columns = rows.shape
    sizes = seen.sum(axis=1)
    z = np.zeros_like(rows)
    inverse_sums = np.zeros(n_columns**2)
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        step = max(1, _HELD // size**2)
        for start in range(0, len(alike), step):
            block = alike[start : start + step]
            columns = np.nonzero(seen[block])[1].reshape(len(block), size).T
            cells = columns[:, np.newaxis] * n_columns + columns
            inverses = inverses_of(covariance.ravel()[cells])
            inverse_sums += np.bincount(cells.ravel(), inverses.ravel(), n_columns**2)
            away = rows[block, columns] - centre[columns]
            z[block, columns] = (inverses * away).sum(axis=1)
    whole = np.where(seen, rows, centre + z @ covariance)
    explained = covariance @ inverse_sums.reshape(n_columns, n_columns) @ covariance
    rest = n_rows * covariance - explained
    # What rounding leaves of asymmetry would grow from step to step.
    return whole, (rest + rest.T) / 2.0


def inverses_of(matrices: np.ndarray) -> np.ndarray:
    """Invert symmetric positive definite matrices (s, s, n) by Gauss-Jordan steps on all at once.

    Pivots need no order in positive definite matrices (Higham, "Accuracy and Stability of Numerical
    Algorithms", 2002, section 14.4). Several times as fast as LAPACK, one by one, for small s.
    """
    inverses = matrices.copy()
    for k in range(len(inverses)):
        pivot = 1.0 / inverses[k, k]
        row = inverses[k] * pivot
        column = inverses[:, k].copy()
        inverses -= column[:, np.newaxis] * row
        inverses[k] = row
        inverses[:, k] = -column * pivot
        inverses[k, k] = pivot
    return inverses
