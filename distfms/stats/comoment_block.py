"""Some rows of the co-moment matrix, for data with too many columns for one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distfms.stats.base import pack
from distfms.stats.blocks import Block, mean_is_small
from distfms.stats.comoments import (
    CONSTANT_RTOL,
    CoMoments,
    add_outer,
    merged_mean,
    recentre,
    refuse_overflow,
)


@dataclass(frozen=True, eq=False)
class ComomentBlock:
    """Rows ``[start, stop)`` of the co-moment matrix of `d` columns.

    Means and missing values are treated as in `CoMoments`; blocks of the same rows of data that
    cover all columns make up a `CoMoments` (`assemble`).

    Attributes
    ----------
    n_samples : int
        Rows of positive weight.
    weight, weight_sq : float
        Σ w and Σ w² over them.
    start : int
        First column of the block.
    mean : ndarray of shape (d,)
        Weighted mean of each column's observed values, 0 where there are none.
    observed_weight : ndarray of shape (d,)
        Σ w over the rows where each column is observed.
    comoment : ndarray of shape (stop − start, d)
        Σ w (x_i − mean_i)(x_j − mean_j), i in the block, j any column.
    pair_weight : ndarray of shape (stop − start, d) or None
        Σ w over the rows where both are observed; None where nothing is missing.
    cross_rows, cross_columns : ndarray of shape (stop − start, d) or None
        Σ w (x_i − mean_i) and Σ w (x_j − mean_j) over those rows.
    """

    n_samples: int
    weight: float
    weight_sq: float
    start: int
    mean: np.ndarray
    observed_weight: np.ndarray
    comoment: np.ndarray
    pair_weight: np.ndarray | None = None
    cross_rows: np.ndarray | None = None
    cross_columns: np.ndarray | None = None

    @classmethod
    def empty(cls, n_columns: int, columns: slice) -> ComomentBlock:
        """Block of no rows of data: the identity of `merge`."""
        start, stop = _bounds(columns, n_columns)
        means = (np.zeros(n_columns), np.zeros(n_columns))
        return cls(0, 0.0, 0.0, start, *means, np.zeros((stop - start, n_columns)))

    @classmethod
    def from_block(
        cls,
        block: np.ndarray,
        columns: slice,
        weight: np.ndarray | None = None,
        *,
        overwrite: bool = False,
        sums: np.ndarray | None = None,
    ) -> ComomentBlock:
        """Compute the rows `columns` of the co-moment matrix of one block of data.

        Parameters
        ----------
        block : ndarray of shape (d, n), float64
            All columns, as for :meth:`CoMoments.from_block`.
        columns : slice
            A run of columns (step 1).
        weight : ndarray of shape (n,), optional
        overwrite : bool, default=False
            Whether `block` may be used as scratch.
        sums : ndarray of shape (d,), optional
            As for :meth:`CoMoments.from_block`.

        Raises
        ------
        DataError
            As :meth:`CoMoments.from_block`.
        """
        rows = Block.of(block, weight, overwrite, sums)
        start, stop = _bounds(columns, rows.mean.size)
        if not rows.n_samples:
            return cls.empty(rows.mean.size, columns)
        matrices = _raw_product(rows, start, stop) or _centred_product(rows, start, stop)
        refuse_overflow(np.diagonal(matrices[0], offset=start), start)
        return cls(
            rows.n_samples,
            rows.total_weight,
            rows.total_weight_sq,
            start,
            rows.mean,
            rows.observed_weight,
            *matrices,
        )

    @property
    def n_columns(self) -> int:
        """Number of columns d of the data."""
        return self.mean.size

    @property
    def stop(self) -> int:
        """One past the last column of the block."""
        return self.start + self.comoment.shape[0]

    @property
    def columns(self) -> slice:
        """Columns of the block."""
        return slice(self.start, self.stop)

    def variance(self) -> np.ndarray:
        """Weighted variance of the block's columns over their observed values, 0 where none."""
        weight = self.observed_weight[self.columns]
        squares = np.diagonal(self.comoment, self.start)
        return np.divide(squares, weight, out=np.zeros_like(weight), where=weight > 0)

    def constant_columns(self, rtol: float = CONSTANT_RTOL) -> np.ndarray:
        """Which of the block's columns do not vary; see :meth:`CoMoments.constant_columns`."""
        return np.sqrt(self.variance()) <= rtol * np.abs(self.mean[self.columns])

    def imputed(self) -> ComomentBlock:
        """Block of the same rows of data with missing values counting as their column's mean.

        It shares the co-moments, has lost what only a merge needs, and must not be merged.
        """
        observed = np.full(self.n_columns, self.weight)
        return replace(
            self, observed_weight=observed, pair_weight=None, cross_rows=None, cross_columns=None
        )

    def merge(self, other: ComomentBlock) -> ComomentBlock:
        """Block of the same columns over the rows of data of both.

        Raises
        ------
        ValueError
            If the two are of different columns.
        """
        ours, theirs = (self.start, *self.comoment.shape), (other.start, *other.comoment.shape)
        if ours != theirs:
            raise ValueError(f"blocks of other columns cannot be merged: {ours} and {theirs}")
        if not other.n_samples:
            return self
        if not self.n_samples:
            return other
        mean = merged_mean(self.mean, self.observed_weight, other.mean, other.observed_weight)
        complete = self.pair_weight is None and other.pair_weight is None
        return ComomentBlock(
            self.n_samples + other.n_samples,
            self.weight + other.weight,
            self.weight_sq + other.weight_sq,
            self.start,
            mean,
            self.observed_weight + other.observed_weight,
            *(self._merged_complete(other) if complete else self._merged(other, mean)),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays; the optional ones only where something is missing."""
        return pack(
            {
                "n_samples": np.int64(self.n_samples),
                "weight": self.weight,
                "weight_sq": self.weight_sq,
                "start": np.int64(self.start),
                "mean": self.mean,
                "observed_weight": self.observed_weight,
                "comoment": self.comoment,
            },
            pair_weight=self.pair_weight,
            cross_rows=self.cross_rows,
            cross_columns=self.cross_columns,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ComomentBlock:
        """Inverse of :meth:`to_arrays`."""
        return cls(
            int(arrays["n_samples"]),
            float(arrays["weight"]),
            float(arrays["weight_sq"]),
            int(arrays["start"]),
            arrays["mean"],
            arrays["observed_weight"],
            arrays["comoment"],
            arrays.get("pair_weight"),
            arrays.get("cross_rows"),
            arrays.get("cross_columns"),
        )

    def _merged_complete(self, other: ComomentBlock) -> tuple[np.ndarray]:
        """Co-moments of both where nothing is missing, by the same steps as `CoMoments`."""
        delta = other.mean - self.mean
        share = other.weight / (self.weight + other.weight)
        comoment = self.comoment + other.comoment
        add_outer(comoment, delta[self.columns], delta, self.weight * share)
        return (comoment,)

    def _merged(self, other: ComomentBlock, mean: np.ndarray) -> tuple[np.ndarray, ...]:
        """Matrices of both about the common mean, where something is missing."""
        parts = zip(self._recentred(mean), other._recentred(mean), strict=True)
        return tuple(x + y for x, y in parts)

    def _recentred(self, mean: np.ndarray) -> tuple[np.ndarray, ...]:
        """Matrices about other means. New arrays."""
        pair_weight, rows, columns = self.pair_weight, self.cross_rows, self.cross_columns
        if pair_weight is None or rows is None or columns is None:
            pair_weight = np.full(self.comoment.shape, self.weight)
            rows = columns = np.zeros(self.comoment.shape)
        shift = self.mean - mean
        return recentre(self.comoment, pair_weight, rows, columns, shift[self.columns], shift)


def assemble(blocks: Sequence[ComomentBlock]) -> CoMoments:
    """Put together the blocks of one set of rows of data.

    Parameters
    ----------
    blocks : sequence of ComomentBlock
        In any order; together they cover each column once.

    Returns
    -------
    CoMoments
        Means, weights and counts have the bits of `CoMoments` computed directly; matrices agree
        with it to rounding (a general product adds in another order than a symmetric one). The
        upper triangle is mirrored, so that they are symmetric to the bit.

    Raises
    ------
    ValueError
        If the blocks do not cover the columns, or are not of the same rows of data.
    """
    ordered = sorted(blocks, key=lambda block: block.start)
    if not ordered:
        raise ValueError("no blocks to assemble")
    first, d = ordered[0], ordered[0].n_columns
    edges = [0, *(block.stop for block in ordered)]
    if edges[-1] != d or [block.start for block in ordered] != edges[:-1]:
        raise ValueError(f"the blocks do not cover {d} columns once each: edges {edges}")
    if any((b.n_samples, b.weight) != (first.n_samples, first.weight) for b in ordered):
        raise ValueError("the blocks are not of the same rows of data")
    if first.pair_weight is None:
        return CoMoments(
            first.n_samples,
            first.weight,
            first.weight_sq,
            first.mean,
            _mirrored(np.concatenate([b.comoment for b in ordered])),
        )
    pairs = [b.pair_weight for b in ordered if b.pair_weight is not None]
    crosses = [b.cross_rows for b in ordered if b.cross_rows is not None]
    return CoMoments(
        first.n_samples,
        first.weight,
        first.weight_sq,
        first.mean,
        _mirrored(np.concatenate([b.comoment for b in ordered])),
        _mirrored(np.concatenate(pairs)),
        np.concatenate(crosses),
    )


def _bounds(columns: slice, n_columns: int) -> tuple[int, int]:
    """First and past-the-last column of a run of columns."""
    start, stop, step = columns.indices(n_columns)
    if step != 1 or stop < start:
        raise ValueError(f"{columns} is not a run of columns")
    return start, stop


def _mirrored(matrix: np.ndarray) -> np.ndarray:
    """Copy the upper triangle to the lower one."""
    upper = np.triu(matrix)
    return upper + np.triu(matrix, 1).T


def _raw_product(rows: Block, start: int, stop: int) -> tuple[np.ndarray, ...] | None:
    """Co-moments by one uncentred product, None where that would cost digits."""
    if not rows.nearly_centred():
        return None
    n, mean = rows.n_samples, rows.mean
    with np.errstate(over="ignore", invalid="ignore"):
        comoment = rows.values[start:stop] @ rows.values.T
        add_outer(comoment, mean[start:stop], mean, -n)
        variance = np.diagonal(comoment, offset=start) / n
        return (comoment,) if mean_is_small(mean[start:stop], variance) else None


def _centred_product(rows: Block, start: int, stop: int) -> tuple[np.ndarray, ...]:
    """Co-moments from centred chunks."""
    shape, block, some = (stop - start, rows.mean.size), slice(start, stop), rows.incomplete
    inside = (some >= start) & (some < stop)
    own = some[inside] - start
    comoment, out = np.zeros(shape), np.empty(shape)
    both = np.zeros((own.size, some.size))
    by_row, by_column = np.zeros((shape[0], some.size)), np.zeros((own.size, shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for values, present in rows.chunks():
            comoment += np.matmul(values[block], values.T, out=out)
            if some.size:
                both += present[inside] @ present.T
                by_row += values[block] @ present.T
                by_column += present[inside] @ values.T
    if not some.size:
        return (comoment,)
    # As in CoMoments: what involves a complete column is known without a product.
    observed = rows.observed_weight
    pair_weight = np.minimum.outer(observed[block], observed)
    pair_weight[np.ix_(own, some)] = both
    cross_rows, cross_columns = np.zeros(shape), np.zeros(shape)
    cross_rows[:, some], cross_columns[own, :] = by_row, by_column
    return comoment, pair_weight, cross_rows, cross_columns
