"""Signs of trouble in columns: gaps that are not random, values far off, numbers of rows.

All are found on rows that are taken at equal steps from what is read anyway.

References
----------
.. [1] G. Bennett, "Probability inequalities for the sum of independent random variables", Journal
   of the American Statistical Association 57, 1962.
.. [2] R. Bardenet and O.-A. Maillard, "Concentration inequalities for sampling without
   replacement", Bernoulli 21, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lgamma

import numpy as np

from distfms.stats.comoments import CONSTANT_RTOL, Moments

#: Values that are looked at of a batch, and the bounds of its rows: few, as the sums of all tell
#: what is far off, and eight times as many of a batch with gaps, which costs more anyway.
_SAMPLE_VALUES, _SAMPLE_ROWS, _WITH_GAPS = 2**15, (16, 1024), 8
#: Most columns whose gaps are compared with all others, rather than with the targets alone.
_MOST_PAIRS = 256
#: Deviations of the other values from which a value is far off.
FAR = 1e6
#: Chance of a false alarm, over all comparisons of a dataset.
_LEVEL = 0.01
#: Fewest gaps, and fewest values, that are compared.
_LEAST = 10


def sample_of(values: np.ndarray, row_ids: np.ndarray, has_gaps: bool) -> np.ndarray:
    """Return rows at equal steps of a batch, values (D, n), in the order of their numbers (n,)."""
    most = int(np.clip(_SAMPLE_VALUES // max(len(values), 1), *_SAMPLE_ROWS))
    rows = np.arange(0, len(row_ids), -(-len(row_ids) // (most * _WITH_GAPS**has_gaps)) or 1)
    sample: np.ndarray = values[:, rows[np.argsort(row_ids[rows])]]
    return sample


def sample_of_lists(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return values at equal steps of each of D columns, shape (D, m), then NaN."""
    most = int(np.clip(_SAMPLE_VALUES // max(len(values), 1), *_SAMPLE_ROWS))
    some = [own[:: -(-len(own) // most) or 1] for own in values]
    sample = np.full((len(values), max(map(len, some), default=0)), np.nan)
    for row, own in zip(sample, some, strict=True):
        row[: len(own)] = own
    return sample


@dataclass(frozen=True, eq=False)
class ColumnSigns:
    """What some rows say of D columns, features first; a mergeable statistic.

    Attributes
    ----------
    moments : Moments
        Of the sampled rows, without the values in `far`.
    gap_counts, gap_sums : ndarray of shape (g, p)
        Sampled rows where a feature is missing and a partner is not, and their sum of the partner.
        Partners are all columns or, of many, the targets; no rows (g = 0) without any gaps.
    falls, rises : ndarray of bool, shape (D,)
        Whether the sampled values fall, or rise, strictly with the row in every partition.
    chance : ndarray of shape (D,)
        −ln of the chance that values in random order do so.
    differ : ndarray of bool, shape (D,)
        Whether all sampled values of each partition are whole numbers and differ.
    far : ndarray of shape (D, 3)
        Value that is furthest from the others of its batch, if by more than `FAR` of their
        deviations; by how many; and the `place` that its batch was given. Else 0.
    """

    moments: Moments
    gap_counts: np.ndarray
    gap_sums: np.ndarray
    falls: np.ndarray
    rises: np.ndarray
    chance: np.ndarray
    differ: np.ndarray
    far: np.ndarray

    @classmethod
    def of(
        cls,
        values: Sequence[np.ndarray] | np.ndarray,
        sample: np.ndarray,
        n_features: int,
        numbers: np.ndarray,
        place: float,
        sums: np.ndarray,
    ) -> ColumnSigns:
        """Look at a batch.

        Parameters
        ----------
        values : D of ndarray of shape (n,)
            All values by column; NaN is missing.
        sample : ndarray of shape (D, m)
            What `sample_of` gives, also of rows that were left out; or `sample_of_lists`.
        n_features : int
            Columns whose gaps are compared.
        numbers : ndarray of bool, shape (D,)
            Which columns hold numbers of the data rather than indicators.
        place : float
            Number of the partition.
        sums : ndarray of shape (D,)
            Sum of each column; not finite where values are missing.
        """
        n_columns = len(values)
        observed = ~np.isnan(sample)
        gap_counts, gap_sums = _gaps(sample, observed, n_features)
        far = np.zeros((n_columns, 3))
        rest, without = _without_furthest(sample, observed)
        for column in _doubtful(values, rest, sums):
            if numbers[column]:
                far[column, :2] = _furthest(values[column], rest, column)
        is_far = far[:, 1] > 0
        far[is_far, 2] = place
        moments = rest.merge(_only(without, ~is_far))
        n_observed = observed.sum(axis=1)
        falls, rises = (_rises(own) for own in (-sample, sample))
        return cls(
            moments=moments,
            gap_counts=gap_counts,
            gap_sums=gap_sums,
            falls=falls,
            rises=rises,
            chance=np.array([lgamma(n + 1) for n in n_observed]),
            differ=_differ(sample, numbers & ~(falls | rises)) | ((falls | rises) & _whole(sample)),
            far=far,
        )

    @classmethod
    @lru_cache(maxsize=4)  # of all folds but one, for each partition
    def empty(cls, n_columns: int) -> ColumnSigns:
        """Return what no rows say: the identity of `merge`."""
        nothing = np.zeros((n_columns, 0))
        return cls.of(nothing, nothing, 0, np.zeros(n_columns, dtype=bool), 0.0, nothing.sum(1))

    def merge(self, other: ColumnSigns) -> ColumnSigns:
        """Return what the rows of both say."""
        counts, sums = self.gap_counts, self.gap_sums
        if not len(counts):
            counts, sums = other.gap_counts, other.gap_sums
        elif len(other.gap_counts):
            counts, sums = counts + other.gap_counts, sums + other.gap_sums
        further = self.far[:, 1] >= other.far[:, 1]
        return ColumnSigns(
            self.moments.merge(other.moments),
            counts,
            sums,
            self.falls & other.falls,
            self.rises & other.rises,
            self.chance + other.chance,
            self.differ & other.differ,
            np.where(further[:, None], self.far, other.far),
        )

    @property
    def ordered(self) -> np.ndarray:
        """By column −1 where values fall with the row, 1 where they rise, 0 where neither is sure.

        Shape (D,).
        """
        sure = self.chance > np.log(len(self.chance) / _LEVEL) + _LEAST
        return np.where(sure, self.rises.astype(int) - self.falls.astype(int), 0)

    def far_values(self) -> dict[int, tuple[float, float, float]]:
        """Return by column a value, its deviations from all others (at least `FAR`), its place."""
        deviation = np.sqrt(self.moments.variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.abs(self.far[:, 0] - self.moments.mean) / deviation
        found = np.flatnonzero((self.far[:, 1] > 0) & (away > FAR) & (deviation > 0))
        return {int(c): (self.far[c, 0], float(away[c]), self.far[c, 2]) for c in found}

    @property
    def unresolved(self) -> np.ndarray:
        """Which columns differ by so little of their mean that they count as constant, (D,)."""
        moments = self.moments
        differs = moments.maximum > moments.minimum
        unresolved: np.ndarray = differs & moments.constant_columns()
        return unresolved

    def dependent_gaps(self, sources: np.ndarray) -> list[tuple[int, int, float]]:
        """Find gaps that depend on a target, or else on another feature.

        Parameters
        ----------
        sources : ndarray of int, shape (D,)
            Column of the data that each column was made of, −1 where its values are not compared.

        Returns
        -------
        list of (int, int, float)
            Feature with gaps; column that tells where they are; difference between the latter's
            mean where the former is missing and that of all rows, in deviations.

        Notes
        -----
        Were a gaps of N rows drawn at random, the sum of another column over them would be further
        than t from a times its mean with a chance of at most 2 exp(−V/M² h(Mt/V)), where M is the
        largest deviation from the mean, V the variance of the sum without replacement and
        h(u) = (1 + u) ln(1 + u) − u [1]_, [2]_: this also holds for columns of rare large values.
        The chance is multiplied by the number of comparisons.
        """
        if not len(self.gap_counts):
            return []
        n_partners, n_columns = self.gap_counts.shape[1], len(self.moments.mean)
        partners = slice(n_columns - n_partners, n_columns)
        own = Moments(*(array[partners] for array in vars(self.moments).values()))
        n_gaps, n_rows = self.gap_counts, own.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            few = np.minimum(n_gaps, n_rows - n_gaps)
            apart = self.gap_sums - n_gaps * own.mean
            variance = few * own.variance * (1.0 - (few - 1.0) / n_rows)
            most = np.maximum(own.maximum - own.mean, own.mean - own.minimum)
            u = most * np.abs(apart) / variance
            chance = np.log(2.0) - variance / most**2 * ((1.0 + u) * np.log1p(u) - u)
        varies = np.sqrt(own.variance) > CONSTANT_RTOL * np.abs(own.mean)
        tested = (few >= _LEAST) & varies
        features, others = sources[: len(n_gaps), None], sources[partners]
        tested &= (features != others) & (features >= 0) & (others >= 0)
        level = np.log(_LEVEL / max(int(tested.sum()), 1))
        chance = np.where(tested & np.isfinite(chance), chance, np.inf)
        found = []
        is_target = np.arange(n_columns)[partners] >= len(n_gaps)
        for feature, row in enumerate(chance):
            told = np.where(is_target, row, np.inf)
            best = int(np.argmin(told if told.min() < level else row))
            if row[best] < level:
                size = apart[feature, best] / n_gaps[feature, best] / np.sqrt(own.variance[best])
                found.append((feature, partners.start + best, float(size)))
        return found


def _gaps(
    sample: np.ndarray, observed: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and sums of partners where features are missing."""
    missing = ~observed[:n_features]
    partners = slice(0 if len(sample) <= _MOST_PAIRS else n_features, None)
    shape = (n_features if missing.any() else 0, len(sample[partners]))
    counts, sums = np.zeros(shape), np.zeros(shape)
    if shape[0]:
        rows = np.flatnonzero(missing.any(axis=1))
        gaps, known = missing[rows].astype(float), observed[partners]
        counts[rows] = gaps @ known.T
        sums[rows] = gaps @ np.where(known, sample[partners], 0.0).T
    return counts, sums


def _without_furthest(sample: np.ndarray, observed: np.ndarray) -> tuple[Moments, Moments]:
    """Return the moments of columns without the value that is furthest from their mean, and its."""
    if not sample.size:
        return Moments.empty(len(sample)), Moments.empty(len(sample))
    with np.errstate(over="ignore"):
        away = np.abs(np.where(observed, sample - _mean(sample, observed)[:, None], -1.0))
    furthest = np.argmax(np.where(observed, away, -1.0), axis=1)
    columns = np.arange(len(sample))
    value, there = sample[columns, furthest], observed[columns, furthest]
    rest = observed.copy()
    rest[columns, furthest] = False
    own = _moments(sample, rest)
    zero, known = np.zeros(len(value)), np.where(there, value, 0.0)
    low, high = np.where(there, value, np.inf), np.where(there, value, -np.inf)
    return own, Moments(there.astype(float), known, zero, low, high)


def _only(moments: Moments, columns: np.ndarray) -> Moments:
    """Return moments with those of other columns as if nothing had been observed."""
    nothing = vars(Moments.empty(moments.n_columns)).values()
    own = zip(vars(moments).values(), nothing, strict=True)
    return Moments(*(np.where(columns, array, empty) for array, empty in own))


def _mean(sample: np.ndarray, observed: np.ndarray) -> np.ndarray:
    weight = np.maximum(observed.sum(axis=1), 1)
    mean: np.ndarray = np.where(observed, sample / weight[:, None], 0.0).sum(axis=1)
    return mean


def _moments(sample: np.ndarray, observed: np.ndarray) -> Moments:
    """Return the moments of those values of columns that are marked."""
    mean = _mean(sample, observed)
    m2 = np.square(np.where(observed, sample - mean[:, None], 0.0)).sum(axis=1)
    low = np.where(observed, sample, np.inf).min(axis=1)
    high = np.where(observed, sample, -np.inf).max(axis=1)
    return Moments(observed.sum(axis=1).astype(float), mean, m2, low, high)


def _doubtful(
    values: Sequence[np.ndarray] | np.ndarray, rest: Moments, sums: np.ndarray
) -> np.ndarray:
    """Return the columns whose sum, or a value, is so far from a sample's that one may be far off.

    A value that is `FAR` deviations off moves the mean of n values by FAR/n of them.
    """
    n_values = np.maximum([len(own) for own in values], 1)
    deviation = np.sqrt(rest.variance)
    with np.errstate(over="ignore", invalid="ignore"):
        away = np.abs(sums / n_values - rest.mean) > 0.5 * FAR / n_values * deviation
        for column in np.flatnonzero(~np.isfinite(sums)).tolist():
            ends = np.array([np.fmin.reduce(values[column]), np.fmax.reduce(values[column])])
            away[column] = (np.abs(ends - rest.mean[column]) > FAR * deviation[column]).any()
    columns: np.ndarray = np.flatnonzero(away)
    return columns


def _furthest(values: np.ndarray, rest: Moments, column: int) -> tuple[float, float]:
    """Return the value that is furthest from the others, and by how many deviations; 0 if few."""
    known = values[~np.isnan(values)]
    if known.size < 3:
        return 0.0, 0.0
    with np.errstate(over="ignore"):
        position = int(np.argmax(np.abs(known - rest.mean[column])))
    others = np.delete(known, position)
    deviation = float(others.std())
    away = abs(float(known[position]) - float(others.mean()))
    is_far = deviation > CONSTANT_RTOL * abs(float(others.mean())) and away > FAR * deviation
    return (float(known[position]), away / deviation) if is_far else (0.0, 0.0)


def _rises(sample: np.ndarray) -> np.ndarray:
    """Whether the observed values of columns rise strictly."""
    before = np.fmax.accumulate(sample, axis=1)[:, :-1]
    later = sample[:, 1:]
    rises: np.ndarray = ((later > before) | np.isnan(later) | np.isnan(before)).all(axis=1)
    return rises


def _whole(sample: np.ndarray) -> np.ndarray:
    """Whether the observed values of columns are whole numbers."""
    whole: np.ndarray = ((np.floor(sample) == sample) | np.isnan(sample)).all(axis=1)
    return whole


def _differ(sample: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which of the columns wanted hold whole numbers that differ."""
    found = wanted & _whole(sample)
    found[found] = (np.diff(np.sort(sample[found], axis=1), axis=1) != 0).all(axis=1)
    return found
