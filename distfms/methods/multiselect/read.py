"""Passes over partitions of judgments: statistics, averages, and the plan of what is lacking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.columns import as_arrow
from distfms.data.judgments import (
    JudgmentBatch,
    JudgmentLayout,
    read_judgments,
)
from distfms.data.partition import Partition
from distfms.data.roles import Roles
from distfms.data.write import write_table
from distfms.engine.storage import Location, absolute, files_below, writing
from distfms.methods.contract import Context, PartialReader
from distfms.methods.multiselect.model import refit_statistics
from distfms.methods.multiselect.objective import BuyFrom
from distfms.methods.multiselect.same_raters import assigned
from distfms.methods.rows import FoldedSource, SummaryReader
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.raters import by_rater


@dataclass(frozen=True)
class JudgmentSource(FoldedSource):
    """Judgment data with all that is needed to read a partition of it."""

    layout: JudgmentLayout
    roles: Roles

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        layout = self.layout
        return self.roles.with_row_columns(
            (*layout.columns, *layout.rater_columns, *self.roles.target)
        )

    def read(self, partition: Partition) -> JudgmentBatch:
        """Read the judgments of a partition, its objects ordered by part."""
        return read_judgments(
            self.reader,
            partition,
            self.layout,
            self.roles,
            folds=self.folds,
            missing=self.section.policy,
        )

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        return {
            **super().key(),
            "attributes": [[a.name, list(a.columns)] for a in self.layout.attributes],
            "label": self.roles.target[0],
            "weight": self.roles.weight,
            "id": self.roles.fold_key,
            "raters": [a.raters for a in self.layout.attributes],
        }


def judgment_reader(source: JudgmentSource) -> SummaryReader:
    """Return the reader of the judgment statistics of each part."""
    return SummaryReader(source, "judgments", {"judgments": JudgmentStatistics}, _judgments)


def _judgments(batch: JudgmentBatch, part: int) -> dict[str, JudgmentStatistics]:
    raters = batch.raters_of(batch.part_slices[part])
    return {"judgments": JudgmentStatistics.from_block(*batch.part_view(part), raters=raters)}


@dataclass(frozen=True)
class JudgmentSlabReader(PartialReader):
    """Reads the statistics of the training objects' attributes from `start` up to `stop`.

    The source has no folds.
    """

    part_types: ClassVar = {"slab": JudgmentStatistics}
    source: JudgmentSource
    start: int
    stop: int

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise its training objects."""
        own = slice(self.start, self.stop)
        n_attributes = len(self.source.layout.attributes)
        nothing = JudgmentStatistics.empty(n_attributes, own)
        train = nothing
        if not self.source.held_out:
            batch = self.source.read(partition)
            raters = batch.raters_of(batch.part_slices[0])
            view = batch.part_view(0)
            train = JudgmentStatistics.from_block(*view, attributes=own, raters=raters)
        return Bundle({"slab": Folded((train, nothing))})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        columns = [self.start, self.stop]
        return {**self.source.key(), "kind": "judgment slab", "columns": columns}


def averages_reader(
    source: JudgmentSource, repeats: tuple[int, ...], buy_from: BuyFrom = "independent"
) -> SummaryReader:
    """Return the reader of averages of the first r judgments, of the selected attributes."""
    known = {"repeats": list(repeats), "buy_from": buy_from}
    summarise = partial(_averages, repeats, buy_from)
    return SummaryReader(source, "first averages", {"averages": CoMoments}, summarise, known)


def _averages(
    repeats: tuple[int, ...], buy_from: BuyFrom, batch: JudgmentBatch, part: int
) -> dict[str, CoMoments]:
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part])
    return {"averages": refit_statistics(judgments, label, repeats, weight, raters, buy_from)}


#: Folder in the run folder.
PLAN = "plan"


def acquisition_plan(
    counts: ArrayLike,
    repeats: ArrayLike,
    costs: ArrayLike,
    names: Sequence[str],
    objects: ArrayLike,
) -> dict[str, np.ndarray]:
    """List how many more judgments of each object to collect.

    From the judgments that each object has, shape (n, d), to columns with one row for each object
    and attribute that lacks some, by object, then by attribute: ``more`` is max(0, r[a] − k_i[a]),
    ``cost`` that of these judgments.
    """
    have, want = np.asarray(counts, dtype=np.int64), np.asarray(repeats, dtype=np.int64)
    rows, attributes = np.nonzero(have < want)
    more = (want - have)[rows, attributes]
    return {
        "object": np.asarray(objects)[rows],
        "attribute": np.asarray(names, dtype=np.str_)[attributes],
        "have": have[rows, attributes],
        "want": want[attributes],
        "more": more,
        "cost": more * np.asarray(costs, dtype=float)[attributes],
    }


def plan_of(
    batch: JudgmentBatch,
    rows: np.ndarray,
    repeats: ArrayLike,
    costs: ArrayLike,
    objects: ArrayLike,
    buy_from: BuyFrom,
) -> dict[str, np.ndarray]:
    """List the judgments that some objects of a batch lack; see :func:`acquisition_plan`.

    Where raters are known, a judgment counts if the selection would ask its rater for it. From the
    ``same`` raters there is one row for each judgment that lacks, by object, then by rater:
    ``rater_slot`` counts the raters of an object from 1, those first who have judged most, and
    ``rater_id`` is the id of one who has judged, None for anybody new.
    """
    own = [ragged.take(rows) for ragged in batch.attributes]
    r = np.asarray(repeats, dtype=np.int64)
    if batch.raters is None or not own:
        counts = np.array([ragged.counts() for ragged in own], dtype=np.int64)
        counts = counts.reshape(r.size, rows.size).T
        return acquisition_plan(counts, r, costs, batch.names, objects)
    spread, who, _ = by_rater(own, [codes.take(rows) for codes in batch.raters])
    order, taken = assigned(spread, r, buy_from)
    if buy_from == "independent":
        return acquisition_plan(taken.sum(axis=0).T, r, costs, batch.names, objects)
    asked = np.full((max(int(r.max()), len(who)), rows.size), -1)
    asked[: len(who)] = np.take_along_axis(who, order, axis=0)
    wanted = np.arange(len(asked))[:, None, None] < np.broadcast_to(r[:, None], (r.size, rows.size))
    wanted[: len(taken)] &= ~taken
    at, raters, attributes = np.nonzero(wanted.transpose(2, 0, 1))
    code, ids = asked[raters, at], np.array([*batch.rater_names, None], dtype=object)
    return {
        "object": np.asarray(objects)[at],
        "rater_slot": raters + 1,
        "rater_id": ids[np.where((code < 0) | (code >= len(batch.rater_names)), -1, code)],
        "attribute": np.asarray(batch.names, dtype=np.str_)[attributes],
        "more": np.ones(at.size, dtype=np.int64),
        "cost": np.asarray(costs, dtype=float)[attributes],
    }


def object_column(own: str | None) -> str:
    """Name the plan's column of objects: by their own column, unless another bears its name."""
    others = ("attribute", "have", "want", "more", "cost", "rater_slot", "rater_id")
    return "object" if own is None or own in others else own


@dataclass(frozen=True)
class WritePlan:
    """Picklable function that writes the plan of one partition's training objects."""

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: Location
    buy_from: BuyFrom = "independent"

    def write(self, context: Context, partitions: Sequence[Partition]) -> tuple[int, float]:
        """Write a file for each partition; return how many judgments lack, and their cost."""
        totals = context.map(self, partitions)
        self._remove_others(partitions)
        return sum(judgments for judgments, _ in totals), sum(cost for _, cost in totals)

    def __call__(self, partition: Partition) -> tuple[int, float]:
        """Write ``part-NNNNN.parquet`` and return its totals."""
        import pyarrow as pa

        batch = self.source.read(partition)
        taught = np.arange(batch.part_slices[-1].start)
        if batch.weight is not None:
            taught = taught[batch.weight[: taught.size] > 0]
        objects = (batch.row_ids if batch.rows.id is None else batch.rows.id)[taught]
        plan = plan_of(batch, taught, self.repeats, self.costs, objects, self.buy_from)
        # By the type of the data, so that parts in which nothing is lacking fit the others.
        types = {"object": self._identifier_type(partition), "rater_id": pa.string()}
        columns = {name: as_arrow(values) for name, values in plan.items()}
        columns |= {name: columns[name].cast(types[name]) for name in types.keys() & columns}
        table = pa.table(
            [*columns.values()], [object_column(self.source.roles.id), *list(columns)[1:]]
        )
        write_table(self._place / _file(partition), table)
        return int(plan["more"].sum()), float(plan["cost"].sum())

    @property
    def _place(self) -> Location:
        return absolute(self.folder) / PLAN

    def _remove_others(self, partitions: Sequence[Partition]) -> None:
        """Remove what an earlier attempt with other files has left in the folder."""
        own = {_file(partition) for partition in partitions}
        with writing(self._place):
            for entry in files_below(self._place):
                if entry.name not in own:
                    entry.place.unlink(missing_ok=True)

    def _identifier_type(self, partition: Partition) -> Any:
        import pyarrow as pa

        if self.source.roles.id is None:
            return pa.int64()
        with self.source.reader.open(partition) as file:
            dtype = file.schema_arrow.field(self.source.roles.id).type
        return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _file(partition: Partition) -> str:
    return f"part-{partition.index:05d}.parquet"
