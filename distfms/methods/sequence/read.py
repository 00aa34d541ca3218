"""What group sequencing reads besides co-moments: slabs of them, and predictions of prefixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.dataset import Partition
from distfms.methods.contract import PartialReader
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
