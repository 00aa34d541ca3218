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
#: The first λ, its limits (a least λ of 1 would shrink differences of columns correlated at .97),
#: and the least share of the target's variance that is noise.
_RIDGE, _RIDGES, _LEAST_NOISE = 10.0, (0.1, 1e4), 1e-6
#: Numbers that are held at a time.
_HELD = 2**22


def normal_model(observed: np.ndarray, target: np.ndarray) -> Gaps | None:
    """Return what rows are predicted from, learned from rows (d, n), NaN where nothing is known.

    There is nothing where no attribute varies.
    """
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
        ridge = float(np.clip(d * noise / (weights @ weights + doubt), *_RIDGES))
        gram = (gram + prior * unit) / (n + prior)
        covariance[:-1, :-1] = gram
        covariance[:-1, -1] = covariance[-1, :-1] = gram @ weights
        covariance[-1, -1] = weights @ gram @ weights + noise
        if np.abs(weights - before).max() <= _CLOSE:
            break
    labels = np.isin(target, (-1.0, 1.0)).all()
    return Gaps(
        own[:-1],
        covariance[:-1, :-1],
        covariance[:-1, -1] * scale[-1],
        scale[:-1],
        mean + scale * centre,
        float(labels * scale[-1] ** 2),
    )


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
    """Return expected rows (n, D), and sums (D, D) of the covariances of what is not known."""
    whole, rest, sizes = rows.copy(), np.zeros_like(covariance), seen.sum(axis=1)
    for size in np.unique(sizes).tolist():
        alike, step = np.flatnonzero(sizes == size), max(1, _HELD // (size * len(centre)))
        for start in range(0, len(alike), step):
            own = alike[start : start + step]
            at = np.nonzero(seen[own])[1].reshape(len(own), size)
            known = covariance[at]
            factor = np.linalg.solve(covariance[at[:, :, None], at[:, None, :]], known)
            away = np.take_along_axis(rows[own], at, axis=1) - centre[at]
            whole[own] = centre + (away[:, None, :] @ factor)[:, 0]
            explained = known.reshape(-1, len(centre)).T @ factor.reshape(-1, len(centre))
            rest += len(own) * covariance - explained
    # What rounding leaves of asymmetry would grow from step to step.
    return np.where(seen, rows, whole), (rest + rest.T) / 2.0
