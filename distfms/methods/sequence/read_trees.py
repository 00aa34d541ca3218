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
#: Name of sampled rows among statistics.
ROWS = "rows"
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
    """Training rows in memory, as LightGBM takes them.

    Attributes
    ----------
    inputs : numpy.ndarray of shape (n, S)
    target, response : numpy.ndarray of shape (n,)
        As the data have it, and as a fit takes it.
    weight, fit_weight : numpy.ndarray of shape (n,)
        Of the rows, and times what their class weighs in a fit.
    fold : numpy.ndarray of shape (n,)
    share : float
        Of all training rows.
    """

    inputs: np.ndarray
    target: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fit_weight: np.ndarray
    fold: np.ndarray
    share: float = 1.0

    @property
    def is_all(self) -> bool:
        """Whether these are all training rows."""
        return self.share >= 1.0

    def thinned(self, n_rows: int) -> TreeRows:
        """Return about so many of the rows, evenly over folds and the order of the data."""
        n_all = len(self.fold)
        if n_all <= n_rows:
            return self
        kept = np.linspace(0, n_all - 1, n_rows).round().astype(np.intp)
        rows = self.taken(kept, range(self.inputs.shape[1]))
        return replace(rows, share=self.share * n_rows / n_all)

    def of(self, features: Sequence[int], left_out: int) -> TreeRows:
        """Return some features of the rows that are not of a fold."""
        return self.taken(self.fold != left_out, features)

    def taken(self, rows: np.ndarray, features: Sequence[int]) -> TreeRows:
        """Return some features of some of the rows."""
        return TreeRows(
            self.inputs[rows][:, list(features)],
            self.target[rows],
            self.response[rows],
            self.weight[rows],
            self.fit_weight[rows],
            self.fold[rows],
            self.share,
        )


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

    def rows(self, block: np.ndarray, share: float = 1.0) -> TreeRows:
        """Return the rows of a block (S + 3, n): features, target, weights, folds."""
        *_, target, weight, fold = block
        response = response_of(target[np.newaxis], self.family, self.classes).ravel()
        fit_weight = weight * row_weights(response, self.class_weights)
        response = np.array(response, float)
        return TreeRows(block[:-3].T, target, response, weight, fit_weight, fold, share)

    def sample(self, run: Run, share: float) -> TreeRows:
        """Return a share of the rows, drawn by their hashes, by one pass over all of them."""
        summarise = partial(sampled_rows, spans_of(self.source.plan), self.source.seed, 1.0)

        def reader(dataset: Dataset, held_out: bool) -> SummaryReader:
            own = {"reader": dataset.reader, "held_out": held_out, "share": share}
            return SummaryReader(replace(self.source, **own), "rows for trees", summarise)

        return self.rows(in_order(run.reduce(reader)[ROWS].train()), share)


def in_order(sample: RowSample) -> np.ndarray:
    """Return sampled rows fold by fold, in the order of the data."""
    order = np.lexsort((sample.row_ids, sample.values[-1]))
    return sample.values[:, order]


def _block(spans: np.ndarray, source: RowSource, partition: Partition) -> np.ndarray:
    batch = source.read(partition)
    return _training(spans, batch, slice(0, batch.part_slices[-1].start))


def _training(spans: np.ndarray, batch: RowBatch, rows: Any) -> np.ndarray:
    """Return features, target, weights and folds (S + 3, n) of some training rows of a batch.

    Where the job has no folds, these are of trees alone, to stop them.
    """
    folds = batch.part_slices[:-1]
    fold = np.repeat(np.arange(len(folds)), [own.stop - own.start for own in folds])
    if len(folds) == 1:
        keys = batch.rows.keys[: len(fold)]
        fold = (mix(keys) % np.uint64(_INNER_FOLDS)).astype(int)
    inputs = inputs_of(batch.features[:, rows], np.arange(len(batch.features)), spans)
    weight = np.ones(len(fold)) if batch.weight is None else batch.weight[: len(fold)]
    return np.vstack((inputs.T, batch.target[:, rows], weight[rows], fold[rows]))


def sampled_rows(
    spans: np.ndarray, seed: int, share: float, batch: RowBatch, part: int
) -> dict[str, Any]:
    """Return a share of all training rows of a batch, drawn by their hashes, as its first part."""
    if part:
        return {ROWS: RowSample.empty(_ALL, len(spans) + 3)}
    n_training = batch.part_slices[-1].start
    hashes, rows = batch.rows.draws(seed)[:n_training], np.arange(n_training)
    if share < 1.0:
        rows = rows[hashes < np.uint64(share * 2.0**64)]
    values = _training(spans, batch, rows)
    return {ROWS: RowSample.from_rows(_ALL, hashes[rows], batch.row_ids[rows], values)}
