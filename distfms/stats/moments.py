"""Moments of each column by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distfms.stats.base import Fields
from distfms.stats.batch import checked_weight, refuse_infinite
from distfms.stats.comoments import CONSTANT_RTOL, merged_mean


@dataclass(frozen=True, eq=False)
class Moments(Fields):
    """Counts, weighted mean, spread and range of `d` columns.

    Attributes
    ----------
    n_observed, n_missing : ndarray of shape (d,), int64
        Values and missing values in rows of positive weight.
    weight : ndarray of shape (d,)
        Σ w over the observed values.
    mean : ndarray of shape (d,)
        Weighted mean of the observed values, 0 where there are none.
    m2 : ndarray of shape (d,)
        Σ w (x − mean)².
    minimum, maximum : ndarray of shape (d,)
        Of the observed values; +inf and −inf where there are none.
    """

    n_observed: np.ndarray
    n_missing: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray

    @classmethod
    def empty(cls, n_columns: int) -> Moments:
        """Moments of no rows: the identity of `merge`."""
        counts = np.zeros((2, n_columns), dtype=np.int64)
        sums = np.zeros((5, n_columns))
        sums[3:] = np.array([[np.inf], [-np.inf]])
        return cls(*counts, *sums)

    @classmethod
    def from_block(cls, block: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Moments of one block of rows.

        Parameters
        ----------
        block : ndarray of shape (d, n), float64
            One data column per row of the array. NaN is missing.
        weight : ndarray of shape (n,), optional
            At least 0. Rows of weight 0 count for nothing.

        Raises
        ------
        DataError
            If a value is infinite (naming the column's index), or a weight negative or not finite.
        """
        block = np.asarray(block, dtype=np.float64)
        keep, weight = checked_weight(weight, block.shape[1])
        block = block if keep is None else block[:, keep]
        with np.errstate(over="ignore", invalid="ignore"):
            refuse_infinite(block, np.flatnonzero(~np.isfinite(block.sum(axis=1))))
        if not block.size:
            return cls.empty(block.shape[0])
        rows = [_column(row, weight) for row in block]
        table = np.array(rows, dtype=np.float64).T
        return cls(*table[:2].astype(np.int64), *table[2:])

    @property
    def n_columns(self) -> int:
        """Number of columns d."""
        return self.mean.size

    @property
    def variance(self) -> np.ndarray:
        """Weighted population variance, 0 where nothing is observed; shape (d,)."""
        out = np.zeros(self.n_columns)
        return np.divide(self.m2, self.weight, out=out, where=self.weight > 0)

    @property
    def second_moment(self) -> np.ndarray:
        """Weighted mean of the squares, shape (d,)."""
        return self.variance + self.mean**2

    def constant_columns(self, rtol: float = CONSTANT_RTOL) -> np.ndarray:
        """Columns that do not vary, or are never observed (see `CoMoments.constant_columns`)."""
        return np.sqrt(self.variance) <= rtol * np.abs(self.mean)

    def merge(self, other: Moments) -> Moments:
        """Moments of the rows of both; a ValueError says that the numbers of columns differ."""
        if self.n_columns != other.n_columns:
            raise ValueError(f"moments of {self.n_columns} and {other.n_columns} columns")
        weight = self.weight + other.weight
        # Both weights over the total, and 0 where there is no total.
        harmonic = np.divide(
            self.weight * other.weight, weight, out=np.zeros_like(weight), where=weight > 0
        )
        return Moments(
            self.n_observed + other.n_observed,
            self.n_missing + other.n_missing,
            weight,
            merged_mean(self.mean, self.weight, other.mean, other.weight),
            self.m2 + other.m2 + (other.mean - self.mean) ** 2 * harmonic,
            np.minimum(self.minimum, other.minimum),
            np.maximum(self.maximum, other.maximum),
        )


def _column(row: np.ndarray, weight: np.ndarray | None) -> list[float]:
    """Moments of one column, in the order of the fields."""
    present = ~np.isnan(row)
    observed = int(present.sum())
    x = row if observed == row.size else row[present]
    if not observed:
        return [0, row.size, 0.0, 0.0, 0.0, np.inf, -np.inf]
    w = np.ones(observed) if weight is None else weight[present]
    total = float(w.sum())
    origin = float(x[0])  # keeps constant columns exact
    mean = origin + float((w * (x - origin)).sum()) / total
    m2 = float((w * np.square(x - mean)).sum())
    return [observed, row.size - observed, total, mean, m2, float(x.min()), float(x.max())]
