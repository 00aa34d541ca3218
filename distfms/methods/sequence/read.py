"""What group sequencing reads besides co-moments: slabs of them, and predictions of prefixes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.dataset import Partition
from distfms.data.folds import hash_keys
from distfms.methods.contract import PartialReader
from distfms.methods.rows import RowCounts, RowSource
from distfms.methods.sequence.scores import AccuracyCounts, RankingScores
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments

_CHUNK_VALUES = 1 << 20


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
        """Scores of rows.

        Parameters
        ----------
        features : ndarray of shape (D, n)

        Returns
        -------
        ndarray of shape (n, M, P)
        """
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
        types: dict[str, type[Any]] = {}
        if self.threshold is not None:
            types["accuracy"] = AccuracyCounts
        if self.ranks:
            types["ranking"] = RankingScores
        return types

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge its held-out rows."""
        block = self.source.read(partition)
        rows = block.part_slices[0 if self.source.held_out else -1]
        n_models, _, n_targets = self.scorers.coefficients.shape
        members: dict[str, Folded[Any]] = {}
        if self.threshold is not None:
            none = AccuracyCounts.empty(n_models, n_targets)
            members["accuracy"] = self._test_only(none, self._accuracy(block, rows))
        if self.ranks:
            ranking = self._ranking(block, rows)
            members["ranking"] = self._test_only(RankingScores.empty(n_models), ranking)
        return Bundle(members)

    def _test_only(self, nothing: Any, test: Any) -> Folded[Any]:
        return Folded((nothing,) * (self.source.n_parts - 1) + (test,))

    def _accuracy(self, block: RowBatch, rows: slice) -> AccuracyCounts:
        n_models, _, n_targets = self.scorers.coefficients.shape
        result = AccuracyCounts.empty(n_models, n_targets)
        for chunk in self._chunks(rows):
            scores = self.scorers(block.features[:, chunk])
            weight = None if block.weight is None else block.weight[chunk]
            assert self.threshold is not None
            result = result.merge(
                AccuracyCounts.from_scores(scores, block.target[:, chunk].T, self.threshold, weight)
            )
        return result

    def _ranking(self, block: RowBatch, rows: slice) -> RankingScores:
        result = RankingScores.empty(len(self.scorers.coefficients))
        for chunk in self._chunks(rows):
            assert block.rows.query is not None
            keys = hash_keys(block.rows.query[chunk])
            scores = self.scorers(block.features[:, chunk])[:, :, 0]
            relevance = block.target[0, chunk].copy()  # the block's memory is used again
            result = result.merge(RankingScores.from_rows(keys, relevance, scores))
        return result

    def _chunks(self, rows: slice) -> Iterator[slice]:
        """Cut rows into runs whose scores fit the cache."""
        n_models, n_features, n_targets = self.scorers.coefficients.shape
        step = max(1, _CHUNK_VALUES // max(n_models * n_targets, n_features))
        for start in range(rows.start, rows.stop, step):
            yield slice(start, min(start + step, rows.stop))

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {
            **self.source.key(),
            "kind": "scores",
            "query": self.source.plan.roles.query,
            "models": self.scorers.digest(),
            "threshold": self.threshold,
            "ranks": self.ranks,
        }
