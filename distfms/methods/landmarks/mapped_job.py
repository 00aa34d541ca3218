"""What a job of landmarks reads: rows that become landmarks, their metric, and similarities."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan, RowBatch, require_observed
from distfms.data.folds import hash_keys, mix, row_hashes, with_seed
from distfms.data.partition import Partition
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, Inputs, PartialReader, Stage
from distfms.methods.landmarks.fit import EmbeddedRows
from distfms.methods.landmarks.metric import LANDMARKS_TAUGHT, Lesson, Metric, learned, told, under
from distfms.methods.landmarks.options import DEFAULT_LANDMARKS, LandmarksOptions
from distfms.methods.landmarks.similarity import (
    KERNELS,
    MOST_COLUMNS,
    PRECOMPUTED,
    LandmarkMap,
    column_map,
    landmark_arrays,
    landmark_maps,
    user_function,
)
from distfms.methods.landmarks.squared import COLUMNS, coded, of_fold
from distfms.methods.passes import Sums
from distfms.methods.ranking import NormalisedGains
from distfms.methods.row_job import RowJob
from distfms.methods.row_predictor import plan_of_model, sources_of
from distfms.methods.rows import RowCounts, RowSource, naming
from distfms.stats.base import Bundle, Folded, below, joined, merge_tree
from distfms.stats.comoments import CoMoments, Moments
from distfms.stats.sample import RowSample

LANDMARKS = "statistics/landmarks.npz"
#: One row in this many, by the hash of its id or content, judges a metric and teaches none.
_JUDGE = 4
#: Rows of which a metric is learned by default, and how many numbers these have at most.
METRIC_ROWS, METRIC_VALUES = 8192, 2**22
METRICS, METRIC = "statistics/metrics.npz", "metric.json"


class MappedJob(RowJob):
    """A job on similarities to landmarks, which it chooses."""

    options: LandmarksOptions

    def __init__(self, options: LandmarksOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options, inputs, seed)
        self.similarities = [section.similarity for section in options.similarity]
        names = {similarity.name for similarity in self.similarities}
        #: Labels of the similarities whose metric, width and ridge are learned from the target.
        learns = options.metric != "none" and options.task != "ranking"
        kernels = [own for own in self.similarities if own.name in KERNELS]
        self.learned = tuple(own.label for own in kernels if learns)
        self.most_columns = 0 if options.is_precomputed else MOST_COLUMNS  # of the linear reference
        if len(self.roles.target) > 1:
            raise SpecError(
                f"`data.target` names {len(self.roles.target)} columns; landmarks predict one."
            )
        if len(names) > 1 and PRECOMPUTED in names:
            raise SpecError(
                "`landmarks.similarity` lists `precomputed` beside others: the features are either "
                "similarities or values to compare."
            )
        if PRECOMPUTED in names and self.categorical:
            raise SpecError(
                f"With the similarity `precomputed` all features are numbers; "
                f"{self.categorical[0]!r} holds texts. Leave it out with `data.exclude`."
            )
        if len(self.similarities) > 1:
            if inputs.section.folds < 2:
                raise SpecError(
                    "`landmarks.similarity` is a list for cross-validation to choose from: set "
                    "`data.folds` to at least 2, or name one similarity."
                )
            self.tuned_after = "similarities"
        for name in options.functions:
            user_function(name)

    @staticmethod
    def takes_text(options: Any) -> bool:
        """Return whether the target may be text, which names classes."""
        return bool(options.task == "classification")

    def most_landmarks(self) -> int:
        """Return how many landmarks there are at most, before the rows are known."""
        if self.options.is_precomputed:
            return len(self.roles.features)
        pool = self.inputs.unlabelled or self.inputs.train
        return self.options.landmarks or min(DEFAULT_LANDMARKS, pool.n_rows)

    def metric_rows(self) -> int:
        """Return how many rows a metric is learned from at most; 0 without any."""
        most = min(METRIC_ROWS, METRIC_VALUES // max(self.guessed_columns(), 1))
        return (self.options.metric_rows or most) if self.learned else 0

    def sample_size(self) -> int:
        """Return how many rows of each part are sampled."""
        return max(self.options.sample, self.most_landmarks(), self.metric_rows())

    def task_bytes(self) -> int:
        """Return what learning a metric takes: copies of similarities, and of rows."""
        n_rows = min(self.metric_rows(), self.inputs.train.n_rows)
        n_values = 7 * max(LANDMARKS_TAUGHT, self.most_landmarks()) + 4 * self.guessed_columns()
        return 8 * n_rows * n_values

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages before the statistics: levels, landmarks, and their metric."""
        metric = [Stage("metric", self._metric)] if self.learned else []
        own = [*self.target_stages(), Stage("landmarks", self._landmarks), *metric]
        return [*super().first_stages(), *own]

    def target_stages(self) -> Sequence[Stage]:
        """Return the stages that read what the target holds."""
        return ()

    def _landmarks(self, context: Context) -> Mapping[str, Content]:
        """Sample rows, take landmarks and the scales of features from them."""
        plan = self.plan(context)
        size = self.sample_size()
        found = context.reduce(lambda *of: SampleReader(self.source(plan, *of), size))
        sample: Folded[RowSample] = found["sample"]
        train, moments = sample.train(), found["moments"].train()
        pool = self._pool(context, plan, train)
        self.require_rows(train.n_rows, sample.test.n_rows)
        wanted = 2 if self.options.is_precomputed else max(2, self.options.landmarks or 2)
        if pool.n_rows < wanted:
            where = (self.inputs.unlabelled or self.inputs.train).place
            raise DataError(
                f"There are {pool.n_rows} rows to take landmarks from in {where}, and "
                f"`landmarks.landmarks` is {wanted}: choose at most {pool.n_rows}."
            )
        require_observed(plan.feature_names, moments.weight[: plan.n_features])
        self.tell_counts(context, plan, found["counts"])
        landmarks, own = landmark_arrays(
            pool, moments, plan.n_features, self.options, self.most_landmarks()
        )
        constant = [n for n, s in zip(plan.feature_names, own["scale"], strict=True) if not s]
        if constant:
            context.note(f"Constant columns are ignored: {', '.join(constant)}.")
        ids: Any = landmarks.row_ids if landmarks.ids is None else landmarks.ids
        if self.options.is_precomputed:
            ids = np.array(plan.feature_names)
        own["range"] = np.array([moments.minimum[-1], moments.maximum[-1]])
        kept = {f"sample/{name}": array for name, array in sample.to_arrays().items()}
        return {LANDMARKS: {**own, **kept, "ids": ids}}

    def _pool(self, context: Context, plan: ColumnPlan, train: RowSample) -> RowSample:
        """Return the sampled rows that landmarks are chosen from."""
        dataset = self.inputs.unlabelled
        if dataset is None:
            return train
        own = plan_of_model(dataset, self.roles.features, sources_of(plan), self.roles.id)
        source = RowSource(dataset.reader, self.inputs.section, self.seed, True, own)
        read = SampleReader(source, self.sample_size())
        parts = [found["sample"].test for found in context.map(read, dataset.partitions)]
        pool: RowSample = merge_tree(parts)
        return pool

    def sample(self, context: Context) -> Folded[RowSample]:
        """Return the sampled rows of each part."""
        arrays = context.read_arrays(LANDMARKS)
        return Folded.from_arrays(below("sample/", arrays), RowSample)

    def _metric(self, context: Context) -> Mapping[str, Content]:
        """Learn metrics of all training rows and without each fold, side by side."""
        sample, plain = self.sample(context), self.plain_maps(context)
        n_folds, most = sample.n_folds, self.metric_rows()
        lessons = dict[str, Lesson]()

        def lesson(mapping: LandmarkMap, rows: RowSample) -> Lesson:
            keys = rows.hashes if rows.ids is None else hash_keys(rows.ids)
            return mapping, rows, mix(mix(keys)) % np.uint64(_JUDGE) == 0

        for own in self.similarities:
            if own.label in self.learned:
                mapping = replace(plain[own.label], similarity=own)
                lessons[own.label] = lesson(mapping, sample.train().first(most))
                for fold in range(n_folds if n_folds > 1 else 0):
                    rows = sample.train_without(fold).first(most * (n_folds - 1) // n_folds)
                    lessons[of_fold(own.label, fold)] = lesson(mapping, rows)
        learn = partial(learned, self.options, self.classes(context))
        answers = context.map(learn, list(lessons.values()))
        found = dict(zip(lessons, answers, strict=True))
        used = plain[self.learned[0]].scale > 0
        names = [n for n, u in zip(self.plan(context).feature_names, used, strict=True) if u]
        arrays = {name: own[0].to_arrays() for name, own in found.items() if own}
        said = {label: told(found[label], names) for label in self.learned}
        return {METRICS: joined(arrays), METRIC: said}

    def plain_maps(self, context: Context) -> dict[str, LandmarkMap]:
        """Return the maps from features to similarities by label, without a metric."""
        arrays = context.read_arrays(LANDMARKS)
        train = Folded.from_arrays(below("sample/", arrays), RowSample).train()
        return landmark_maps(self.similarities, arrays, train)

    def maps(self, context: Context, fold: int | None = None) -> dict[str, LandmarkMap]:
        """Return the maps from features to similarities, by label; without a fold, of its own."""
        found = self.all_maps(context)
        names = [label for label in found if "@" not in label]
        return {label: found.get(f"{label}@{fold}", found[label]) for label in names}

    def all_maps(self, context: Context) -> dict[str, LandmarkMap]:
        """Return the maps of all training rows, and of those without each fold."""
        found = self.plain_maps(context)
        arrays = context.read_arrays(METRICS) if self.learned else {}
        if COLUMNS in self.options.baselines:
            found[COLUMNS] = column_map(context.read_arrays(LANDMARKS), self.most_columns)
        n_folds = self.inputs.section.folds
        for label in self.learned:
            plain = found[label]
            for name in (label, *(of_fold(label, f) for f in range(n_folds if n_folds > 1 else 0))):
                own = below(f"{name}/", arrays)
                found[name] = under(plain, Metric.from_arrays(own) if own else None)
        return found


# --- readers -----------------------------------------------------------------------------------


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


def weighed(batch: RowBatch, rows: slice) -> Any:
    """Return what takes those of some rows that have weight."""
    return rows if batch.weight is None else rows.start + np.flatnonzero(batch.weight[rows] > 0)


def sample_part(batch: RowBatch, hashes: np.ndarray, rows: slice, size: int) -> RowSample:
    """Sample the rows of one part of a batch that have weight, which follows their values."""
    own = weighed(batch, rows)
    ids, values = batch.rows.id, batch.values[:, own]
    if ids is not None:
        ids = ids[own] if ids.dtype.kind in "iu" else ids[own].astype(str)
    if batch.weight is not None:
        values = np.vstack((values, batch.weight[own]))
    return RowSample.from_rows(size, hashes[own], batch.row_ids[own], values, ids)


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
