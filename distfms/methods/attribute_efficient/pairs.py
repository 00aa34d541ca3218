"""Statistics of the pairs of attributes that were observed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.stats.base import merge_tree
from distfms.stats.comoments import CoMoments

#: Folds that constants are chosen on where the data have fewer than so many.
INNER_FOLDS = 5
LEAST_FOLDS = 4
#: Bytes of the sums of a pair of columns.
PAIR_BYTES = 24
#: Columns from which on, and share of values up to which, pairs are added up one by one.
_MANY_COLUMNS = 512
_FEW_VALUES = 1 / 8


def inner_folds(keys: np.ndarray) -> np.ndarray:
    """Return the inner folds (n,) of rows with these keys."""
    return (keys.astype(np.uint64) % np.uint64(INNER_FOLDS)).astype(int)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Co-moments of observed attributes and the target, the last column, by inner fold.

    A mergeable statistic: the folds that constants are chosen on stay apart.
    """

    folds: Mapping[int, CoMoments]

    @classmethod
    def of(cls, observed: np.ndarray, fold: np.ndarray) -> Pairs:
        """Sum up rows (d + 1, n), NaN where nothing was observed, of folds (n,).

        Of many columns with few values in a row, in O(k²) a row instead of O(d²).
        """
        numbers = np.unique(fold).tolist() or [0]
        return cls({number: _comoments(observed[:, fold == number]) for number in numbers})

    def merge(self, other: Pairs) -> Pairs:
        """Return the pairs of the rows of both."""
        merged = dict(self.folds)
        for number, moments in other.folds.items():
            merged[number] = merged[number].merge(moments) if number in merged else moments
        return Pairs(dict(sorted(merged.items())))

    def by_column(self) -> dict[str, np.ndarray]:
        """Return what partitions are compared by; see `CoMoments.by_column`."""
        return merge_tree([*self.folds.values()]).by_column()


def _comoments(observed: np.ndarray) -> CoMoments:
    """Sum up rows (d, n), NaN where nothing was observed."""
    d, n = observed.shape
    n_seen = observed.size - np.isnan(observed).sum()
    if not n or d < _MANY_COLUMNS or n_seen > _FEW_VALUES * observed.size:
        return CoMoments.from_block(observed)
    return _comoments_of_few(observed)


def _comoments_of_few(observed: np.ndarray) -> CoMoments:
    """Sum up rows (d, n), few of whose values were observed, by products of sparse matrices."""
    from scipy.sparse import csr_array

    d, n = observed.shape
    seen = ~np.isnan(observed)
    first_rows = seen.argmax(axis=1)
    # Differences from the first value of each column keep their digits where means are large.
    origin = np.nan_to_num(observed[np.arange(d), first_rows])
    differences = observed - origin[:, np.newaxis]
    rows, columns = np.nonzero(seen.T)
    places = (rows, columns)
    differences_seen = differences[columns, rows]
    values = csr_array((differences_seen, places), shape=(n, d))
    ones = csr_array((np.ones(len(rows)), places), shape=(n, d))
    products = (values.T @ values).toarray()
    counts = (ones.T @ ones).toarray()
    cross = (values.T @ ones).toarray()
    moments = CoMoments(n, float(n), origin, products, counts, cross)
    n_seen = np.diagonal(counts)
    mean = origin + np.diagonal(cross) / np.maximum(n_seen, 1.0)
    mean[n_seen == 0] = 0.0
    return moments.about(mean)
