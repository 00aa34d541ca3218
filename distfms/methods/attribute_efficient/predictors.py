"""What models make of rows: linear ones, within what was observed, and those of rows with gaps.

The prediction of a row depends on the row and the model alone, bit by bit, not on the rows that it
is among: one model's sums are taken attribute by attribute, and the number of attributes that a row
has decides how its weights are solved for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from distfms.stats.base import Fields

#: Attributes up to which weights are solved for directly; beyond, by conjugate gradients to a
#: relative residual.
MOST_DIRECT, _CLOSE = 512, 1e-10
#: Numbers that are held at a time.
_HELD = 2**22
#: Least share of the variance of labels that is taken for noise.
_LEAST_NOISE = 1e-3

#: Picklable: from values (d, n), NaN where missing, to predictions (m, n).
Predictor = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class CutLinear:
    """Linear models that neither take nor predict values beyond those that were observed.

    Attributes
    ----------
    weights : ndarray of shape (m, d)
    intercept : ndarray of shape (m,)
    fill : ndarray of shape (d,)
        What missing values are taken for.
    limits : ndarray of shape (2, d + 1)
        Least and greatest values of attributes and, last, of predictions.
    """

    weights: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray
    limits: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n) with each of the models, shape (m, n)."""
        within = self.within(values)
        whole = np.where(np.isnan(within), self.fill[:, None], within)
        if len(self.weights) == 1:
            found = summed(self.weights.T, self.intercept[0], whole)[None]
        else:
            found = self.weights @ whole + self.intercept[:, None]
        return np.clip(found, *self.limits[:, -1])

    def within(self, values: np.ndarray) -> np.ndarray:
        """Return values (d, n) within the limits of their attributes."""
        found: np.ndarray = np.clip(values, *self.limits[:, :-1, None])
        return found


@dataclass(frozen=True, eq=False)
class Gaps(Fields):
    """Moments that weights of the attributes a row has are solved from.

    Attributes
    ----------
    columns : ndarray of int, shape (v,)
        Attributes that vary.
    gram : ndarray of shape (v, v)
        A⁺ + c ν I.
    cross, scale : ndarray of shape (v,)
        b̂, and what attributes are divided by.
    mean : ndarray of shape (v + 1,)
        Means of the attributes and, last, of the target.
    label_variance : float
        Variance of labels −1 and 1, of which expected values are predicted; else 0.
    """

    columns: np.ndarray
    gram: np.ndarray
    cross: np.ndarray
    scale: np.ndarray
    mean: np.ndarray
    label_variance: float = 0.0

    def weights(self, seen: np.ndarray) -> np.ndarray:
        """Return the weights of patterns (n, v), 0 where an attribute is not seen."""
        found, sizes = np.zeros(seen.shape), seen.sum(axis=1)
        for size in np.unique(sizes[sizes > 0]).tolist():
            rows, step = np.flatnonzero(sizes == size), max(1, _HELD // size**2)
            for start in range(0, len(rows), step):
                own = rows[start : start + step]
                at = np.nonzero(seen[own])[1].reshape(len(own), size)
                gram, cross = self.gram[at[:, :, None], at[:, None, :]], self.cross[at]
                found[own[:, None], at] = _solved(gram, cross) / self.scale[at]
        return found

    def expected(self, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the expected labels of rows, from scores (n,) by weights (v, n) or (v, 1).

        Scores are normal given the label, as in a linear discriminant analysis: their weights
        explain Σ w_i cov(x_i, y) of the variance of labels.
        """
        covariances = np.broadcast_to((self.cross * self.scale)[:, None], weights.shape)
        explained = summed(weights, 0.0, covariances)
        variance, mean = self.label_variance, self.mean[-1]
        noise = np.maximum(variance - explained, _LEAST_NOISE * variance)
        found: np.ndarray = np.tanh(np.arctanh(mean) - mean / variance + score / noise)
        return found


def _solved(gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """Solve positive definite systems (n, s, s), each by itself."""
    if cross.shape[1] <= MOST_DIRECT:
        found: np.ndarray = np.linalg.solve(gram, cross[..., None])[..., 0]
        return found
    from scipy.sparse.linalg import cg

    return np.array([cg(A, b, rtol=_CLOSE)[0] for A, b in zip(gram, cross, strict=True)])


@dataclass(frozen=True, eq=False)
class ByPattern:
    """A linear model of rows that have all attributes, and weights of what others have."""

    whole: CutLinear
    gaps: Gaps

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n), shape (1, n)."""
        found, columns, labels = self.whole(values), self.gaps.columns, self.gaps.label_variance > 0
        if labels:
            found = self.gaps.expected(found[0], self.whole.weights[0, columns, None])[None]
        lacking = np.flatnonzero(np.isnan(values[columns]).any(axis=0))
        step = max(1, _HELD // max(len(columns), 1))
        for start in range(0, len(lacking), step):
            own = lacking[start : start + step]
            within = self.whole.within(values[:, own])[columns]
            seen, pattern = np.unique(~np.isnan(within.T), axis=0, return_inverse=True)
            weights = self.gaps.weights(seen)[pattern.reshape(-1)].T
            away = np.nan_to_num(within - self.gaps.mean[:-1, None])
            scores = summed(weights, self.gaps.mean[-1], away)
            found[0, own] = self.gaps.expected(scores, weights) if labels else scores
        return np.clip(found, *self.whole.limits[:, -1])


@dataclass(frozen=True, eq=False)
class Mixed:
    """Means of two predictors, in which the second has one of some shares (m,)."""

    first: Predictor
    second: Predictor
    shares: Sequence[float]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n), shape (m, n)."""
        share = np.array(self.shares)[:, np.newaxis]
        return (1.0 - share) * self.first(values) + share * self.second(values)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Models that the judge asks for scores."""

    models: Sequence[Predictor]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n) with all models, shape (M, 1, n)."""
        predictions = [model(values) for model in self.models]
        return np.concatenate(predictions)[:, np.newaxis]


def limits_between(lowest: np.ndarray, highest: np.ndarray, is_label: bool) -> np.ndarray:
    """Return limits (2, d + 1) from the least and greatest values that were observed.

    There are none where nothing was (`lowest` is above `highest`), and for predictions of labels,
    which are scores.
    """
    found = np.array([lowest, highest])
    free = lowest > highest
    free[-1] |= is_label
    found[:, free] = [[-np.inf], [np.inf]]
    return found


def summed(weights: np.ndarray, intercept: float, values: np.ndarray) -> np.ndarray:
    """Return the intercept plus weights (d, n) or (d, 1) times values (d, n), in their order."""
    found = np.full(values.shape[1], float(intercept))
    for weight, row in zip(weights, values, strict=True):
        found += weight * row
    return found
