"""One batch of rows, column-major, seen as every second-moment statistic needs it.

A `Batch` knows its weights, its column means and whether anything is missing, and hands out
centred, weighted chunks for matrix products. Chunks are what keeps the pass near the speed of the
bare product: they are centred while in cache and never stored for the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distfms.errors import DataError

#: Float64 values in one chunk (16 MiB) and the bounds of its rows. Measured: numpy's subtraction
#: with a broadcast column is twice as slow below about 2500 rows, and the sum of the chunks'
#: products costs more the more chunks there are.
_CHUNK_VALUES = 2**21
_CHUNK_ROWS = (512, 4096)

#: A batch is not centred before the product where every column's squared mean is at most this
#: multiple of its variance: the uncentred sum then loses about one decimal digit.
_RAW_MEAN_SQUARED = 16.0
#: Rows looked at to guess whether that holds; the guess is verified afterwards.
_PROBE_ROWS = 256


class Chunk(NamedTuple):
    """Some rows of a batch; overwritten by the next chunk.

    `values`, of shape (d, rows), are √w (x − mean), 0 where missing; `present`, of shape (m, rows),
    √w where observed, 0 where missing, of the m columns of `Batch.incomplete`.
    """

    values: np.ndarray
    present: np.ndarray


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked rows with their weights and column means; build it with `Batch.of`.

    Attributes
    ----------
    values : ndarray of shape (d, n)
        Columns of the data as rows; rows of zero weight are left out.
    weight : ndarray of shape (n,) or None
        Positive; None if every row counts 1.
    mean : ndarray of shape (d,)
        Weighted mean of what is observed, 0 where nothing is.
    observed_weight : ndarray of shape (d,)
        Σ w over the rows where each column is observed.
    incomplete : ndarray of shape (m,), int
        Columns with missing values, ascending.
    overwrite : bool
        Whether `values` may be used as scratch.
    """

    values: np.ndarray
    weight: np.ndarray | None
    mean: np.ndarray
    observed_weight: np.ndarray
    incomplete: np.ndarray
    overwrite: bool

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        weight: np.ndarray | None,
        overwrite: bool = False,
        sums: np.ndarray | None = None,
    ) -> Batch:
        """Check a batch and compute its means.

        Parameters
        ----------
        values : ndarray of shape (d, n), float64
            Unit stride along the rows of data (the last axis). NaN is missing.
        weight : ndarray of shape (n,), optional
            At least 0, finite.
        overwrite : bool
            Whether `values` may be used as scratch.
        sums : ndarray of shape (d,), optional
            ``values.sum(axis=1)`` where it is known; not used where there are weights.
        """
        values = np.asarray(values, dtype=np.float64)
        keep, weight = checked_weight(weight)
        if keep is not None:
            # Indexing with a mask would give Fortran order.
            values = np.compress(keep, values, axis=1)
            overwrite = True
        with np.errstate(over="ignore", invalid="ignore"):
            if sums is None or weight is not None:
                sums = _weighted_sum(values, weight)
            mean = sums / max(_total(weight, values.shape[1]), _TINY)
        incomplete = np.flatnonzero(~np.isfinite(mean))
        refuse_infinite(values, incomplete)
        observed = np.full(mean.size, _total(weight, values.shape[1]))
        for column in incomplete:
            mean[column], observed[column] = _observed(values[column], weight)
        return cls(values, weight, mean, observed, incomplete, overwrite)

    @property
    def n_samples(self) -> int:
        """Number of rows with positive weight."""
        return self.values.shape[1]

    @property
    def total_weight(self) -> float:
        """Σ w."""
        return _total(self.weight, self.n_samples)

    def chunks(self) -> Iterator[Chunk]:
        """Centred and weighted chunks of rows, in order."""
        d, n = self.values.shape
        least, most = _CHUNK_ROWS
        n_rows = min(max(_CHUNK_VALUES // max(d, 1), least), most)
        mean = self.mean[:, np.newaxis]
        root = None if self.weight is None else np.sqrt(self.weight)
        buffer = None
        if not self.overwrite:
            buffer = np.empty((d, min(n_rows, n)))
        for start in range(0, n, n_rows):
            rows = slice(start, start + n_rows)
            source = self.values[:, rows]
            target = source
            if buffer is not None:
                target = buffer[:, : source.shape[1]]
            np.subtract(source, mean, out=target)
            factor = None if root is None else root[rows]
            present = self._mask(target, factor)
            if factor is not None:
                np.multiply(target, factor, out=target)
            yield Chunk(target, present)

    def nearly_centred(self) -> bool:
        """Guess from the first rows whether the product may be taken without centring."""
        if self.incomplete.size or self.weight is not None or not self.n_samples:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return mean_is_small(self.mean, self.values[:, :_PROBE_ROWS].var(axis=1))

    def _mask(self, target: np.ndarray, factor: np.ndarray | None) -> np.ndarray:
        """√w where observed, else 0; sets the missing entries of `target` to 0."""
        present = np.empty((self.incomplete.size, target.shape[1]))
        for row, column in zip(present, self.incomplete, strict=True):
            absent = np.isnan(target[column])
            np.copyto(target[column], 0.0, where=absent)
            np.copyto(row, ~absent)
            if factor is not None:
                row *= factor
        return present


def mean_is_small(mean: np.ndarray, variance: np.ndarray) -> bool:
    """Whether an uncentred sum of squares keeps nearly all digits in every column."""
    return bool(np.all(mean**2 <= _RAW_MEAN_SQUARED * variance))


def checked_weight(weight: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return a mask of the rows of positive weight, None if that is all, and their weights.

    Raises
    ------
    DataError
        If a weight is negative or not finite.
    """
    if weight is None:
        return None, None
    weight = np.asarray(weight, dtype=np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        bad = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
        raise DataError(
            f"the weight of row {bad} is {weight[bad]}; weights must be finite and at least 0"
        )
    keep = weight > 0
    return (None, weight) if keep.all() else (keep, weight[keep])


def refuse_infinite(values: np.ndarray, columns: np.ndarray) -> None:
    """Raise if a column holds ±inf, or finite values whose sum overflows.

    Parameters
    ----------
    values : ndarray of shape (d, n)
    columns : ndarray of int
        Columns to look at: those whose sum is not finite.
    """
    for column in columns:
        row = values[column]
        if np.isinf(row).any():
            count = int(np.isinf(row).sum())
            raise DataError(f"column {column} holds {count} infinite value(s)")
        if not np.isnan(row).any():
            raise DataError(f"column {column} holds values too large to be summed in float64")


#: Smallest normal float: a divisor that leaves 0/0 out of a batch without rows.
_TINY = float(np.finfo(np.float64).tiny)


def _total(weight: np.ndarray | None, n: int) -> float:
    """Sum of the weights of n rows."""
    return float(n if weight is None else weight.sum())


def _weighted_sum(values: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Σ w x by column. Products, not a matrix-vector call: pairwise sums keep more digits."""
    if weight is None:
        return values.sum(axis=1)
    return np.array([(row * weight).sum() for row in values])


def _observed(row: np.ndarray, weight: np.ndarray | None) -> tuple[float, float]:
    """Weighted mean of the observed values of a column, 0 where there are none, and their Σ w."""
    is_present = ~np.isnan(row)
    values = np.where(is_present, row, 0.0)
    weights = is_present * (1.0 if weight is None else weight)
    total = float(weights.sum())
    if not total > 0:
        return 0.0, total
    return float((weights * values).sum()) / total, total
