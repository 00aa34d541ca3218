"""What group sequencing reads beside co-moments: slabs of them, accuracy and NDCG of prefixes.

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.dataset import Partition
from distfms.data.folds import hash_keys
from distfms.errors import DataError
from distfms.methods.contract import PartialReader
from distfms.methods.passes import Sums
from distfms.methods.rows import RowCounts, RowSource
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments


@dataclass(frozen=True)
class ComomentSlabReader(PartialReader):
    """Reads ``slab``: some rows of the co-moments of the training rows.

    Attributes
    ----------
    source : RowSource
        Without folds.
    start, stop : int
        Columns of the slab, of all features and targets.
    totals : bool
        Whether to read ``counts`` (`RowCounts` of all features) and ``targets`` (`CoMoments`) as
        well; only then separate held-out rows are read.
    """

    source: RowSource
    start: int
    stop: int
    totals: bool

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        totals = {"counts": RowCounts, "targets": CoMoments} if self.totals else {}
        return {"slab": CoMoments, **totals}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise its training rows."""
        source, own = self.source, slice(self.start, self.stop)
        nothing = CoMoments.empty(source.plan.n_columns, own)
        if source.held_out and not self.totals:
            return Bundle({"slab": Folded((nothing, nothing))})
        block = source.read(partition)
        # The block last: its co-moments use the values as scratch.
        members: dict[str, Folded[Any]] = self._totals(block) if self.totals else {}
        train = nothing
        if not source.held_out:
            rows = block.part_slices[0]
            weight = None if block.weight is None else block.weight[rows]
            sums = None if block.part_sums is None else block.part_sums[0]
            values = block.values[:, rows]
            train = CoMoments.from_block(values, weight, rows=own, overwrite=True, sums=sums)
        return Bundle({"slab": Folded((train, nothing)), **members})

    def _totals(self, block: RowBatch) -> dict[str, Folded[Any]]:
        n_features, n_targets = block.n_features, len(block.target)
        has_gaps = self.source.section.missing == "mean"

        def targets(part: int) -> CoMoments:
            rows = block.part_slices[part]
            weight = None if block.weight is None else block.weight[rows]
            return CoMoments.from_block(block.target[:, rows], weight)

        return {
            "counts": self.source.folded(
                lambda part: RowCounts.from_block(block, part, count_missing=has_gaps),
                RowCounts.empty(n_features, n_targets),
            ),
            "targets": self.source.folded(targets, CoMoments.empty(n_targets)),
        }

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        columns = [self.start, self.stop]
        kind = {"kind": "co-moment slab", "slab": columns, "totals": self.totals}
        return {**self.source.key(), **kind}


@dataclass(frozen=True)
class NarrowedSource(RowSource):
    """Rows of some columns, without those that lack a value of any column.

    Attributes
    ----------
    everything : ColumnPlan
        All columns; those of `plan` among them.
    """

    everything: ColumnPlan

    def read(self, partition: Partition) -> RowBatch:
        """Read a partition; what is left out depends on all columns."""
        block = RowSource(
            self.reader, self.section, self.seed, self.held_out, self.everything
        ).read(partition)
        by_name = {column.name: column for column in self.everything.columns}
        kept = [by_name[column.name] for column in self.plan.columns]
        rows = [row for column in kept for row in range(column.start, column.stop)]
        return block.restricted(rows, self.plan.n_features)

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        read = [[column.name, column.levels] for column in self.everything.columns]
        return {**super().key(), "read": read}


# --- scores of held-out rows ---------------------------------------------------------------------

CUTOFF = 5
"""Positions of a ranking that count."""

_MAX_RELEVANCE = 30


def ndcg(scores: np.ndarray, relevance: np.ndarray, cutoff: int = CUTOFF) -> np.ndarray | None:
    """Normalised discounted cumulative gain of one query."""
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
    n_queries : int
        How many these are.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys : ndarray of uint64, shape (n,)
        Of the rows of the first and the last query.
    relevance : ndarray of shape (n,)
    scores : ndarray of shape (n, M)
    """

    total: np.ndarray
    n_queries: int
    closed: np.ndarray
    keys: np.ndarray
    relevance: np.ndarray
    scores: np.ndarray

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
        if len(keys) and (relevance.min() < 0 or relevance.max() > _MAX_RELEVANCE):
            raise DataError(
                f"NDCG is wanted because `data.query` is set, and needs a target from 0 (not "
                f"relevant) to {_MAX_RELEVANCE}; found {relevance.min():g} to "
                f"{relevance.max():g}. Name the column as `id` if rows are only to be kept "
                "together in folds."
            )
        total, closed = np.zeros(scores.shape[1]), np.zeros(0, dtype=np.uint64)
        return cls(total, 0, closed, keys, relevance, scores)._settled()

    @property
    def mean(self) -> np.ndarray:
        """Mean NDCG over the queries with a relevant document, shape (M,); NaN for none.

        The queries that are still open count as complete.
        """
        total, n_queries = self._with(self._runs())
        return total / n_queries if n_queries else np.full(len(total), np.nan)

    def merge(self, other: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `other` after those of this value.

        Raises
        ------
        DataError
            If the rows of a query are not together.
        """
        rows = ("closed", "keys", "relevance", "scores")
        joined = {k: np.concatenate((getattr(self, k), getattr(other, k))) for k in rows}
        total, n_queries = self.total + other.total, self.n_queries + other.n_queries
        return RankingScores(total, n_queries, **joined)._settled()

    def _settled(self) -> RankingScores:
        """Take the queries between the first and the last for complete."""
        runs = self._runs()
        begun = np.sort(np.concatenate((self.closed, self.keys[[run.start for run in runs]])))
        if (begun[1:] == begun[:-1]).any():
            raise DataError(
                "The rows of a query do not follow one another in the held-out data, so its "
                "ranking cannot be judged in one pass. Sort the data by the `query` column, or "
                "name that column as `id` to do without NDCG."
            )
        inner = runs[1:-1]
        total, n_queries = self._with(inner)
        closed = np.concatenate((self.closed, self.keys[[run.start for run in inner]]))
        open_ = np.ones(len(self.keys), dtype=bool)
        for run in inner:
            open_[run] = False
        rows = (self.keys[open_], self.relevance[open_], self.scores[open_])
        return RankingScores(total, n_queries, np.sort(closed), *rows)

    def _runs(self) -> list[slice]:
        """Rows of each query."""
        if not len(self.keys):
            return []
        starts = np.flatnonzero(self.keys[1:] != self.keys[:-1]) + 1
        return [slice(*pair) for pair in pairwise([0, *starts.tolist(), len(self.keys)])]

    def _with(self, runs: Sequence[slice]) -> tuple[np.ndarray, int]:
        """Sum and number of queries with those of some runs."""
        values = [ndcg(self.scores[run], self.relevance[run]) for run in runs]
        known = [value for value in values if value is not None]
        return sum(known, start=self.total.copy()), self.n_queries + len(known)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {member.name: np.asarray(getattr(self, member.name)) for member in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RankingScores:
        """Inverse of `to_arrays`."""
        content: dict[str, Any] = {**arrays, "n_queries": int(arrays["n_queries"])}
        return cls(**content)


_CHUNK_VALUES = 1 << 20


@dataclass(frozen=True, eq=False)
class Scorers:
    """Linear models that are to be judged, M of them.

    Attributes
    ----------
    coefficients : ndarray of shape (M, D, P)
    intercept : ndarray of shape (M, P)
    fill : ndarray of shape (D,)
        What a missing value is taken for.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Scores of rows."""
        n_models, n_features, n_targets = self.coefficients.shape
        flat = self.coefficients.transpose(1, 0, 2).reshape(n_features, -1)
        filled = np.where(np.isnan(features), self.fill[:, np.newaxis], features)
        scores = filled.T @ flat
        return scores.reshape(-1, n_models, n_targets) + self.intercept

    def digest(self) -> str:
        """Hexadecimal digest of the models."""
        content = hashlib.sha256()
        for array in (self.coefficients, self.intercept, self.fill):
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, eq=False)
class ScoreReader(PartialReader):
    """Reads ``accuracy`` and ``ranking`` of the held-out rows, whichever are wanted.

    Attributes
    ----------
    source : RowSource
    scorers : Scorers
    threshold : float or None
        Between the two values of binary targets; None for no accuracy.
    ranks : bool
        Whether rows have a query to be ranked in.
    """

    source: RowSource
    scorers: Scorers
    threshold: float | None
    ranks: bool

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        accuracy = {} if self.threshold is None else {"accuracy": Sums}
        return {**accuracy, "ranking": RankingScores} if self.ranks else accuracy

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge its held-out rows."""
        batch = self.source.read(partition)
        rows = batch.part_slices[0 if self.source.held_out else -1]
        n_models, n_features, n_targets = self.scorers.coefficients.shape
        keys, nothing = np.zeros(0, dtype=np.uint64), np.zeros((0, n_models))
        none = {
            "accuracy": Sums({}),
            "ranking": RankingScores.from_rows(keys, np.zeros(0), nothing),
        }
        found: dict[str, Any] = {name: none[name] for name in self.part_types}
        step = max(1, _CHUNK_VALUES // max(n_models * n_targets, n_features))
        for start in range(rows.start, rows.stop, step):
            chunk = slice(start, min(start + step, rows.stop))
            scores = self.scorers(batch.features[:, chunk])
            for name in found:
                judge = self._accuracy if name == "accuracy" else self._ranking
                found[name] = found[name].merge(judge(batch, chunk, scores))
        before = self.source.n_parts - 1
        parts = {name: (none[name],) * before + (own,) for name, own in found.items()}
        return Bundle({name: Folded(own) for name, own in parts.items()})

    def _accuracy(self, batch: RowBatch, rows: slice, scores: np.ndarray) -> Sums:
        """Weight of the rows, and of those that each model classifies correctly, (M, P)."""
        threshold = 0.5 if self.threshold is None else self.threshold
        target = batch.target[:, rows].T[:, np.newaxis]
        right = (scores > threshold) == (target > threshold)
        weight = np.ones(len(scores)) if batch.weight is None else batch.weight[rows]
        correct = np.tensordot(weight, right, axes=(0, 0))
        return Sums({"weight": np.array(weight.sum()), "correct": correct})

    def _ranking(self, batch: RowBatch, rows: slice, scores: np.ndarray) -> RankingScores:
        assert batch.rows.query is not None
        relevance = batch.target[0, rows].copy()  # the batch's memory is used again
        keys = hash_keys(batch.rows.query[rows])
        return RankingScores.from_rows(keys, relevance, scores[:, :, 0])

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {
            **self.source.key(),
            "kind": "scores of prefixes",
            "query": self.source.plan.roles.query,
            "models": self.scorers.digest(),
            "threshold": self.threshold,
            "ranks": self.ranks,
        }


def share_correct(sums: Sums) -> np.ndarray:
    """Share of rows classified correctly, mean over the targets, shape (M,); NaN for none."""
    return np.asarray(sums["correct"].mean(axis=1) / (float(sums["weight"]) or np.nan))
