"""Accuracy and NDCG of every prefix on held-out rows: what co-moments cannot tell.

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from distfms.errors import DataError

CUTOFF = 5
"""Positions of a ranking that count."""

_MAX_RELEVANCE = 30


@dataclass(frozen=True, eq=False)
class AccuracyCounts:
    """Correctly classified rows; a mergeable statistic.

    Attributes
    ----------
    weight : float
        Σ w of the rows.
    correct : ndarray of shape (M, P)
        Σ w of the rows that each of M models classifies correctly, for P binary targets.
    """

    weight: float
    correct: np.ndarray

    @classmethod
    def from_scores(
        cls,
        scores: np.ndarray,
        target: np.ndarray,
        threshold: float,
        weight: np.ndarray | None = None,
    ) -> AccuracyCounts:
        """Classify by a threshold.

        Parameters
        ----------
        scores : ndarray of shape (n, M, P)
        target : ndarray of shape (n, P)
            Two values, one on each side of the threshold.
        threshold : float
            A score above it means the greater of the two.
        weight : ndarray of shape (n,), optional
        """
        right = (scores > threshold) == (target > threshold)[:, np.newaxis, :]
        weight = np.ones(len(target)) if weight is None else weight
        return cls(float(weight.sum()), np.tensordot(weight, right, axes=(0, 0)))

    @classmethod
    def empty(cls, n_models: int, n_targets: int) -> AccuracyCounts:
        """Return the counts of no rows: the identity of `merge`."""
        return cls(0.0, np.zeros((n_models, n_targets)))

    @property
    def accuracy(self) -> np.ndarray:
        """Share of rows classified correctly, mean over the targets, shape (M,); NaN for none."""
        if not self.weight > 0:
            return np.full(len(self.correct), np.nan)
        return self.correct.mean(axis=1) / self.weight

    def merge(self, other: AccuracyCounts) -> AccuracyCounts:
        """Return the counts of the rows of both."""
        return AccuracyCounts(self.weight + other.weight, self.correct + other.correct)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {"weight": np.asarray(self.weight), "correct": self.correct}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> AccuracyCounts:
        """Inverse of `to_arrays`."""
        return cls(float(arrays["weight"]), arrays["correct"])


def ndcg(scores: np.ndarray, relevance: np.ndarray, cutoff: int = CUTOFF) -> np.ndarray | None:
    """Normalised discounted cumulative gain of one query.

    Parameters
    ----------
    scores : ndarray of shape (n, M)
        Of n documents, by M models.
    relevance : ndarray of shape (n,)
        Gain 2^relevance − 1.
    cutoff : int
        Positions that count; position r has the discount 1 / log₂(1 + r).

    Returns
    -------
    ndarray of shape (M,), or None
        None if no document is relevant, so that every order is as good. Documents of equal score
        share the discounts of their positions, so that the order of the rows plays no part.
    """
    gain = np.exp2(relevance) - 1.0
    discount = 1.0 / np.log2(2.0 + np.arange(min(cutoff, len(gain))))
    best = np.sort(gain)[::-1][: len(discount)] @ discount
    if not best > 0:
        return None
    cumulated = np.concatenate(([0.0], np.cumsum(discount)))
    cumulated = np.append(cumulated, np.full(len(gain) - len(discount), cumulated[-1]))
    from scipy.stats import rankdata

    first = rankdata(-scores, "min", axis=0).astype(np.intp)
    last = rankdata(-scores, "max", axis=0).astype(np.intp)
    share = (cumulated[last] - cumulated[first - 1]) / (last - first + 1)
    return gain @ share / best


@dataclass(frozen=True, eq=False)
class RankingScores:
    """NDCG summed over queries; a statistic that merges in the order of the rows.

    A query's rows must follow one another. The first and the last query of a run of rows may go
    on in the next run, so their rows are kept until it is known that they are complete.

    Attributes
    ----------
    total : ndarray of shape (M,)
        Σ NDCG over the complete queries that have a relevant document.
    n_queries, n_irrelevant : int
        Complete queries with and without a relevant document.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys : ndarray of uint64, shape (0,), (1,) or (2,)
        Of the first and the last query.
    sizes : ndarray of int64
        Rows of each of them.
    relevance : ndarray of shape (n,)
    scores : ndarray of shape (n, M)
        Of these rows.
    """

    total: np.ndarray
    n_queries: int
    n_irrelevant: int
    closed: np.ndarray
    keys: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    scores: np.ndarray

    @classmethod
    def empty(cls, n_models: int) -> RankingScores:
        """Scores of no rows: the identity of `merge`."""
        return cls(
            total=np.zeros(n_models),
            n_queries=0,
            n_irrelevant=0,
            closed=np.zeros(0, dtype=np.uint64),
            keys=np.zeros(0, dtype=np.uint64),
            sizes=np.zeros(0, dtype=np.int64),
            relevance=np.zeros(0),
            scores=np.zeros((0, n_models)),
        )

    @classmethod
    def from_rows(
        cls, keys: np.ndarray, relevance: np.ndarray, scores: np.ndarray
    ) -> RankingScores:
        """Scores of rows in their order.

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
            Equal for the rows of one query, and only for them.
        relevance : ndarray of shape (n,)
        scores : ndarray of shape (n, M)

        Raises
        ------
        DataError
            If the rows of a query are not together, or a relevance is not in 0 … 30.
        """
        if not len(keys):
            return cls.empty(scores.shape[1])
        if relevance.min() < 0 or relevance.max() > _MAX_RELEVANCE:
            raise DataError(
                f"NDCG is wanted because `data.query` is set, and needs a target from 0 (not "
                f"relevant) to {_MAX_RELEVANCE}; found {relevance.min():g} to "
                f"{relevance.max():g}. Name the column as `id` if rows are only to be kept "
                "together in folds."
            )
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        sizes = np.diff(np.append(starts, len(keys)))
        return _closing_inner(cls.empty(scores.shape[1]), keys[starts], sizes, relevance, scores)

    @property
    def mean(self) -> np.ndarray:
        """Mean NDCG over the queries with a relevant document, shape (M,); NaN for none.

        The queries that are still open count as complete.
        """
        total, n_queries = self.total.copy(), self.n_queries
        for relevance, scores in _runs(self.sizes, self.relevance, self.scores):
            value = ndcg(scores, relevance)
            if value is not None:
                total += value
                n_queries += 1
        return total / n_queries if n_queries else np.full(len(total), np.nan)

    def merge(self, other: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `other` after those of this value.

        Raises
        ------
        DataError
            If the rows of a query are not together.
        """
        if not len(self.keys) or not len(other.keys):
            return other if not len(self.keys) else self
        keys, sizes = list(self.keys), list(self.sizes)
        rest_keys, rest_sizes = list(other.keys), list(other.sizes)
        if keys[-1] == rest_keys[0]:
            sizes[-1] += rest_sizes.pop(0)
            rest_keys.pop(0)
        both = RankingScores(
            self.total + other.total,
            self.n_queries + other.n_queries,
            self.n_irrelevant + other.n_irrelevant,
            np.concatenate((self.closed, other.closed)),
            *(getattr(self, name)[:0] for name in ("keys", "sizes", "relevance", "scores")),
        )
        return _closing_inner(
            both,
            np.array(keys + rest_keys, dtype=np.uint64),
            np.array(sizes + rest_sizes, dtype=np.int64),
            np.concatenate((self.relevance, other.relevance)),
            np.concatenate((self.scores, other.scores)),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RankingScores:
        """Inverse of `to_arrays`."""
        counts = ("n_queries", "n_irrelevant")
        content: dict[str, Any] = {
            f.name: int(arrays[f.name]) if f.name in counts else arrays[f.name] for f in fields(cls)
        }
        return cls(**content)


def _closing_inner(
    base: RankingScores,
    keys: np.ndarray,
    sizes: np.ndarray,
    relevance: np.ndarray,
    scores: np.ndarray,
) -> RankingScores:
    """Add runs of rows to what is complete; all but the first and the last are complete now."""
    total, n_queries, n_irrelevant = base.total.copy(), base.n_queries, base.n_irrelevant
    for own_relevance, own_scores in _runs(sizes, relevance, scores)[1:-1]:
        value = ndcg(own_scores, own_relevance)
        if value is None:
            n_irrelevant += 1
        else:
            total += value
            n_queries += 1
    closed = np.sort(np.concatenate((base.closed, keys[1:-1])))
    _require_contiguous(closed, keys)
    ends = np.zeros(len(relevance), dtype=bool)
    ends[: sizes[0]] = True
    ends[len(ends) - sizes[-1] :] = True
    outer = [0] if len(keys) == 1 else [0, len(keys) - 1]
    return RankingScores(
        total,
        n_queries,
        n_irrelevant,
        closed,
        keys[outer],
        sizes[outer],
        relevance[ends],
        scores[ends],
    )


def _runs(
    sizes: Sequence[int] | np.ndarray, relevance: np.ndarray, scores: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of each query."""
    bounds = np.cumsum(sizes)[:-1]
    if not len(sizes):
        return []
    return list(zip(np.split(relevance, bounds), np.split(scores, bounds), strict=True))


def _require_contiguous(closed: np.ndarray, keys: np.ndarray) -> None:
    """Refuse a query that began again after it had ended."""
    everything = np.sort(np.concatenate((closed, keys[[0, -1]] if len(keys) > 1 else keys)))
    if (everything[1:] == everything[:-1]).any():
        raise DataError(
            "The rows of a query do not follow one another in the held-out data, so its ranking "
            "cannot be judged in one pass. Sort the data by the `query` column, or name that "
            "column as `id` to do without NDCG."
        )
