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
#: what is far off.
_SAMPLE_VALUES = 2**15
_SAMPLE_ROWS = (16, 1024)
#: How many times as many are looked at of a batch with gaps, which costs more anyway.
_WITH_GAPS = 8
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
    most = _most_rows(len(values))
    if has_gaps:
        most *= _WITH_GAPS
    rows = np.arange(0, len(row_ids), _step(len(row_ids), most))
    in_order = rows[np.argsort(row_ids[rows])]
    return np.asarray(values[:, in_order])


def sample_of_lists(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return values at equal steps of each of D columns, shape (D, m), then NaN."""
    most = _most_rows(len(values))
    sampled = [column[:: _step(len(column), most)] for column in values]
    longest = max((len(column) for column in sampled), default=0)
    sample = np.full((len(values), longest), np.nan)
    for row, column in zip(sample, sampled, strict=True):
        row[: len(column)] = column
    return sample


def _most_rows(n_columns: int) -> int:
    """Return how many rows of a batch are looked at."""
    return int(np.clip(_SAMPLE_VALUES // max(n_columns, 1), *_SAMPLE_ROWS))


def _step(n_rows: int, most: int) -> int:
    """Return the step at which no more than so many rows are taken, ⌈n / most⌉ or 1."""
    return max(-(-n_rows // most), 1)


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
        usual, furthest = _without_furthest(sample, observed)
        for column in _doubtful(values, usual, sums):
            if numbers[column]:
                far[column, :2] = _furthest(values[column], usual, column)
        is_far = far[:, 1] > 0
        far[is_far, 2] = place
        moments = usual.merge(_only(furthest, ~is_far))
        n_observed = observed.sum(axis=1)
        falls = _rises(-sample)
        rises = _rises(sample)
        in_order = falls | rises
        return cls(
            moments=moments,
            gap_counts=gap_counts,
            gap_sums=gap_sums,
            falls=falls,
            rises=rises,
            chance=np.array([lgamma(n + 1) for n in n_observed]),
            differ=_differ(sample, numbers & ~in_order) | (in_order & _whole(sample)),
            far=far,
        )

    @classmethod
    @lru_cache(maxsize=4)  # of all folds but one, for each partition
    def empty(cls, n_columns: int) -> ColumnSigns:
        """Return what no rows say: the identity of `merge`."""
        nothing = np.zeros((n_columns, 0))
        return cls.of(nothing, nothing, 0, np.zeros(n_columns, dtype=bool), 0.0, nothing.sum(1))

    def merge(self, later: ColumnSigns) -> ColumnSigns:
        """Return what the rows of both say."""
        is_further = self.far[:, 1] >= later.far[:, 1]
        return ColumnSigns(
            self.moments.merge(later.moments),
            _added(self.gap_counts, later.gap_counts),
            _added(self.gap_sums, later.gap_sums),
            self.falls & later.falls,
            self.rises & later.rises,
            self.chance + later.chance,
            self.differ & later.differ,
            np.where(is_further[:, np.newaxis], self.far, later.far),
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
        is_far = (self.far[:, 1] > 0) & (away > FAR) & (deviation > 0)
        far_values = {}
        for column in np.flatnonzero(is_far).tolist():
            value, _, place = self.far[column]
            far_values[column] = (value, float(away[column]), place)
        return far_values

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
        n_gaps = self.gap_counts
        n_features, n_partners = n_gaps.shape
        first = len(self.moments.mean) - n_partners
        moments_of_partners = (array[first:] for array in vars(self.moments).values())
        partners = Moments(*moments_of_partners)
        n_without_gap = partners.weight - n_gaps
        n_few = np.minimum(n_gaps, n_without_gap)
        expected = n_gaps * partners.mean
        away = self.gap_sums - expected
        chance = _log_chance(away, n_few, partners)
        deviation = np.sqrt(partners.variance)
        varies = deviation > CONSTANT_RTOL * np.abs(partners.mean)
        is_tested = (n_few >= _LEAST) & varies
        features = sources[:n_features, np.newaxis]
        is_tested &= (features >= 0) & (sources[first:] >= 0) & (features != sources[first:])
        n_tested = int(is_tested.sum())
        level = np.log(_LEVEL / max(n_tested, 1))
        chance = np.where(is_tested & np.isfinite(chance), chance, np.inf)
        is_target = np.arange(first, first + n_partners) >= n_features
        dependent = []
        for feature, by_partner in enumerate(chance):
            by_target = np.where(is_target, by_partner, np.inf)
            if by_target.min() < level:
                by_partner = by_target
            partner = int(np.argmin(by_partner))
            if by_partner[partner] >= level:
                continue
            difference = away[feature, partner] / n_gaps[feature, partner]
            size = float(difference / deviation[partner])
            dependent.append((feature, first + partner, size))
        return dependent


def _added(gaps: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Return sums over the gaps of both; those of no rows have no features."""
    if not len(gaps):
        return later
    return gaps + later if len(later) else gaps


def _log_chance(away: np.ndarray, n_few: np.ndarray, partners: Moments) -> np.ndarray:
    """Return ln 2 − V/M² h(Mt/V) for sums that are t = |away| from their mean; see [1]_, [2]_.

    Of n_few values without replacement V is n_few·σ²(1 − (n_few − 1)/N).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share_left = 1.0 - (n_few - 1.0) / partners.weight
        variance = n_few * partners.variance * share_left
        above = partners.maximum - partners.mean
        below = partners.mean - partners.minimum
        largest = np.maximum(above, below)
        u = largest * np.abs(away) / variance
        h = (1.0 + u) * np.log1p(u) - u
        return np.log(2.0) - variance / largest**2 * h


def _gaps(
    sample: np.ndarray, observed: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and sums of partners where features are missing."""
    is_missing = ~observed[:n_features]
    first = 0 if len(sample) <= _MOST_PAIRS else n_features
    n_partners = len(sample) - first
    if not is_missing.any():
        return np.zeros((0, n_partners)), np.zeros((0, n_partners))
    counts = np.zeros((n_features, n_partners))
    sums = np.zeros((n_features, n_partners))
    rows = np.flatnonzero(is_missing.any(axis=1))
    gaps = is_missing[rows].astype(float)
    is_known = observed[first:]
    values = np.where(is_known, sample[first:], 0.0)
    counts[rows] = gaps @ is_known.T
    sums[rows] = gaps @ values.T
    return counts, sums


def _without_furthest(sample: np.ndarray, observed: np.ndarray) -> tuple[Moments, Moments]:
    """Return the moments of columns without the value that is furthest from their mean, and its."""
    if not sample.size:
        return Moments.empty(len(sample)), Moments.empty(len(sample))
    mean = _mean(sample, observed)[:, np.newaxis]
    with np.errstate(over="ignore"):
        away = np.abs(sample - mean)
    furthest = np.argmax(np.where(observed, away, -1.0), axis=1)
    columns = np.arange(len(sample))
    value = sample[columns, furthest]
    is_observed = observed[columns, furthest]
    is_usual = observed.copy()
    is_usual[columns, furthest] = False
    of_furthest = Moments(
        weight=is_observed.astype(float),
        mean=np.where(is_observed, value, 0.0),
        m2=np.zeros(len(value)),
        minimum=np.where(is_observed, value, np.inf),
        maximum=np.where(is_observed, value, -np.inf),
    )
    return _moments(sample, is_usual), of_furthest


def _only(moments: Moments, columns: np.ndarray) -> Moments:
    """Return moments with those of other columns as if nothing had been observed."""
    nothing = vars(Moments.empty(moments.n_columns)).values()
    pairs = zip(vars(moments).values(), nothing, strict=True)
    return Moments(*(np.where(columns, array, empty) for array, empty in pairs))


def _mean(sample: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return Σ x/n over the values of columns that are marked, 0 without any."""
    weight = np.maximum(observed.sum(axis=1), 1)
    parts = np.where(observed, sample / weight[:, np.newaxis], 0.0)
    return np.asarray(parts.sum(axis=1))


def _moments(sample: np.ndarray, observed: np.ndarray) -> Moments:
    """Return the moments of those values of columns that are marked."""
    mean = _mean(sample, observed)
    deviations = np.where(observed, sample - mean[:, np.newaxis], 0.0)
    return Moments(
        weight=observed.sum(axis=1).astype(float),
        mean=mean,
        m2=np.square(deviations).sum(axis=1),
        minimum=np.where(observed, sample, np.inf).min(axis=1),
        maximum=np.where(observed, sample, -np.inf).max(axis=1),
    )


def _doubtful(
    values: Sequence[np.ndarray] | np.ndarray, usual: Moments, sums: np.ndarray
) -> np.ndarray:
    """Return the columns whose sum, or a value, is so far from a sample's that one may be far off.

    A value that is `FAR` deviations off moves the mean of n values by FAR/n of them.
    """
    lengths = [len(column) for column in values]
    n_values = np.maximum(lengths, 1)
    farthest = FAR * np.sqrt(usual.variance)
    unknown_sums = np.flatnonzero(~np.isfinite(sums))
    with np.errstate(over="ignore", invalid="ignore"):
        means = sums / n_values
        moved = np.abs(means - usual.mean)
        is_away = moved > 0.5 * farthest / n_values
        for column in unknown_sums.tolist():
            lowest = np.fmin.reduce(values[column])
            highest = np.fmax.reduce(values[column])
            mean = usual.mean[column]
            away = max(abs(lowest - mean), abs(highest - mean))
            is_away[column] = away > farthest[column]
    return np.asarray(np.flatnonzero(is_away))


def _furthest(values: np.ndarray, usual: Moments, column: int) -> tuple[float, float]:
    """Return the value that is furthest from the others, and by how many deviations; 0 if few."""
    observed = values[~np.isnan(values)]
    if observed.size < 3:
        return 0.0, 0.0
    with np.errstate(over="ignore"):
        position = int(np.argmax(np.abs(observed - usual.mean[column])))
    furthest = float(observed[position])
    remaining = np.delete(observed, position)
    mean = float(remaining.mean())
    deviation = float(remaining.std())
    away = abs(furthest - mean)
    varies = deviation > CONSTANT_RTOL * abs(mean)
    if not varies or away <= FAR * deviation:
        return 0.0, 0.0
    return furthest, away / deviation


def _rises(sample: np.ndarray) -> np.ndarray:
    """Whether the observed values of columns rise strictly."""
    before = np.fmax.accumulate(sample, axis=1)[:, :-1]
    later = sample[:, 1:]
    is_unknown = np.isnan(later) | np.isnan(before)
    return np.asarray(((later > before) | is_unknown).all(axis=1))


def _whole(sample: np.ndarray) -> np.ndarray:
    """Whether the observed values of columns are whole numbers."""
    is_whole = (np.floor(sample) == sample) | np.isnan(sample)
    return np.asarray(is_whole.all(axis=1))


def _differ(sample: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which of some columns (bool of shape (D,)) hold whole numbers that differ."""
    differ = columns & _whole(sample)
    ascending = np.sort(sample[differ], axis=1)
    steps = np.diff(ascending, axis=1)
    differ[differ] = (steps != 0).all(axis=1)
    return differ
