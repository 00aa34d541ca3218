"""Centred co-moments (Gram matrices) that merge exactly, with missing values and weights.

References
----------
.. [1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for
   computing sample variances", COMPSTAT 1982.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from distfms.errors import DataError, NumericalError
from distfms.stats.base import pack
from distfms.stats.blocks import Block, mean_is_small

#: A column counts as constant if its standard deviation is at most this part of its mean.
CONSTANT_RTOL = 1e-12
#: A weight that is at most this part of what it is the remainder of counts as nothing left.
_GONE_RTOL = 1e-9
#: Rows of an outer product that are formed at a time.
_OUTER_ROWS = 32


@dataclass(frozen=True, eq=False)
class CoMoments:
    """Weighted means and centred co-moments of `d` columns.

    Attributes
    ----------
    n_samples : int
        Rows of positive weight.
    weight, weight_sq : float
        Σ w and Σ w² over them.
    mean : ndarray of shape (d,)
        Weighted mean of each column's observed values, 0 where there are none.
    comoment : ndarray of shape (d, d)
        Σ w (x_i − mean_i)(x_j − mean_j) over the rows where both are observed. Also the
        co-moments of the mean-imputed data.
    pair_weight : ndarray of shape (d, d) or None
        Σ w over the rows where both are observed; None where nothing is missing.
    cross : ndarray of shape (d, d) or None
        Σ w (x_i − mean_i) over the rows where both i and j are observed: what re-centring needs.
        None where nothing is missing.

    Notes
    -----
    Arrays are shared between values and must not be written to. Two values merge without loss by
    the pairwise formula of [1]_, generalised to missing values by `cross`. A column of mean 1e8
    and unit variance keeps about 8 digits of its variance, which is what float64 data hold.
    """

    n_samples: int
    weight: float
    weight_sq: float
    mean: np.ndarray
    comoment: np.ndarray
    pair_weight: np.ndarray | None = None
    cross: np.ndarray | None = None

    @classmethod
    def empty(cls, n_columns: int) -> CoMoments:
        """Co-moments of no rows: the identity of `merge`."""
        return cls(0, 0.0, 0.0, np.zeros(n_columns), np.zeros((n_columns, n_columns)))

    @classmethod
    def from_block(
        cls,
        block: np.ndarray,
        weight: np.ndarray | None = None,
        *,
        overwrite: bool = False,
        sums: np.ndarray | None = None,
    ) -> CoMoments:
        """Co-moments of one block of rows.

        Parameters
        ----------
        block : ndarray of shape (d, n), float64
            One data column per row of the array, with unit stride along the rows of data: C order,
            or a slice ``buffer[:, start:stop]`` of it. NaN is missing.
        weight : ndarray of shape (n,), optional
            At least 0. Rows of weight 0 count for nothing.
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
        Costs n·d² multiply-adds, three to four times that where something is missing. The heavy
        parts release the GIL. The result depends on the content alone, not on its place in
        memory, for a given number of BLAS threads.
        """
        rows = Block.of(block, weight, overwrite, sums)
        if not rows.n_samples:
            return cls.empty(rows.mean.size)
        product = _raw_product(rows) or _centred_product(rows)
        refuse_overflow(np.diagonal(product.comoment))
        return product

    @property
    def n_columns(self) -> int:
        """Number of columns d."""
        return self.mean.size

    @property
    def observed_weight(self) -> np.ndarray:
        """Σ w over the rows where each column is observed, of shape (d,)."""
        if self.pair_weight is None:
            return np.full(self.n_columns, self.weight)
        return np.diagonal(self.pair_weight).copy()

    @property
    def effective_samples(self) -> float:
        """(Σ w)² / Σ w²: how many equally weighted rows weigh as much (Kish)."""
        return self.weight**2 / self.weight_sq if self.weight_sq > 0 else 0.0

    def merge(self, other: CoMoments) -> CoMoments:
        """Co-moments of the rows of both.

        Raises
        ------
        ValueError
            If the numbers of columns differ.
        """
        self._check_columns(other)
        if not other.n_samples:
            return self
        if not self.n_samples:
            return other
        total = (self.n_samples + other.n_samples, self.weight + other.weight)
        weight_sq = self.weight_sq + other.weight_sq
        delta = other.mean - self.mean
        if self.pair_weight is None and other.pair_weight is None:
            share = other.weight / total[1]
            comoment = self.comoment + other.comoment
            add_outer(comoment, delta, delta, self.weight * share)
            return CoMoments(*total, weight_sq, self.mean + delta * share, comoment)
        mean = merged_mean(self.mean, self.observed_weight, other.mean, other.observed_weight)
        a, b = self._recentred(mean), other._recentred(mean)
        return CoMoments(*total, weight_sq, mean, *(x + y for x, y in zip(a, b, strict=True)))

    def subtract(self, other: CoMoments) -> CoMoments:
        """Co-moments of the rows of this value that are not in `other`, a part of it.

        Parameters
        ----------
        other : CoMoments
            Of some of the rows this value was made from.

        Returns
        -------
        CoMoments

        Raises
        ------
        ValueError
            If the numbers of columns differ, or `other` holds more rows or weight than this value
            (it is no part of it).

        Notes
        -----
        Digits are lost in proportion: where the remainder's weight is 1 % of the total, about two
        digits. Exact counts (`n_samples`) are exact. Diagonal entries that rounding has made
        negative become 0. Prefer merging the other parts where they are at hand
        (`Folded.train_without`); this is for forgetting a window's oldest part.
        """
        self._check_columns(other)
        if not other.n_samples:
            return self
        n, weight = self.n_samples - other.n_samples, self.weight - other.weight
        if n == 0 and abs(weight) <= _GONE_RTOL * self.weight:
            return CoMoments.empty(self.n_columns)
        short = self.observed_weight < other.observed_weight * (1 - _GONE_RTOL)
        if n <= 0 or weight <= 0 or short.any():
            raise ValueError(
                f"{other.n_samples} rows of weight {other.weight} are no part of "
                f"{self.n_samples} rows of weight {self.weight}"
            )
        weight_sq = max(self.weight_sq - other.weight_sq, 0.0)
        if self.pair_weight is None and other.pair_weight is None:
            delta = self.mean - other.mean
            mean = self.mean + delta * (other.weight / weight)
            comoment = self.comoment - other.comoment
            comoment -= np.outer(delta, delta) * (self.weight * (other.weight / weight))
            return CoMoments(n, weight, weight_sq, mean, _clipped(comoment))
        return CoMoments(n, weight, weight_sq, *self._without(other))

    def scaled(self, factor: float) -> CoMoments:
        """Multiply every row's weight by `factor` > 0 (decay).

        Raises
        ------
        ValueError
            If `factor` is not positive and finite.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"weights can be scaled by a positive number, not by {factor}")
        return replace(
            self,
            weight=self.weight * factor,
            weight_sq=self.weight_sq * factor**2,
            comoment=self.comoment * factor,
            pair_weight=None if self.pair_weight is None else self.pair_weight * factor,
            cross=None if self.cross is None else self.cross * factor,
        )

    def take(self, indices: np.ndarray | list[int]) -> CoMoments:
        """Co-moments of some columns, in the order given."""
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
        )

    def covariance(self, pairwise: bool) -> np.ndarray:
        """Covariance matrix (population form: divided by weights, not by n − 1).

        Parameters
        ----------
        pairwise : bool
            True: each entry is the mean over the rows where both columns are observed, 0 where
            there are none; may be indefinite. False: missing values count as the column's mean.

        Returns
        -------
        ndarray of shape (d, d)

        Raises
        ------
        NumericalError
            If there are no rows.
        """
        self._check_rows()
        if not pairwise or self.pair_weight is None:
            return self.comoment / self.weight
        weight = self.pair_weight
        return np.divide(self.comoment, weight, out=np.zeros_like(weight), where=weight > 0)

    def variance(self) -> np.ndarray:
        """Weighted variance of each column's observed values, 0 where there are none."""
        weight, squares = self.observed_weight, np.diagonal(self.comoment)
        return np.divide(squares, weight, out=np.zeros_like(weight), where=weight > 0)

    def correlation(self, pairwise: bool = False) -> np.ndarray:
        """Correlation matrix; 0 against a constant column, 1 on the diagonal.

        Parameters
        ----------
        pairwise : bool
            As in :meth:`covariance`.
        """
        covariance = self.covariance(pairwise)
        std = np.sqrt(np.diagonal(covariance))
        varies = ~self.constant_columns()
        inverse = np.divide(1.0, std, out=np.zeros_like(std), where=varies & (std > 0))
        correlation = covariance * inverse[:, None] * inverse[None, :]
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def constant_columns(self, rtol: float = CONSTANT_RTOL) -> np.ndarray:
        """Columns that do not vary, or are never observed.

        Parameters
        ----------
        rtol : float
            Largest standard deviation, as a part of the mean, that counts as rounding. The default
            sees a column that is 1e8 throughout as constant and one of mean 1e8 and unit variance
            (1e-8 of the mean) as varying.

        Returns
        -------
        ndarray of bool of shape (d,)
        """
        return np.sqrt(self.variance()) <= rtol * np.abs(self.mean)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays; the optional ones only where something is missing."""
        return pack(
            {
                "n_samples": np.int64(self.n_samples),
                "weight": self.weight,
                "weight_sq": self.weight_sq,
                "mean": self.mean,
                "comoment": self.comoment,
            },
            pair_weight=self.pair_weight,
            cross=self.cross,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> CoMoments:
        """Inverse of :meth:`to_arrays`."""
        return cls(
            int(arrays["n_samples"]),
            float(arrays["weight"]),
            float(arrays["weight_sq"]),
            arrays["mean"],
            arrays["comoment"],
            arrays.get("pair_weight"),
            arrays.get("cross"),
        )

    def _recentred(self, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return `comoment`, `pair_weight`, `cross` about other means. New arrays."""
        shift = self.mean - mean
        if self.pair_weight is None or self.cross is None:
            pair_weight = np.full(self.comoment.shape, self.weight)
            comoment = self.comoment + np.outer(shift, shift) * self.weight
            return comoment, pair_weight, shift[:, None] * pair_weight
        return recentre(self.comoment, self.pair_weight, self.cross, self.cross.T, shift, shift)[:3]

    def _without(self, other: CoMoments) -> tuple[np.ndarray, ...]:
        """Mean and matrices of what is left without `other`, where something is missing."""
        held, gone = self.observed_weight, other.observed_weight
        seen = held - gone > _GONE_RTOL * held
        ratio = np.divide(gone, held - gone, out=np.zeros_like(held), where=seen)
        mean = np.where(seen, self.mean + (self.mean - other.mean) * ratio, 0.0)
        both = np.outer(seen, seen)
        matrices = zip(self._recentred(mean), other._recentred(mean), strict=True)
        comoment, pair_weight, cross = (np.where(both, x - y, 0.0) for x, y in matrices)
        return mean, _clipped(comoment), pair_weight, cross

    def _check_columns(self, other: CoMoments) -> None:
        """Refuse values of other columns."""
        if self.n_columns != other.n_columns:
            raise ValueError(f"co-moments of {self.n_columns} and {other.n_columns} columns")

    def _check_rows(self) -> None:
        """Refuse to divide by a weight of zero."""
        if not self.n_samples:
            raise NumericalError("there are no rows to take a covariance of")


def _clipped(comoment: np.ndarray) -> np.ndarray:
    """Set negative diagonal entries to 0, in place."""
    np.fill_diagonal(comoment, np.maximum(np.diagonal(comoment), 0.0))
    return comoment


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


def recentre(
    comoment: np.ndarray,
    pair_weight: np.ndarray,
    cross_rows: np.ndarray,
    cross_columns: np.ndarray,
    row_shift: np.ndarray,
    column_shift: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Move the means that co-moments are centred at; exact but for rounding.

    Parameters
    ----------
    comoment, pair_weight : ndarray of shape (r, d)
        Σ w z_i z_j and Σ w over the rows where columns i and j are observed, z = x − mean.
    cross_rows, cross_columns : ndarray of shape (r, d)
        Σ w z_i and Σ w z_j over the same rows.
    row_shift, column_shift : ndarray of shape (r,) and (d,)
        Old mean minus new mean of the columns i and j.

    Returns
    -------
    comoment, pair_weight, cross_rows, cross_columns : ndarray of shape (r, d)
    """
    s, t = row_shift[:, None], column_shift[None, :]
    moved = comoment + (t * cross_rows + s * cross_columns) + s * t * pair_weight
    return moved, pair_weight, cross_rows + s * pair_weight, cross_columns + t * pair_weight


def refuse_overflow(squares: np.ndarray, first: int = 0) -> None:
    """Raise `DataError` naming the first column whose sum of squares is not finite."""
    bad = np.flatnonzero(~np.isfinite(squares))
    if bad.size:
        raise DataError(
            f"Column {first + bad[0]} (counted from 0) holds values too large to be squared in "
            "float64: look for damaged values, or divide the column by a constant."
        )


def _raw_product(rows: Block) -> CoMoments | None:
    """Co-moments by one uncentred product, None where that would cost digits."""
    if not rows.nearly_centred():
        return None
    n, mean = rows.n_samples, rows.mean
    with np.errstate(over="ignore", invalid="ignore"):
        comoment = rows.values @ rows.values.T
        add_outer(comoment, mean, mean, -n)
        good = mean_is_small(mean, np.diagonal(comoment) / n)
    return CoMoments(n, float(n), float(n), mean, comoment) if good else None


def _centred_product(rows: Block) -> CoMoments:
    """Co-moments from centred chunks."""
    d, some = rows.mean.size, rows.incomplete
    comoment, out = np.zeros((d, d)), np.empty((d, d))
    both, cross = np.zeros((some.size, some.size)), np.zeros((d, some.size))
    with np.errstate(over="ignore", invalid="ignore"):
        for values, present in rows.chunks():
            comoment += np.matmul(values, values.T, out=out)
            if some.size:
                both += present @ present.T
                cross += values @ present.T
    totals = (rows.n_samples, rows.total_weight, rows.total_weight_sq, rows.mean, comoment)
    if not some.size:
        return CoMoments(*totals)
    # Only pairs of incomplete columns need a product for their weight; and deviations from the
    # mean add up to 0 against a complete column.
    observed = rows.observed_weight
    pair_weight = np.minimum.outer(observed, observed)
    pair_weight[np.ix_(some, some)] = both
    full_cross = np.zeros((d, d))
    full_cross[:, some] = cross
    return CoMoments(*totals, pair_weight, full_cross)
