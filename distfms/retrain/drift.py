"""Drift: how far the columns of new partitions are from those of the others.

For every column four numbers are followed from partition to partition, each without a unit: its
mean (in standard deviations of the others), its standard deviation and its raters' internal
variance v̂ (as logarithms, halved for v̂), and its correlation with the target. An interval says how
far one more set of partitions is from the others by chance: with s the standard deviation between
the m partitions of before, and k new ones, it is ± t · s · √(1/m + 1/k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from distfms.data.dataset import Partition
from distfms.stats.base import Bundle
from distfms.stats.comoments import CONSTANT_RTOL
from distfms.stats.fold_means import student_t

LEVEL = 0.95
#: What drifts, in the order of the table.
QUANTITIES = ("mean", "spread", "correlation", "disagreement")
#: Columns with most drift that are drawn, and points of their lines.
_DRAWN, _POINTS = 5, 200
#: Columns with most drift that the report lists.
_LISTED = 40


@dataclass(frozen=True, eq=False)
class Summaries:
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
        return cls(**{f.name: np.array([row[f.name] for row in rows]) for f in fields(cls)})

    @staticmethod
    def rows_of(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return the summaries of single partitions from stored arrays."""
        names = [f.name for f in fields(Summaries)]
        stacks = zip(*(arrays[name] for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in stacks]

    def take(self, which: np.ndarray) -> Summaries:
        """Return those of some partitions."""
        return Summaries(**{name: array[which] for name, array in self.to_arrays().items()})

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def pooled(self) -> Summaries:
        """Return the summary of all partitions as one."""
        weight = self.weight.sum(axis=0)
        share = np.divide(self.weight, weight, out=np.zeros_like(self.weight), where=weight > 0)
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

    @cached_property
    def variation(self) -> tuple[Summaries, np.ndarray, np.ndarray]:
        """Pooled summary, and how many partitions know each quantity and differ how much in it."""
        reference = self.pooled()
        single = self.quantities(reference)
        n_known = (~np.isnan(single)).sum(axis=1)
        centre = np.nansum(single, axis=1) / np.maximum(n_known, 1)
        squares = np.nansum((single - centre[:, None]) ** 2, axis=1)
        return reference, n_known, np.sqrt(squares / np.maximum(n_known - 1, 1))

    def quantities(self, reference: Summaries) -> np.ndarray:
        """Return what is followed, shape (4, p, d): see the module. NaN where it is unknown."""
        own, other = self._varying(), reference._varying()
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.sqrt(own * own[:, -1:])
            found = np.stack(
                [
                    (self.mean - reference.mean) / np.sqrt(other),
                    0.5 * np.log(own / other),
                    self.covariance / scale,
                    0.5 * np.log(self.internal / reference.internal),
                ]
            )
        found[2, :, -1] = np.nan  # the target's with itself
        return np.where(np.isfinite(found) & (self.weight > 0), found, np.nan)

    def _varying(self) -> np.ndarray:
        """Return the variances, NaN of what is constant but for rounding."""
        constant = np.sqrt(self.variance) <= CONSTANT_RTOL * np.abs(self.mean)
        return np.where(constant, np.nan, self.variance)


def summarise(member: str, partition: Partition, bundle: Bundle) -> dict[str, Any]:
    """Return the summary of one partition, from its statistics of all parts."""
    folded = bundle[member]
    own = {"keys": partition.fingerprint, "files": partition.name}
    return {**own, **folded.train().merge(folded.test).by_column()}


@dataclass(frozen=True, eq=False)
class Drift:
    """How far the new partitions are from the others, each of shape (4, d).

    Attributes
    ----------
    shift : ndarray
        How far each quantity moved; NaN where unknown.
    half_width : ndarray
        Of its interval; NaN with fewer than two partitions before.
    """

    shift: np.ndarray
    half_width: np.ndarray

    @classmethod
    def between(cls, before: Summaries, now: Summaries) -> Drift:
        """Compare two sets of partitions."""
        (reference, n_known, between), m, k = before.variation, len(before.keys), len(now.keys)
        half = student_t(LEVEL, max(m - 1, 1)) * between * np.sqrt(1 / m + 1 / k)
        shift = now.pooled().quantities(reference) - reference.quantities(reference)
        return cls(shift[:, 0], np.where(n_known > 1, half, np.nan))

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the largest shift, and the columns by their own largest."""
        size = np.where(np.isnan(self.shift), -1.0, np.abs(self.shift))
        order = np.argsort(-size.max(axis=0), kind="stable")
        quantity, column = np.unravel_index(int(np.argmax(size)), size.shape)
        columns = [
            {"name": names[c]}
            | {
                name: {"shift": self.shift[q, c], "half_width": self.half_width[q, c]}
                for q, name in enumerate(QUANTITIES)
            }
            for c in order[:_LISTED].tolist()
        ]
        return {
            "level": LEVEL,
            "largest": max(float(size.max()), 0.0),
            "column": names[int(column)],
            "quantity": QUANTITIES[int(quantity)],
            "n_columns": len(names),
            "columns": columns,
        }


def same_rows(before: Summaries | None, now: Summaries | None, file: str) -> bool:
    """Whether the summaries of a file are known and the same, to the bit."""
    if before is None or now is None or file not in now.files:
        return False
    pairs = (s.take(s.files == file).to_arrays() for s in (before, now))
    old, new = ([a for name, a in one.items() if a.dtype.kind == "f"] for one in pairs)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(old, new, strict=True))


def worst(
    before: Summaries, sets: Mapping[str, Summaries], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Judge each set of new partitions by itself; return the worst, and the shifts of all."""
    found = {name: Drift.between(before, own).to_json(names) for name, own in sets.items()}
    name = max(found, key=lambda one: found[one]["largest"])
    return {**found[name], "name": name}, {one: own["largest"] for one, own in found.items()}


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
