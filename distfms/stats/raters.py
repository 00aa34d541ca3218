"""What raters who judge several attributes of an object tell.

With x̃ = x − x̄[a] a judgment about the mean of its attribute, k_a judgments of attribute a of an
object and n_ab raters who judged both a and b of it, the pairs of *different* raters give

    Σ̂_o[a, b] = (Σ_r x̃[a, r] Σ_s x̃[b, s] − Σ_{r both} x̃[a, r] x̃[b, r]) / (k_a k_b − n_ab),

free of what the judgments of one rater share; products of one rater's judgments give Σ + N, with N
their noise covariance. Both are means over objects of products about means, which
:class:`CoMoments` hold, merge and re-centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from distfms.stats.comoments import CoMoments
from distfms.stats.ragged import Ragged

#: What is counted: judgments whose rater is not known, and second judgments of an attribute of an
#: object by one rater (both count as by raters of their own); objects with several attributes that
#: one rater alone has judged, once each, which tell nothing of Σ.
COUNTS = ("n_unknown", "n_second", "n_alone")

#: Values of the arrays that objects with various raters are spread to at a time.
_SPREAD_VALUES = 2**19

#: Products of pairs of attributes at a time: with all that is made of them, a core's cache full.
_PAIRED_VALUES = 2**15


@dataclass(frozen=True, eq=False)
class RaterStatistics:
    """Mergeable products of two judgments of an object, of `n` attributes with all `d`.

    Attributes
    ----------
    different : CoMoments
        Of d columns: of two attributes the means over objects of products by different raters; on
        the diagonal those of the objects' averages.
    same : CoMoments
        Of products by one rater, over the objects that have any; on the diagonal as `different`.
    counts : ndarray of shape (3,), int64
        See `COUNTS`.
    """

    different: CoMoments
    same: CoMoments
    counts: np.ndarray

    @classmethod
    def from_block(
        cls,
        judgments: Sequence[Ragged],
        raters: Sequence[Ragged],
        averages: np.ndarray,
        means: CoMoments,
        weight: np.ndarray | None = None,
    ) -> RaterStatistics:
        """Summarise one batch of objects.

        Parameters
        ----------
        judgments : sequence of Ragged, length d
        raters : sequence of Ragged, length d
            In the place of each judgment a whole number that tells its rater from the others of
            the object, negative where that is not known.
        averages : ndarray of shape (d, n)
            Of the judgments of each object, NaN where there are none.
        means : CoMoments
            Of the averages, and of columns after them; its rows are those that are summarised.
        weight : ndarray of shape (n,), optional
            Positive.

        Returns
        -------
        RaterStatistics
        """
        averaged = _first_columns(means, len(judgments))
        batch = _Batch(judgments, averages, averaged, weight)
        less = _Sums.zero(averaged)
        same = _Sums.zero(averaged)
        is_alike = _alike(raters)
        n_alone = batch.add_alike(np.where(is_alike, raters[0].counts(), 0), less, same)
        n_judgments = np.sum([ragged.counts() for ragged in judgments], axis=0)
        various = np.flatnonzero(~is_alike & (n_judgments > 0))
        n_second = 0
        for rows in _divided(various, int(n_judgments[various].max(initial=0))):
            judgments_of_rows = [ragged.take(rows) for ragged in judgments]
            raters_of_rows = [ragged.take(rows) for ragged in raters]
            spread, _, n_left_out = by_rater(judgments_of_rows, raters_of_rows, least=2)
            n_second += n_left_out
            n_by_first = np.count_nonzero(~np.isnan(spread[:1]), axis=(0, 1))
            n_alone += int(np.count_nonzero(n_by_first == n_judgments[rows]))
            width = 4 * max(len(spread), 1) * len(judgments)
            for part in _divided(np.arange(rows.size), width):
                batch.add_pairs(rows[part], spread[..., part], less, same)
        n_unknown = sum(np.count_nonzero(codes.content() < 0) for codes in raters)
        counts = np.array([n_unknown, n_second, n_alone], dtype=np.int64)
        return cls(less.taken_from(averaged), same.with_diagonal(averaged), counts)

    @classmethod
    def empty(cls, n_attributes: int, attributes: slice | None = None) -> RaterStatistics:
        """Summary of no objects: the identity of `merge`."""
        nothing = CoMoments.empty(n_attributes, attributes)
        return cls(nothing, nothing, np.zeros(len(COUNTS), dtype=np.int64))

    def merge(self, later: RaterStatistics) -> RaterStatistics:
        """Summary of the objects of both."""
        return RaterStatistics(
            self.different.merge(later.different),
            self.same.merge(later.same),
            self.counts + later.counts,
        )

    def scaled(self, factor: float) -> RaterStatistics:
        """Multiply every object's weight by `factor` > 0; counts stay."""
        return replace(self, different=self.different.scaled(factor), same=self.same.scaled(factor))

    def take(self, attributes: np.ndarray) -> RaterStatistics:
        """Summary of some attributes, in the order given."""
        different = self.different.take(attributes)
        return replace(self, different=different, same=self.same.take(attributes))

    @property
    def together(self) -> np.ndarray:
        """Whether one rater has judged both attributes of some object; bool of shape (n, d)."""
        return self.same.pair_counts() > 0

    @property
    def apart(self) -> np.ndarray:
        """Whether different raters have judged the two of some object; bool of shape (n, d)."""
        return self.different.pair_counts() > 0

    def noise_covariance(self, variance: np.ndarray) -> np.ndarray:
        """Return N̂, shape (n, d): what two judgments by one rater share beyond their attributes.

        It is 0 for pairs of attributes that no rater, or that only one and the same rater has
        judged of an object. The `variance` of single judgments, shape (n,), is its diagonal.
        """
        noise = self.same.covariance(pairwise=True) - self.different.covariance(pairwise=True)
        noise[~(self.together & self.apart)] = 0.0
        rows = np.arange(variance.size)
        noise[rows, self.same.start + rows] = variance
        return noise


def _first_columns(means: CoMoments, d: int) -> CoMoments:
    """Co-moments of the first columns alone, of the rows of the matrix that are held."""
    rows = slice(0, min(len(means.comoment), d - means.start))
    matrices = ("comoment", "pair_weight", "cross", "cross_columns")
    held = {name: getattr(means, name) for name in matrices}
    taken = {name: a[rows, :d].copy() for name, a in held.items() if a is not None}
    observed = None if means.observed is None else means.observed[:d]
    return replace(means, mean=means.mean[:d], observed=observed, **taken)


@dataclass(eq=False)
class _Sums:
    """Σ w x̃_a x̃_b over some objects, Σ w, Σ w x̃_a and Σ w x̃_b; each of shape (n, d)."""

    product: np.ndarray
    weight: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def zero(cls, like: CoMoments) -> _Sums:
        return cls(*np.zeros((4, *like.comoment.shape)))

    def add(self, sums: _Sums, product: np.ndarray | float = 0.0) -> None:
        self.product += sums.product + product
        self.weight += sums.weight
        self.left += sums.left
        self.right += sums.right

    def taken_from(self, averaged: CoMoments) -> CoMoments:
        """Return products of averages without these, which one rater's judgments add to them.

        The diagonal stays, and so do the bits where there is nothing to take away.
        """
        before = _as_sums(averaged)
        rows = np.arange(len(self.product))
        for matrix in (self.product, self.weight, self.left, self.right):
            matrix[rows, averaged.start + rows] = 0.0
        product = before.product - self.product
        if not (self.weight.any() or self.left.any() or self.right.any()):
            return replace(averaged, comoment=product)
        weight = before.weight - self.weight
        sums = _Sums(product, weight, before.left - self.left, before.right - self.right)
        return _as_comoments(averaged, sums)

    def with_diagonal(self, averaged: CoMoments) -> CoMoments:
        """Return these sums, with the diagonal of the averages."""
        before = _as_sums(averaged)
        rows = np.arange(len(self.product))
        diagonal = rows, averaged.start + rows
        for name in ("product", "weight", "left", "right"):
            getattr(self, name)[diagonal] = getattr(before, name)[diagonal]
        return _as_comoments(averaged, self)


def _as_sums(c: CoMoments) -> _Sums:
    if c.pair_weight is None or c.cross is None:
        nothing = np.zeros(c.comoment.shape)
        return _Sums(c.comoment, c.pair_counts(), nothing, nothing)
    right = c.cross.T if c.cross_columns is None else c.cross_columns
    return _Sums(c.comoment, c.pair_weight, c.cross, right)


def _as_comoments(like: CoMoments, sums: _Sums) -> CoMoments:
    moments = replace(like, comoment=sums.product, pair_weight=sums.weight, cross=sums.left)
    if len(sums.product) == like.n_columns:
        return moments
    return replace(moments, cross_columns=sums.right, observed=like.observed_weight)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Objects with the averages of their judgments, NaN where there are none."""

    judgments: Sequence[Ragged]
    averages: np.ndarray
    averaged: CoMoments
    weight: np.ndarray | None

    @cached_property
    def centred(self) -> np.ndarray:
        """Averages about their means, 0 where there are none."""
        return np.nan_to_num(self.averages - self.averaged.mean[:, None], nan=0.0)

    def weights(self, rows: np.ndarray) -> np.ndarray:
        """Return the weights of some objects."""
        return np.ones(rows.size) if self.weight is None else self.weight[rows]

    def of_averages(self, rows: np.ndarray) -> _Sums:
        """Sum the products of the averages of some objects that have them all."""
        if rows.size == self.averages.shape[1]:
            return _as_sums(self.averaged)
        centred = self.centred[:, rows]
        weight = self.weights(rows)
        weighted = centred * weight
        sums = weighted.sum(axis=1)
        held = self.averaged.rows
        shape = self.averaged.comoment.shape
        return _Sums(
            weighted[held] @ centred.T,
            np.full(shape, weight.sum()),
            np.broadcast_to(sums[held, np.newaxis], shape),
            np.broadcast_to(sums, shape),
        )

    def add_alike(self, n_raters: np.ndarray, less: _Sums, same: _Sums) -> int:
        """Add what raters share of objects that the same k have judged in all; k is 0 elsewhere.

        With W the products of deviations within an object, those by one rater are x̄x̄ᵀ + W/k, and
        pairs of different raters have W/(k(k − 1)) less than x̄x̄ᵀ. Returns how many objects one
        rater alone has judged in several attributes.
        """
        n_alone = 0
        for k in np.unique(n_raters[n_raters > 0]).tolist():
            rows = np.flatnonzero(n_raters == k)
            products = self.within(rows, k)
            of_averages = self.of_averages(rows)
            same.add(of_averages, products / k)
            if k > 1:
                less.product += products / (k * (k - 1))
                continue
            less.add(of_averages)
            if len(self.judgments) > 1:
                n_alone += rows.size
        return n_alone

    def within(self, rows: np.ndarray, k: int) -> np.ndarray:
        """Sum the products of deviations from the object's averages over k raters of some objects.

        The k − 1 contrasts √(j/(j + 1)) (x_{j+1} − mean of x_1 … x_j) have the same products
        (Helmert; Chan, Golub and LeVeque).
        """
        held = self.averaged.rows
        total = np.zeros(self.averaged.comoment.shape)
        if k == 1:
            return total
        for part in _divided(rows, k * len(self.judgments)):
            by_rater = np.stack(
                [_ascending(ragged, part).reshape(-1, k).T for ragged in self.judgments], axis=1
            )
            mean = by_rater[0]
            for j in range(1, k):
                contrast = by_rater[j] - mean
                if j + 1 < k:
                    mean += contrast / (j + 1)
                contrast *= np.sqrt(j / (j + 1))
                weighted = contrast if self.weight is None else contrast * self.weight[part]
                total += weighted[held] @ contrast.T
        return total

    def add_pairs(self, rows: np.ndarray, spread: np.ndarray, less: _Sums, same: _Sums) -> None:
        """Add what raters share of some objects.

        `spread` has the judgments by rater, attribute and object, NaN where there is none; raters
        of one attribute alone may be missing. Every object has a product of matrices (attributes,
        raters), of so few objects at a time that the products stay in a core's cache.
        """
        judgments = np.ascontiguousarray(spread.T)
        is_judged = ~np.isnan(judgments)
        judged = is_judged.astype(np.float64)
        averaged = self.averaged
        away = judgments - averaged.mean[:, np.newaxis]
        values = np.nan_to_num(away, nan=0.0)
        averages = self.centred[:, rows].T
        means = averages[..., np.newaxis] * judged
        counts = [ragged.counts()[rows] for ragged in self.judgments]
        by_object = np.array(counts, dtype=np.float64).T
        weights = self.weights(rows)
        weight = weights[:, np.newaxis, np.newaxis]
        objects = _Objects(judged, values, means, by_object, averaged.rows)
        n_pairs = averaged.comoment.size
        n_objects = max(1, _PAIRED_VALUES // n_pairs)
        for start in range(0, rows.size, n_objects):
            part = slice(start, start + n_objects)
            objects.part(part).add_to(less, same, weight[part])


@dataclass(frozen=True, eq=False)
class _Objects:
    """Some objects by attribute and rater, (objects, attributes, raters), and counts (objects, d).

    `judged` is 1 where a rater has judged, `values` judgments x̃ and `means` averages of the object
    about the mean of the attribute; 0 elsewhere. The rows `held` of products are summed.
    """

    judged: np.ndarray
    values: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    held: slice

    def part(self, rows: slice) -> _Objects:
        """Return some of the objects."""
        return _Objects(
            self.judged[rows], self.values[rows], self.means[rows], self.counts[rows], self.held
        )

    def add_to(self, less: _Sums, same: _Sums, weight: np.ndarray) -> None:
        """Add Σ_r x̃_a x̃_b / n_ab by one rater to `same`, and to `less` what averages have more.

        That is Σ_r (x̃_a x̃_b − x̄_a x̄_b) / (k_a k_b − n_ab), or all where one rater judged both.
        """
        counts = self.counts[..., np.newaxis]
        n_both = self.products(self.judged, self.judged)
        n_pairs = self.products(counts, counts)
        n_apart = n_pairs - n_both
        product = self.products(self.values, self.values)
        has_both = np.minimum(n_both, 1.0)
        of_one = weight / np.maximum(n_both, 1.0)
        same.weight += np.sum(has_both * weight, axis=0)
        self.add(same, of_one, product, self.values)
        if np.any(counts == 1):
            alone = np.where(n_apart == 0, n_both, 0.0)
            alone *= weight
            less.weight += np.sum(alone, axis=0)
            self.add(less, alone, product, self.values)
        # Where there are no pairs of different raters, what they share about means is 0.
        product -= self.products(self.means, self.means)
        of_others = weight / np.maximum(n_apart, 1.0)
        away = self.values - self.means
        self.add(less, of_others, product, away)

    def products(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return Σ_r left_a right_b of each object."""
        return left[:, self.held] @ right.transpose(0, 2, 1)

    def add(self, sums: _Sums, share: np.ndarray, product: np.ndarray, values: np.ndarray) -> None:
        """Add a share of the products, and of the values of the raters in common."""
        sums.product += np.einsum("oab,oab->ab", share, product)
        sums.left += np.einsum("oab,oab->ab", share, self.products(values, self.judged))
        sums.right += np.einsum("oab,oab->ab", share, self.products(self.judged, values))


def _divided(rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Divide objects of which each takes so many values."""
    return np.array_split(rows, -(-rows.size * width // _SPREAD_VALUES)) if rows.size else []


def _ascending(ragged: Ragged, rows: np.ndarray) -> np.ndarray:
    """Return the values of ascending rows; nothing is copied of a run of them."""
    run = rows[-1] - rows[0] + 1 == rows.size
    return (ragged.rows(rows[0], rows[-1] + 1) if run else ragged.take(rows)).content()


def _alike(raters: Sequence[Ragged]) -> np.ndarray:
    """Mark objects all of whose attributes have the same known raters, each once, in one order."""
    first = raters[0]
    counts = first.counts()
    is_alike = np.zeros(counts.size, dtype=bool)
    for k in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == k)
        codes = np.sort(_ascending(first, rows).reshape(-1, k), axis=1)
        is_known = codes[:, 0] >= 0
        is_once = (np.diff(codes, axis=1) > 0).all(axis=1)
        is_alike[rows] = is_known & is_once
    for codes_of_attribute in raters[1:]:
        if codes_of_attribute is first:
            continue
        is_alike &= codes_of_attribute.counts() == counts
        rows = np.repeat(np.flatnonzero(is_alike), counts[is_alike])
        differs = codes_of_attribute.take(is_alike).values != first.take(is_alike).values
        is_alike[rows[differs]] = False
    return is_alike


def by_rater(
    judgments: Sequence[Ragged], raters: Sequence[Ragged], least: int = 1
) -> tuple[np.ndarray, np.ndarray, int]:
    """Spread the judgments of n objects by rater.

    Parameters
    ----------
    judgments, raters : sequence of Ragged, length d
        As :meth:`RaterStatistics.from_block` takes them.
    least : int
        Raters who have judged fewer attributes of an object are left out.

    Returns
    -------
    spread : ndarray of shape (n_raters, d, n)
        NaN where a rater has not judged; the raters of an object in the order of their first
        judgments.
    codes : ndarray of int64, shape (n_raters, n)
        What stands for them in `raters`; negative where that is not known, or there is none.
    n_second : int
        A rater's second judgments of an attribute of an object, which are not in it.
    """
    n_attributes = len(judgments)
    n_objects = judgments[0].n_rows
    objects, attributes, places = _where(judgments)
    codes = _joined(raters)
    values = _joined(judgments)
    numbers = np.arange(codes.size)
    codes = np.where(codes < 0, -1 - numbers, codes)  # each a rater of its own
    order = np.lexsort((codes, objects))  # attributes ascend as they are
    is_new = _changes(objects[order]) | _changes(codes[order])
    is_second = ~is_new & ~_changes(attributes[order])
    order = order[~is_second]
    is_first = is_new[~is_second]
    # The judgments of one object by one rater are a group.
    group = np.cumsum(is_first) - 1
    sizes = np.bincount(group, minlength=0)
    earliest = np.zeros(0, dtype=np.int64)
    if group.size:
        when = places * n_attributes + attributes
        starts = np.flatnonzero(is_first)
        earliest = np.minimum.reduceat(when[order], starts)
    owner = objects[order[is_first]]
    slot = _slots(owner, earliest, sizes >= least)[group]
    has_slot = slot >= 0
    kept = order[has_slot]
    slot = slot[has_slot]
    n_slots = int(slot.max(initial=-1)) + 1
    spread = np.full((n_slots, n_attributes, n_objects), np.nan)
    spread[slot, attributes[kept], objects[kept]] = values[kept]
    raters_of = np.full((n_slots, n_objects), -1, dtype=np.int64)
    raters_of[slot, objects[kept]] = codes[kept]
    return spread, raters_of, int(np.count_nonzero(is_second))


def _joined(lists: Sequence[Ragged]) -> np.ndarray:
    """Return the values of all lists, attribute by attribute."""
    return np.concatenate([ragged.content() for ragged in lists])


def _where(judgments: Sequence[Ragged]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return object, attribute and place in its list of every judgment, attribute by attribute."""
    objects = []
    places = []
    for ragged in judgments:
        counts = ragged.counts()
        starts = np.repeat(ragged.offsets[:-1] - ragged.offsets[0], counts)
        objects.append(np.repeat(np.arange(ragged.n_rows), counts))
        places.append(np.arange(starts.size) - starts)
    attributes = np.repeat(np.arange(len(judgments)), [len(numbers) for numbers in places])
    return np.concatenate(objects), attributes, np.concatenate(places)


def _slots(owner: np.ndarray, earliest: np.ndarray, is_wide: np.ndarray) -> np.ndarray:
    """Return numbers of the wide groups of each object (owner), in order of judgment; else −1."""
    ranked = np.lexsort((earliest, owner, ~is_wide))[: np.count_nonzero(is_wide)]
    begins = np.flatnonzero(_changes(owner[ranked]))
    lengths = np.diff(begins, append=ranked.size)
    slots = np.full(owner.size, -1)
    slots[ranked] = np.arange(ranked.size) - np.repeat(begins, lengths)
    return slots


def _changes(values: np.ndarray) -> np.ndarray:
    """Mark the positions whose value is not that of the position before; the first one too."""
    return np.diff(values, prepend=values[:1] - 1) != 0
