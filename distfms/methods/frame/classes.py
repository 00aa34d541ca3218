"""Classes of a target: which there are, how batches number them, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.errors import DataError
from distfms.methods.frame.contract import Run
from distfms.methods.frame.row_data import Levels, RowForm
from distfms.methods.frame.row_predictor import INEXACT, class_name
from distfms.methods.frame.rows import CategoryReader, require_levels
from distfms.stats.base import Folded

MAX_CLASSES = 1000
"""Most classes that a target may have."""

#: More classes than this may be numbers that were meant to be predicted as such.
_MANY_CLASSES = 20


@dataclass(frozen=True)
class Classes:
    """Classes or levels of a target.

    Attributes
    ----------
    target : str
    values : tuple of float
        What batches have in place of the classes, ascending.
    names : tuple, or None
        The classes as the data have them, where batches have positions among `levels`.
    levels : tuple of str, or None
        Values of the target as texts, by position, if they are not numbers that float64 holds.
    train_weight : tuple of float
        Weight of the training rows of each class that occurs.
    """

    target: str
    values: tuple[float, ...]
    names: tuple[Any, ...] | None
    levels: tuple[str, ...] | None
    train_weight: tuple[float, ...]

    @property
    def labels(self) -> list[Any]:
        """The classes as the data have them: text or numbers."""
        return list(self.names or self.values)

    @property
    def texts(self) -> list[str]:
        """The classes as readers see them."""
        return [class_name(label) for label in self.labels]

    def planned(self, plan: ColumnPlan) -> ColumnPlan:
        """Return a plan whose batches have these values of the target."""
        return plan if self.levels is None else plan.with_levels(self.target, self.levels)

    @staticmethod
    def counts(batch: RowBatch, part: int) -> dict[str, ClassCounts]:
        """Count the values of the only target in a part of a batch, as ``classes``."""
        rows = batch.part_slices[part]
        weight = None if batch.weight is None else batch.weight[rows]
        return {"classes": ClassCounts.from_rows(batch.target[0, rows], weight)}

    @classmethod
    def read(
        cls, run: Run, form: RowForm, levels: Levels, plan: ColumnPlan, learner: str
    ) -> Classes:
        """Find the classes of the only target; `learner` needs them, for messages.

        Raises
        ------
        DataError
        """
        counts = form.read_target(run, plan, "classes", cls.counts)
        return cls.of(run, form, levels, plan, counts, learner)

    @classmethod
    def of(
        cls,
        run: Run,
        form: RowForm,
        levels: Levels,
        plan: ColumnPlan,
        counts: Folded[ClassCounts],
        learner: str,
        most: int | None = None,
    ) -> Classes:
        """Return the classes of the counts of a plan; see `read`.

        Exact numbers beyond float64, and texts in another order than their labels, are counted
        again.
        """
        target = form.roles.target[0]
        form.refuse_dropped(len(counts.train().values) + len(counts.test.values))
        texts = levels.get(target)
        labels = None
        if texts is None and _exceeds_floats(form, counts):
            weight = form.roles.weight
            bundle = run.reduce(lambda data, _: CategoryReader(data.reader, (target,), weight))
            texts = require_levels(bundle["categories"].train())[target]
        if texts is not None:
            dtype = form.inputs.train.schema.field(target).type
            pairs = sorted(zip(labels_of(texts, dtype), texts, strict=True))
            labels = [label for label, _ in pairs]
            texts = [text for _, text in pairs]
        if texts != levels.get(target):
            plan = plan.with_levels(target, texts or ())
            counts = form.read_target(run, plan, "classes", cls.counts)
        classes = find_classes(counts, target, learner, most, labels)
        weight_of = dict(zip(counts.train().values, counts.train().weight, strict=True))
        return cls(
            target,
            tuple(classes.tolist()),
            None if labels is None else tuple(labels[int(value)] for value in classes),
            None if texts is None else tuple(texts),
            tuple(float(weight_of[value]) for value in classes),
        )


def _exceeds_floats(form: RowForm, counts: Folded[ClassCounts]) -> bool:
    """Return whether the target holds exact numbers, some of which may be one float64."""
    import pyarrow.types as pat

    dtype = form.inputs.train.schema.field(form.roles.target[0]).type
    if not (pat.is_integer(dtype) or pat.is_decimal(dtype)):
        return False
    values = counts.train().merge(counts.test).values
    scale = dtype.scale if pat.is_decimal(dtype) else 0
    return len(values) <= MAX_CLASSES and bool((np.abs(values) * 10.0**scale >= INEXACT).any())


def labels_of(texts: Sequence[str], dtype: Any) -> list[Any]:
    """Return values of a target from their texts: as numbers where they have such a type."""
    import pyarrow as pa
    import pyarrow.types as pat

    kind = dtype.value_type if pat.is_dictionary(dtype) else dtype
    if pat.is_decimal(kind) and kind.scale == 0:
        kind = pa.int64()
    if pat.is_integer(kind) or pat.is_floating(kind) or pat.is_boolean(kind):
        labels: list[Any] = pa.array(texts, pa.string()).cast(kind).to_pylist()
        return labels
    return list(texts)


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Distinct values of a target; a mergeable statistic."""

    values: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_rows(cls, target: np.ndarray, weight: np.ndarray | None) -> ClassCounts:
        """Count the values of rows."""
        values, index = np.unique(target, return_inverse=True)
        total = np.bincount(index, weight, len(values)).astype(float)
        # One more than allowed stays, so that the excess is seen.
        return cls(values[: MAX_CLASSES + 1], total[: MAX_CLASSES + 1])

    def merge(self, later: ClassCounts) -> ClassCounts:
        """Return the counts of the rows of both."""
        together = np.concatenate((self.values, later.values))
        return self.from_rows(together, np.concatenate((self.weight, later.weight)))


def find_classes(
    counts: Folded[ClassCounts],
    target: str,
    learner: str,
    most: int | None = None,
    labels: Sequence[Any] | None = None,
) -> np.ndarray:
    """Return the classes of a target, ascending.

    `learner` needs them, `most` at most, for messages; `labels` are the classes, where values
    are positions among these. Fewer than two classes, too many, or others in held-out rows are
    refused.
    """
    classes = counts.train().values

    def name_of(value: float) -> str:
        return class_name(float(value) if labels is None else labels[int(value)])

    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The target {target!r} has more than {MAX_CLASSES} values, so it does not hold "
            f"classes: {learner} is not for it."
        )
    if len(classes) < 2 or (most is not None and len(classes) > most):
        few = ", ".join(name_of(value) for value in classes[:6])
        needed = "two classes; with more use softmax" if most == 2 else "classes"
        raise DataError(
            f"{learner[:1].upper()}{learner[1:]} needs a target of {needed}; {target!r} has "
            f"{len(classes)} values among the training rows ({few})."
        )
    unknown = np.setdiff1d(counts.test.values, classes)
    if len(unknown):
        name = f"{learner[:1].upper()}{learner[1:]}"
        many = f" {name} treats each of the {len(classes)} values as a class."
        raise DataError(
            f"The value {name_of(unknown[0])} of the target {target!r} occurs only in "
            "held-out rows, so no model can learn it. Drop these rows, or hold out "
            f"others.{many if len(classes) > _MANY_CLASSES else ''}"
        )
    return classes
