"""Rows as their similarities to landmarks: co-moments of these, rows to fit to, scores of models.

All of it is picklable and takes rows in memory (`JudgedRows` by part): those of a partition that a
reader has read, or all that a job keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.files.partition import Partition
from distfms.methods.frame.contract import PartialReader
from distfms.methods.frame.judge import JudgedRows
from distfms.methods.frame.ranking import NormalisedGains
from distfms.methods.frame.rows import RowSource, naming
from distfms.methods.landmarks.fit import EmbeddedRows
from distfms.methods.landmarks.similarity import PRECOMPUTED, LandmarkMap
from distfms.methods.landmarks.squared import Linear, coded
from distfms.stats.base import Bundle, Folded, merge_tree
from distfms.stats.codec import encode
from distfms.stats.comoments import CoMoments
from distfms.stats.sums import Sums

# --- co-moments ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SimilarityMoments:
    """Co-moments of what each map makes of rows, and of the target.

    Attributes
    ----------
    maps : mapping of str to LandmarkMap
        By the label of the similarity. Those whose metric was learned, as `of_fold` names them or
        of all training rows, have two parts in place of the folds: the rows that were learned from
        and the others.
    learned : tuple of str
        Labels of similarities with a metric that was learned.
    gains : sequence of NormalisedGains
        For a ranking, what training and held-out rows are to be predicted in place of the target.
    """

    maps: Mapping[str, LandmarkMap]
    learned: tuple[str, ...] = ()
    gains: Sequence[NormalisedGains] = ()

    def of_label(self, rows: Sequence[JudgedRows], label: str) -> Folded[CoMoments]:
        """Sum up the rows of all parts by the map of a label."""
        parts = []
        for numbers in self._parts(label, len(rows)):
            moments = [self._of_part(label, rows[part], part == len(rows) - 1) for part in numbers]
            parts.append(merge_tree(moments))
        return Folded(tuple(parts))

    def _parts(self, label: str, n_parts: int) -> list[list[int]]:
        """Return the parts of rows that each part of a member sums up."""
        *folds, test = range(n_parts)
        name, _, fold = label.rpartition("@")
        if label in self.learned:
            return [folds, [test]]
        if name in self.learned:
            return [[number for number in folds if number != int(fold)], [int(fold)]]
        return [[part] for part in range(n_parts)]

    def _of_part(self, label: str, rows: JudgedRows, is_held_out: bool) -> CoMoments:
        target = rows.target[0]
        if self.gains:
            assert rows.queries is not None
            target = self.gains[is_held_out](rows.queries, target)
        return embedded_moments(self.maps[label], rows.features, target, rows.weight)


def embedded_moments(
    mapping: LandmarkMap, features: np.ndarray, target: np.ndarray, weight: np.ndarray | None
) -> CoMoments:
    """Return co-moments of similarities and a target, some rows at a time.

    Parameters
    ----------
    mapping : LandmarkMap
    features : ndarray of shape (d, n)
    target : ndarray of shape (n,)
    weight : ndarray of shape (n,), or None
    """
    moments = CoMoments.empty(mapping.n_landmarks + 1)
    for rows, block in mapping.blocks(features):
        block[-1] = target[rows]
        weight_of_block = None if weight is None else weight[rows]
        moments = moments.merge(CoMoments.from_block(block, weight_of_block, overwrite=True))
    return moments


@dataclass(frozen=True, eq=False)
class SimilarityReader(PartialReader):
    """Reads what `SimilarityMoments` sums up, by label."""

    source: RowSource
    moments: SimilarityMoments

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and sum up."""
        batch = self.source.read(partition)
        rows = [JudgedRows.of_part(batch, part) for part in range(self.source.n_parts)]
        with naming(partition):
            members = {label: self.moments.of_label(rows, label) for label in self.moments.maps}
        return Bundle(members)

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        moments = self.moments
        content = encode([moments.maps, moments.learned, moments.gains])
        digest = hashlib.sha256(content).hexdigest()
        return {**self.source.key(), "kind": "similarities", "known": digest}


def split_learned(
    learned: tuple[str, ...], bundle: Bundle, number: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the statistics of all training rows but those of a fold, and of the fold.

    Those of similarities with a learned metric are under the metric of the other rows.
    """
    train = dict[str, Any]()
    held_out = dict[str, Any]()
    for label, part in bundle.members.items():
        name, _, fold = label.rpartition("@")
        if name in learned and int(fold) == number:
            train[name], held_out[name] = part.parts
        elif name not in learned and label not in learned:
            train[label] = part.train_without(number)
            held_out[label] = part.folds[number]
    return train, held_out


# --- rows to fit to ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Embedding:
    """Picklable function from the rows of a part to their similarities.

    Attributes
    ----------
    maps : mapping of str to LandmarkMap
        By the label of the similarity.
    classes : tuple of float, or None
        Values of the target that are read as their numbers.
    """

    maps: Mapping[str, LandmarkMap]
    classes: tuple[float, ...] | None

    def __call__(self, rows: JudgedRows, part: int) -> EmbeddedRows:
        """Embed rows into memory of their own."""
        similarities = {label: mapping(rows.features) for label, mapping in self.maps.items()}
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight.copy()
        return EmbeddedRows(part, similarities, coded(self.classes, rows.target[0]).copy(), weight)


@dataclass(frozen=True, eq=False)
class EmbeddedReader:
    """What passes read and add up; a :class:`~distfms.methods.frame.passes.RowReader`."""

    source: RowSource
    embedding: Embedding

    def read(self, partition: Partition) -> list[EmbeddedRows]:
        """Return the similarities of the training rows of each part."""
        if self.source.held_out:
            return []
        batch = self.source.read(partition)
        parts = []
        with naming(partition):
            for part in range(self.source.n_parts - 1):  # the held-out rows come last
                rows = JudgedRows.of_part(batch, part)
                if rows.n_rows:
                    parts.append(self.embedding(rows, part))
        return parts

    def sums(self, rows: list[EmbeddedRows], message: Any) -> Sums:
        """Add up over rows what the message says."""
        sums: Sums = message.sums(rows)
        return sums


# --- scores to judge -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearScores:
    """Scores of models on the similarities of a map; `Models` of the judge.

    Attributes
    ----------
    mapping : LandmarkMap
    models : sequence of Linear
    limits : sequence of float
        Least and greatest score.
    """

    mapping: LandmarkMap
    models: Sequence[Linear]
    limits: Sequence[float] = (-np.inf, np.inf)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return scores (M, P, n) of rows (d, n)."""
        mapping = self.mapping
        used = np.arange(mapping.n_landmarks)
        if mapping.similarity.name != PRECOMPUTED:
            used = np.unique(np.concatenate([model.landmarks for model in self.models]))
            mapping = mapping.restricted(used)
        similarities = mapping(features)
        scores = []
        for model in self.models:
            places = np.searchsorted(used, model.landmarks)
            scores.append(model.scores(similarities[places]))
        least, most = self.limits
        return np.clip(np.stack(scores), least, most)

    @property
    def n_scores(self) -> int:
        """Numbers of a row: scores, and similarities."""
        n_outputs = len(self.models[-1].offset)
        return max(len(self.models) * n_outputs, self.mapping.n_landmarks)
