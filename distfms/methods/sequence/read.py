"""What group sequencing reads beside co-moments: rows to fit, and scores.

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from distfms.methods.rows import RowSource
from distfms.methods.sequence.glm import FAMILIES, GlmDesign, GlmRows
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle


@dataclass(frozen=True)
class NarrowedSource(RowSource):
    """Rows of some columns, without those that lack a value of any column of `everything`."""

    everything: ColumnPlan

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        own = [column.name for column in self.everything.columns]
        return self.plan.roles.with_row_columns(own)

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


# --- rows to fit ---------------------------------------------------------------------------------


def response_of(target: np.ndarray, family: str, classes: Sequence[float] | None) -> np.ndarray:
    """Return targets (P, n) as a family takes them: (P, n), or class numbers (n,)."""
    if classes is not None:
        target = np.searchsorted(np.array(classes), target[:1])
    return target[0] if family == "softmax" else target


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.passes.RowReader`.

    `left_out` is a fold whose rows are not read; `class_weights` what a row of each class weighs,
    beside its own weight.
    """

    source: RowSource
    design: GlmDesign
    classes: tuple[float, ...] | None
    left_out: int | None = None
    class_weights: tuple[float, ...] | None = None

    def read(self, partition: Partition) -> GlmRows | None:
        """Return the standardised training rows; None of held-out data."""
        if self.source.held_out:
            return None
        batch = self.source.read(partition)
        # Folds follow one another, and the held-out rows come last.
        *folds, test = batch.part_slices
        rows: Any = slice(0, test.start)
        if self.left_out is not None:
            rows = np.delete(np.arange(test.start), folds[self.left_out])
        response = response_of(batch.target[:, rows], self.design.family, self.classes)
        weight = None if batch.weight is None else batch.weight[rows]
        if self.class_weights is not None:
            own = np.array(self.class_weights)[response.astype(np.intp).ravel()]
            weight = own if weight is None else weight * own
        return self.design.rows(batch.features[:, rows], response, weight)

    def sums(self, rows: GlmRows | None, weights: np.ndarray) -> Sums:
        """Add up over rows, at weights (d + 1, P)."""
        return Sums({}) if rows is None else self.design.sums(rows, weights)


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
        Σ NDCG over the complete queries that have a relevant document, `n_queries` of them.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys, relevance, scores : ndarray of shape (n,), (n,) and (n, M)
        Of the rows of the first and the last query.
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
        """Mean NDCG over the queries with a relevant document, shape (M,); NaN for none."""
        total, n_queries = self._with(self._runs())
        return total / n_queries if n_queries else np.full(len(total), np.nan)

    def merge(self, other: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `other` after those of this value."""
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
class ScoreReader(PartialReader):
    """Reads ``scores`` (`Sums`) and ``ranking`` of linear models, M of them.

    Attributes
    ----------
    source : RowSource
    coefficients, intercept : ndarray of shape (M, D, P) and (M, P)
    fill : ndarray of shape (D,)
        What a missing value is taken for.
    family : str
    parts : collection of int
        Folds whose rows are judged, and −1 for the held-out rows.
    classes : tuple of float, or None
    threshold : float or None
        Between the two values of binary targets; None for no accuracy.
    ranks : bool
        Whether rows have a query to be ranked in.
    """

    source: RowSource
    coefficients: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray
    family: str
    parts: Collection[int]
    classes: tuple[float, ...] | None = None
    threshold: float | None = None
    ranks: bool = False

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"scores": Sums, "ranking": RankingScores} if self.ranks else {"scores": Sums}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge the rows of the parts that are wanted."""
        n_models, last = len(self.intercept), self.source.n_parts - 1
        keys, none = np.zeros(0, dtype=np.uint64), np.zeros((0, n_models))
        nothing = {"scores": Sums({}), "ranking": RankingScores.from_rows(keys, keys, none)}
        wanted = {last if part < 0 else part for part in self.parts}
        found = [dict(nothing) for _ in range(last + 1)]
        if not self.source.held_out:
            batch = self.source.read(partition)
            for part in wanted:
                found[part] = self._judged(batch, batch.part_slices[part], nothing)
        elif last in wanted:
            batch = self.source.read(partition)
            found[last] = self._judged(batch, batch.part_slices[0], nothing)
        names = self.part_types
        return Bundle({name: Folded(tuple(own[name] for own in found)) for name in names})

    def _judged(self, batch: RowBatch, rows: slice, nothing: Mapping[str, Any]) -> dict[str, Any]:
        n_models, n_features, n_targets = self.coefficients.shape
        flat = self.coefficients.transpose(1, 0, 2).reshape(n_features, -1)
        step = max(1, _CHUNK_VALUES // max(n_models * n_targets, n_features))
        found = dict(nothing)
        for start in range(rows.start, rows.stop, step):
            chunk = slice(start, min(start + step, rows.stop))
            features = batch.features[:, chunk]
            filled = np.where(np.isnan(features), self.fill[:, np.newaxis], features)
            scores = (filled.T @ flat).reshape(-1, n_models, n_targets) + self.intercept
            found["scores"] = found["scores"].merge(self._sums(batch, chunk, scores))
            if self.ranks:
                found["ranking"] = found["ranking"].merge(_ranking(batch, chunk, scores))
        return found

    def _sums(self, batch: RowBatch, rows: slice, scores: np.ndarray) -> Sums:
        """Add up over rows: their number and weight, and what each model is measured by, (M,)."""
        target, n = batch.target[:, rows], rows.stop - rows.start
        weight = np.ones(n) if batch.weight is None else batch.weight[rows]
        sums = {"n_rows": np.array(n), "weight": np.array(weight.sum())}
        if self.family == "gaussian":
            if self.threshold is not None:
                right = (scores > self.threshold) == (self.threshold < target.T)[:, np.newaxis]
                sums["correct"] = np.tensordot(weight, right, axes=(0, 0)).mean(axis=1)
            return Sums(sums)
        family = FAMILIES[self.family]
        response = response_of(target, self.family, self.classes)
        y = family.responses(response, scores.shape[2])
        columns: dict[str, list[float]] = {"loss": [], "squared": [], "correct": []}
        for eta in np.ascontiguousarray(scores.transpose(1, 2, 0)):
            columns["loss"].append(weight @ family.loss(eta, y))
            columns["squared"].append(weight @ np.square(family.mean(eta) - y).mean(axis=0))
            columns["correct"].append(weight @ family.correct(eta, y))
        return Sums(sums | {name: np.array(values) for name, values in columns.items()})

    def key(self) -> dict[str, Any]:
        """Return nothing: scores are not cached."""
        return {"kind": "scores"}


def _ranking(batch: RowBatch, rows: slice, scores: np.ndarray) -> RankingScores:
    assert batch.rows.query is not None
    relevance = batch.target[0, rows].copy()  # the batch's memory is used again
    return RankingScores.from_rows(hash_keys(batch.rows.query[rows]), relevance, scores[:, :, 0])


def measures_of(sums: Sums) -> dict[str, np.ndarray]:
    """Return what the models of a `ScoreReader` are measured by, each of shape (M,).

    The first model is that of no group. Empty where there is no row of positive weight.
    """
    weight = float(sums.arrays.get("weight", 0.0))
    found: dict[str, np.ndarray] = {}
    if weight > 0 and "loss" in sums.arrays:
        deviance = 2.0 * sums["loss"] / weight
        whole = deviance[0] if deviance[0] > 0 else np.nan
        found = {"explained_deviance": 1.0 - deviance / whole, "deviance": deviance}
        found["mse"] = sums["squared"] / weight
    if weight > 0 and "correct" in sums.arrays and np.isfinite(sums["correct"]).all():
        found["accuracy"] = sums["correct"] / weight
    return found
