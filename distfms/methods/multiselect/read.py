"""From partitions of judgments to the statistics of multi-selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.dataset import Partition
from distfms.data.judgments import JudgmentBatch, JudgmentLayout, read_judgments
from distfms.data.roles import Roles
from distfms.methods.contract import PartialReader
from distfms.methods.multiselect.model import RefitStatistics, refit_statistics
from distfms.methods.rows import FoldedSource
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.judgments import CopiesStatistics, JudgmentStatistics
from distfms.stats.ragged import Ragged


@dataclass(frozen=True)
class JudgmentSource(FoldedSource):
    """Judgment data with all that is needed to read a partition of it.

    Attributes
    ----------
    layout : JudgmentLayout
        Which columns hold which attribute's judgments.
    roles : Roles
    """

    layout: JudgmentLayout
    roles: Roles

    def read(self, partition: Partition) -> JudgmentBatch:
        """Read the judgments of a partition, its objects ordered by part."""
        return read_judgments(
            self.reader,
            partition,
            self.layout,
            self.roles,
            folds=self.folds,
            missing=self.section.missing,
        )

    def by_part(
        self,
        partition: Partition,
        summarise: Callable[[tuple[Ragged, ...], np.ndarray, np.ndarray | None], Any],
    ) -> Folded[Any]:
        """Summarise the objects of each part of a partition."""
        block = self.read(partition)
        nothing = summarise(*_no_rows(block)) if self.held_out else None
        return self.folded(lambda part: summarise(*block.part_view(part)), nothing)

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        return {
            **super().key(),
            "attributes": [[a.name, list(a.columns)] for a in self.layout.attributes],
            "label": self.roles.target[0],
            "weight": self.roles.weight,
            "id": self.roles.fold_key,
        }


def _no_rows(block: JudgmentBatch) -> tuple[tuple[Ragged, ...], Any, Any]:
    weight = None if block.weight is None else block.weight[:0]
    label = None if block.label is None else block.label[:0]
    return tuple(ragged.rows(0, 0) for ragged in block.attributes), label, weight


@dataclass(frozen=True)
class JudgmentReader(PartialReader):
    """Reads the judgment statistics, and those of single copies where a baseline wants them.

    Attributes
    ----------
    source : JudgmentSource
    n_copies : int
        Judgments per attribute that the Copies baseline works with, 0 for none.
    """

    source: JudgmentSource
    n_copies: int = 0

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        types: dict[str, type[Any]] = {"judgments": JudgmentStatistics}
        return types | ({"copies": CopiesStatistics} if self.n_copies else {})

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise each of its parts."""
        both = self.source.by_part(partition, self._summarise)
        return Bundle(
            {
                name: Folded(tuple(part[index] for part in both.parts))
                for index, name in enumerate(self.part_types)
            }
        )

    def _summarise(
        self, judgments: tuple[Ragged, ...], label: np.ndarray, weight: np.ndarray | None
    ) -> Any:
        """Give one statistic for each of `part_types`."""
        statistics: tuple[Any, ...] = (JudgmentStatistics.from_block(judgments, label, weight),)
        if self.n_copies:
            copies = CopiesStatistics.from_block(judgments, label, self.n_copies, weight)
            statistics = (*statistics, copies)
        return statistics

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "judgments", "n_copies": self.n_copies}


@dataclass(frozen=True)
class JudgmentSlabReader(PartialReader):
    """Reads the judgment statistics of a run of attributes, of the training objects.

    Attributes
    ----------
    source : JudgmentSource
        Without folds.
    start, stop : int
        The attributes that are summarised, of all that are read.
    """

    source: JudgmentSource
    start: int
    stop: int

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"slab": JudgmentStatistics}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise its training objects."""
        own = slice(self.start, self.stop)
        n_attributes = len(self.source.layout.attributes)
        nothing = JudgmentStatistics.empty(n_attributes, own)
        train = nothing
        if not self.source.held_out:
            judgments, label, weight = self.source.read(partition).part_view(0)
            train = JudgmentStatistics.from_block(judgments, label, weight, attributes=own)
        return Bundle({"slab": Folded((train, nothing))})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        columns = [self.start, self.stop]
        return {**self.source.key(), "kind": "judgment slab", "columns": columns}


@dataclass(frozen=True)
class AveragesReader(PartialReader):
    """Reads the statistics of averages of the first r judgments, of the selected attributes.

    Attributes
    ----------
    source : JudgmentSource
        With the layout of the selected attributes only.
    repeats : tuple of int
        Judgments to average of each of them.
    """

    source: JudgmentSource
    repeats: tuple[int, ...]

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"averages": RefitStatistics}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise each of its parts."""
        return Bundle({"averages": self.source.by_part(partition, self._summarise)})

    def _summarise(
        self, judgments: tuple[Ragged, ...], label: np.ndarray, weight: np.ndarray | None
    ) -> RefitStatistics:
        return refit_statistics(judgments, label, self.repeats, weight)

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "averages", "repeats": list(self.repeats)}
