"""From partitions of rows to the statistics of generalised linear models, and to their losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from distfms.data.batches import RowBatch
from distfms.data.dataset import Partition
from distfms.errors import DataError
from distfms.methods.contract import PartialReader
from distfms.methods.passes import Sums
from distfms.methods.rows import RowSource
from distfms.methods.sequence.glm import GlmDesign, GlmRows
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle

MAX_CLASSES = 1000
"""Most classes that a target is taken to have."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Distinct values of a target; a mergeable statistic.

    Attributes
    ----------
    values : ndarray of shape (C,)
        Ascending; no more than `MAX_CLASSES`, further ones are forgotten.
    weight : ndarray of shape (C,)
        Σ w of the rows of each.
    """

    values: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_rows(cls, target: np.ndarray, weight: np.ndarray | None) -> ClassCounts:
        """Count the values of rows.

        Parameters
        ----------
        target : ndarray of shape (n,)
        weight : ndarray of shape (n,) or None
        """
        values, index = np.unique(target, return_inverse=True)
        return cls(values, np.bincount(index, weight, len(values)).astype(float))._capped()

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of the rows of both."""
        together = np.concatenate((self.values, other.values))
        return self.from_rows(together, np.concatenate((self.weight, other.weight)))

    def _capped(self) -> ClassCounts:
        # One more than allowed stays, so that the excess is seen.
        return ClassCounts(self.values[: MAX_CLASSES + 1], self.weight[: MAX_CLASSES + 1])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassCounts:
        """Inverse of `to_arrays`."""
        return cls(arrays["values"], arrays["weight"])


def find_classes(counts: Folded[ClassCounts], target: str, family: str) -> np.ndarray:
    """Classes of a target, ascending.

    Parameters
    ----------
    counts : Folded of ClassCounts
    target : str
        Its name, for messages.
    family : {"logistic", "softmax"}

    Raises
    ------
    DataError
        If they are too few or too many, or one has no training row.
    """
    train, test = counts.train(), counts.test
    classes = train.values[train.weight > 0]
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The target {target!r} has more than {MAX_CLASSES} values, so it is no class. Use "
            "another `sequence.family`."
        )
    if len(classes) < 2 or (family == "logistic" and len(classes) > 2):
        few = ", ".join(f"{value:g}" for value in classes[:6])
        wanted = "two classes; with more use softmax" if family == "logistic" else "classes"
        raise DataError(
            f"The {family} family wants a target of {wanted}; {target!r} has {len(classes)} "
            f"values among the training rows ({few})."
        )
    unknown = np.setdiff1d(test.values[test.weight > 0], classes)
    if len(unknown):
        raise DataError(
            f"The value {unknown[0]:g} of the target {target!r} occurs in held-out rows only, so "
            "no model can know it. Leave these rows out, or hold out others."
        )
    return classes


@dataclass(frozen=True)
class ClassReader(PartialReader):
    """Reads ``classes`` (`ClassCounts` of the only target).

    Attributes
    ----------
    source : RowSource
        With the plan of the target alone.
    """

    source: RowSource

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"classes": ClassCounts}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition's target."""
        block = self.source.read(partition)

        def counts(part: int) -> ClassCounts:
            rows = block.part_slices[part]
            weight = None if block.weight is None else block.weight[rows]
            return ClassCounts.from_rows(block.target[0, rows], weight)

        nothing = ClassCounts(np.zeros(0), np.zeros(0))
        return Bundle({"classes": self.source.folded(counts, nothing)})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "classes"}


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.passes.RowReader`.

    Attributes
    ----------
    source : RowSource
    design : GlmDesign
    classes : tuple of float or None
        Values of the only target that count as classes 0, 1, 2, ….
    judges : bool
        Add up the losses of several models, of training and of held-out rows, instead of the
        loss and gradient of one on the training rows.
    """

    source: RowSource
    design: GlmDesign
    classes: tuple[float, ...] | None
    judges: bool = False

    def read(self, partition: Partition) -> dict[str, GlmRows]:
        """Return standardised rows by part."""
        if self.source.held_out and not self.judges:
            return {}
        batch = self.source.read(partition)
        # Folds follow one another, and the held-out rows come last.
        first = 0 if self.source.held_out else batch.part_slices[-1].start
        parts = {"train": slice(0, first), "test": slice(first, batch.n_rows)}
        return {
            name: self._rows(batch, rows)
            for name, rows in parts.items()
            if self.judges or name == "train"
        }

    def _rows(self, batch: RowBatch, rows: slice) -> GlmRows:
        response = batch.target[:, rows]
        if self.classes is not None:
            response = np.searchsorted(np.array(self.classes), response[0])
        if self.design.family != "softmax":
            response = np.atleast_2d(response)
        weight = None if batch.weight is None else batch.weight[rows]
        return self.design.rows(batch.features[:, rows], response, weight)

    def sums(self, rows: Mapping[str, GlmRows], weights: np.ndarray) -> Sums:
        """Add up over rows, at weights (d + 1, P), or of models (K, d + 1, P)."""
        if not self.judges:
            return self.design.sums(rows["train"], weights) if rows else Sums({})
        return Sums(
            {
                f"{part}/{name}": array
                for part, own in rows.items()
                for name, array in self.design.losses(own, weights).arrays.items()
            }
        )


def class_labels(target: str, classes: Sequence[float]) -> tuple[str, ...]:
    """Names of the outputs of a softmax model: ``target=class``."""
    return tuple(f"{target}={value:g}" for value in classes)
