"""What models make of rows: linear ones, within what was observed, and those of rows with gaps.

The prediction of a row depends on the row and the model alone, bit by bit, not on the rows that it
is among: one model's sums are taken attribute by attribute, and the number of attributes that a row
has decides how its weights are solved for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distfms.stats.base import Fields

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
            predictions = summed(self.weights.T, self.intercept[0], whole)[None]
        else:
            predictions = self.weights @ whole + self.intercept[:, None]
        return np.clip(predictions, *self.limits[:, -1])

    def within(self, values: np.ndarray) -> np.ndarray:
        """Return values (d, n) within the limits of their attributes."""
        within: np.ndarray = np.clip(values, *self.limits[:, :-1, None])
        return within


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
        weights = np.zeros(seen.shape)
        sizes = seen.sum(axis=1)
        for size in np.unique(sizes[sizes > 0]).tolist():
            for block in blocks_of(sizes == size, _HELD // size**2):
                columns = columns_seen(seen[block], size)
                gram = self.gram[columns[:, :, None], columns[:, None, :]]
                solved = np.linalg.solve(gram, self.cross[columns][..., None])[..., 0]
                weights[block[:, None], columns] = solved / self.scale[columns]
        return weights

    def expected(self, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the expected labels of rows, from scores (n,) by weights (v, n) or (v, 1).

        Scores are normal given the label, as in a linear discriminant analysis: their weights
        explain Σ w_i cov(x_i, y) of the variance of labels.
        """
        covariances = np.broadcast_to((self.cross * self.scale)[:, None], weights.shape)
        explained = summed(weights, 0.0, covariances)
        variance = self.label_variance
        mean = self.mean[-1]
        noise = np.maximum(variance - explained, _LEAST_NOISE * variance)
        labels: np.ndarray = np.tanh(np.arctanh(mean) - mean / variance + score / noise)
        return labels


def blocks_of(is_row: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Iterate over the numbers of some rows, at most so many (but one) at a time."""
    rows = np.flatnonzero(is_row)
    step = max(1, most)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def columns_seen(seen: np.ndarray, size: int) -> np.ndarray:
    """Return the columns that rows (n, d) have, of which each has as many, shape (n, size)."""
    return np.nonzero(seen)[1].reshape(len(seen), size)


@dataclass(frozen=True, eq=False)
class ByPattern:
    """A linear model of rows that have all attributes, and weights of what others have."""

    whole: CutLinear
    gaps: Gaps

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n), shape (1, n)."""
        gaps = self.gaps
        columns = gaps.columns
        predictions = self.whole(values)
        if gaps.label_variance > 0:
            weights = self.whole.weights[0, columns, None]
            predictions = gaps.expected(predictions[0], weights)[None]
        is_lacking = np.isnan(values[columns]).any(axis=0)
        for block in blocks_of(is_lacking, _HELD // max(len(columns), 1)):
            predictions[0, block] = self._lacking(values[:, block])
        return np.clip(predictions, *self.whole.limits[:, -1])

    def _lacking(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n) that lack values, shape (n,)."""
        gaps = self.gaps
        within = self.whole.within(values)[gaps.columns]
        patterns, pattern = np.unique(~np.isnan(within.T), axis=0, return_inverse=True)
        weights = gaps.weights(patterns)[pattern.reshape(-1)].T
        away = np.nan_to_num(within - gaps.mean[:-1, None])
        scores = summed(weights, gaps.mean[-1], away)
        return gaps.expected(scores, weights) if gaps.label_variance > 0 else scores


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
    limits = np.array([lowest, highest])
    is_free = lowest > highest
    is_free[-1] |= is_label
    limits[:, is_free] = [[-np.inf], [np.inf]]
    return limits


def summed(weights: np.ndarray, intercept: float, values: np.ndarray) -> np.ndarray:
    """Return the intercept plus weights (d, n) or (d, 1) times values (d, n), in their order."""
    total = np.full(values.shape[1], float(intercept))
    for weight, row in zip(weights, values, strict=True):
        total += weight * row
    return total
