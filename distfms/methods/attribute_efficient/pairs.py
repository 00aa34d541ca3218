"""Statistics of the pairs of attributes that were observed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.stats.base import below, joined, merge_tree
from distfms.stats.comoments import CoMoments

#: Folds that constants are chosen on where the data have fewer than so many.
INNER_FOLDS, LEAST_FOLDS = 5, 4
#: Columns from which on, and share of values up to which, pairs are added up one by one.
_MANY_COLUMNS, _FEW_VALUES = 512, 1 / 8


@dataclass(frozen=True, eq=False)
class Pairs:
    """Co-moments of observed attributes and the target, the last column, by inner fold.

    A mergeable statistic: the folds that constants are chosen on stay apart.
    """

    folds: Mapping[int, CoMoments]

    @classmethod
    def of(cls, observed: np.ndarray, fold: np.ndarray) -> Pairs:
        """Sum up rows (d + 1, n), NaN where nothing was observed, of folds (n,)."""
        numbers = np.unique(fold).tolist() or [0]
        return cls({n: co_moments(observed[:, fold == n]) for n in numbers})

    def merge(self, other: Pairs) -> Pairs:
        """Return the pairs of the rows of both."""
        merged = dict(self.folds)
        for number, moments in other.folds.items():
            merged[number] = merged[number].merge(moments) if number in merged else moments
        return Pairs(dict(sorted(merged.items())))

    def by_column(self) -> dict[str, np.ndarray]:
        """Return what partitions are compared by; see `CoMoments.by_column`."""
        return merge_tree([*self.folds.values()]).by_column()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the content as named arrays."""
        arrays = joined({number: moments.to_arrays() for number, moments in self.folds.items()})
        return {"folds": np.array([*self.folds], dtype=np.int64), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Pairs:
        """Inverse of `to_arrays`."""
        return cls(
            {
                number: CoMoments.from_arrays(below(f"{number}/", arrays))
                for number in arrays["folds"].tolist()
            }
        )


def co_moments(observed: np.ndarray) -> CoMoments:
    """Return the co-moments of rows (d, n), NaN where nothing was observed.

    Of many columns with few values in a row, in O(k²) a row instead of O(d²).
    """
    d, n = observed.shape
    if n and d >= _MANY_COLUMNS:
        columns, starts, values = listed(observed)
        if columns.size <= _FEW_VALUES * observed.size:
            from distfms.methods.attribute_efficient.kernels import add_pairs

            counts = np.maximum(np.bincount(columns, minlength=d), 1)
            mean = np.bincount(columns, values, minlength=d) / counts
            sums = np.zeros((3, d, d))
            add_pairs(sums, 0, columns, starts, values - mean[columns])
            return CoMoments(n, float(n), float(n), mean, *sums)
    return CoMoments.from_block(observed)


def listed(observed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """List what was observed of rows (d, n): columns, where each row starts, and values."""
    seen = ~np.isnan(observed.T)
    starts = np.append(0, np.cumsum(np.count_nonzero(seen, axis=1)))
    return np.nonzero(seen)[1], starts, observed.T[seen]


class RunningPairs:
    """Pairs that rows are added to one by one, in O(k²) for k values of a row.

    Sums are those of differences from an origin, the first value of each column, so that they keep
    their digits where means are large.
    """

    def __init__(self, n_columns: int) -> None:
        self.origin = np.full(n_columns, np.nan)
        self.n_rows_of: dict[int, int] = {}
        self.sums: dict[int, np.ndarray] = {}

    @property
    def n_rows(self) -> int:
        """Rows of all folds."""
        return sum(self.n_rows_of.values())

    def add(
        self, fold: int, columns: np.ndarray, values: np.ndarray, starts: np.ndarray | None = None
    ) -> None:
        """Add one row with `values` of `columns`, or rows that `listed` has listed, to a fold."""
        from distfms.methods.attribute_efficient.kernels import add_pairs

        self.begin(columns, values)
        starts = np.array([0, len(columns)]) if starts is None else starts
        if fold not in self.sums:
            self.sums[fold] = np.zeros((3, len(self.origin), len(self.origin)))
        self.n_rows_of[fold] = self.n_rows_of.get(fold, 0) + len(starts) - 1
        add_pairs(self.sums[fold], 0, columns, starts, values - self.origin[columns])

    def begin(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Take first values for the origin."""
        is_new = np.isnan(self.origin[columns])
        own, at = np.unique(columns[is_new], return_index=True)
        self.origin[own] = values[is_new][at]

    def merge(self, other: RunningPairs) -> None:
        """Add the rows of another."""
        self.begin(np.arange(len(other.origin)), other.origin)
        for fold, theirs in other._moments().items():
            moved = theirs.about(np.nan_to_num(self.origin))
            sums = np.array([moved.comoment, moved.pair_weight, moved.cross])
            self.sums[fold] = self.sums.get(fold, 0.0) + sums
            self.n_rows_of[fold] = self.n_rows_of.get(fold, 0) + theirs.n_samples

    def pairs(self) -> Pairs:
        """Return the statistic of all rows."""
        found = {}
        for fold, own in sorted(self._moments().items()):
            shift = np.diagonal(self.sums[fold][2]) / np.maximum(own.observed_weight, 1.0)
            found[fold] = own.about(np.where(own.observed_weight > 0, own.mean + shift, 0.0))
        return Pairs(found)

    def squares(self) -> np.ndarray:
        """Return sums of squares and counts of what was observed of each column, shape (2, d)."""
        diagonals = [np.diagonal(own, 0, 1, 2) for own in self.sums.values()]
        products, counts, first = np.sum(diagonals, axis=0)
        origin = np.nan_to_num(self.origin)
        return np.array([products + 2.0 * origin * first + origin**2 * counts, counts])

    def _moments(self) -> dict[int, CoMoments]:
        """Return co-moments about the origin instead of the means."""
        origin = np.nan_to_num(self.origin)
        return {
            fold: CoMoments(n, float(n), float(n), origin, *self.sums[fold])
            for fold, n in self.n_rows_of.items()
        }

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the content as named arrays."""
        folds = np.array([*self.sums], dtype=np.int64)
        rows = np.array([*self.n_rows_of.values()], dtype=np.int64)
        sums = {f"sums/{fold}": own for fold, own in self.sums.items()}
        return {"origin": self.origin, "folds": folds, "rows": rows, **sums}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RunningPairs:
        """Inverse of `to_arrays`."""
        found = cls(len(arrays["origin"]))
        found.origin = arrays["origin"]
        folds = arrays["folds"].tolist()
        found.n_rows_of = dict(zip(folds, arrays["rows"].tolist(), strict=True))
        found.sums = {fold: arrays[f"sums/{fold}"] for fold in folds}
        return found
