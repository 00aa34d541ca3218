"""Means over the folds of a cross-validation, and their standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class FoldMeans:
    """What the folds say together; arrays of one shape.

    `mean` is weighted, over the folds that have a number, and NaN where none has. Its
    `standard_error` is NaN where fewer than two folds have one; `n_known` counts these folds.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    n_known: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Weighted standard deviation between folds; for equal weights the usual one, of n − 1."""
        return np.sqrt(self.n_known) * self.standard_error

    def half_width(self, level: float) -> np.ndarray:
        """Half width of a confidence interval of the mean; NaN for fewer than two folds."""
        return student_t(level, np.maximum(self.n_known - 1, 1)) * self.standard_error


def student_t(level: float, degrees: ArrayLike) -> np.ndarray:
    """Return Student's t of a two-sided interval of this level."""
    import scipy.special

    quantile: np.ndarray = scipy.special.stdtrit(degrees, 0.5 + level / 2)
    return quantile


def over_folds(values: np.ndarray, weights: Sequence[float] | np.ndarray) -> FoldMeans:
    """Take the means over folds; what is NaN is left out.

    Parameters
    ----------
    values : ndarray of shape (…, n_folds)
    weights : sequence of float, length n_folds
        Weight of the rows of each fold; one without weight is left out too.

    Returns
    -------
    FoldMeans
        Arrays of shape (…).

    Notes
    -----
    With shares s of the weight of the K folds that have a number, the mean is m = Σ s x and its
    squared standard error K/(K−1) Σ s² (x − m)², which is the variance over K for equal folds. The
    folds' training rows overlap, so this is a guide rather than exact.
    """
    values = np.asarray(values, dtype=np.float64)
    given = np.asarray(weights, dtype=np.float64)
    known = ~np.isnan(values) & (given > 0)
    n_known = known.sum(axis=-1)
    weight = np.where(known, given, 0.0)
    total = weight.sum(axis=-1, keepdims=True)
    share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    # Summed by numpy, not by BLAS: the same bits on every machine. Infinities give NaN.
    with np.errstate(invalid="ignore"):
        mean = np.where(n_known > 0, (np.where(known, values, 0.0) * share).sum(axis=-1), np.nan)
        deviation = np.where(known, values - mean[..., None], 0.0)
        squares = ((share * deviation) ** 2).sum(axis=-1)
        error = np.sqrt(n_known / np.maximum(n_known - 1, 1) * squares)
    return FoldMeans(mean, np.where(n_known > 1, error, np.nan), n_known)
