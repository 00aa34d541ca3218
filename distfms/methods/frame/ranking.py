"""The rows of queries: what to learn so that scores rank them, and how well scores do.

Gains of a query's rows are normalised by what the best order of these rows adds up to:
η(r) = G(r)/‖G(r)‖_D with G(r) = 2^r − 1 and ‖g‖_D = max_π Σ g_i/log(1 + π(i)).

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
Ravikumar, Tewari, Yang, "On NDCG Consistency of Listwise Ranking Methods", AISTATS 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from distfms.errors import DataError
from distfms.stats.base import ratio

CUTOFF = 5
"""Positions of a ranking that count by default."""

WHOLE = 2**62
"""As many positions as there are."""

MAX_RELEVANCE = 30


def require_relevance(relevance: np.ndarray) -> None:
    """Refuse what is no relevance; a DataError says what was found."""
    if len(relevance) and (relevance.min() < 0 or relevance.max() > MAX_RELEVANCE):
        raise DataError(
            "NDCG, which `data.query` asks for, needs a target from 0 (not relevant) to "
            f"{MAX_RELEVANCE}; found {relevance.min():g} to {relevance.max():g}. To only keep rows "
            "together in folds, set the column as `id`."
        )


def ndcg(
    scores: np.ndarray, relevance: np.ndarray, cutoffs: Sequence[int] = (CUTOFF,)
) -> np.ndarray | None:
    """Normalised discounted cumulative gain of one query, tied rows sharing their positions.

    Parameters
    ----------
    scores : ndarray of shape (n, M)
    relevance : ndarray of shape (n,)
    cutoffs : sequence of int, length C

    Returns
    -------
    ndarray of shape (C, M), or None where no row is relevant
    """
    gain = np.exp2(relevance) - 1.0
    if not gain.max() > 0:
        return None
    n_rows = len(gain)
    places = np.arange(n_rows)
    is_counted = places < np.array(cutoffs)[:, np.newaxis]
    weights = 1.0 / np.log2(2.0 + places)
    discount = np.where(is_counted, weights, 0.0)
    ideal = np.sort(gain)[::-1]
    best = discount @ ideal
    cumulated = np.zeros((len(cutoffs), n_rows + 1))
    np.cumsum(discount, axis=1, out=cumulated[:, 1:])
    by_model = scores.T
    order = np.argsort(-by_model, axis=1, kind="stable")
    models = np.arange(len(order))[:, np.newaxis]
    first, end = _tied_places(by_model[models, order])
    discounts = cumulated[:, end] - cumulated[:, first]
    n_tied = end - first
    share = np.empty_like(discounts)
    share[:, models, order] = discounts / n_tied
    total = np.einsum("n,cmn->cm", gain, share)
    return total / best[:, np.newaxis]


def _tied_places(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first place of the tie that each of ordered scores (M, n) is in, and its end.

    Many queries have few rows, for which `scipy.stats.rankdata` takes eight times as long.
    """
    is_lower = ordered[:, 1:] != ordered[:, :-1]
    n_rows = ordered.shape[1]
    places = np.arange(1, n_rows)
    first = np.zeros(ordered.shape, dtype=np.intp)
    first[:, 1:] = np.where(is_lower, places, 0)
    end = np.full(ordered.shape, n_rows)
    end[:, :-1] = np.where(is_lower, places, n_rows)
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    return np.maximum.accumulate(first, axis=1), end


@dataclass(frozen=True, eq=False)
class RankingScores:
    """NDCG of M models summed over queries; a statistic that merges in the order of the rows.

    A query's rows must follow one another. The first and the last query of a run of rows may go
    on in the next run, so their rows are kept until it is known that they are complete.

    Attributes
    ----------
    cutoffs : ndarray of int, shape (C,)
        Positions of a ranking that count.
    total : ndarray of shape (C, M)
        Σ NDCG over the complete queries that have a relevant row, `n_queries` of them.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys, relevance, scores : ndarray of shape (n,), (n,) and (n, M)
        Of the rows of the first and the last query.
    """

    cutoffs: np.ndarray
    total: np.ndarray
    n_queries: int
    closed: np.ndarray
    keys: np.ndarray
    relevance: np.ndarray
    scores: np.ndarray

    @classmethod
    def from_rows(
        cls,
        keys: np.ndarray,
        relevance: np.ndarray,
        scores: np.ndarray,
        cutoffs: Sequence[int] = (CUTOFF,),
    ) -> RankingScores:
        """Scores of rows in their order.

        Raises
        ------
        DataError
            If the rows of a query are not together, or a relevance is not in 0 … 30.
        """
        require_relevance(relevance)
        total = np.zeros((len(cutoffs), scores.shape[1]))
        closed = np.zeros(0, dtype=np.uint64)
        positions = np.array(cutoffs)
        return cls(positions, total, 0, closed, keys, relevance, scores)._settled()

    @property
    def mean(self) -> np.ndarray:
        """Mean NDCG over the queries with a relevant row, shape (C, M); NaN for none."""
        total, n_queries = self._with(self._runs())
        return total / n_queries if n_queries else np.full(total.shape, np.nan)

    def merge(self, later: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `later` after those of this value."""
        rows = ("closed", "keys", "relevance", "scores")
        joined = {k: np.concatenate((getattr(self, k), getattr(later, k))) for k in rows}
        total = self.total + later.total
        n_queries = self.n_queries + later.n_queries
        return RankingScores(self.cutoffs, total, n_queries, **joined)._settled()

    def _settled(self) -> RankingScores:
        """Take the queries between the first and the last for complete."""
        runs = self._runs()
        begun = np.sort(np.concatenate((self.closed, self.keys[[run.start for run in runs]])))
        if (begun[1:] == begun[:-1]).any():
            raise DataError(
                "The rows of a query are not adjacent in the data, so its ranking cannot be scored "
                "in one pass. Sort the data by the `query` column or, if you do not need NDCG, set "
                "that column as `id`."
            )
        inner = runs[1:-1]
        total, n_queries = self._with(inner)
        closed = np.concatenate((self.closed, self.keys[[run.start for run in inner]]))
        open_ = np.ones(len(self.keys), dtype=bool)
        for run in inner:
            open_[run] = False
        rows = (self.keys[open_], self.relevance[open_], self.scores[open_])
        return RankingScores(self.cutoffs, total, n_queries, np.sort(closed), *rows)

    def _runs(self) -> list[slice]:
        """Rows of each query."""
        if not len(self.keys):
            return []
        starts = np.flatnonzero(self.keys[1:] != self.keys[:-1]) + 1
        return [slice(*pair) for pair in pairwise([0, *starts.tolist(), len(self.keys)])]

    def _with(self, runs: Sequence[slice]) -> tuple[np.ndarray, int]:
        """Sum and number of queries with those of some runs."""
        cutoffs = self.cutoffs.tolist()
        values = [ndcg(self.scores[run], self.relevance[run], cutoffs) for run in runs]
        scored = [value for value in values if value is not None]
        return sum(scored, start=self.total.copy()), self.n_queries + len(scored)


# --- gains ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class QueryCounts:
    """How many rows of each query have which relevance; a mergeable statistic.

    Attributes
    ----------
    keys : ndarray of uint64, shape (Q,)
        Hashes of the queries, ascending.
    counts : ndarray of int64, shape (Q, R)
        Rows of relevance 0 … R − 1.
    """

    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def from_rows(cls, keys: np.ndarray, relevance: np.ndarray) -> QueryCounts:
        """Count rows; a DataError says that a relevance is no whole number from 0 to 30."""
        require_relevance(relevance)
        grades = relevance.astype(np.intp)
        if (grades != relevance).any():
            broken = relevance[grades != relevance][0]
            raise DataError(
                f"The target of a ranking must be a relevance (a whole number); found {broken:g}. "
                "Round it to a few grades, 0 for not relevant."
            )
        queries, index = np.unique(keys, return_inverse=True)
        n_grades = int(grades.max(initial=0)) + 1
        counts = np.bincount(index * n_grades + grades, minlength=len(queries) * n_grades)
        return cls(queries, counts.reshape(len(queries), n_grades))

    def merge(self, later: QueryCounts) -> QueryCounts:
        """Return the counts of the rows of both."""
        keys, index = np.unique(np.concatenate((self.keys, later.keys)), return_inverse=True)
        n_grades = max(self.counts.shape[1], later.counts.shape[1])
        counts = np.zeros((len(keys), n_grades), dtype=np.int64)
        places = np.split(index, [len(self.keys)])
        for part, queries in zip((self, later), places, strict=True):
            counts[queries, : part.counts.shape[1]] += part.counts
        return QueryCounts(keys, counts)

    def gains(self) -> NormalisedGains:
        """Return what normalises the gains of each query."""
        # From the most relevant rows down: how many rows come before, and what they add up to.
        n_better = np.cumsum(self.counts[:, ::-1], axis=1)
        discount = 1.0 / np.log(2.0 + np.arange(n_better.max(initial=0)))
        cumulated = np.concatenate(([0.0], np.cumsum(discount)))
        gains = np.exp2(np.arange(self.counts.shape[1])[::-1]) - 1.0
        return NormalisedGains(self.keys, np.diff(cumulated[n_better], axis=1, prepend=0.0) @ gains)


@dataclass(frozen=True, eq=False)
class NormalisedGains:
    """From relevances to η, 0 for queries without a relevant row.

    Attributes
    ----------
    keys : ndarray of uint64, shape (Q,)
        Hashes of the queries, ascending.
    norms : ndarray of shape (Q,)
        ‖G(r)‖_D of their rows.
    """

    keys: np.ndarray
    norms: np.ndarray

    def __call__(self, keys: np.ndarray, relevance: np.ndarray) -> np.ndarray:
        """Return η (n,) of rows of known queries."""
        norms = self.norms[np.searchsorted(self.keys, keys)]
        gains = np.exp2(relevance) - 1.0
        return ratio(gains, norms)
