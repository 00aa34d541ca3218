"""Means over the folds of a cross-validation, their standard errors, and the jackknife."""

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


def delete_m_jackknife(everything: ArrayLike, without: ArrayLike, weights: ArrayLike) -> np.ndarray:
    """Return the standard error of any function of the statistics, leaving out a fold at a time.

    Parameters
    ----------
    everything : array_like of any shape
        Statistic θ̂ of all folds together.
    without : array_like of shape (n_folds, …)
        θ̂_(−j): the statistic of all but fold j.
    weights : array_like of shape (n_folds,)
        Sum of the weights m_j of each fold's rows, positive; folds may differ in size.

    Returns
    -------
    ndarray of the shape of the statistic

    Notes
    -----
    With fold weights m_j of n in all, h_j = n/m_j and pseudo-values
    θ̃_j = h_j θ̂ − (h_j − 1) θ̂_(−j), the variance is (1/g) Σ_j (θ̃_j − θ_J)² / (h_j − 1),
    θ_J = g θ̂ − Σ_j (1 − m_j/n) θ̂_(−j) (equation 8 of [1]_).

    References
    ----------
    .. [1] F. Busing, E. Meijer and R. van der Leeden, "Delete-m Jackknife for Unequal m",
       Statistics and Computing 9, 1999.
    """
    estimate, parts = np.asarray(everything, dtype=float), np.asarray(without, dtype=float)
    m = np.asarray(weights, dtype=float)
    share = (m / m.sum()).reshape(-1, *([1] * estimate.ndim))
    h = 1.0 / share
    centre = m.size * estimate - np.sum((1.0 - share) * parts, axis=0)
    pseudo = h * estimate - (h - 1.0) * parts
    error: np.ndarray = np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1.0), axis=0))
    return error
