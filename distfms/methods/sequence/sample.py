"""The one sample of rows in memory, and rows that are read anew for each fit of boosted trees.

The sample is drawn by the rows' hashes in the pass that reads the co-moments. Where it is all rows,
models are fitted to it and judged on it, and nothing is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from distfms.data.files.partition import Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.data.rows.folds import mix
from distfms.methods.frame.judge import JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.rows import RowSource
from distfms.stats.base import HELD_OUT, Folded
from distfms.stats.sample import RowSample

#: Folds of trees of a job that has none.
_INNER_FOLDS = 5


def inner_folds(keys: np.ndarray) -> np.ndarray:
    """Divide rows (n,) by their keys, to stop trees of jobs that have no folds."""
    return (mix(keys) % np.uint64(_INNER_FOLDS)).astype(np.intp)


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows in memory, as LightGBM takes them.

    Attributes
    ----------
    inputs : numpy.ndarray of shape (n, S)
        Numbers, and codes of categories; NaN where missing.
    response : numpy.ndarray of shape (n,)
        As a fit takes it.
    weight : numpy.ndarray of shape (n,)
        In a fit.
    fold : numpy.ndarray of shape (n,)
    """

    inputs: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fold: np.ndarray

    def of(self, features: Sequence[int], left_out: int) -> TreeRows:
        """Return some features of the rows that are not of a fold."""
        rows = self.fold != left_out
        inputs = self.inputs[rows][:, list(features)]
        return TreeRows(inputs, self.response[rows], self.weight[rows], self.fold[rows])


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory.

    Attributes
    ----------
    inputs : numpy.ndarray of shape (S, n)
        Features as the data have them: numbers, and codes of categories; NaN where missing.
    target : numpy.ndarray of shape (P, n)
    weight, fold : numpy.ndarray of shape (n,)
        `HELD_OUT` for held-out rows. Where a job has no folds, those of training rows serve to stop
        trees alone.
    share : float
        Of all rows that these are.
    n_folds : int
        Of the job, 0 for none.
    """

    inputs: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    fold: np.ndarray
    share: float
    n_folds: int

    @classmethod
    def of_parts(
        cls, sampled: Folded[RowSample], n_targets: int, share: float, n_folds: int
    ) -> Sample:
        """Return the rows of all parts, fold by fold, and in each by their keys."""
        parts = sampled.parts
        keys = np.concatenate([part.row_ids for part in parts]).view(np.uint64)
        values = np.concatenate([part.values for part in parts], axis=1)
        numbers = [*range(sampled.n_folds), HELD_OUT]
        sizes = [part.n_rows for part in parts]
        fold = np.repeat(numbers, sizes)
        if n_folds < 2:
            is_held_out = fold == HELD_OUT
            fold = np.where(is_held_out, HELD_OUT, inner_folds(keys))
        order = np.lexsort((keys, fold))
        ordered = values[:, order]
        inputs, target, weight = np.split(ordered, [-1 - n_targets, -1])
        return cls(inputs, target, weight[0], fold[order], share, n_folds)

    @property
    def is_all(self) -> bool:
        """Whether these are all rows."""
        return self.share >= 1.0

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return int(np.count_nonzero(self.fold != HELD_OUT))

    def taken(self, rows: np.ndarray) -> Sample:
        """Return some of the rows."""
        return replace(
            self,
            inputs=self.inputs[:, rows],
            target=self.target[:, rows],
            weight=self.weight[rows],
            fold=self.fold[rows],
        )

    def thinned(self, n_rows: int) -> Sample:
        """Return about so many of the training rows, evenly over folds; of these it is all."""
        rows = np.flatnonzero(self.fold != HELD_OUT)
        if len(rows) > n_rows:
            places = np.linspace(0, len(rows) - 1, n_rows).round()
            rows = rows[places.astype(np.intp)]
        return replace(self.taken(rows), share=1.0)

    def rows_of(self, plan: ColumnPlan, parts: Sequence[int]) -> JudgedRows:
        """Return the rows of folds, or of the held-out rows, as batches have them."""
        part = self.fold if self.n_folds > 1 else np.minimum(self.fold, 0)
        rows = self.taken(np.isin(part, parts))
        return JudgedRows.of_inputs(plan, rows.inputs, rows.target, rows.weight)

    def by_fold(self, plan: ColumnPlan) -> list[TrainingRows]:
        """Return the training rows of each fold of the job, as batches have them."""
        rows_by_fold = []
        for number in range(max(self.n_folds, 1)):
            rows = self.rows_of(plan, [number])
            assert rows.weight is not None
            fold = np.full(rows.n_rows, number)
            rows_by_fold.append(TrainingRows(rows.features, rows.target, rows.weight, fold))
        return rows_by_fold

    def for_trees(self, outcome: Responses | None) -> TreeRows:
        """Return the training rows as LightGBM takes them."""
        train = self.taken(self.fold != HELD_OUT)
        response, weight = as_fitted(train.target, train.weight, outcome)
        return TreeRows(train.inputs.T, response, weight, train.fold)


def as_fitted(
    target: np.ndarray, weight: np.ndarray, outcome: Responses | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return response and weight (n,) of rows in a fit, from their only target (1, n)."""
    if outcome is None:
        return target[0], weight
    return outcome.response(target).ravel().astype(float), fit_weight(target, weight, outcome)


def fit_weight(target: np.ndarray, weight: np.ndarray, outcome: Responses) -> np.ndarray:
    """Return what rows (n,) weigh in a fit: by their class, too."""
    by_class = outcome.loss_weights(target)
    return weight if by_class is None else weight * by_class


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The training rows of a batch: features (D, n), target (P, n), weight and fold (n,)."""

    features: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    fold: np.ndarray

    @classmethod
    def of(cls, batch: RowBatch) -> TrainingRows:
        """Return them in the memory of the batch: folds follow one another, then held-out rows."""
        n_train = batch.part_slices[-1].start
        train = slice(0, n_train)
        fold = batch.rows.part[train].astype(np.intp)
        weight = np.ones(n_train) if batch.weight is None else batch.weight[train]
        return cls(batch.features[:, train], batch.target[:, train], weight, fold)


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
        batches = list[TreeRows]()
        read = partial(_read_rows, self.outcome)
        for partition in self.partitions:
            batches.extend(source.each_batch(partition, read))
        rows = TreeRows(
            np.concatenate([batch.inputs for batch in batches]),
            np.concatenate([batch.response for batch in batches]),
            np.concatenate([batch.weight for batch in batches]),
            np.concatenate([batch.fold for batch in batches]),
        )
        return rows.of(range(len(features)), left_out)


def _read_rows(outcome: Responses | None, source: RowSource, partition: Partition) -> TreeRows:
    """Read the training rows of a partition."""
    batch = source.read(partition)
    rows = TrainingRows.of(batch)
    train = slice(0, len(rows.fold))
    fold = rows.fold if source.section.folds > 1 else inner_folds(batch.rows.keys[train])
    response, weight = as_fitted(rows.target, rows.weight, outcome)
    inputs = source.inputs(batch, train)
    return TreeRows(inputs.T, np.array(response), weight, fold)
