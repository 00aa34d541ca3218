"""How far each rater is from the others, and who is too far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distfms.stats.ragged import Ragged

#: Objects from which a rater is known about as well as raters are in general.
_OBJECTS = 10
#: How far a rater can be from others who always agree.
_MOST_TIMES = 1000.0


@dataclass(frozen=True, eq=False)
class Disagreement:
    """How far each rater's judgments are from those of others, mergeable.

    Of a judgment x of k of an attribute of an object, u = (x − x̄)² k / (k − 1) has the mean v
    where all raters have the variance v, as the variance s² of the other judgments has. If one
    rater has another variance, the mean of the others is nearer to the truth without his judgment
    just where his u has a mean above 2 v, for any k.

    Attributes
    ----------
    names : ndarray of str, shape (n,)
        Ids of the raters, ascending.
    n_objects : ndarray of int64, shape (n,)
        Objects that each rater judged beside others.
    squares, spreads : ndarray of shape (n, d)
        Σ u and Σ s² of each rater and attribute, the latter over objects with two others or more.
    n_pairs : ndarray of shape (n, d)
        Objects with one other judgment, which has no variance.
    variances, n_variances : ndarray of shape (d,)
        Sum over objects with two judgments or more of their variance, and their number.
    """

    names: np.ndarray
    n_objects: np.ndarray
    squares: np.ndarray
    spreads: np.ndarray
    n_pairs: np.ndarray
    variances: np.ndarray
    n_variances: np.ndarray

    @classmethod
    def from_block(
        cls, judgments: Sequence[Ragged], raters: Sequence[Ragged], names: Sequence[str]
    ) -> Disagreement:
        """Summarise one batch of objects.

        Parameters
        ----------
        judgments, raters : sequence of Ragged, length d
            As :meth:`~distfms.stats.raters.RaterStatistics.from_block` takes them.
        names : sequence of str
            Ids of the raters by the numbers that stand for them.

        Returns
        -------
        Disagreement
            Objects count alike, whatever their weight.
        """
        n_raters = len(names)
        n_attributes = len(judgments)
        sums = np.zeros((3, n_raters, n_attributes))
        variances = np.zeros(n_attributes)
        n_variances = np.zeros(n_attributes)
        pairs = [np.zeros(0, dtype=np.int64)]  # of an object and a rater
        for attribute, (ragged, codes) in enumerate(zip(judgments, raters, strict=True)):
            sums[..., attribute], pair, of_objects = _by_rater(ragged, codes, n_raters)
            variances[attribute] = of_objects.sum()
            n_variances[attribute] = of_objects.size
            if not np.array_equal(pair, pairs[-1]):
                pairs.append(pair)
        judged = np.unique(np.concatenate(pairs)) % max(n_raters, 1)
        n_objects = np.bincount(judged, minlength=n_raters)
        seen = np.flatnonzero(n_objects)
        of_block = cls(
            names=np.array(names, dtype=np.str_)[seen],
            n_objects=n_objects[seen],
            squares=sums[0, seen],
            spreads=sums[1, seen],
            n_pairs=sums[2, seen],
            variances=variances,
            n_variances=n_variances,
        )
        return cls.empty(n_attributes).merge(of_block)

    @classmethod
    def empty(cls, n_attributes: int) -> Disagreement:
        """Summary of no objects: the identity of `merge`."""
        nothing = np.zeros((0, n_attributes))
        no_names = np.zeros(0, dtype=np.str_)
        no_objects = np.zeros(0, dtype=np.int64)
        zeros = np.zeros(n_attributes)
        return cls(no_names, no_objects, nothing, nothing, nothing, zeros, zeros)

    def merge(self, later: Disagreement) -> Disagreement:
        """Return the sums of the objects of both."""
        names, places = np.unique(np.concatenate((self.names, later.names)), return_inverse=True)

        def added(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            total = np.zeros((names.size, *mine.shape[1:]), dtype=mine.dtype)
            np.add.at(total, places, np.concatenate((mine, theirs)))
            return total

        return Disagreement(
            names,
            added(self.n_objects, later.n_objects),
            added(self.squares, later.squares),
            added(self.spreads, later.spreads),
            added(self.n_pairs, later.n_pairs),
            self.variances + later.variances,
            self.n_variances + later.n_variances,
        )

    def ratios(self) -> np.ndarray:
        """Return Σ u/v over Σ s²/v of each rater, shape (n,), by the mean variance v of attributes.

        v stands in for s² of a single other judgment. Attributes without variance do not count.
        """
        varying = np.flatnonzero(self.variances > 0)
        unit = self.variances[varying] / self.n_variances[varying]
        squares = (self.squares[:, varying] / unit).sum(axis=1)
        spreads = self.spreads[:, varying] / unit + self.n_pairs[:, varying]
        least = squares / _MOST_TIMES + np.finfo(float).tiny
        return squares / np.maximum(spreads.sum(axis=1), least)

    def outlying(self) -> list[tuple[str, int, float]]:
        """Return raters whose ratio is over twice that of the median rater, farthest first.

        Each with his objects and that multiple, which is shrunk to 1 where they are few.
        """
        ratios = self.ratios()
        steady = ratios[self.n_objects >= _OBJECTS]
        if not steady.size or not np.median(steady):
            return []
        times = ratios / np.median(steady)
        is_far = self.n_objects * (times - 1.0) > self.n_objects + _OBJECTS
        far = np.flatnonzero(is_far)
        ranked = far[np.argsort(-times[far], kind="stable")].tolist()
        return [(str(self.names[i]), int(self.n_objects[i]), float(times[i])) for i in ranked]


def _by_rater(
    ragged: Ragged, codes: Ragged, n_raters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum judgments of one attribute by known raters, of objects with two judgments or more.

    Returns Σ u, Σ s² and the number of pairs of each rater, shape (3, n_raters), with
    u = (x − x̄)² k/(k − 1) and s² = (Σ(x − x̄)² − u)/(k − 2); a number for the object and the rater
    of each of these judgments; and the variances of these objects.
    """
    counts = ragged.counts()
    codes_of_judgments = codes.content()
    is_shared = counts > 1
    object_of = np.repeat(np.arange(counts.size), counts)
    kept = np.flatnonzero((codes_of_judgments >= 0) & is_shared[object_of])
    objects = object_of[kept]
    raters = codes_of_judgments[kept].astype(np.int64)
    means, sums = ragged.means_and_squares()
    k = counts[objects]
    deviations = ragged.content()[kept] - means[objects]
    squares = deviations**2 * k / (k - 1)
    without_rater = np.maximum(sums[objects] - squares, 0.0)
    is_pair = k == 2
    n_free = np.maximum(k - 2, 1)
    spreads = np.where(is_pair, 0.0, without_rater / n_free)
    of_raters = [np.bincount(raters, values, n_raters) for values in (squares, spreads, is_pair)]
    pairs = objects * n_raters + raters
    variances = sums[is_shared] / (counts[is_shared] - 1)
    return np.stack(of_raters), pairs, variances
