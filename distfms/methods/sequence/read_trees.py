"""Rows that boosted trees are fitted to: read for each fit, or a sample in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.data.rows.folds import mix
from distfms.methods.frame.contract import Run
from distfms.methods.frame.rows import RowSource, SummaryReader
from distfms.methods.sequence.read import response_of, row_weights
from distfms.stats.sample import RowSample

#: A sample has the rows of a share: no number of them bounds it.
_ALL = 1 << 62
#: Folds of trees of a job that has none.
_INNER_FOLDS = 5


def spans_of(plan: ColumnPlan) -> np.ndarray:
    """Return first row, last row + 1 and whether it is a category of each feature (S, 3)."""
    own = plan.columns[: len(plan.roles.features)]
    found = [(column.start, column.stop, column.levels is not None) for column in own]
    return np.array(found, dtype=np.intp).reshape(-1, 3)


def inputs_of(values: np.ndarray, rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return what LightGBM takes (n, S): numbers, and codes of categories, NaN where missing.

    `values` (u, n); `rows` (D,) say which of them is a row of a batch, −1 for none.
    """
    found = np.full((values.shape[1], len(spans)), np.nan)
    for column, (start, stop, is_category) in enumerate(spans):
        levels = np.flatnonzero(rows[start:stop] >= 0)
        own = values[rows[start:stop][levels]]
        if is_category:
            known = (own > 0).any(axis=0)
            found[known, column] = levels[own[:, known].argmax(axis=0)]
        elif len(own):
            found[:, column] = own[0]
    return found


@dataclass(frozen=True, eq=False)
class TreeRows:
    """What LightGBM takes (n, S), responses, weights and folds (n,) of training rows."""

    inputs: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fold: np.ndarray

    def of(self, features: Sequence[int], left_out: int) -> TreeRows:
        """Return some features of the rows that are not of a fold."""
        rows = self.fold != left_out
        inputs = self.inputs[np.ix_(rows, list(features))]
        return TreeRows(inputs, self.response[rows], self.weight[rows], self.fold[rows])


@dataclass(frozen=True, eq=False)
class TreeSource:
    """Training rows that are read anew for each fit."""

    source: RowSource
    partitions: Sequence[Partition]
    family: str
    classes: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None

    def of(self, features: Sequence[int], left_out: int) -> TreeRows:
        """Read some features of the rows that are not of a fold."""
        plan = self.source.plan.restricted([self.source.plan.roles.features[f] for f in features])
        source = replace(self.source, plan=plan)
        if self.source.section.missing == "drop" and source.everything is None:
            source = replace(source, everything=self.source.plan)
        blocks = list[np.ndarray]()
        read = partial(_block, spans_of(plan))
        for partition in self.partitions:
            blocks.extend(source.each_batch(partition, read))
        rows = self.rows(np.concatenate(blocks, axis=1))
        return rows.of(range(len(features)), left_out)

    def rows(self, block: np.ndarray) -> TreeRows:
        """Return the rows of a block (S + 3, n): features, target, weights, folds."""
        *_, target, weight, fold = block
        response = response_of(target[np.newaxis], self.family, self.classes).ravel()
        weight = weight * row_weights(response, self.class_weights)
        return TreeRows(block[:-3].T, np.array(response, float), weight, fold)

    def sample(self, run: Run, share: float) -> TreeRows:
        """Return a share of the rows, drawn by their hashes, by one pass over all of them."""
        summarise = partial(_sampled, spans_of(self.source.plan), self.source.seed)

        def reader(dataset: Dataset, held_out: bool) -> SummaryReader:
            own = {"reader": dataset.reader, "held_out": held_out, "share": share}
            return SummaryReader(replace(self.source, **own), "rows for trees", summarise)

        found: RowSample = run.reduce(reader)["sample"].train()
        order = np.lexsort((found.row_ids, found.values[-1]))
        return self.rows(found.values[:, order])


def _block(spans: np.ndarray, source: RowSource, partition: Partition) -> np.ndarray:
    return _training(spans, source.read(partition))


def _training(spans: np.ndarray, batch: RowBatch) -> np.ndarray:
    """Return features, target, weights and folds (S + 3, n) of the training rows of a batch.

    Where the job has no folds, these are of trees alone, to stop them.
    """
    folds = batch.part_slices[:-1]
    fold = np.repeat(np.arange(len(folds)), [own.stop - own.start for own in folds])
    own = slice(0, len(fold))
    if len(folds) == 1:
        fold = (mix(batch.rows.keys[own]) % np.uint64(_INNER_FOLDS)).astype(int)
    inputs = inputs_of(batch.features[:, own], np.arange(len(batch.features)), spans)
    weight = np.ones(len(fold)) if batch.weight is None else batch.weight[own]
    return np.vstack((inputs.T, batch.target[:, own], weight, fold))


def _sampled(spans: np.ndarray, seed: int, batch: RowBatch, part: int) -> dict[str, Any]:
    """Return all training rows of a batch, as its first part."""
    values = _training(spans, batch)
    own = slice(0, 0 if part else values.shape[1])
    hashes, numbers = batch.rows.draws(seed)[own], batch.row_ids[own]
    return {"sample": RowSample.from_rows(_ALL, hashes, numbers, values[:, own])}
