"""Columns in place of numbers: piecewise linear functions and indicators of missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan
from distfms.data.folds import row_hashes, with_seed
from distfms.data.partition import Dataset, Partition
from distfms.methods.contract import Content, Context, PartialReader, Stage
from distfms.methods.row_job import LEVELS_GUESSED, RowJob
from distfms.methods.rows import MomentReader, RowCounts, RowSource, missing_by_source
from distfms.methods.sequence.options import ExpandSection, SequenceOptions
from distfms.stats.base import Bundle
from distfms.stats.sample import RowSample

EXPANSION = "statistics/expansion.json"
#: Rows whose quantiles are knots.
_SAMPLED = 2000


@dataclass(frozen=True)
class QuantileReader(PartialReader):
    """Reads ``sample`` (`RowSample` of features) and ``counts`` of the rows of each part."""

    part_types: ClassVar = {"sample": RowSample, "counts": RowCounts}
    source: RowSource
    size: int

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and sample each of its parts."""
        batch = self.source.read(partition)
        rows = batch.row_ids - partition.row_offset
        hashes = with_seed(row_hashes(partition)[rows], self.source.seed)

        def sample(part: int) -> RowSample:
            own = batch.part_slices[part]
            # Rows are told apart by their hashes alone.
            return RowSample.from_rows(
                self.size, hashes[own], np.zeros_like(rows[own]), batch.features[:, own]
            )

        counts = partial(RowCounts.from_block, batch)
        return Bundle({"sample": self.source.folded(sample), "counts": self.source.folded(counts)})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "quantiles", "size": self.size}


def knots_of(values: np.ndarray, n_knots: int) -> list[float]:
    """Return the inner quantiles of values, at most so many, each between two values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    levels = np.arange(1, n_knots + 1) / (n_knots + 1)
    found = np.unique(np.quantile(known, levels, method="inverted_cdf"))
    return found[(found > known.min()) & (found < known.max())].tolist()


class ExpandedJob(RowJob):
    """A job whose columns are expanded where its options say so."""

    options: SequenceOptions

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages that read the levels of categories and the quantiles of numbers."""
        knots = [Stage("expand", self._expansion)] if self.options.expand else []
        return [*super().first_stages(), *knots]

    def _expansion(self, context: Context) -> Mapping[str, Content]:
        """Find the knots of numbers, and the columns that have missing values."""
        wanted, plan = self.options.expand, super().plan(context)
        assert wanted is not None
        found = context.reduce(lambda *of: QuantileReader(self.source(plan, *of), _SAMPLED))
        sample, counts = found["sample"].train(), found["counts"].train()
        knots = {
            column.name: knots_of(sample.values[column.start], wanted.splines)
            for column in plan.columns[: len(self.roles.features)]
            if column.levels is None
        }
        missing = list(missing_by_source(plan, counts.n_missing)) if wanted.missing else []
        return {EXPANSION: {"knots": knots, "missing": missing}}

    def plan(self, context: Context) -> ColumnPlan:
        """Return which columns are read and which rows of a batch they become."""
        plan = super().plan(context)
        if not self.options.expand:
            return plan
        found = context.read_json(EXPANSION)
        return plan.expanded(found["knots"], found["missing"])

    def guessed_widths(self) -> dict[str, int]:
        """Return the rows of a batch of each feature, before they are known."""
        expand = self.options.expand or ExpandSection()
        flags = int(expand.missing and self.inputs.section.missing == "mean")
        return {
            name: flags + (LEVELS_GUESSED if name in self.categorical else 1 + expand.splines)
            for name in self.roles.features
        }

    def guessed_columns(self) -> int:
        """Return the number of rows of features in a batch, before they are known."""
        return sum(self.guessed_widths().values())

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> PartialReader | None:
        """Return the reader of co-moments of the columns as they are, whatever the knots."""
        return MomentReader(self.source(super().plan(context), dataset, held_out))

    def summary_names(self, context: Context) -> Sequence[str]:
        """Return the names of what it summarises."""
        return (*super().plan(context).feature_names, *self.roles.target)
