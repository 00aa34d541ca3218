"""Statistics of the pairs of attributes that were observed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.stats.base import merge_tree
from distfms.stats.comoments import CoMoments

#: Folds that constants are chosen on where the data have fewer than so many.
INNER_FOLDS, LEAST_FOLDS = 5, 4
#: Bytes of the sums of a pair of columns.
PAIR_BYTES = 24
#: Columns from which on, and share of values up to which, pairs are added up one by one.
_MANY_COLUMNS, _FEW_VALUES = 512, 1 / 8


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
        d, n = observed.shape
        n_seen = observed.size - np.count_nonzero(np.isnan(observed))
        if n and d >= _MANY_COLUMNS and n_seen <= _FEW_VALUES * observed.size:
            running = RunningPairs(d)
            running.learn(observed, fold)
            return running.pairs()
        numbers = np.unique(fold).tolist() or [0]
        return cls({n: CoMoments.from_block(observed[:, fold == n]) for n in numbers})

    def merge(self, other: Pairs) -> Pairs:
        """Return the pairs of the rows of both."""
        merged = dict(self.folds)
        for number, moments in other.folds.items():
            merged[number] = merged[number].merge(moments) if number in merged else moments
        return Pairs(dict(sorted(merged.items())))

    def by_column(self) -> dict[str, np.ndarray]:
        """Return what partitions are compared by; see `CoMoments.by_column`."""
        return merge_tree([*self.folds.values()]).by_column()


def listed(observed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """List what was observed of rows (d, n): columns, where each row starts, and values."""
    seen = ~np.isnan(observed.T)
    starts = np.append(0, np.cumsum(np.count_nonzero(seen, axis=1)))
    return np.nonzero(seen)[1], starts, observed.T[seen]


class RunningPairs:
    """Pairs that rows are added to one by one, in O(k²) for k values of a row.

    Sums are those of differences from an origin, the first value of each column, so that they keep
    their digits where means are large.

    Parameters
    ----------
    n_columns : int
        d, the target included.
    """

    def __init__(self, n_columns: int) -> None:
        self.origin = np.full(n_columns, np.nan)
        self.n_rows_of: dict[int, int] = {}
        self.sums: dict[int, np.ndarray] = {}
        self.totals: dict[int, np.ndarray] = {}
        #: Least and greatest values of each column.
        self.limits = np.tile([[np.inf], [-np.inf]], n_columns)

    @property
    def n_rows(self) -> int:
        """Rows of all folds."""
        return sum(self.n_rows_of.values())

    def learn(self, observed: np.ndarray, fold: np.ndarray) -> None:
        """Add rows (d, n), NaN where nothing was observed, of folds (n,)."""
        columns, _, values = listed(observed)
        self.begin(columns, values)  # in the order of the rows, not of the folds
        for number in np.unique(fold).tolist():
            self.add(number, *listed(observed[:, fold == number]))

    def add(self, fold: int, columns: np.ndarray, starts: np.ndarray, values: np.ndarray) -> None:
        """Add rows, as `listed` lists them, to a fold."""
        from distfms.methods.attribute_efficient.kernels import add_pairs

        self.begin(columns, values)
        if fold not in self.sums:
            d = len(self.origin)
            self.sums[fold] = np.zeros((3, d, d))
            self.totals[fold], self.n_rows_of[fold] = np.zeros((3, d)), 0
        self.n_rows_of[fold] += len(starts) - 1
        np.minimum.at(self.limits[0], columns, values)
        np.maximum.at(self.limits[1], columns, values)
        values = values - self.origin[columns]
        add_pairs(self.sums[fold], self.totals[fold], columns, starts, values)

    def begin(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Take first values for the origin."""
        is_new = np.isnan(self.origin[columns])
        own, at = np.unique(columns[is_new], return_index=True)
        self.origin[own] = values[is_new][at]

    def merge(self, other: RunningPairs) -> None:
        """Add the rows of another."""
        self.begin(np.arange(len(other.origin)), other.origin)
        self.limits[0] = np.minimum(self.limits[0], other.limits[0])
        self.limits[1] = np.maximum(self.limits[1], other.limits[1])
        shift = np.nan_to_num(other.origin - self.origin)
        for fold, theirs in other._moments().items():
            moved = theirs.about(np.nan_to_num(self.origin))
            sums = np.array([moved.comoment, moved.pair_weight, moved.cross])
            squares, counts, first = other.totals[fold]
            squares = squares + shift * (2.0 * first + shift * counts)
            totals = np.array([squares, counts, first + shift * counts])
            self.sums[fold] = self.sums.get(fold, 0.0) + sums
            self.totals[fold] = self.totals.get(fold, 0.0) + totals
            self.n_rows_of[fold] = self.n_rows_of.get(fold, 0) + theirs.n_samples

    def pairs(self) -> Pairs:
        """Return the statistic of all rows."""
        found = {}
        for fold, own in sorted(self._moments().items()):
            _, counts, first = self.totals[fold]
            mean = own.mean + first / np.maximum(counts, 1.0)
            found[fold] = own.about(np.where(counts > 0, mean, 0.0))
        return Pairs(found)

    def squares(self) -> np.ndarray:
        """Return sums of squares and counts of what was observed of each column, shape (2, d)."""
        squares, counts, first = np.sum([*self.totals.values()], axis=0)
        origin = np.nan_to_num(self.origin)
        return np.array([squares + origin * (2.0 * first + origin * counts), counts])

    def _moments(self) -> dict[int, CoMoments]:
        """Return co-moments about the origin instead of the means."""
        origin, found = np.nan_to_num(self.origin), {}
        for fold, n in self.n_rows_of.items():
            found[fold] = CoMoments(n, float(n), origin, *self.sums[fold])
        return found

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the content as named arrays."""
        folds = np.array([*self.sums], dtype=np.int64)
        rows = np.array([*self.n_rows_of.values()], dtype=np.int64)
        sums = {f"sums/{fold}": own for fold, own in self.sums.items()}
        totals = {f"totals/{fold}": own for fold, own in self.totals.items()}
        own = {"origin": self.origin, "limits": self.limits, "folds": folds, "rows": rows}
        return {**own, **sums, **totals}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RunningPairs:
        """Inverse of `to_arrays`."""
        found = cls(len(arrays["origin"]))
        found.origin, found.limits = arrays["origin"], arrays["limits"]
        folds = arrays["folds"].tolist()
        found.n_rows_of = dict(zip(folds, arrays["rows"].tolist(), strict=True))
        found.sums = {fold: arrays[f"sums/{fold}"] for fold in folds}
        found.totals = {fold: arrays[f"totals/{fold}"] for fold in folds}
        return found
