"""From partitions of rows to the statistics of generalised linear models, and to their losses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from distfms.data.batches import RowBatch
from distfms.data.dataset import Partition
from distfms.errors import DataError
from distfms.methods.contract import PartialReader
from distfms.methods.rows import RowSource
from distfms.methods.sequence.glm_statistics import GlmDesign, GlmLosses, GlmStatistics
from distfms.methods.sequence.read import Scorers
from distfms.methods.sequence.scores import AccuracyCounts
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle

MAX_CLASSES = 1000
"""Most classes that a target is taken to have."""

_CHUNK_VALUES = 1 << 20


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
class GlmSource:
    """Rows as a generalised linear model sees them.

    Attributes
    ----------
    rows : RowSource
    design : GlmDesign
    classes : tuple of float, or None
        Classes of the only target; None where targets are numbers of their own.
    """

    rows: RowSource
    design: GlmDesign
    classes: tuple[float, ...] | None

    def slices(self, block: RowBatch) -> tuple[slice, slice]:
        """Training rows (of all folds, they follow one another) and held-out rows of a block."""
        if self.rows.held_out:
            return slice(0, 0), slice(0, block.n_rows)
        start = block.part_slices[-1].start
        return slice(0, start), slice(start, block.n_rows)

    def response(self, block: RowBatch, rows: slice) -> np.ndarray:
        """Responses of rows: class numbers (n,), or values (P, n)."""
        target = block.target[:, rows]
        if self.classes is None:
            return target
        return np.searchsorted(np.array(self.classes), target[0]).astype(np.float64)

    def key(self) -> dict[str, Any]:
        """Everything but partition and models that a partial depends on."""
        design = self.design
        return {
            **self.rows.key(),
            "family": design.family.name,
            "classes": self.classes,
            "standardisation": digest(design.mean, design.scale),
        }


def digest(*arrays: np.ndarray) -> str:
    """Hexadecimal digest of arrays."""
    content = hashlib.sha256()
    for array in arrays:
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


@dataclass(frozen=True, eq=False)
class GlmReader(PartialReader):
    """Reads ``glm`` (`GlmStatistics` of the training rows at given coefficients): one Newton step.

    Attributes
    ----------
    source : GlmSource
    weights : ndarray of shape (D + 1, P)
        Coefficients of the standardised columns, intercept last.
    support : ndarray of int, shape (s,)
        Columns that the Hessian is wanted for.
    """

    source: GlmSource
    weights: np.ndarray
    support: np.ndarray

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"glm": GlmStatistics}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise its training rows."""
        design = self.source.design
        nothing = self._statistics(np.zeros((design.n_columns, 0)), None, None)
        if self.source.rows.held_out:
            return Bundle({"glm": Folded((nothing, nothing))})
        block = self.source.rows.read(partition)
        train, _ = self.source.slices(block)
        weight = None if block.weight is None else block.weight[train]
        response = self.source.response(block, train)
        statistics = self._statistics(block.features[:, train], response, weight)
        return Bundle({"glm": Folded((statistics, nothing))})

    def _statistics(
        self, features: np.ndarray, response: np.ndarray | None, weight: np.ndarray | None
    ) -> GlmStatistics:
        if response is None:
            response = np.zeros((self.weights.shape[1], 0))
        return GlmStatistics.from_block(
            features,
            response,
            weight,
            self.weights,
            design=self.source.design,
            support=self.support,
        )

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        models = digest(self.weights, self.support)
        return {**self.source.key(), "kind": "glm", "models": models}


@dataclass(frozen=True, eq=False)
class GlmLossReader(PartialReader):
    """Reads ``losses`` (`GlmLosses`) and, of classes, ``accuracy`` (`AccuracyCounts`) of models.

    Parts are the training rows and the held-out rows.

    Attributes
    ----------
    source : GlmSource
    weights : ndarray of shape (M, D + 1, P)
        Coefficients of the standardised columns, intercept last.
    """

    source: GlmSource
    weights: np.ndarray

    @property
    def classifies(self) -> bool:
        """Whether there is an accuracy."""
        return self.source.design.family.name in ("logistic", "softmax")

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        types: dict[str, type[Any]] = {"losses": GlmLosses}
        return types | ({"accuracy": AccuracyCounts} if self.classifies else {})

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge the models on its rows."""
        block = self.source.rows.read(partition)
        parts = self.source.slices(block)
        members: dict[str, Folded[Any]] = {
            "losses": Folded(tuple(self._losses(block, rows) for rows in parts))
        }
        if self.classifies:
            members["accuracy"] = Folded(tuple(self._accuracy(block, rows) for rows in parts))
        return Bundle(members)

    def _losses(self, block: RowBatch, rows: slice) -> GlmLosses:
        weight = None if block.weight is None else block.weight[rows]
        return GlmLosses.from_block(
            block.features[:, rows],
            self.source.response(block, rows),
            weight,
            self.weights,
            design=self.source.design,
        )

    def _accuracy(self, block: RowBatch, rows: slice) -> AccuracyCounts:
        softmax = self.source.design.family.name == "softmax"
        n_outputs = 1 if softmax else self.weights.shape[2]
        result = AccuracyCounts.empty(len(self.weights), n_outputs)
        pairs = [self.source.design.original_units(weights) for weights in self.weights]
        coefficients, intercept = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
        scorers = Scorers(coefficients, intercept, self.source.design.mean)
        for chunk in _chunks(rows, self.weights.size):
            weight = None if block.weight is None else block.weight[chunk]
            scores = scorers(block.features[:, chunk])
            response = self.source.response(block, chunk)
            if softmax:
                right = scores.argmax(axis=2) == response[:, np.newaxis]
                scores = np.where(right, 1.0, -1.0)[:, :, np.newaxis]
                response = np.ones((1, len(response)))
            found = AccuracyCounts.from_scores(scores, np.atleast_2d(response).T, 0.0, weight)
            result = result.merge(found)
        return result

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "glm-losses", "models": digest(self.weights)}


def _chunks(rows: slice, values_per_row: int) -> Iterator[slice]:
    """Yield runs of rows whose scores fit the cache."""
    step = max(64, _CHUNK_VALUES // max(values_per_row, 1))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def class_labels(target: str, classes: Sequence[float]) -> tuple[str, ...]:
    """Names of the outputs of a softmax model: ``target=class``."""
    return tuple(f"{target}={value:g}" for value in classes)
