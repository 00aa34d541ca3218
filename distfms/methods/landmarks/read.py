"""What is read: rows that become landmarks, their metric, and co-moments of similarities."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch, require_observed
from distfms.data.rows.folds import hash_keys, mix, with_seed
from distfms.errors import DataError
from distfms.methods.frame.classes import Classes, count_classes
from distfms.methods.frame.contract import PartialReader, Run
from distfms.methods.frame.passes import Sums
from distfms.methods.frame.ranking import NormalisedGains, QueryCounts
from distfms.methods.frame.row_data import (
    Levels,
    read_levels,
    require_rows,
    summary_of_target,
    tell_counts,
)
from distfms.methods.frame.row_predictor import class_name, plan_of_model, sources_of
from distfms.methods.frame.rows import RowCounts, RowSource, SummaryReader, naming
from distfms.methods.landmarks.candidates import LANDMARKS_JUDGED
from distfms.methods.landmarks.fit import EmbeddedRows, JudgePass
from distfms.methods.landmarks.form import LandmarkForm
from distfms.methods.landmarks.kmeans import kmeans_rows
from distfms.methods.landmarks.read_choice import Choice, all_maps, read_choice
from distfms.methods.landmarks.similarity import (
    KMEANS,
    RANDOM,
    LandmarkMap,
    Similarity,
    landmark_arrays,
    landmark_maps,
)
from distfms.methods.landmarks.squared import COLUMNS, coded, of_fold
from distfms.stats.base import Bundle, Folded, merge_tree
from distfms.stats.codec import encode
from distfms.stats.comoments import CoMoments, Moments
from distfms.stats.sample import RowSample


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Rows to compare others with, and the sample that they are of.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Of a map to them; ``deviation`` of the columns.
    ids : mapping of str to ndarray of shape (L,)
        What names them, by source.
    range : ndarray of shape (2,)
        Least and greatest target of the training rows.
    sample : Folded of RowSample
        Rows of each part: features, target, and weight where there is any.
    """

    arrays: Mapping[str, np.ndarray]
    ids: Mapping[str, np.ndarray]
    range: np.ndarray
    sample: Folded[RowSample]


#: Labels of similarities, each with weights and intercepts (M, L + 1).
Models = Sequence[tuple[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class LandmarkData:
    """What was read of the rows.

    Attributes
    ----------
    form : LandmarkForm
    plan : ColumnPlan
    classes : Classes or None
        Of the target.
    landmarks : Landmarks
    plain, maps : mapping of str to LandmarkMap
        From features to similarities by label, without a metric; under the chosen ones, those
        without each fold (see `of_fold`) and the columns themselves included.
    choice : Choice or None
        None for a ranking, which is compared by its NDCG.
    statistics : Bundle
        `CoMoments` of what each map makes of the rows, and of the target.
    """

    form: LandmarkForm
    plan: ColumnPlan
    classes: Classes | None
    landmarks: Landmarks
    plain: Mapping[str, LandmarkMap]
    maps: Mapping[str, LandmarkMap]
    choice: Choice | None
    statistics: Bundle

    @property
    def class_values(self) -> tuple[float, ...] | None:
        """Classes or levels of the target, ascending, where it has any."""
        return None if self.classes is None else self.classes.values

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the target in the training rows."""
        moments = next(iter(self.statistics.members.values())).train()
        return float(np.sqrt(moments.variance()[-1]))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the similarities that models have, the best first where it is known."""
        if self.choice is None:
            return tuple(own.label for own in self.form.similarities)
        return self.choice.labels

    def is_compared_whole(self, n_landmarks: int) -> bool:
        """Return whether all rows, and so many landmarks, were compared."""
        n_rows = next(iter(self.statistics.members.values())).train().n_samples
        is_whole = self.choice is not None and self.choice.n_rows >= n_rows
        return is_whole and n_landmarks <= LANDMARKS_JUDGED

    @property
    def learned(self) -> tuple[str, ...]:
        """Labels of the similarities that each fold has a metric of its own for."""
        return tuple(label for label in self.maps if of_fold(label, 0) in self.maps)

    def source(self, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        return self.form.source(self.plan, dataset, held_out)

    def embedding(self, fold: int | None = None) -> Embedding:
        """Return the maps by label of all training rows, or of those without a fold."""
        labels = [label for label in self.maps if "@" not in label]
        maps = {label: self.maps.get(f"{label}@{fold}", self.maps[label]) for label in labels}
        return Embedding(maps, self.class_values)


def read_data(run: Run, form: LandmarkForm) -> LandmarkData:
    """Read all that models are made of; steps `categories` to `statistics`."""
    levels = read_levels(run, form)
    plan = form.plan(levels)
    classes = read_classes(run, form, levels, plan)
    plan = plan if classes is None else classes.planned(plan)
    gains = read_gains(run, form, plan)
    landmarks = run.step("landmarks", lambda: take_landmarks(run, form, plan))
    plain = landmark_maps(form.similarities, landmarks.arrays, landmarks.sample.train())
    choice = read_choice(run, form, classes, landmarks.arrays, landmarks.sample, plain)
    maps = all_maps(form, landmarks.arrays, plain, choice)
    learned = tuple(label for label in maps if of_fold(label, 0) in maps)

    def statistics() -> Bundle:
        found = run.reduce(
            lambda *of: SimilarityReader(form.source(plan, *of), maps, learned, gains),
            actors="embeddings",
        )
        check_similarities(form, found)
        return found

    found = run.step("statistics", statistics)
    return LandmarkData(form, plan, classes, landmarks, plain, maps, choice, found)


def read_classes(run: Run, form: LandmarkForm, levels: Levels, plan: ColumnPlan) -> Classes | None:
    """Return the classes or levels of the target, where it has any; step ``classes``."""
    known = form.options.levels

    def classes() -> Classes:
        found = count_classes(run, form, levels, plan, f"the task `{form.options.task}`")
        if known is None:
            return found
        unknown = [label for label in found.labels if found.levels or label not in known]
        if unknown:
            raise DataError(
                f"The target {found.target!r} has the value {class_name(unknown[0])}, which is not "
                f"among `landmarks.levels` ({', '.join(map(class_name, known))})."
            )
        return replace(found, values=tuple(known))

    return run.step("classes", classes) if form.has_classes else None


def read_gains(run: Run, form: LandmarkForm, plan: ColumnPlan) -> tuple[NormalisedGains, ...]:
    """Return what normalises gains of training and held-out rows; step ``queries``.

    Empty where no ranking is learned.
    """

    def queries() -> tuple[NormalisedGains, ...]:
        counts = summary_of_target(run, form, plan, "queries", query_counts)
        gains = (counts.train().gains(), counts.test.gains())
        n_empty = sum(int(np.count_nonzero(own.norms == 0)) for own in gains)
        if n_empty:
            n_queries = sum(len(own.norms) for own in gains)
            run.note(
                f"{n_empty:,} of {n_queries:,} queries have no relevant row and are left out of "
                "the mean NDCG."
            )
        return gains

    return run.step("queries", queries) if form.options.task == "ranking" else ()


def take_landmarks(run: Run, form: LandmarkForm, plan: ColumnPlan) -> Landmarks:
    """Sample rows, and take landmarks and the scales of features from them."""
    found = run.reduce(lambda *of: SampleReader.of(form.source(plan, *of), form.sample_size))
    sample: Folded[RowSample] = found["sample"]
    train, moments, options = sample.train(), found["moments"].train(), form.options
    pool = train if form.inputs.unlabelled is None else sample_unlabelled(run, form, plan)
    require_rows(form, [part.n_rows for part in sample.parts])
    pool = pool.taken(np.unique(pool.hashes, return_index=True)[1])  # a row twice is one landmark
    given = 2 if options.landmarks == "auto" else options.landmarks
    wanted = 2 if options.is_precomputed else max(2, given)
    if pool.n_rows < wanted:
        where = (form.inputs.unlabelled or form.inputs.train).place
        raise DataError(
            f"There are {pool.n_rows} rows to take landmarks from in {where}, and "
            f"`landmarks.landmarks` is {wanted}: choose at most {pool.n_rows}."
        )
    require_observed(plan.feature_names, moments.weight[: plan.n_features])
    tell_counts(run, form, plan, found["counts"])
    arrays = landmark_arrays(pool, moments, plan.n_features, options, form.most_landmarks)
    n = len(arrays["landmarks"])
    constant = [n for n, s in zip(plan.feature_names, arrays["scale"], strict=True) if not s]
    if constant:
        run.note(f"Constant columns are ignored: {', '.join(constant)}.")
    named: Any = pool.row_ids if pool.ids is None else pool.ids
    ids = {RANDOM: np.array(plan.feature_names) if options.is_precomputed else named[:n]}
    if KMEANS in form.sources:
        features = pool.values[: plan.n_features]
        places = kmeans_rows(LandmarkMap.of(Similarity("linear"), arrays).scaled(features), n)
        arrays[KMEANS], ids[KMEANS] = features[:, places].T, named[places]
    span = np.array([moments.minimum[-1], moments.maximum[-1]])
    return Landmarks(arrays, ids, span, sample)


def sample_unlabelled(run: Run, form: LandmarkForm, plan: ColumnPlan) -> RowSample:
    """Sample the rows without a target, from which landmarks are taken where there are any."""
    dataset = form.inputs.unlabelled
    assert dataset is not None
    own = plan_of_model(dataset, form.roles.features, sources_of(plan), form.roles.id)
    source = RowSource(dataset.reader, form.inputs.section, form.seed, True, own)
    read = SampleReader.of(source, form.sample_size)
    parts = [found["sample"].test for found in run.map(read, dataset.partitions)]
    pool: RowSample = merge_tree(parts)
    return pool


def check_similarities(form: LandmarkForm, statistics: Bundle) -> None:
    """Refuse similarities, or a target, that tell nothing."""
    whole = {n: own.train() for n, own in statistics.members.items() if "@" not in n}
    for label, moments in whole.items():
        constant = moments.constant_columns()
        if label != COLUMNS and constant[:-1].all():
            raise DataError(
                f"The similarity `{label}` is the same for all rows and landmarks: it is of no use."
            )
        if constant[-1]:
            raise DataError(
                f"Target {form.roles.target[0]!r} is constant in the rows to train on: there "
                "is nothing to explain. Check `data.target`."
            )
    n_rows = int(next(iter(whole.values())).n_samples)
    if n_rows < 2:
        raise DataError(f"There are {n_rows} rows of positive weight; at least 2 are needed.")


# --- readers -----------------------------------------------------------------------------------


def sample_hashes(batch: RowBatch, own: slice, seed: int) -> np.ndarray:
    """Hash some rows of a batch, whatever the partitions are.

    With ids their values decide, and the features of the row, as several rows may have one id;
    otherwise the file's name and the row's number in it. Targets have no say.
    """
    if batch.rows.id is None:
        return with_seed(mix(batch.rows.hashes[own]), seed)
    hashes = hash_keys(batch.rows.id[own])
    for values in batch.features[:, own]:
        plain = np.where(np.isnan(values), 0.0, values + 0.0)  # no sign of zero, one gap
        hashes = mix(hashes ^ plain.view(np.uint64))
    return with_seed(mix(hashes), seed)


def sampled(size: int, seed: int, has_gaps: bool, batch: RowBatch, part: int) -> dict[str, Any]:
    """Sample the rows of a part, whose weight follows their values, and sum them up."""
    rows = batch.part_slices[part]
    ids = None if batch.rows.id is None else batch.rows.id[rows]
    if ids is not None and ids.dtype.kind not in "iu":
        ids = ids.astype(str)
    weight = None if batch.weight is None else batch.weight[rows]
    values = batch.values[:, rows]
    kept = values if weight is None else np.vstack((values, weight))
    hashes = sample_hashes(batch, rows, seed)
    return {
        "sample": RowSample.from_rows(size, hashes, batch.row_ids[rows], kept, ids),
        "moments": Moments.from_block(values, weight),
        "counts": RowCounts.from_block(batch, part, count_missing=has_gaps),
    }


@dataclass(frozen=True)
class SampleReader(SummaryReader):
    """Reads ``sample`` (`RowSample` of features and targets), ``moments`` and ``counts``."""

    @classmethod
    def of(cls, source: RowSource, size: int) -> SampleReader:
        """Return the reader of samples of so many rows of each part."""
        summarise = partial(sampled, size, source.seed, source.section.missing == "mean")
        return cls(source, "rows by id and features", summarise, {"size": size})

    def partition_key(self, partition: Partition) -> str:
        """Return the fingerprint, and the number of the first row: a sample holds row numbers."""
        return f"{partition.fingerprint}:{partition.row_offset}"


def query_keys(batch: RowBatch, rows: slice) -> np.ndarray:
    """Return hashes of the queries of some rows."""
    assert batch.rows.query is not None
    return hash_keys(batch.rows.query[rows])


def query_counts(batch: RowBatch, part: int) -> dict[str, QueryCounts]:
    """Count the relevances of a part by query."""
    rows = batch.part_slices[part]
    return {"queries": QueryCounts.from_rows(query_keys(batch, rows), batch.target[0, rows])}


def scores_of_models(
    maps: Mapping[str, LandmarkMap], models: Models, features: np.ndarray
) -> np.ndarray:
    """Return the scores (n, M) of rows (d, n)."""
    scores = [np.empty((features.shape[1], 0))]
    for label, own in models:
        mapping, k = maps[label], own.shape[1] - 1
        mapping = mapping.restricted(range(k)) if k < mapping.n_landmarks else mapping
        scores.append(mapping.scores(features, own[:, :-1].T, own[:, -1]))
    return np.concatenate(scores, axis=1)


@dataclass(frozen=True, eq=False)
class ScoresWithin:
    """Scores of models on similarities, cut to limits; `Models` of the judge."""

    maps: Mapping[str, LandmarkMap]
    models: Models
    limits: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return scores (M, 1, n) of rows (d, n)."""
        scores = np.clip(scores_of_models(self.maps, self.models, features), *self.limits)
        return scores.T[:, np.newaxis]

    @property
    def n_scores(self) -> int:
        """Scores of a row."""
        return sum(len(weights) for _, weights in self.models)


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
            members = {
                label: self._folded(mapping, batch, self.parts(label))
                for label, mapping in self.maps.items()
            }
        return Bundle(members)

    def _folded(
        self, mapping: LandmarkMap, batch: RowBatch, parts: Sequence[Sequence[int]]
    ) -> Folded[CoMoments]:
        summarised = []
        for numbers in parts:
            moments = [self._moments(mapping, batch, part) for part in numbers]
            summarised.append(merge_tree(moments))
        return Folded(tuple(summarised))

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
        known = hashlib.sha256(encode([self.maps, self.learned, self.gains])).hexdigest()
        return {**self.source.key(), "kind": "similarities", "known": known}


@dataclass(frozen=True, eq=False)
class Embedding:
    """Picklable function from parts of a batch to the similarities of their rows.

    Attributes
    ----------
    maps : mapping of str to LandmarkMap
        By the label of the similarity.
    classes : tuple of float, or None
        Values of the target that are read as their numbers.
    """

    maps: Mapping[str, LandmarkMap]
    classes: tuple[float, ...] | None

    def __call__(self, batch: RowBatch, parts: slice) -> list[EmbeddedRows]:
        """Return the rows of each part that has any."""
        found = []
        for part, rows in list(enumerate(batch.part_slices))[parts]:
            if rows.stop > rows.start:
                target = coded(self.classes, batch.target[0, rows]).copy()
                weight = np.ones(len(target)) if batch.weight is None else batch.weight[rows]
                own = {label: f(batch.features[:, rows]) for label, f in self.maps.items()}
                found.append(EmbeddedRows(part, own, target, weight.copy()))
        return found


@dataclass(frozen=True, eq=False)
class EmbeddedQuestion:
    """Models on similarities to judge by a pass; a `Question`.

    Attributes
    ----------
    embedding : Embedding
    message : JudgePass
    parts : sequence of int
    """

    embedding: Embedding
    message: JudgePass
    parts: Sequence[int]
    nothing: ClassVar[Sums] = Sums({})

    def of_part(self, batch: RowBatch, part: int) -> Sums:
        """Return what the judge adds up over the rows of a part."""
        label = self.message.label
        embedding = replace(self.embedding, maps={label: self.embedding.maps[label]})
        return self.message.sums(embedding(batch, slice(part, part + 1 or None)))


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
        with naming(partition):
            return self.embedding(batch, slice(0, -1))  # the held-out rows come last

    def sums(self, rows: list[EmbeddedRows], message: Any) -> Sums:
        """Add up over rows what the message says."""
        found: Sums = message.sums(rows)
        return found
