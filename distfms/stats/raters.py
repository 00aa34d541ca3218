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
        less, same = (_Sums.zero(averaged) for _ in range(2))
        alike, n_judgments = _alike(raters), np.sum([each.counts() for each in judgments], axis=0)
        n_alone = n_second = 0
        number = np.where(alike, raters[0].counts(), 0)
        for k in np.unique(number[alike]).tolist():
            rows = np.flatnonzero(number == k)
            products, of_averages = batch.within(rows, k), batch.of_averages(rows)
            same.add(of_averages, products / k)
            if k > 1:
                less.product += products / (k * (k - 1))
            else:
                less.add(of_averages)
                n_alone += rows.size if len(judgments) > 1 else 0
        rest = np.flatnonzero(~alike & (n_judgments > 0))
        for rows in _divided(rest, int(n_judgments[rest].max(initial=0))):
            own, codes = ([each.take(rows) for each in held] for held in (judgments, raters))
            spread, _, n = by_rater(own, codes, least=2)
            n_second += n
            by_first = np.count_nonzero(~np.isnan(spread[:1]), axis=(0, 1))
            n_alone += int(np.count_nonzero(by_first == n_judgments[rows]))
            width = 4 * max(len(spread), 1) * len(judgments)
            for some in _divided(np.arange(rows.size), width):
                batch.add_pairs(rows[some], spread[..., some], less, same)
        unknown = {id(each): each for each in raters}  # attributes often share their codes
        known = {key: int(np.count_nonzero(e.content() < 0)) for key, e in unknown.items()}
        n_unknown = sum(known[id(each)] for each in raters)
        counts = np.array([n_unknown, n_second, n_alone], dtype=np.int64)
        return cls(less.taken_from(averaged), same.with_diagonal(averaged), counts)

    @classmethod
    def empty(cls, n_attributes: int, attributes: slice | None = None) -> RaterStatistics:
        """Summary of no objects: the identity of `merge`."""
        nothing = CoMoments.empty(n_attributes, attributes)
        return cls(nothing, nothing, np.zeros(len(COUNTS), dtype=np.int64))

    def merge(self, other: RaterStatistics) -> RaterStatistics:
        """Summary of the objects of both."""
        return RaterStatistics(
            self.different.merge(other.different),
            self.same.merge(other.same),
            self.counts + other.counts,
        )

    def scaled(self, factor: float) -> RaterStatistics:
        """Multiply every object's weight by `factor` > 0; counts stay."""
        return replace(self, different=self.different.scaled(factor), same=self.same.scaled(factor))

    def take(self, attributes: np.ndarray) -> RaterStatistics:
        """Summary of some attributes, in the order given."""
        different, same = self.different.take(attributes), self.same.take(attributes)
        return replace(self, different=different, same=same)

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
        own = np.arange(variance.size)
        noise[own, self.same.start + own] = variance
        return noise


def _first_columns(means: CoMoments, d: int) -> CoMoments:
    """Co-moments of the first columns alone, of the rows of the matrix that are held."""
    rows = slice(0, min(len(means.comoment), d - means.start))
    matrices = ("comoment", "pair_weight", "cross", "cross_columns")
    held = {name: getattr(means, name) for name in matrices}
    own = {name: a[rows, :d].copy() for name, a in held.items() if a is not None}
    observed = None if means.observed is None else means.observed[:d]
    return replace(means, mean=means.mean[:d], observed=observed, **own)


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

    def add(self, other: _Sums, product: np.ndarray | float = 0.0) -> None:
        self.product += other.product + product
        self.weight += other.weight
        self.left += other.left
        self.right += other.right

    def taken_from(self, averaged: CoMoments) -> CoMoments:
        """Return products of averages without these, which one rater's judgments add to them.

        The diagonal stays, and so do the bits where there is nothing to take away.
        """
        before = _as_sums(averaged)
        own = np.arange(len(self.product))
        for matrix in (self.product, self.weight, self.left, self.right):
            matrix[own, averaged.start + own] = 0.0
        product = before.product - self.product
        if not (self.weight.any() or self.left.any() or self.right.any()):
            return replace(averaged, comoment=product)
        left, right = before.left - self.left, before.right - self.right
        return _as_comoments(averaged, _Sums(product, before.weight - self.weight, left, right))

    def with_diagonal(self, averaged: CoMoments) -> CoMoments:
        """Return these sums, with the diagonal of the averages."""
        before, own = _as_sums(averaged), np.arange(len(self.product))
        at = own, averaged.start + own
        for name in ("product", "weight", "left", "right"):
            getattr(self, name)[at] = getattr(before, name)[at]
        return _as_comoments(averaged, self)


def _as_sums(c: CoMoments) -> _Sums:
    if c.pair_weight is None or c.cross is None:
        nothing = np.zeros(c.comoment.shape)
        return _Sums(c.comoment, c.pair_counts(), nothing, nothing)
    right = c.cross.T if c.cross_columns is None else c.cross_columns
    return _Sums(c.comoment, c.pair_weight, c.cross, right)


def _as_comoments(like: CoMoments, sums: _Sums) -> CoMoments:
    made = replace(like, comoment=sums.product, pair_weight=sums.weight, cross=sums.left)
    if len(sums.product) == like.n_columns:
        return made
    return replace(made, cross_columns=sums.right, observed=like.observed_weight)


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
        centred, weight, shape = (
            self.centred[:, rows],
            self.weights(rows),
            self.averaged.comoment.shape,
        )
        weighted = centred * weight
        sums, own = weighted.sum(axis=1), self.averaged.rows
        return _Sums(
            weighted[own] @ centred.T,
            np.full(shape, weight.sum()),
            np.broadcast_to(sums[own, None], shape),
            np.broadcast_to(sums, shape),
        )

    def within(self, rows: np.ndarray, k: int) -> np.ndarray:
        """Sum the products of deviations from the object's averages over k raters of some objects.

        The k − 1 contrasts of a judgment with the mean of those before it have the same products.
        """
        own, total = self.averaged.rows, np.zeros(self.averaged.comoment.shape)
        for some in _divided(rows, k * len(self.judgments)) if k > 1 else []:
            held = [_ascending(ragged, some).reshape(-1, k).T for ragged in self.judgments]
            mean, *others = np.stack(held, axis=1)
            for j, values in enumerate(others, start=1):
                contrast = values - mean
                if j + 1 < k:
                    mean += contrast / (j + 1)
                contrast *= np.sqrt(j / (j + 1))
                weighted = contrast if self.weight is None else contrast * self.weight[some]
                total += weighted[own] @ contrast.T
        return total

    def add_pairs(self, rows: np.ndarray, spread: np.ndarray, less: _Sums, same: _Sums) -> None:
        """Add what raters share of some objects.

        `spread` has the judgments by rater, attribute and object, NaN where there is none; raters
        of one attribute alone may be missing. Every object has a product of matrices (attributes,
        raters), of so few objects at a time that the products stay in a core's cache.
        """
        d, own = len(self.judgments), self.averaged.rows
        judgments = np.ascontiguousarray(spread.T)
        judged = (~np.isnan(judgments)).astype(np.float64)
        values = np.nan_to_num(judgments - self.averaged.mean[:, None], nan=0.0)
        means = self.centred[:, rows].T[..., None] * judged
        counts = np.array([ragged.counts()[rows] for ragged in self.judgments]).T
        weight = self.weights(rows)[:, None, None]
        singles = bool((counts == 1).any())
        n_objects = max(1, _PAIRED_VALUES // (len(range(d)[own]) * d))
        for start in range(0, rows.size, n_objects):
            some = slice(start, start + n_objects)
            held, w = _Products(judged[some], own), weight[some]
            both, product = (held.of(x[some], x[some]) for x in (judged, values))
            apart = counts[some, own, None] * counts[some, None, :] - both
            same.weight += (np.minimum(both, 1.0) * w).sum(axis=0)
            held.add(same, w / np.maximum(both, 1.0), product, values[some])
            if singles:
                alone = (apart == 0) * both * w
                less.weight += alone.sum(axis=0)
                held.add(less, alone, product, values[some])
            # Where there are no pairs of different raters, what they share about means is 0.
            product -= held.of(means[some], means[some])
            held.add(less, w / np.maximum(apart, 1.0), product, values[some] - means[some])


@dataclass(frozen=True, eq=False)
class _Products:
    """Products of arrays (objects, attributes, raters), summed over raters, of the own rows."""

    judged: np.ndarray
    own: slice

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left[:, self.own] @ right.transpose(0, 2, 1)

    def add(self, sums: _Sums, share: np.ndarray, product: np.ndarray, values: np.ndarray) -> None:
        """Add a share of the products, and of the values of the raters in common."""
        sums.product += np.einsum("oab,oab->ab", share, product)
        sums.left += np.einsum("oab,oab->ab", share, self.of(values, self.judged))
        sums.right += np.einsum("oab,oab->ab", share, self.of(self.judged, values))


def _divided(rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Divide objects of which each takes so many values."""
    return np.array_split(rows, -(-rows.size * width // _SPREAD_VALUES)) if rows.size else []


def _ascending(ragged: Ragged, rows: np.ndarray) -> np.ndarray:
    """Return the values of ascending rows; nothing is copied of a run of them."""
    run = rows[-1] - rows[0] + 1 == rows.size
    return (ragged.rows(rows[0], rows[-1] + 1) if run else ragged.take(rows)).content()


def _alike(raters: Sequence[Ragged]) -> np.ndarray:
    """Mark objects all of whose attributes have the same known raters, each once, in one order."""
    first, counts = raters[0], raters[0].counts()
    alike = np.zeros(counts.size, dtype=bool)
    for k in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == k)
        ascending = np.sort(_ascending(first, rows).reshape(-1, k), axis=1)
        alike[rows] = (ascending[:, 0] >= 0) & (np.diff(ascending, axis=1) > 0).all(axis=1)
    for other in raters[1:]:
        if other is not first:
            alike &= other.counts() == counts
            rows = np.repeat(np.flatnonzero(alike), counts[alike])
            alike[rows[other.take(alike).values != first.take(alike).values]] = False
    return alike


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
    who : ndarray of int64, shape (n_raters, n)
        What stands for them in `raters`; negative where that is not known, or there is none.
    n_second : int
        A rater's second judgments of an attribute of an object, which are not in it.
    """
    d, n = len(judgments), judgments[0].n_rows
    counts = np.array([ragged.counts() for ragged in judgments])
    objects = np.concatenate([np.repeat(np.arange(n), own) for own in counts])
    attributes = np.repeat(np.arange(d), counts.sum(axis=1))
    starts = [
        np.repeat(ragged.offsets[:-1] - ragged.offsets[0], own)
        for ragged, own in zip(judgments, counts, strict=True)
    ]
    places = np.concatenate([np.arange(start.size) - start for start in starts])
    codes = np.concatenate([ragged.content() for ragged in raters])
    codes = np.where(codes < 0, -1 - np.arange(codes.size), codes)  # each a rater of its own
    order = np.lexsort((codes, objects))  # attributes ascend as they are
    same_rater = ~(_changes(objects[order]) | _changes(codes[order]))
    second = same_rater & ~_changes(attributes[order])
    order, first = order[~second], ~same_rater[~second]
    group = np.cumsum(first) - 1
    wide = np.bincount(group) >= least if group.size else np.zeros(0, dtype=bool)
    owner = objects[order[first]]
    earliest = (
        np.minimum.reduceat((places * d + attributes)[order], np.flatnonzero(first))
        if group.size
        else owner
    )
    ranked = np.lexsort((earliest, owner, ~wide))[: np.count_nonzero(wide)]
    slot = np.full(owner.size, -1)
    begins = np.flatnonzero(_changes(owner[ranked]))
    lengths = np.diff(begins, append=ranked.size)
    slot[ranked] = np.arange(ranked.size) - np.repeat(begins, lengths)
    kept = order[wide[group]]
    spread = np.full((int(slot.max(initial=-1)) + 1, d, n), np.nan)
    who = np.full((len(spread), n), -1, dtype=np.int64)
    values = np.concatenate([ragged.content() for ragged in judgments])
    places = slot[group[wide[group]]]
    spread[places, attributes[kept], objects[kept]] = values[kept]
    who[places, objects[kept]] = codes[kept]
    return spread, who, int(np.count_nonzero(second))


def _changes(values: np.ndarray) -> np.ndarray:
    """Mark the positions whose value is not that of the position before; the first one too."""
    return np.diff(values, prepend=values[:1] - 1) != 0
