"""One attribute's judgments of a block of objects: a list of numbers per object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from distfms.errors import DataError

#: Lists up to this length are taken together with the others of their length.
_FEW = 8


class Ragged(NamedTuple):
    """Lists of float64, one per row.

    Attributes
    ----------
    values : ndarray of shape (n_values,), float64
        The lists one after another.
    offsets : ndarray of shape (n_rows + 1,), int64
        Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``. The first offset need not be 0, so
        that a run of rows is a view (see `rows`).
    """

    values: np.ndarray
    offsets: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.offsets.size - 1

    def counts(self) -> np.ndarray:
        """Length of each list, int64 of shape (n_rows,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def content(self) -> np.ndarray:
        """Values of these rows, without what may lie before or after them."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    def rows(self, start: int, stop: int) -> Self:
        """Rows ``start:stop``; a view, nothing is copied."""
        return self._replace(offsets=self.offsets[start : stop + 1])

    def clipped(self, low: float, high: float) -> Self:
        """Return the same lists, with values from `low` to `high`; a copy if these are bounds."""
        if low == -np.inf and high == np.inf:
            return self
        return self._replace(values=np.clip(self.values, low, high))

    def take(self, order: np.ndarray) -> Self:
        """Rows in the order given; a copy.

        Parameters
        ----------
        order : ndarray of int or bool
            Row numbers, or a mask over the rows.
        """
        order = np.asarray(order)
        rows = np.flatnonzero(order) if order.dtype == np.bool_ else order.astype(np.int64)
        counts = self.counts()[rows]
        return self._gather(self.offsets[:-1][rows], counts)

    def first(self, k: int) -> Self:
        """Each row's first `k` values, or all where it holds fewer."""
        return self._gather(self.offsets[:-1], np.minimum(self.counts(), k))

    def means(self) -> np.ndarray:
        """Mean of each row, NaN where it is empty; shape (n_rows,)."""
        return self.means_and_squares()[0]

    def means_and_squares(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and centred sum of squares of each row, in two passes [1]_.

        Returns
        -------
        means : ndarray of shape (n_rows,)
            NaN where the row is empty.
        squares : ndarray of shape (n_rows,)
            Σ (x − mean)², 0 where the row holds fewer than two values. A row of equal values
            has exactly 0.

        References
        ----------
        .. [1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample
           variance", The American Statistician 37, 1983.
        """
        counts = self.counts()
        longest = int(counts.max(initial=0))
        if longest > 0 and counts.min() == longest:
            return _equal_lengths(list(self.content().reshape(-1, longest).T))
        means = np.full(self.n_rows, np.nan)
        squares = np.zeros(self.n_rows)
        for length in range(1, min(longest, _FEW) + 1):
            rows = np.flatnonzero(counts == length)
            columns = self._columns(rows, length)
            means[rows], squares[rows] = _equal_lengths(columns)
        is_long = counts > _FEW
        if is_long.any():
            long_lists = self if is_long.all() else self.take(is_long)
            means[is_long], squares[is_long] = long_lists._reduced()
        return means, squares

    def _columns(self, rows: np.ndarray, length: int) -> list[np.ndarray]:
        """First values of lists of this length, then their second ones, and so on."""
        starts = self.offsets[rows]
        return [self.values.take(starts + place) for place in range(length)]

    def _reduced(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and centred sums of squares of non-empty lists of any lengths."""
        counts = self.counts()
        starts = self.offsets[:-1] - self.offsets[0]
        values = self.content()
        origin = values[starts]
        difference = values - np.repeat(origin, counts)
        shift = np.add.reduceat(difference, starts) / counts
        difference -= np.repeat(shift, counts)
        np.square(difference, out=difference)
        squares = np.add.reduceat(difference, starts)
        return origin + shift, squares

    def _gather(self, starts: np.ndarray, counts: np.ndarray) -> Self:
        """Copy the lists of the given starts and lengths one after another."""
        offsets = offsets_of(counts)
        index = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
        return type(self)(self.values[index], offsets)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Offsets (int64, one more than rows) of lists with these lengths."""
    offsets = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def check_rows(judgments: Sequence[Ragged], n_rows: int) -> None:
    """Check that every attribute has `n_rows` rows of finite numbers.

    Raises
    ------
    DataError
        Naming the index of the attribute.
    """
    for attribute, ragged in enumerate(judgments):
        if ragged.n_rows != n_rows:
            raise DataError(
                f"attribute {attribute} has judgments of {ragged.n_rows} objects, "
                f"but there are {n_rows} labels"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            total = ragged.content().sum()
        # The sum alone may overflow; only then look at every value.
        if not np.isfinite(total) and not np.isfinite(ragged.content()).all():
            raise DataError(f"attribute {attribute} has a judgment that is not a finite number")


def _equal_lengths(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means and centred sums of squares of lists of one length, given as k columns.

    Sums along an axis of a few elements are slow; k sums of long columns are not.
    """
    # The first value as origin makes lists of equal values exact and keeps the digits of others.
    origin = columns[0]
    differences = [column - origin for column in columns[1:]]
    shift = np.zeros(origin.size)
    for difference in differences:
        shift += difference
    shift /= len(columns)
    squares = np.zeros(origin.size)
    for difference in differences:
        difference -= shift
        squares += np.square(difference, out=difference)
    squares += np.square(shift)
    return origin + shift, squares
