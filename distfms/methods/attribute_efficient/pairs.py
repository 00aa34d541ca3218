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
        self._open(fold)
        self.n_rows_of[fold] += len(starts) - 1
        least, greatest = self.limits
        np.minimum.at(least, columns, values)
        np.maximum.at(greatest, columns, values)
        from_origin = values - self.origin[columns]
        add_pairs(self.sums[fold], self.totals[fold], columns, starts, from_origin)

    def _open(self, fold: int) -> None:
        """Begin the sums of a fold."""
        if fold in self.sums:
            return
        n_columns = len(self.origin)
        self.sums[fold] = np.zeros((3, n_columns, n_columns))
        self.totals[fold] = np.zeros((3, n_columns))
        self.n_rows_of[fold] = 0

    def begin(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Take first values for the origin."""
        is_new = np.isnan(self.origin[columns])
        new_columns, firsts = np.unique(columns[is_new], return_index=True)
        self.origin[new_columns] = values[is_new][firsts]

    def merge(self, other: RunningPairs) -> None:
        """Add the rows of another."""
        self.begin(np.arange(len(other.origin)), other.origin)
        least, greatest = other.limits
        self.limits[0] = np.minimum(self.limits[0], least)
        self.limits[1] = np.maximum(self.limits[1], greatest)
        shift = np.nan_to_num(other.origin - self.origin)
        origin = np.nan_to_num(self.origin)
        for fold, moments in other._moments().items():
            moved = moments.about(origin)
            self._open(fold)
            self.sums[fold] += [moved.comoment, moved.pair_weight, moved.cross]
            self.totals[fold] += _shifted(other.totals[fold], shift)
            self.n_rows_of[fold] += moments.n_samples

    def pairs(self) -> Pairs:
        """Return the statistic of all rows."""
        folds = {}
        for fold, moments in sorted(self._moments().items()):
            _, counts, first = self.totals[fold]
            mean = moments.mean + first / np.maximum(counts, 1.0)
            folds[fold] = moments.about(np.where(counts > 0, mean, 0.0))
        return Pairs(folds)

    def squares(self) -> np.ndarray:
        """Return sums of squares and counts of what was observed of each column, shape (2, d)."""
        totals = np.sum([*self.totals.values()], axis=0)
        return _shifted(totals, np.nan_to_num(self.origin))[:2]

    def _moments(self) -> dict[int, CoMoments]:
        """Return co-moments about the origin instead of the means."""
        origin = np.nan_to_num(self.origin)
        moments = {}
        for fold, n_rows in self.n_rows_of.items():
            moments[fold] = CoMoments(n_rows, float(n_rows), origin, *self.sums[fold])
        return moments

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the content as named arrays."""
        folds = np.array([*self.sums], dtype=np.int64)
        rows = np.array([*self.n_rows_of.values()], dtype=np.int64)
        arrays = {"origin": self.origin, "limits": self.limits, "folds": folds, "rows": rows}
        for fold, sums in self.sums.items():
            arrays[f"sums/{fold}"] = sums
            arrays[f"totals/{fold}"] = self.totals[fold]
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RunningPairs:
        """Inverse of `to_arrays`."""
        pairs = cls(len(arrays["origin"]))
        pairs.origin = arrays["origin"]
        pairs.limits = arrays["limits"]
        folds = arrays["folds"].tolist()
        pairs.n_rows_of = dict(zip(folds, arrays["rows"].tolist(), strict=True))
        pairs.sums = {fold: arrays[f"sums/{fold}"] for fold in folds}
        pairs.totals = {fold: arrays[f"totals/{fold}"] for fold in folds}
        return pairs


def _shifted(totals: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return sums of squares, ones and values (3, d) for values greater by a shift (d,)."""
    squares, counts, first = totals
    squares = squares + shift * (2.0 * first + shift * counts)
    return np.array([squares, counts, first + shift * counts])
