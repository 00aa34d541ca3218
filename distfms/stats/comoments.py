"""Centred co-moments (Gram matrices) that merge exactly, with missing values and weights.

References
----------
.. [1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for
   computing sample variances", COMPSTAT 1982.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.errors import DataError, NumericalError
from distfms.stats.base import ratio
from distfms.stats.batch import Batch, checked_weight, mean_is_small, refuse_infinite

#: A column counts as constant if its standard deviation is at most this part of its mean.
CONSTANT_RTOL = 1e-12
#: Whole numbers below this are exact.
_LARGEST_WHOLE = 2.0**53
#: Rows of an outer product that are formed at a time.
_OUTER_ROWS = 32


def unit_of(weight: np.ndarray) -> float:
    """Return what positive weights are multiples of, where they count equal rows.

    That is the one weight there is, or the greatest common divisor of whole numbers; 0 for others.
    """
    values = np.unique(weight)
    if len(values) == 1:
        return float(values[0])
    if values[0] <= 0 or values[-1] >= _LARGEST_WHOLE or (values != np.floor(values)).any():
        return 0.0
    return float(np.gcd.reduce(values.astype(np.int64)))


@dataclass(frozen=True, eq=False)
class CoMoments:
    """Weighted means and centred co-moments of `d` columns, or some rows of their matrix.

    Attributes
    ----------
    n_samples : int
        Rows of data of positive weight.
    weight : float
        Σ w over them.
    mean : ndarray of shape (d,)
        Weighted mean of each column's observed values, 0 where there are none.
    comoment : ndarray of shape (r, d)
        Σ w (x_i − mean_i)(x_j − mean_j) over the rows of data where both are observed, for i in
        ``[start, start + r)``: all columns by default. Also the co-moments of the mean-imputed
        data.
    pair_weight : ndarray of shape (r, d) or None
        Σ w over the rows of data where both are observed; None where nothing is missing.
    cross : ndarray of shape (r, d) or None
        Σ w (x_i − mean_i) over the rows of data where both i and j are observed: what re-centring
        needs. None where nothing is missing.
    start : int
        First row of the matrix that is held.
    cross_columns : ndarray of shape (r, d) or None
        Σ w (x_j − mean_j) over the same rows of data; None where it is the transpose of `cross`.
    observed : ndarray of shape (d,) or None
        Σ w over the rows of data where each column is observed; None where `pair_weight` tells.
    unit : float
        See `unit_of`; 0 where weights do not count rows.

    Notes
    -----
    Arrays are shared between values and must not be written to. Two values merge without loss by
    the pairwise formula of [1]_, generalised to missing values by `cross`. A column of mean 1e8
    and unit variance keeps about 8 digits of its variance, which is what float64 data hold.

    Rows of the matrix computed by themselves agree with those of the whole to rounding: a general
    product adds in another order than a symmetric one.
    """

    n_samples: int
    weight: float
    mean: np.ndarray
    comoment: np.ndarray
    pair_weight: np.ndarray | None = None
    cross: np.ndarray | None = None
    start: int = 0
    cross_columns: np.ndarray | None = None
    observed: np.ndarray | None = None
    unit: float = 1.0

    @classmethod
    def empty(cls, n_columns: int, rows: slice | None = None) -> CoMoments:
        """Co-moments of no rows of data: the identity of `merge`."""
        start, stop = _bounds(rows, n_columns)
        matrix = np.zeros((stop - start, n_columns))
        return cls(0, 0.0, np.zeros(n_columns), matrix, start=start)

    @classmethod
    def from_block(
        cls,
        block: np.ndarray,
        weight: np.ndarray | None = None,
        *,
        rows: slice | None = None,
        overwrite: bool = False,
        sums: np.ndarray | None = None,
    ) -> CoMoments:
        """Co-moments of one batch of rows of data.

        Parameters
        ----------
        block : ndarray of shape (d, n), float64
            One data column per row of the array, with unit stride along the rows of data: C order,
            or a slice ``buffer[:, start:stop]`` of it. NaN is missing.
        weight : ndarray of shape (n,), optional
            At least 0. Rows of weight 0 count for nothing.
        rows : slice, optional
            Rows of the matrix to compute, a run of them (step 1); by default all.
        overwrite : bool, default=False
            Whether `block` may be used as scratch, which saves a copy.
        sums : ndarray of shape (d,), optional
            ``block.sum(axis=1)`` where it is known, which saves a pass; not finite for columns
            with missing values. Not used where there are weights.

        Returns
        -------
        CoMoments

        Raises
        ------
        DataError
            If a value is infinite (naming the column's index), or a weight negative or not finite.

        Notes
        -----
        Costs n·r·d multiply-adds, three to four times that where something is missing. The heavy
        parts release the GIL. The result depends on the content alone, not on its place in
        memory, for a given number of BLAS threads.
        """
        batch = Batch.of(block, weight, overwrite, sums)
        start, stop = _bounds(rows, batch.mean.size)
        if not batch.n_samples:
            return cls.empty(batch.mean.size, rows)
        matrices = _raw_product(batch, start, stop) or _centred_product(batch, start, stop)
        squares = np.diagonal(matrices["comoment"], start)
        bad = np.flatnonzero(~np.isfinite(squares))
        if bad.size:
            raise DataError(
                f"Column {start + bad[0]} (counted from 0) holds values too large to be squared "
                "in float64: look for damaged values, or divide the column by a constant."
            )
        unit = 1.0 if weight is None else unit_of(weight[weight > 0])
        return cls(
            batch.n_samples, batch.total_weight, batch.mean, start=start, unit=unit, **matrices
        )

    @property
    def n_counted(self) -> float:
        """Number of rows, of which one of weight 2 is two; of weights without a unit, of data."""
        return self.weight / self.unit if self.unit > 0 else float(self.n_samples)

    @property
    def n_columns(self) -> int:
        """Number of columns d."""
        return self.mean.size

    @property
    def rows(self) -> slice:
        """Rows of the matrix that are held."""
        return slice(self.start, self.start + len(self.comoment))

    @property
    def observed_weight(self) -> np.ndarray:
        """Σ w over the rows of data where each column is observed, of shape (d,)."""
        if self.pair_weight is None:
            return np.full(self.n_columns, self.weight)
        if self.observed is None:
            return np.diagonal(self.pair_weight).copy()
        return self.observed

    def merge(self, later: CoMoments) -> CoMoments:
        """Co-moments of the rows of data of both, of the same columns and rows of the matrix.

        Where nothing is missing this is the pairwise formula of [1]_: with weights W and δ the
        difference of the means, C = C₁ + C₂ + W₁ W₂ / (W₁ + W₂) · δ δᵀ. Else both are re-centred
        on the common means, and added.
        """
        if not later.n_samples:
            return self
        if not self.n_samples:
            return later
        merge = self._merge_incomplete
        if self.pair_weight is None and later.pair_weight is None:
            merge = self._merge_complete
        merged = merge(later, self.n_samples + later.n_samples, self.weight + later.weight)
        return replace(merged, unit=unit_of(np.array([self.unit, later.unit])))

    def _merge_complete(self, later: CoMoments, n_samples: int, weight: float) -> CoMoments:
        difference = later.mean - self.mean
        share = later.weight / weight
        mean = self.mean + difference * share
        comoment = self.comoment + later.comoment
        add_outer(comoment, difference[self.rows], difference, self.weight * share)
        return CoMoments(n_samples, weight, mean, comoment, start=self.start)

    def _merge_incomplete(self, later: CoMoments, n_samples: int, weight: float) -> CoMoments:
        observed = self.observed_weight
        mean = merged_mean(self.mean, observed, later.mean, later.observed_weight)
        matrices = self._recentred(mean)
        for name, array in later._recentred(mean).items():
            matrices[name] = matrices[name] + array
        return CoMoments(n_samples, weight, mean, start=self.start, **matrices)

    def scaled(self, factor: float) -> CoMoments:
        """Multiply the weight of every row of data by `factor` > 0 (decay)."""
        arrays: dict[str, Any] = {}
        for name in _MATRICES:
            array = getattr(self, name)
            if array is not None:
                arrays[name] = array * factor
        return replace(self, weight=self.weight * factor, **arrays)

    def take(self, indices: np.ndarray | list[int]) -> CoMoments:
        """Co-moments of some columns, in the order given.

        Parameters
        ----------
        indices : array_like of int or bool
            Numbers of columns, or a mask over them. All rows of the matrix are held.
        """
        index = np.asarray(indices)
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)
        arrays: dict[str, Any] = {"mean": self.mean[index]}
        if self.observed is not None:
            arrays["observed"] = self.observed[index]
        for name in ("comoment", "pair_weight", "cross"):
            matrix = getattr(self, name)
            if matrix is not None:
                arrays[name] = matrix[np.ix_(index, index)]
        return replace(self, **arrays)

    def about(self, mean: np.ndarray) -> CoMoments:
        """Return Σ w (x_i − m_i)(x_j − m_j) about other means m than those of the columns.

        Parameters
        ----------
        mean : ndarray of shape (d,)
        """
        return replace(self, mean=mean, **self._recentred(mean))

    def pair_counts(self) -> np.ndarray:
        """Σ w over the rows of data where both columns are observed, shape (r, d)."""
        if self.pair_weight is None:
            return np.full(self.comoment.shape, self.weight)
        return self.pair_weight

    def covariance(self, pairwise: bool) -> np.ndarray:
        """Covariance matrix C_ij / W_ij (population form: divided by weights, not by n − 1).

        Parameters
        ----------
        pairwise : bool
            True: each entry is the mean over the rows where both columns are observed, 0 where
            there are none; may be indefinite. False: missing values count as the column's mean.

        Returns
        -------
        ndarray of shape (r, d)

        Raises
        ------
        NumericalError
            If there are no rows of data.
        """
        if not self.n_samples:
            raise NumericalError("there are no rows to compute a covariance from")
        if not pairwise or self.pair_weight is None:
            return self.comoment / self.weight
        return ratio(self.comoment, self.pair_weight)

    def variance(self) -> np.ndarray:
        """Weighted variance of the observed values of each of the r columns, 0 without any.

        Σ w (x − mean)² / Σ w, of shape (r,).
        """
        squares = np.diagonal(self.comoment, self.start)
        return ratio(squares, self.observed_weight[self.rows])

    def by_column(self) -> dict[str, np.ndarray]:
        """Return what partitions are compared by, each of shape (d,).

        Returns
        -------
        dict
            ``weight``, ``mean`` and ``variance`` of the observed values, ``covariance`` with the
            last column, and ``internal`` (NaN) and ``repeated`` (0), which judgments have.
        """
        covariance = self.covariance(pairwise=True) if self.n_samples else self.comoment
        return {
            "weight": self.observed_weight,
            "mean": self.mean,
            "variance": np.diagonal(covariance),
            "covariance": covariance[:, -1],
            "internal": np.full(self.n_columns, np.nan),
            "repeated": np.zeros(self.n_columns),
        }

    def constant_columns(self) -> np.ndarray:
        """Which of the r columns do not vary, or are never observed.

        A standard deviation up to `CONSTANT_RTOL` of the mean counts as rounding: a column that is
        1e8 throughout is constant, and one of mean 1e8 and unit variance (1e-8 of the mean) varies.

        Returns
        -------
        ndarray of bool of shape (r,)
        """
        return np.sqrt(self.variance()) <= CONSTANT_RTOL * np.abs(self.mean[self.rows])

    def _recentred(self, mean: np.ndarray) -> dict[str, Any]:
        """Return all arrays but `mean` as they are about other means; exact but for rounding.

        With s the shift of the means and W the pairs' weight, cross' = cross + s_i W and
        C' = C + s_j cross + s_i cross_columns + s_i s_j W.
        """
        weight: np.ndarray | float = self.weight
        cross: np.ndarray | float = 0.0
        cross_columns: np.ndarray | float = 0.0
        if self.pair_weight is not None and self.cross is not None:
            weight = self.pair_weight
            cross = self.cross
            cross_columns = cross.T if self.cross_columns is None else self.cross_columns
        shift = self.mean - mean
        by_row = shift[self.rows, None]
        moved = by_row * cross_columns
        shape = self.comoment.shape
        arrays = {
            "comoment": self.comoment + (shift * cross + moved) + by_row * shift * weight,
            "pair_weight": np.broadcast_to(weight, shape),
            "cross": np.broadcast_to(cross + by_row * weight, shape),
        }
        if shape[0] < self.n_columns:
            arrays["cross_columns"] = np.broadcast_to(cross_columns + shift * weight, shape)
            arrays["observed"] = self.observed_weight
        return arrays


_MATRICES = ("comoment", "pair_weight", "cross", "cross_columns", "observed")


def _bounds(rows: slice | None, n_columns: int) -> tuple[int, int]:
    """First and past-the-last of a run of rows of the matrix."""
    start, stop, _ = (rows or slice(None)).indices(n_columns)
    return start, stop


def add_outer(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray, factor: float) -> None:
    """Add ``factor · rows columnsᵀ`` to a matrix in place; a symmetric one stays symmetric.

    Parameters
    ----------
    matrix : ndarray of shape (m, d)
    rows : ndarray of shape (m,)
    columns : ndarray of shape (d,)
    factor : float
    """
    root = np.sqrt(abs(factor))
    scaled_rows = rows[:, None] * root
    scaled_columns = columns * root
    apply = np.add if factor >= 0 else np.subtract
    # Some rows at a time: the product stays in the cache and takes no new memory each time.
    for start in range(0, len(rows), _OUTER_ROWS):
        block = slice(start, start + _OUTER_ROWS)
        apply(matrix[block], scaled_rows[block] * scaled_columns, out=matrix[block])


def merged_mean(
    mean: np.ndarray, weight: np.ndarray, later_mean: np.ndarray, later_weight: np.ndarray
) -> np.ndarray:
    """Mean by column of two parts, each weighing what it has observed; 0 where neither has.

    m₁ + (m₂ − m₁) W₂ / (W₁ + W₂), all of shape (d,).
    """
    share = ratio(later_weight, weight + later_weight)
    # A part that has observed all there is gives its mean unrounded.
    return np.where(weight > 0, mean + (later_mean - mean) * share, later_mean)


def _raw_product(batch: Batch, start: int, stop: int) -> dict[str, Any] | None:
    """Co-moments by one uncentred product, None where that would cost digits."""
    if not batch.nearly_centred():
        return None
    rows = slice(start, stop)
    mean = batch.mean
    with np.errstate(over="ignore", invalid="ignore"):
        comoment = batch.values[rows] @ batch.values.T
        add_outer(comoment, mean[rows], mean, -batch.n_samples)
        variance = np.diagonal(comoment, start) / batch.n_samples
        keeps_digits = mean_is_small(mean[rows], variance)
    return {"comoment": comoment} if keeps_digits else None


def _centred_product(batch: Batch, start: int, stop: int) -> dict[str, Any]:
    """Co-moments from centred chunks, with what re-centring needs where something is missing."""
    rows = slice(start, stop)
    shape = (stop - start, batch.mean.size)
    sums = _IncompleteSums(batch, start, stop) if batch.incomplete.size else None
    comoment = np.zeros(shape)
    product = np.empty(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for values, present in batch.chunks():
            comoment += np.matmul(values[rows], values.T, out=product)
            if sums is not None:
                sums.add(values, present)
    matrices = {"comoment": comoment}
    return matrices if sums is None else matrices | sums.matrices()


class _IncompleteSums:
    """Adds up what re-centring needs, of columns with missing values against all columns.

    Only pairs of incomplete columns need a product for their weight; and deviations from the mean
    add up to 0 against a complete column.
    """

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self.batch = batch
        self.rows = slice(start, stop)
        self.columns = batch.incomplete
        #: Which of the incomplete columns are rows of the matrix that are held.
        self.held = slice(*np.searchsorted(self.columns, (start, stop)))
        self.held_rows = self.columns[self.held] - start
        n_rows = stop - start
        n_columns = batch.mean.size
        self.is_whole = n_rows == n_columns
        self.pair_weight = np.zeros((self.held_rows.size, self.columns.size))
        self.cross = np.zeros((n_rows, self.columns.size))
        self.cross_columns = np.zeros((self.held_rows.size, n_columns))

    def add(self, values: np.ndarray, present: np.ndarray) -> None:
        """Add a chunk of rows of data; see `Chunk`."""
        self.pair_weight += present[self.held] @ present.T
        self.cross += values[self.rows] @ present.T
        if not self.is_whole:
            self.cross_columns += present[self.held] @ values.T

    def matrices(self) -> dict[str, Any]:
        """Return the fields of `CoMoments` beside the co-moments, of shape (r, d)."""
        observed = self.batch.observed_weight
        pair_weight = np.minimum.outer(observed[self.rows], observed)
        pair_weight[np.ix_(self.held_rows, self.columns)] = self.pair_weight
        cross = np.zeros(pair_weight.shape)
        cross[:, self.columns] = self.cross
        matrices = {"pair_weight": pair_weight, "cross": cross}
        if not self.is_whole:
            cross_columns = np.zeros(pair_weight.shape)
            cross_columns[self.held_rows] = self.cross_columns
            matrices |= {"cross_columns": cross_columns, "observed": observed}
        return matrices


# --- each column by itself ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted mean, spread and range of `d` columns.

    Attributes
    ----------
    weight : ndarray of shape (d,)
        Σ w over the observed values.
    mean : ndarray of shape (d,)
        Weighted mean of the observed values, 0 where there are none.
    m2 : ndarray of shape (d,)
        Σ w (x − mean)².
    minimum, maximum : ndarray of shape (d,)
        Of the observed values; +inf and −inf where there are none.
    """

    weight: np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray

    @classmethod
    def empty(cls, n_columns: int) -> Moments:
        """Moments of no rows: the identity of `merge`."""
        sums = np.zeros((5, n_columns))
        sums[3:] = np.array([[np.inf], [-np.inf]])
        return cls(*sums)

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
        keep, weight = checked_weight(weight)
        block = block if keep is None else block[:, keep]
        with np.errstate(over="ignore", invalid="ignore"):
            refuse_infinite(block, np.flatnonzero(~np.isfinite(block.sum(axis=1))))
        if not block.size:
            return cls.empty(block.shape[0])
        return cls(*np.array([_moments_of_column(row, weight) for row in block]).T)

    @property
    def n_columns(self) -> int:
        """Number of columns d."""
        return self.mean.size

    @property
    def variance(self) -> np.ndarray:
        """Weighted population variance Σ w (x − mean)² / Σ w, 0 without any; shape (d,)."""
        return ratio(self.m2, self.weight)

    @property
    def second_moment(self) -> np.ndarray:
        """Weighted mean of the squares, variance + mean²; shape (d,)."""
        return self.variance + self.mean**2

    def constant_columns(self) -> np.ndarray:
        """Columns that do not vary, or are never observed (see `CoMoments.constant_columns`)."""
        return np.sqrt(self.variance) <= CONSTANT_RTOL * np.abs(self.mean)

    def merge(self, later: Moments) -> Moments:
        """Moments of the rows of both, of the same columns; formulas of `CoMoments.merge`."""
        weight = self.weight + later.weight
        mean = merged_mean(self.mean, self.weight, later.mean, later.weight)
        common_weight = ratio(self.weight * later.weight, weight)
        between = (later.mean - self.mean) ** 2 * common_weight
        m2 = self.m2 + later.m2 + between
        minimum = np.minimum(self.minimum, later.minimum)
        maximum = np.maximum(self.maximum, later.maximum)
        return Moments(weight, mean, m2, minimum, maximum)


def _moments_of_column(column: np.ndarray, weights: np.ndarray | None) -> list[float]:
    """Moments of one column, in the order of the fields, in two passes about its first value."""
    is_observed = ~np.isnan(column)
    if not is_observed.any():
        return [0.0, 0.0, 0.0, np.inf, -np.inf]
    values = column[is_observed]
    weights = np.ones(values.size) if weights is None else weights[is_observed]
    total = float(weights.sum())
    origin = float(values[0])  # keeps constant columns exact
    mean = origin + float(np.sum(weights * (values - origin))) / total
    m2 = float(np.sum(weights * np.square(values - mean)))
    return [total, mean, m2, float(values.min()), float(values.max())]
