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

from typing import NamedTuple

import numpy as np

from distfms.methods.attribute_efficient.predictors import Gaps, blocks_of, columns_seen
from distfms.stats.comoments import Moments

#: Multiplications of a step, up to which models are learned: some tenths of a second.
MOST_OPERATIONS = 5e7
#: Most steps, and the change of a weight, in deviations, at which they end.
_STEPS = 100
_CLOSE = 3e-4
#: The first, the least and the greatest λ; the least share of the target's variance that is noise.
_RIDGE = 10.0
_LEAST_RIDGE = 1.0
_GREATEST_RIDGE = 1e4
_LEAST_NOISE = 1e-6
#: Numbers of matrices that are inverted at a time, so that they stay near the processor.
_HELD = 2**17


def normal_model(observed: np.ndarray, target: np.ndarray) -> Gaps | None:
    """Return what rows are predicted from, learned from rows (d, n), NaN where nothing is known.

    There is none where no attribute varies.
    """
    rows = np.vstack([observed, target])
    moments = Moments.from_block(rows)
    varies = np.flatnonzero(~moments.constant_columns()[:-1])
    columns = np.append(varies, len(observed))
    mean = moments.mean[columns]
    scale = np.sqrt(moments.variance[columns])
    if not varies.size or not scale[-1]:
        return None
    away = rows[columns] - mean[:, None]
    rows = (away / scale[:, None]).T
    seen = ~np.isnan(rows)
    normal = _maximised(np.where(seen, rows, 0.0), seen)
    has_labels = np.isin(target, (-1.0, 1.0)).all()
    return Gaps(
        varies,
        normal.covariance[:-1, :-1],
        normal.covariance[:-1, -1] * scale[-1],
        scale[:-1],
        mean + scale * normal.centre,
        float(scale[-1] ** 2) if has_labels else 0.0,
    )


class _Normal(NamedTuple):
    """Means (d + 1,) and covariances of a normal vector of attributes and the target, the last."""

    centre: np.ndarray
    covariance: np.ndarray


def _maximised(rows: np.ndarray, seen: np.ndarray) -> _Normal:
    """Return the normal model of standardised rows (n, d + 1), 0 where not `seen`."""
    n_rows, n_columns = rows.shape
    d = n_columns - 1
    seen_attributes = seen[:, :d]
    share = seen_attributes.mean()
    prior = _prior(rows[:, :d], seen_attributes)
    unit = np.eye(d)
    ridge = _RIDGE
    normal = _Normal(np.zeros(n_columns), np.eye(n_columns))
    weights = np.zeros(d)
    for _ in range(_STEPS):
        before = weights
        whole, covariances = _expected(rows, seen, *normal)
        centre = whole.mean(axis=0)
        away = whole - centre
        squares = away.T @ away
        sums = squares + covariances
        gram = sums[:-1, :-1]
        cross = sums[:-1, -1]
        penalty = ridge * unit
        weights = np.linalg.solve(gram + penalty, cross)
        unexplained = sums[-1, -1] - weights @ cross
        noise = max(unexplained / n_rows, _LEAST_NOISE)
        inverse = np.linalg.inv(share * gram + penalty)
        doubt = noise * np.trace(inverse)
        size = weights @ weights + doubt
        likely = d * noise / size
        ridge = float(np.clip(likely, _LEAST_RIDGE, _GREATEST_RIDGE))
        shrunk = (gram + prior * unit) / (n_rows + prior)
        normal = _Normal(centre, _covariance_of(shrunk, weights, noise))
        change = np.abs(weights - before).max()
        if change <= _CLOSE:
            break
    return normal


def _covariance_of(attributes: np.ndarray, weights: np.ndarray, noise: float) -> np.ndarray:
    """Return the covariances of attributes and of the target, a linear function with noise."""
    with_target = attributes @ weights
    variance = weights @ attributes @ weights + noise
    return np.block([[attributes, with_target[:, np.newaxis]], [with_target, variance]])


def _prior(rows: np.ndarray, seen: np.ndarray) -> float:
    """Return p for standardised rows (n, d), 0 where nothing is known: from 1 to n."""
    counts = seen.T.astype(float) @ seen
    np.fill_diagonal(counts, 0.0)
    are_pairs = counts > 0
    products = (rows.T @ rows)[are_pairs]
    squares = (products**2 / counts[are_pairs]).sum() - np.count_nonzero(are_pairs)
    mean_square = squares / max(counts.sum(), 1.0)
    return float(1.0 / np.clip(mean_square, 1.0 / len(rows), 1.0))


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
    covariances = covariance.ravel()
    for size in np.unique(sizes).tolist():
        for block in blocks_of(sizes == size, _HELD // size**2):
            columns = columns_seen(seen[block], size).T
            cells = columns[:, np.newaxis] * n_columns + columns
            inverses = inverses_of(covariances[cells])
            inverse_sums += np.bincount(cells.ravel(), inverses.ravel(), n_columns**2)
            away = rows[block, columns] - centre[columns]
            z[block, columns] = (inverses * away).sum(axis=1)
    moved = z @ covariance
    expected = centre + moved
    whole = np.where(seen, rows, expected)
    inverse_sum = inverse_sums.reshape(n_columns, n_columns)
    explained = covariance @ inverse_sum @ covariance
    unknown = n_rows * covariance - explained
    # What rounding leaves of asymmetry would grow from step to step.
    return whole, (unknown + unknown.T) / 2.0


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
