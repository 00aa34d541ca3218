"""The sample of rows in memory, and rows that are read anew for each fit of boosted trees.

The sample is drawn by the rows' hashes in the pass that reads the co-moments. Where it is all rows,
models are fitted to it and judged on it, and nothing is read again.
"""

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
from distfms.methods.frame.judge import HELD_OUT, JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.read import fill_column_rows
from distfms.methods.frame.rows import RowSource, SummaryReader
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


def batch_of(plan: ColumnPlan, inputs: np.ndarray) -> np.ndarray:
    """Return the features (D, n) of a batch from what LightGBM takes of the rows (n, S)."""
    block = np.empty((plan.n_features, len(inputs)))
    for column, values in zip(plan.columns, inputs.T, strict=False):
        fill_column_rows(block[column.start : column.stop], column, values)
    return block


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows in memory, as LightGBM takes them.

    Attributes
    ----------
    inputs : numpy.ndarray of shape (n, S)
    target, response : numpy.ndarray of shape (n,)
        As the data have it, and as a fit takes it.
    weight, fit_weight : numpy.ndarray of shape (n,)
        Of the rows, and times what their class weighs in a fit.
    fold : numpy.ndarray of shape (n,)
        `HELD_OUT` for held-out rows.
    """

    inputs: np.ndarray
    target: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fit_weight: np.ndarray
    fold: np.ndarray

    @classmethod
    def of_block(cls, block: np.ndarray, outcome: Responses | None) -> TreeRows:
        """Return the rows of a block (S + 3, n): features, target, weights, folds."""
        *_, target, weight, fold = block
        response, fit_weight = target, weight
        if outcome is not None:
            response = outcome.response(target[np.newaxis]).ravel().astype(float)
            by_class = outcome.loss_weights(target[np.newaxis])
            if by_class is not None:
                fit_weight = weight * by_class
        return cls(block[:-3].T, target, response, weight, fit_weight, fold)

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
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory.

    Attributes
    ----------
    block : numpy.ndarray of shape (S + 3, n)
        Features as LightGBM takes them, target, weights, folds: `HELD_OUT` for held-out rows. Where
        a job has no folds, those of training rows serve to stop trees alone.
    share : float
        Of all rows that these are.
    n_folds : int
        Of the job, 0 for none.
    """

    block: np.ndarray
    share: float
    n_folds: int

    @property
    def is_all(self) -> bool:
        """Whether these are all rows."""
        return self.share >= 1.0

    @property
    def train(self) -> np.ndarray:
        """The block of the training rows."""
        return self.block[:, self.block[-1] >= 0]

    def thinned(self, n_rows: int) -> Sample:
        """Return about so many of the training rows, evenly over folds and the order of the data.

        Of these it is all.
        """
        train = self.train
        n_all = train.shape[1]
        if n_all > n_rows:
            kept = np.linspace(0, n_all - 1, n_rows).round().astype(np.intp)
            train = train[:, kept]
        return Sample(train, 1.0, self.n_folds)

    def rows_of(self, plan: ColumnPlan, parts: Sequence[int]) -> JudgedRows:
        """Return the rows of folds, or of the held-out rows, as batches have them."""
        block = self.block[:, np.isin(self.part, parts)]
        features = batch_of(plan, block[:-3].T)
        return JudgedRows(features, block[-3:-2], block[-2])

    @property
    def part(self) -> np.ndarray:
        """The part of each row: its fold, or `HELD_OUT`."""
        fold = self.block[-1].astype(np.intp)
        return fold if self.n_folds > 1 else np.minimum(fold, 0)


@dataclass(frozen=True, eq=False)
class TreeSource:
    """Training rows that are read anew for each fit."""

    source: RowSource
    partitions: Sequence[Partition]
    outcome: Responses | None

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
        rows = TreeRows.of_block(np.concatenate(blocks, axis=1), self.outcome)
        return rows.of(range(len(features)), left_out)

    def sample(self, run: Run, share: float) -> TreeRows:
        """Return a share of the rows, drawn by their hashes, by one pass over all of them."""
        summarise = partial(sampled_rows, spans_of(self.source.plan), self.source.seed, 1.0)

        def reader(dataset: Dataset, held_out: bool) -> SummaryReader:
            changes = {"reader": dataset.reader, "held_out": held_out, "share": share}
            return SummaryReader(replace(self.source, **changes), "rows for trees", summarise)

        sampled = run.reduce(reader)[ROWS]
        return TreeRows.of_block(in_order(sampled.train()), self.outcome)


def in_order(sample: RowSample) -> np.ndarray:
    """Return sampled rows fold by fold, in the order of the data."""
    order = np.lexsort((sample.row_ids, sample.values[-1]))
    return sample.values[:, order]


def _block(spans: np.ndarray, source: RowSource, partition: Partition) -> np.ndarray:
    batch = source.read(partition)
    return _of_batch(spans, batch, np.arange(batch.part_slices[-1].start))


def _of_batch(spans: np.ndarray, batch: RowBatch, rows: np.ndarray) -> np.ndarray:
    """Return features, target, weights and folds (S + 3, n) of some rows of a batch.

    Where the job has no folds, these are of trees alone, to stop them.
    """
    *folds, test = batch.part_slices
    fold = np.full(test.stop, float(HELD_OUT))
    for number, of_fold in enumerate(folds):
        fold[of_fold] = number
    if len(folds) == 1:
        keys = batch.rows.keys[: test.start]
        fold[: test.start] = mix(keys) % np.uint64(_INNER_FOLDS)
    inputs = inputs_of(batch.features[:, rows], np.arange(len(batch.features)), spans)
    weight = np.ones(test.stop) if batch.weight is None else batch.weight
    return np.vstack((inputs.T, batch.target[:, rows], weight[rows], fold[rows]))


def sampled_rows(
    spans: np.ndarray, seed: int, share: float, batch: RowBatch, part: int
) -> dict[str, Any]:
    """Return a share of the rows of a batch, drawn by their hashes.

    The first part has all training rows, the last one the held-out rows.
    """
    is_last = part == len(batch.part_slices) - 1
    if part and not is_last:
        return {ROWS: RowSample.empty(_ALL, len(spans) + 3)}
    test = batch.part_slices[-1]
    rows = np.arange(test.start, test.stop) if is_last else np.arange(test.start)
    hashes = batch.rows.draws(seed)
    if share < 1.0:
        rows = rows[hashes[rows] < np.uint64(share * 2.0**64)]
    values = _of_batch(spans, batch, rows)
    return {ROWS: RowSample.from_rows(_ALL, hashes[rows], batch.row_ids[rows], values)}
