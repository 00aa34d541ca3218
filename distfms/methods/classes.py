"""Classes of a target, found by a pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distfms.data.batches import RowBatch
from distfms.errors import DataError
from distfms.stats.base import Fields, Folded

MAX_CLASSES = 1000
"""Most classes that a target is taken to have."""

#: More classes than this may be numbers that were meant to be predicted as such.
_MANY_CLASSES = 20


@dataclass(frozen=True, eq=False)
class ClassCounts(Fields):
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

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of the rows of both."""
        together = np.concatenate((self.values, other.values))
        return self.from_rows(together, np.concatenate((self.weight, other.weight)))


def find_classes(
    counts: Folded[ClassCounts],
    target: str,
    what: str,
    most: int | None = None,
    levels: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the classes of a target, ascending.

    `what` wants them and can do with `most`, for messages; `levels` name them, where values are
    positions among these. Fewer than two classes, too many, or others in held-out rows are refused.
    """
    train, test = counts.train(), counts.test
    classes = train.values[train.weight > 0]
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The target {target!r} has more than {MAX_CLASSES} values, so it is no class: "
            f"{what} is not for it."
        )
    if len(classes) < 2 or (most is not None and len(classes) > most):
        few = ", ".join(class_name(value, levels) for value in classes[:6])
        wanted = "two classes; with more use softmax" if most == 2 else "classes"
        raise DataError(
            f"{what[:1].upper()}{what[1:]} wants a target of {wanted}; {target!r} has "
            f"{len(classes)} values among the training rows ({few})."
        )
    unknown = np.setdiff1d(test.values[test.weight > 0], classes)
    if len(unknown):
        many = f" {what[:1].upper()}{what[1:]} takes each of the {len(classes)} values for a class."
        raise DataError(
            f"The value {class_name(unknown[0], levels)} of the target {target!r} occurs in "
            "held-out rows only, so no model can know it. Leave these rows out, or hold out others."
            f"{many if len(classes) > _MANY_CLASSES else ''}"
        )
    return classes


def class_name(value: float, levels: Sequence[str] | None = None) -> str:
    """Write a class: its number, or what stands at this position among the levels."""
    return f"{value:g}" if levels is None else levels[int(value)]


def class_counts(batch: RowBatch, part: int) -> dict[str, ClassCounts]:
    """Count the values of the only target in a part of a batch."""
    rows = batch.part_slices[part]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"classes": ClassCounts.from_rows(batch.target[0, rows], weight)}
