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
from distfms.stats.batch import Batch, checked_weight, mean_is_small, refuse_infinite

#: A column counts as constant if its standard deviation is at most this part of its mean.
CONSTANT_RTOL = 1e-12
#: Rows of an outer product that are formed at a time.
_OUTER_ROWS = 32


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
        _refuse_overflow(np.diagonal(matrices["comoment"], start), start)
        return cls(batch.n_samples, batch.total_weight, batch.mean, start=start, **matrices)

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
        return np.diagonal(self.pair_weight).copy() if self.observed is None else self.observed

    def merge(self, other: CoMoments) -> CoMoments:
        """Co-moments of the rows of data of both, of the same columns and rows of the matrix."""
        if not other.n_samples:
            return self
        if not self.n_samples:
            return other
        total = (self.n_samples + other.n_samples, self.weight + other.weight)
        if self.pair_weight is None and other.pair_weight is None:
            delta, share = other.mean - self.mean, other.weight / total[1]
            comoment = self.comoment + other.comoment
            add_outer(comoment, delta[self.rows], delta, self.weight * share)
            mean = self.mean + delta * share
            return CoMoments(*total, mean, comoment, start=self.start)
        ours, theirs = self.observed_weight, other.observed_weight
        mean = merged_mean(self.mean, ours, other.mean, theirs)
        a, b = self._recentred(mean), other._recentred(mean)
        matrices = {name: a[name] + b[name] for name in a}
        return CoMoments(*total, mean, start=self.start, **matrices)

    def scaled(self, factor: float) -> CoMoments:
        """Multiply the weight of every row of data by `factor` > 0 (decay).

        Raises
        ------
        ValueError
            If `factor` is not positive and finite.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"weights can only be scaled by a positive number, not by {factor}")
        arrays: dict[str, Any] = {
            n: getattr(self, n) * factor for n in _MATRICES if getattr(self, n) is not None
        }
        return replace(self, weight=self.weight * factor, **arrays)

    def take(self, indices: np.ndarray | list[int]) -> CoMoments:
        """Co-moments of some columns, in the order given.

        All rows of the matrix are held.
        """
        index = np.asarray(indices)
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)
        both = np.ix_(index, index)
        return replace(
            self,
            mean=self.mean[index],
            comoment=self.comoment[both],
            pair_weight=None if self.pair_weight is None else self.pair_weight[both],
            cross=None if self.cross is None else self.cross[both],
            observed=None if self.observed is None else self.observed[index],
        )

    def about(self, mean: np.ndarray) -> CoMoments:
        """Return the same about other means than those of the columns, shape (d,)."""
        return replace(self, mean=mean, **self._recentred(mean))

    def pair_counts(self) -> np.ndarray:
        """Σ w over the rows of data where both columns are observed, shape (r, d)."""
        if self.pair_weight is None:
            return np.full(self.comoment.shape, self.weight)
        return self.pair_weight

    def covariance(self, pairwise: bool) -> np.ndarray:
        """Covariance matrix (population form: divided by weights, not by n − 1).

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
        weight = self.pair_weight
        return np.divide(self.comoment, weight, out=np.zeros_like(weight), where=weight > 0)

    def variance(self) -> np.ndarray:
        """Weighted variance of the observed values of each of the r columns, 0 without any."""
        weight, squares = self.observed_weight[self.rows], np.diagonal(self.comoment, self.start)
        return np.divide(squares, weight, out=np.zeros_like(weight), where=weight > 0)

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
        """Return all arrays but `mean` as they are about other means; exact but for rounding."""
        weight: np.ndarray | float = self.weight
        cross: np.ndarray | float = 0.0
        columns: np.ndarray | float = 0.0
        if self.pair_weight is not None and self.cross is not None:
            weight, cross = self.pair_weight, self.cross
            columns = cross.T if self.cross_columns is None else self.cross_columns
        shift = self.mean - mean
        s, t = shift[self.rows, None], shift[None, :]
        moved = {
            "comoment": self.comoment + (t * cross + s * columns) + s * t * weight,
            "pair_weight": np.broadcast_to(weight, self.comoment.shape),
            "cross": np.broadcast_to(cross + s * weight, self.comoment.shape),
        }
        if len(self.comoment) == self.n_columns:
            return moved
        moved["cross_columns"] = np.broadcast_to(columns + t * weight, self.comoment.shape)
        return moved | {"observed": self.observed_weight}


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
    own, all_columns = rows * root, columns * root
    apply = np.add if factor >= 0 else np.subtract
    # Some rows at a time: the product stays in the cache and takes no new memory each time.
    for start in range(0, len(own), _OUTER_ROWS):
        some = matrix[start : start + _OUTER_ROWS]
        apply(some, own[start : start + _OUTER_ROWS, None] * all_columns, out=some)


def merged_mean(
    mean: np.ndarray, weight: np.ndarray, other: np.ndarray, other_weight: np.ndarray
) -> np.ndarray:
    """Mean by column of two parts, each weighing what it has observed; 0 where neither has."""
    total = weight + other_weight
    share = np.divide(other_weight, total, out=np.zeros_like(total), where=total > 0)
    # A part that has observed all there is gives its mean unrounded.
    return np.where(weight > 0, mean + (other - mean) * share, other)


def _refuse_overflow(squares: np.ndarray, first: int) -> None:
    """Raise `DataError` naming the first column whose sum of squares is not finite."""
    bad = np.flatnonzero(~np.isfinite(squares))
    if bad.size:
        raise DataError(
            f"Column {first + bad[0]} (counted from 0) holds values too large to be squared in "
            "float64: look for damaged values, or divide the column by a constant."
        )


def _raw_product(batch: Batch, start: int, stop: int) -> dict[str, Any] | None:
    """Co-moments by one uncentred product, None where that would cost digits."""
    if not batch.nearly_centred():
        return None
    n, mean = batch.n_samples, batch.mean
    with np.errstate(over="ignore", invalid="ignore"):
        comoment = batch.values[start:stop] @ batch.values.T
        add_outer(comoment, mean[start:stop], mean, -n)
        variance = np.diagonal(comoment, start) / n
        return {"comoment": comoment} if mean_is_small(mean[start:stop], variance) else None


def _centred_product(batch: Batch, start: int, stop: int) -> dict[str, Any]:
    """Co-moments from centred chunks, with what re-centring needs where something is missing."""
    d, rows, some = batch.mean.size, slice(start, stop), batch.incomplete
    shape, whole = (stop - start, d), stop - start == d
    own = slice(*np.searchsorted(some, (start, stop)))
    comoment, out = np.zeros(shape), np.empty(shape)
    both = np.zeros((len(some[own]), some.size))
    by_row, by_column = np.zeros((shape[0], some.size)), np.zeros((len(some[own]), d))
    with np.errstate(over="ignore", invalid="ignore"):
        for values, present in batch.chunks():
            comoment += np.matmul(values[rows], values.T, out=out)
            if some.size:
                both += present[own] @ present.T
                by_row += values[rows] @ present.T
                if not whole:
                    by_column += present[own] @ values.T
    if not some.size:
        return {"comoment": comoment}
    # Only pairs of incomplete columns need a product for their weight; and deviations from the
    # mean add up to 0 against a complete column.
    observed = batch.observed_weight
    pair_weight, cross = np.minimum.outer(observed[rows], observed), np.zeros(shape)
    pair_weight[np.ix_(some[own] - start, some)] = both
    cross[:, some] = by_row
    found = {"comoment": comoment, "pair_weight": pair_weight, "cross": cross}
    if whole:
        return found
    cross_columns = np.zeros(shape)
    cross_columns[some[own] - start] = by_column
    return found | {"cross_columns": cross_columns, "observed": observed}


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
        return cls(*np.array([_column(row, weight) for row in block]).T)

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

    def constant_columns(self) -> np.ndarray:
        """Columns that do not vary, or are never observed (see `CoMoments.constant_columns`)."""
        return np.sqrt(self.variance) <= CONSTANT_RTOL * np.abs(self.mean)

    def merge(self, other: Moments) -> Moments:
        """Moments of the rows of both, of the same columns."""
        weight = self.weight + other.weight
        # Both weights over the total, and 0 where there is no total.
        harmonic = np.divide(
            self.weight * other.weight, weight, out=np.zeros_like(weight), where=weight > 0
        )
        return Moments(
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
        return [0.0, 0.0, 0.0, np.inf, -np.inf]
    w = np.ones(observed) if weight is None else weight[present]
    total = float(w.sum())
    origin = float(x[0])  # keeps constant columns exact
    mean = origin + float((w * (x - origin)).sum()) / total
    m2 = float((w * np.square(x - mean)).sum())
    return [total, mean, m2, float(x.min()), float(x.max())]
