"""Passes over partitions of judgments: statistics, averages, what is lacking, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Partition
from distfms.data.rows.folds import hash_keys, mix
from distfms.data.rows.judgments import JudgmentBatch, JudgmentLayout, read_judgments
from distfms.data.rows.roles import Roles
from distfms.methods.frame.rows import FoldedSource, SummaryReader
from distfms.methods.multiselect.model import refit_statistics
from distfms.solve.buying import BuyFrom
from distfms.stats.comoments import CoMoments
from distfms.stats.disagreement import Disagreement
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged
from distfms.stats.sample import RowSample
from distfms.stats.signs import ColumnSigns

#: Judgments of each attribute.
Repeats = tuple[int, ...]

#: Judgments of each attribute that are taken of a partition, and of all: of all parts together.
_SOME = 4096


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
        layout = self.layout
        attributes = []
        for attribute in layout.attributes:
            limits = filter(np.isfinite, attribute.limits)
            attributes.append([attribute.name, list(attribute.columns), *limits])
        key = {
            **super().key(),
            "attributes": attributes,
            "label": self.roles.target[0],
            "weight": self.roles.weight,
            "id": self.roles.fold_key,
            "raters": [attribute.raters for attribute in layout.attributes],
        }
        if layout.left_out:
            key["left_out"] = list(layout.left_out)
        return key


def judgment_reader(source: JudgmentSource, *, of_raters: bool = False) -> SummaryReader:
    """Return the reader of ``judgments`` of each part, ``some`` of them and ``signs`` of trouble.

    The signs are those of all parts, in the first. With `of_raters` also of the ``disagreement`` of
    each rater with the others.
    """
    key = {"of_raters": True} if of_raters else {}
    return SummaryReader(source, "judgments and some", partial(_judgments, of_raters), key)


def slab_reader(source: JudgmentSource, attributes: slice) -> SummaryReader:
    """Return the reader of ``judgments`` of a run of attributes, of the training objects."""
    key = {"columns": [attributes.start, attributes.stop]}
    return SummaryReader(source, "judgments and some", partial(_slab, attributes), key)


def _judgments(of_raters: bool, batch: JudgmentBatch, part: int) -> dict[str, Any]:
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part])
    n_columns = len(judgments) + (label is not None)
    members: dict[str, Any] = {
        "judgments": JudgmentStatistics.from_block(judgments, label, weight, raters=raters),
        "signs": ColumnSigns.empty(n_columns) if part else batch.signs(),
        "some": _some(batch, part, of_raters),
    }
    if of_raters:
        disagreement = Disagreement.from_block(judgments, raters or (), batch.rater_names)
        members["disagreement"] = disagreement
    return members


def _slab(attributes: slice, batch: JudgmentBatch, part: int) -> dict[str, Any]:
    if part == len(batch.part_slices) - 1:
        return {"judgments": JudgmentStatistics.empty(len(batch.attributes), attributes)}
    raters = batch.raters_of(batch.part_slices[part])
    view = batch.part_view(part)
    return {"judgments": JudgmentStatistics.from_block(*view, attributes=attributes, raters=raters)}


def _some(batch: JudgmentBatch, part: int, of_raters: bool) -> RowSample:
    """Take some judgments of each attribute, as many of one as of another, by no order of them.

    Each with the label of its object and, with `of_raters`, the key of its rater: what
    `SomeJudgments` takes apart.
    """
    attributes, label, _ = batch.part_view(part)
    most = max(_SOME // len(batch.part_slices), 16)
    places = [_spread_places(ragged, most) for ragged in attributes]
    rows = []
    labels = []
    for ragged, chosen in zip(attributes, places, strict=True):
        rows.append(ragged.content()[chosen])
        labels.append(label[_rows_at(ragged, chosen)])
    rows += labels
    raters = batch.raters_of(batch.part_slices[part])
    if of_raters and raters is not None:
        keys = np.append(keys_of_raters(batch.rater_names), np.nan)  # −1 is not known
        for codes, chosen in zip(raters, places, strict=True):
            rows.append(keys[codes.content()[chosen]])
    n_values = max(map(len, rows), default=0)
    values = np.full((len(rows), n_values), np.nan)
    for row, numbers in zip(values, rows, strict=True):
        row[: numbers.size] = numbers
    first = np.uint64(part * _SOME)
    row_ids = np.arange(n_values, dtype=np.uint64) + first
    # By the first object: a copy of the data elsewhere, or a later one, has the same sample.
    objects = batch.rows.hashes[batch.part_slices[part]]
    hashes = mix(row_ids ^ objects[:1])
    return RowSample.from_rows(most, hashes, row_ids.view(np.int64), values)


def _spread_places(ragged: Ragged, most: int) -> np.ndarray:
    """Return places of at most so many judgments, at equal steps."""
    n_judgments = ragged.content().size
    step = max(-(-n_judgments // most), 1)
    return np.arange(0, n_judgments, step)


def _rows_at(ragged: Ragged, places: np.ndarray) -> np.ndarray:
    """Return the objects of the judgments at some places."""
    starts = ragged.offsets - ragged.offsets[0]
    return np.searchsorted(starts, places, side="right") - 1


def keys_of_raters(names: Sequence[str]) -> np.ndarray:
    """Return a number for each id of a rater that a float holds exactly, the same everywhere."""
    return (hash_keys(list(names)) >> np.uint64(11)).astype(np.float64)


def averages_reader(source: JudgmentSource, repeats: Repeats, buy_from: BuyFrom) -> SummaryReader:
    """Return the reader of the averages of so many judgments of each attribute.

    ``taught`` are by the raters that the selection asks for, ``predicted`` of the first judgments,
    as predictions take them; the same where raters are not known.
    """
    key = {"repeats": list(repeats), "buy_from": buy_from}
    return SummaryReader(source, "averages", partial(_averages, repeats, buy_from), key)


def _averages(
    repeats: Repeats, buy_from: BuyFrom, batch: JudgmentBatch, part: int
) -> dict[str, CoMoments]:
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part])
    taught = refit_statistics(judgments, label, repeats, weight, raters, buy_from)
    predicted = taught
    if raters is not None:
        predicted = refit_statistics(judgments, label, repeats, weight)
    return {"taught": taught, "predicted": predicted}
