"""Means over the folds of a cross-validation, with their standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class FoldMeans:
    """What the folds say together.

    Attributes
    ----------
    mean : ndarray
        Weighted mean over the folds that have a number; NaN where none has.
    standard_error : ndarray
        Of that mean; NaN where fewer than two folds have a number.
    n_known : ndarray of int
        Folds that have a number.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    n_known: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Weighted standard deviation between folds; for equal weights the usual one, of n − 1."""
        return np.sqrt(self.n_known) * self.standard_error


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
