"""A uniform sample of rows that does not depend on how the rows are divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class RowSample:
    """The rows with the smallest hashes, at most `size` of them.

    Attributes
    ----------
    size : int
        Most rows that are kept.
    hashes : ndarray of uint64, shape (n,)
        Ascending; rows of equal hash by their number.
    row_ids : ndarray of int64, shape (n,)
        Dataset-wide row numbers.
    ids : ndarray of shape (n,), or None
        Integers or strings that name the rows, where something does.
    values : ndarray of float64, shape (d, n)
        What is kept of each row.

    Notes
    -----
    Merging is exact: the sample of all rows is the same whatever the parts were. Its first m rows
    are the sample of size m.
    """

    size: int
    hashes: np.ndarray
    row_ids: np.ndarray
    ids: np.ndarray | None
    values: np.ndarray

    @classmethod
    def empty(cls, size: int, n_columns: int) -> RowSample:
        """Return the sample of no rows: the identity of `merge`."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(size, nothing.astype(np.uint64), nothing, None, np.zeros((n_columns, 0)))

    @classmethod
    def from_rows(
        cls,
        size: int,
        hashes: np.ndarray,
        row_ids: np.ndarray,
        values: np.ndarray,
        ids: np.ndarray | None = None,
    ) -> RowSample:
        """Sample rows of a batch.

        Parameters
        ----------
        size : int
        hashes : ndarray of uint64, shape (n,)
        row_ids : ndarray of int64, shape (n,)
        values : ndarray of shape (d, n)
            Copied as far as it is kept.
        ids : ndarray of shape (n,), optional
        """
        kept = np.arange(len(hashes))
        if len(hashes) > size:
            # All that are not above the last of the sample: equal hashes are told apart below.
            kept = np.flatnonzero(hashes <= np.partition(hashes, size - 1)[size - 1])
        kept = kept[np.lexsort((row_ids[kept], hashes[kept]))][:size]
        kept_ids = None if ids is None else ids[kept]
        return cls(size, hashes[kept], row_ids[kept], kept_ids, np.take(values, kept, axis=1))

    @property
    def n_rows(self) -> int:
        """Number of rows in the sample."""
        return len(self.hashes)

    def merge(self, later: RowSample) -> RowSample:
        """Return the sample of the rows of both."""
        if not self.n_rows or not later.n_rows:
            return self if self.n_rows else later
        ids = None
        if self.ids is not None and later.ids is not None:
            ids = np.concatenate((self.ids, later.ids))
        return self.from_rows(
            self.size,
            np.concatenate((self.hashes, later.hashes)),
            np.concatenate((self.row_ids, later.row_ids)),
            np.concatenate((self.values, later.values), axis=1),
            ids,
        )

    def first(self, n: int) -> RowSample:
        """Return the sample of `n` rows, which are the first of this one."""
        return replace(self.taken(slice(n)), size=n)

    def taken(self, rows: slice | np.ndarray) -> RowSample:
        """Return some of the rows."""
        ids = None if self.ids is None else self.ids[rows]
        hashes = self.hashes[rows]
        return RowSample(len(hashes), hashes, self.row_ids[rows], ids, self.values[:, rows])
