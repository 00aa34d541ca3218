"""Drift: how far the columns of new partitions are from those of the others.

For every column four numbers are followed from partition to partition, each without a unit: its
mean (in standard deviations of the others), its standard deviation and its raters' internal
variance v̂ (as logarithms, halved for v̂), and its correlation with the target. An interval says how
far one more set of partitions is from the others by chance: with s the standard deviation between
the m partitions of before, and k new ones, it is ± t · s · √(1/m + max(1, n̄/n)/k), where n̄ and n
are the mean weights of an old and of a new partition, as numbers from fewer rows vary more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distfms.data.files.partition import Partition
from distfms.stats.base import Bundle, ratio, student_t
from distfms.stats.comoments import CONSTANT_RTOL

LEVEL = 0.95
#: What drifts, in the order of the table.
QUANTITIES = ("mean", "spread", "correlation", "disagreement")
#: Columns with most drift that are drawn, and points of their lines.
_DRAWN = 5
_POINTS = 200
#: Columns with most drift that the report lists.
_LISTED = 40


class Summaries(NamedTuple):
    """What is followed of p partitions of d columns, the target last.

    Attributes
    ----------
    keys, files : ndarray of str, shape (p,)
        Fingerprints, and names of the files.
    weight : ndarray of shape (p, d)
        Σ w over the rows where each column is observed.
    mean, variance, covariance : ndarray of shape (p, d)
        Covariance with the target.
    internal, repeated : ndarray of shape (p, d)
        v̂, NaN where there is none, and the weight it is a mean over.
    """

    keys: np.ndarray
    files: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray
    internal: np.ndarray
    repeated: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Summaries:
        """Stack the summaries of single partitions."""
        return cls(*(np.array([row[name] for row in rows]) for name in cls._fields))

    @staticmethod
    def rows_of(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return the summaries of single partitions from stored arrays."""
        names = Summaries._fields
        stacks = zip(*(arrays[name] for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in stacks]

    def take(self, which: np.ndarray) -> Summaries:
        """Return those of some partitions."""
        return Summaries(*(array[which] for array in self))

    def pooled(self) -> Summaries:
        """Return the summary of all partitions as one."""
        weight = self.weight.sum(axis=0)
        share = ratio(self.weight, weight)
        mean = (share * self.mean).sum(axis=0)
        shift = self.mean - mean
        repeated = self.repeated.sum(axis=0)
        internal = np.where(self.repeated > 0, self.internal * self.repeated, 0.0).sum(axis=0)
        unknown = np.full_like(internal, np.nan)
        one = {
            "keys": "",
            "files": "",
            "weight": weight,
            "mean": mean,
            "variance": (share * (self.variance + shift**2)).sum(axis=0),
            "covariance": (share * (self.covariance + shift * shift[:, -1:])).sum(axis=0),
            "internal": np.divide(internal, repeated, out=unknown, where=repeated > 0),
            "repeated": repeated,
        }
        return Summaries.of([one])

    def quantities(self, reference: Summaries) -> np.ndarray:
        """Return what is followed, shape (4, p, d): see the module. NaN where it is unknown."""
        variance = self._varying()
        usual = reference._varying()
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.sqrt(variance * variance[:, -1:])
            moved = np.stack(
                [
                    (self.mean - reference.mean) / np.sqrt(usual),
                    0.5 * np.log(variance / usual),
                    self.covariance / scale,
                    0.5 * np.log(self.internal / reference.internal),
                ]
            )
        moved[2, :, -1] = np.nan  # the target's with itself
        return np.where(np.isfinite(moved) & (self.weight > 0), moved, np.nan)

    def typical_weight(self) -> np.ndarray:
        """Return the mean weight of a partition behind each quantity, shape (4, d)."""
        return np.stack([self.weight] * 3 + [self.repeated]).mean(axis=1)

    def _varying(self) -> np.ndarray:
        """Return the variances, NaN of what is constant but for rounding."""
        constant = np.sqrt(self.variance) <= CONSTANT_RTOL * np.abs(self.mean)
        return np.where(constant, np.nan, self.variance)


def summarise(member: str, partition: Partition, bundle: Bundle) -> dict[str, Any]:
    """Return the summary of one partition, from its statistics of all parts."""
    folded = bundle[member]
    names = {"keys": partition.fingerprint, "files": partition.name}
    return {**names, **folded.train().merge(folded.test).by_column()}


def drift_of(
    before: Summaries, sets: Mapping[str, Summaries]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Compare sets of new partitions with those of before.

    Returns
    -------
    dict of str to (ndarray, ndarray), each of shape (4, d)
        By set: how far each quantity moved, NaN where unknown; and half the width of its interval,
        NaN with fewer than two partitions before.
    """
    reference = before.pooled()
    n_before = len(before.keys)
    single = before.quantities(reference)
    n_observed = (~np.isnan(single)).sum(axis=1)
    half = student_t(LEVEL, max(n_before - 1, 1)) * _deviation(single, n_observed)
    origin = reference.quantities(reference)
    usual = before.typical_weight()
    moved = {}
    for name, now in sets.items():
        shift = now.pooled().quantities(reference) - origin
        weight = now.typical_weight()
        smaller = np.ones_like(weight)
        np.divide(usual, weight, out=smaller, where=weight > 0)
        variance = 1 / n_before + np.maximum(smaller, 1.0) / len(now.keys)
        half_width = np.where(n_observed > 1, half * np.sqrt(variance), np.nan)
        moved[name] = (shift[:, 0], half_width)
    return moved


def _deviation(values: np.ndarray, n_observed: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each row's values but NaN, 0 of fewer than two."""
    centre = np.nansum(values, axis=1) / np.maximum(n_observed, 1)
    squares = np.nansum((values - centre[:, None]) ** 2, axis=1)
    deviation: np.ndarray = np.sqrt(squares / np.maximum(n_observed - 1, 1))
    return deviation


def same_rows(before: Summaries | None, now: Summaries | None, file: str) -> bool:
    """Whether the summaries of a file are known and the same, to the bit."""
    if before is None or now is None or file not in now.files:
        return False
    old, new = (s.take(s.files == file)[2:] for s in (before, now))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(old, new, strict=True))


def worst(
    before: Summaries, sets: Mapping[str, Summaries], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Judge each set of new partitions by itself; return the worst, and the shifts of all.

    Of the worst there are the largest shift, and the columns by their own largest.
    """
    moved = drift_of(before, sets)
    sizes = {}
    largest = {}
    for name, (shift, _) in moved.items():
        sizes[name] = np.where(np.isnan(shift), -1.0, np.abs(shift))
        largest[name] = max(float(sizes[name].max()), 0.0)
    name = max(largest, key=largest.__getitem__)
    size = sizes[name]
    shift, half = moved[name]
    quantity, column = np.unravel_index(int(np.argmax(size)), size.shape)
    columns = []
    for place in np.argsort(-size.max(axis=0), kind="stable")[:_LISTED].tolist():
        entry: dict[str, Any] = {"name": names[place]}
        for row, followed in enumerate(QUANTITIES):
            entry[followed] = {"shift": shift[row, place], "half_width": half[row, place]}
        columns.append(entry)
    content = {
        "level": LEVEL,
        "largest": largest[name],
        "column": names[int(column)],
        "quantity": QUANTITIES[int(quantity)],
        "n_columns": len(names),
        "columns": columns,
        "name": name,
    }
    return content, largest


def history(
    before: Summaries,
    summaries: Summaries,
    is_new: np.ndarray,
    names: Sequence[str],
    drawn: Sequence[str],
) -> dict[str, Any]:
    """Return the means of columns in the last partitions, in standard deviations of before."""
    means = summaries.quantities(before.pooled())[0][-_POINTS:]
    return {
        "is_new": is_new[-_POINTS:].tolist(),
        "lines": {name: means[:, names.index(name)].tolist() for name in drawn[:_DRAWN]},
    }
