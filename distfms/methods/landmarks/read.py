"""What is read of rows: a sample that landmarks come from, then similarities to the landmarks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import RowBatch
from distfms.data.folds import hash_keys, mix, row_hashes, with_seed
from distfms.data.partition import Partition
from distfms.methods.contract import PartialReader
from distfms.methods.landmarks.fit import EmbeddedRows
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import coded
from distfms.methods.passes import Sums
from distfms.methods.ranking import NormalisedGains
from distfms.methods.rows import RowCounts, RowSource, naming
from distfms.stats.base import Bundle, Folded, merge_tree
from distfms.stats.comoments import CoMoments, Moments
from distfms.stats.sample import RowSample


def sample_hashes(batch: RowBatch, partition: Partition, seed: int) -> np.ndarray:
    """Hash the rows of a batch, whatever the partitions are.

    With ids their values decide, and the features of the row, as several rows may have one id;
    otherwise the file's name and the row's number in it. Targets have no say.
    """
    if batch.rows.id is not None:
        hashes = hash_keys(batch.rows.id)
        for values in batch.features:
            plain = np.where(np.isnan(values), 0.0, values + 0.0)  # no sign of zero, one gap
            hashes = mix(hashes ^ plain.view(np.uint64))
    else:
        hashes = row_hashes(partition)[batch.row_ids - partition.row_offset]
    return with_seed(mix(hashes), seed)


def sample_part(batch: RowBatch, hashes: np.ndarray, rows: slice, size: int) -> RowSample:
    """Sample the rows of one part of a batch that have weight, which follows their values."""
    named = batch.rows.id
    ids = None if named is None else named[rows]
    if ids is not None and ids.dtype.kind not in "iu":
        ids = ids.astype(str)
    content = (hashes[rows], batch.row_ids[rows], batch.values[:, rows])
    if batch.weight is not None:
        weight = batch.weight[rows]
        counts = weight > 0
        values = np.vstack((content[2], weight))[:, counts]
        content = (content[0][counts], content[1][counts], values)
        ids = None if ids is None else ids[counts]
    return RowSample.from_rows(size, *content, ids)


@dataclass(frozen=True)
class SampleReader(PartialReader):
    """Reads ``sample`` (`RowSample` of features and targets), ``moments`` and ``counts``.

    Attributes
    ----------
    source : RowSource
    size : int
        Rows of the sample of each part.
    """

    part_types: ClassVar = {"sample": RowSample, "moments": Moments, "counts": RowCounts}
    source: RowSource
    size: int

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise each of its parts."""
        source, batch = self.source, self.source.read(partition)
        hashes = sample_hashes(batch, partition, source.seed)

        def sample(part: int) -> RowSample:
            return sample_part(batch, hashes, batch.part_slices[part], self.size)

        def moments(part: int) -> Moments:
            rows = batch.part_slices[part]
            weight = None if batch.weight is None else batch.weight[rows]
            return Moments.from_block(batch.values[:, rows], weight)

        has_gaps = source.section.missing == "mean"
        counts = partial(RowCounts.from_block, batch, count_missing=has_gaps)
        members: dict[str, Any] = {
            "sample": source.folded(sample),
            "moments": source.folded(moments),
            "counts": source.folded(counts),
        }
        return Bundle(members)

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "rows by id and features", "size": self.size}

    def partition_key(self, partition: Partition) -> str:
        """Return the fingerprint, and the number of the first row: a sample holds row numbers."""
        return f"{partition.fingerprint}:{partition.row_offset}"


def query_keys(batch: RowBatch, rows: slice | np.ndarray) -> np.ndarray:
    """Return hashes of the queries of some rows."""
    assert batch.rows.query is not None
    return hash_keys(batch.rows.query[rows])


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
    found = CoMoments.empty(mapping.n_landmarks + 1)
    for rows, block in mapping.blocks(features):
        block[-1] = target[rows]
        own = None if weight is None else weight[rows]
        found = found.merge(CoMoments.from_block(block, own, overwrite=True))
    return found


def split_learned(
    learned: tuple[str, ...], bundle: Bundle, number: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the statistics of all training rows but those of a fold, and of the fold.

    Those of similarities with a learned metric are under the metric of the other rows.
    """
    train, held_out = dict[str, Any](), dict[str, Any]()
    for label, part in bundle.members.items():
        name, _, fold = label.rpartition("@")
        if name in learned and int(fold) == number:
            train[name], held_out[name] = part.parts
        elif not {name, label} & set(learned):
            train[label], held_out[label] = part.train_without(number), part.folds[number]
    return train, held_out


@dataclass(frozen=True, eq=False)
class SimilarityReader(PartialReader):
    """Reads `CoMoments` of what each map makes of rows, and of the target.

    Attributes
    ----------
    source : RowSource
    maps : mapping of str to LandmarkMap
        By the label of the similarity. Those whose metric was learned, as `of_fold` names them or
        of all training rows, have two parts in place of the folds: the rows that were learned from
        and the others.
    learned : tuple of str
        Labels of similarities with a metric that was learned.
    gains : sequence of NormalisedGains
        For a ranking, what training and held-out rows are to be predicted in place of the target.
    """

    source: RowSource
    maps: Mapping[str, LandmarkMap]
    learned: tuple[str, ...] = ()
    gains: Sequence[NormalisedGains] = ()

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return dict.fromkeys(self.maps, CoMoments)

    def parts(self, label: str) -> list[list[int]]:
        """Return the parts of a batch that each part of a member sums up."""
        *folds, test = range(self.source.n_parts)
        name, _, fold = label.rpartition("@")
        if label in self.learned:
            return [folds, [test]]
        if name in self.learned:
            return [[f for f in folds if f != int(fold)], [int(fold)]]
        return [[part] for part in (*folds, test)]

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and sum up."""
        batch = self.source.read(partition)
        with naming(partition):
            return Bundle(
                {
                    label: Folded(
                        tuple(
                            merge_tree([self._moments(mapping, batch, part) for part in parts])
                            for parts in self.parts(label)
                        )
                    )
                    for label, mapping in self.maps.items()
                }
            )

    def _moments(self, mapping: LandmarkMap, batch: RowBatch, part: int) -> CoMoments:
        rows = batch.part_slices[part]
        features, target = batch.features[:, rows], batch.target[0, rows]
        weight = None if batch.weight is None else batch.weight[rows]
        if self.gains:
            own = self.gains[part == len(batch.part_slices) - 1]
            target = own(query_keys(batch, rows), target)
        return embedded_moments(mapping, features, target, weight)

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        arrays = [array.tobytes() for own in self.gains for array in (own.keys, own.norms)]
        gains = hashlib.sha256(b"".join(arrays)).hexdigest() if arrays else ""
        known = {"maps": digest(self.maps), "learned": self.learned, "gains": gains}
        return {**self.source.key(), "kind": "similarities", **known}


@dataclass(frozen=True, eq=False)
class EmbeddedReader:
    """What passes read and add up; a :class:`~distfms.methods.passes.RowReader`.

    Attributes
    ----------
    source : RowSource
    maps : mapping of str to LandmarkMap
        By the label of the similarity.
    classes : tuple of float, or None
        Values of the target that are read as their numbers.
    judges : bool
        Whether held-out rows are read, too.
    """

    source: RowSource
    maps: Mapping[str, LandmarkMap]
    classes: tuple[float, ...] | None = None
    judges: bool = False

    def read(self, partition: Partition) -> list[EmbeddedRows]:
        """Return the similarities of the rows of each part."""
        if self.source.held_out and not self.judges:
            return []
        batch = self.source.read(partition)
        parts = list(enumerate(batch.part_slices))[: None if self.judges else -1]
        found = []
        with naming(partition):
            for part, rows in parts:
                if rows.stop > rows.start:
                    target = coded(self.classes, batch.target[0, rows]).copy()
                    weight = np.ones(len(target)) if batch.weight is None else batch.weight[rows]
                    own = {label: f(batch.features[:, rows]) for label, f in self.maps.items()}
                    found.append(EmbeddedRows(part, own, target, weight.copy()))
        return found

    def sums(self, rows: list[EmbeddedRows], message: Any) -> Sums:
        """Add up over rows what the message says."""
        found: Sums = message.sums(rows)
        return found


def digest(maps: Mapping[str, LandmarkMap]) -> str:
    """Return a hexadecimal digest of maps."""
    content = hashlib.sha256()
    for label, mapping in maps.items():
        content.update(repr((label, mapping.similarity)).encode())
        for array in mapping.arrays.values():
            content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()
