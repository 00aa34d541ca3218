"""What is read: one sample of rows with their moments, and co-moments of similarities.

Where the sample is all rows, these stay in memory: co-moments, fits and the judge are of them, and
nothing is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, RowBatch, require_observed
from distfms.data.rows.folds import hash_keys
from distfms.errors import DataError
from distfms.methods.frame.classes import Classes
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import JudgedRows
from distfms.methods.frame.ranking import NormalisedGains, QueryCounts
from distfms.methods.frame.read import SAMPLE, features_of
from distfms.methods.frame.row_data import Levels
from distfms.methods.frame.row_predictor import plan_of_model
from distfms.methods.frame.rows import RowCounts, RowSource, SummaryReader
from distfms.methods.landmarks.candidates import LANDMARKS_JUDGED
from distfms.methods.landmarks.form import LandmarkForm, share_of
from distfms.methods.landmarks.read_choice import Choice, all_maps, read_choice
from distfms.methods.landmarks.read_similarities import (
    Embedding,
    SimilarityMoments,
    SimilarityReader,
)
from distfms.methods.landmarks.similarity import LandmarkMap, landmark_arrays, landmark_maps
from distfms.methods.landmarks.squared import of_fold
from distfms.stats.base import Bundle, Folded, merge_tree
from distfms.stats.comoments import Moments
from distfms.stats.sample import RowSample


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Rows to compare others with, and the sample that they are of.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Of a map to them.
    ids : ndarray of shape (L,)
        What names them.
    range : ndarray of shape (2,)
        Least and greatest target of the training rows.
    sample : Folded of RowSample
        Rows of each part: features, target, and weight.
    gains : tuple of NormalisedGains
        What normalises gains of training and held-out rows; empty where no ranking is learned.
    """

    arrays: Mapping[str, np.ndarray]
    ids: np.ndarray
    range: np.ndarray
    sample: Folded[RowSample]
    gains: tuple[NormalisedGains, ...] = ()


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
    memory : tuple of JudgedRows, or None
        All rows by part, where they are in memory.
    """

    form: LandmarkForm
    plan: ColumnPlan
    classes: Classes | None
    landmarks: Landmarks
    plain: Mapping[str, LandmarkMap]
    maps: Mapping[str, LandmarkMap]
    choice: Choice | None
    statistics: Bundle
    memory: tuple[JudgedRows, ...] | None = None

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
            return tuple(similarity.label for similarity in self.form.similarities)
        return self.choice.labels

    def is_compared_whole(self, n_landmarks: int) -> bool:
        """Return whether all rows, and so many landmarks, were compared."""
        n_rows = next(iter(self.statistics.members.values())).train().n_samples
        is_whole = self.choice is not None and self.choice.n_rows >= n_rows
        return is_whole and n_landmarks <= LANDMARKS_JUDGED

    @property
    def learned(self) -> tuple[str, ...]:
        """Labels of the similarities that each fold has a metric of its own for."""
        return learned_labels(self.maps)

    def source(self, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        return self.form.source(self.plan, dataset, held_out)

    def map_of(self, label: str, fold: int | None = None) -> LandmarkMap:
        """Return the map of a label, of all training rows or of those without a fold."""
        if fold is None:
            return self.maps[label]
        return self.maps.get(of_fold(label, fold), self.maps[label])

    def embedding(self, fold: int | None = None) -> Embedding:
        """Return the maps by label of all training rows, or of those without a fold."""
        labels = [label for label in self.maps if "@" not in label]
        return Embedding({label: self.map_of(label, fold) for label in labels}, self.class_values)


def learned_labels(maps: Mapping[str, LandmarkMap]) -> tuple[str, ...]:
    """Return the labels of maps that each fold has one of its own of."""
    return tuple(label for label in maps if of_fold(label, 0) in maps)


def read_data(run: Run, form: LandmarkForm) -> LandmarkData:
    """Read all that models are made of; steps `categories` to `statistics`."""
    levels = form.read_levels(run)
    plan = form.plan(levels)
    classes = read_classes(run, form, levels, plan)
    plan = plan if classes is None else classes.planned(plan)
    landmarks = run.step("landmarks", lambda: take_landmarks(run, form, plan))
    plain = landmark_maps(form.similarities, landmarks.arrays, landmarks.sample.train())
    choice = read_choice(run, form, classes, landmarks.sample, plain)
    maps = all_maps(plain, choice)
    memory = None
    if form.is_in_memory(plan.n_features):
        parts = landmarks.sample.parts
        memory = tuple(rows_in_memory(form, part, plan.n_features) for part in parts)
    moments = SimilarityMoments(maps, learned_labels(maps), landmarks.gains)

    def statistics() -> Bundle:
        bundle = read_moments(run, form, plan, moments, memory)
        check_similarities(form, bundle)
        return bundle

    bundle = run.step("statistics", statistics)
    return LandmarkData(form, plan, classes, landmarks, plain, maps, choice, bundle, memory)


def read_classes(run: Run, form: LandmarkForm, levels: Levels, plan: ColumnPlan) -> Classes | None:
    """Return the classes or levels of the target, where it has any; step ``classes``."""
    if not form.has_classes:
        return None
    named = f"the task `{form.options.task}`"
    return run.step("classes", lambda: Classes.read(run, form, levels, plan, named))


# --- one sample ----------------------------------------------------------------------------------


def take_landmarks(run: Run, form: LandmarkForm, plan: ColumnPlan) -> Landmarks:
    """Sample rows, and take landmarks and the scales of features from them."""
    bundle = run.reduce(lambda *of: row_reader(form, plan, *of))
    moments: Moments = bundle["moments"].train()
    form.require_rows([counts.n_rows for counts in bundle["counts"].parts])
    require_observed(plan.feature_names, moments.weight[: plan.n_features])
    form.tell_counts(run, plan, bundle["counts"])
    sample = Folded(tuple(with_features(plan, part) for part in bundle[SAMPLE].parts))
    arrays, ids = arrays_of_landmarks(run, form, plan, moments, sample)
    limits = np.array([moments.minimum[-1], moments.maximum[-1]])
    gains = gains_of(run, bundle["queries"]) if form.is_ranking else ()
    return Landmarks(arrays, ids, limits, sample, gains)


def arrays_of_landmarks(
    run: Run, form: LandmarkForm, plan: ColumnPlan, moments: Moments, sample: Folded[RowSample]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the arrays of a map to landmarks, and what names these."""
    pool = landmark_pool(run, form, plan, sample)
    arrays = landmark_arrays(pool, moments, plan.n_features, form.options, form.most_landmarks)
    still = [plan.feature_names[place] for place in np.flatnonzero(arrays["scale"] == 0)]
    if still:
        run.note(f"Constant columns are ignored: {', '.join(still)}.")
    return arrays, names_of(form, plan, pool)[: len(arrays["landmarks"])]


def row_reader(
    form: LandmarkForm, plan: ColumnPlan, dataset: Dataset, held_out: bool
) -> SummaryReader:
    """Return the reader of a sample, ``moments``, ``counts`` and, of a ranking, ``queries``."""
    has_gaps = form.inputs.section.missing == "mean"
    summarise = partial(_summary, form.is_ranking, has_gaps)
    source = form.source(plan, dataset, held_out)
    reader = SummaryReader(source, "moments of rows", summarise, {"queries": form.is_ranking})
    return reader.sampled(form.sample_share(dataset, plan.n_features))


def _summary(is_ranking: bool, has_gaps: bool, batch: RowBatch, part: int) -> dict[str, Any]:
    rows = batch.part_slices[part]
    weight = None if batch.weight is None else batch.weight[rows]
    summary: dict[str, Any] = {
        "moments": Moments.from_block(batch.values[:, rows], weight),
        "counts": RowCounts.from_block(batch, part, count_missing=has_gaps),
    }
    if is_ranking:
        assert batch.rows.query is not None
        keys = hash_keys(batch.rows.query[rows])
        summary["queries"] = QueryCounts.from_rows(keys, batch.target[0, rows])
    return summary


def with_features(plan: ColumnPlan, sample: RowSample) -> RowSample:
    """Return sampled rows with the features of a batch in place of codes of categories."""
    n_inputs = len(plan.roles.features)
    if n_inputs == plan.n_features:
        return sample
    features = features_of(plan, sample.values[:n_inputs])
    return replace(sample, values=np.vstack((features, sample.values[n_inputs:])))


def landmark_pool(
    run: Run, form: LandmarkForm, plan: ColumnPlan, sample: Folded[RowSample]
) -> RowSample:
    """Return the rows that landmarks are taken from, in random order."""
    is_unlabelled = form.inputs.unlabelled is not None
    pool = sample_unlabelled(run, form, plan) if is_unlabelled else sample.train()
    pool = pool.taken(np.unique(pool.hashes, return_index=True)[1])  # a row twice is one landmark
    least = 2
    if form.options.landmarks != "auto" and not form.options.is_precomputed:
        least = max(2, form.options.landmarks)
    if pool.n_rows < least:
        dataset = form.inputs.unlabelled or form.inputs.train
        raise DataError(
            f"There are {pool.n_rows} rows to take landmarks from in {dataset.place}, and "
            f"`landmarks.landmarks` is {least}: choose at most {pool.n_rows}."
        )
    return pool


def sample_unlabelled(run: Run, form: LandmarkForm, plan: ColumnPlan) -> RowSample:
    """Sample the rows without a target, from which landmarks are taken where there are any."""
    dataset = form.inputs.unlabelled
    assert dataset is not None
    plan = plan_of_model(dataset, form.roles.features, form.sources(plan), form.roles.id)
    source = RowSource(dataset.reader, form.inputs.section, form.seed, True, plan)
    share = share_of(dataset.n_rows, plan.n_features, form.most_landmarks)
    read = SummaryReader(source, "unlabelled rows", _nothing).sampled(share)
    parts = [bundle[SAMPLE].test for bundle in run.map(read, dataset.partitions)]
    return with_features(plan, merge_tree(parts))


def _nothing(batch: RowBatch, part: int) -> dict[str, Any]:
    return {}


def names_of(form: LandmarkForm, plan: ColumnPlan, pool: RowSample) -> np.ndarray:
    """Return what names the rows of a pool: ids, or else their numbers; similarities, columns."""
    if form.options.is_precomputed:
        return np.array(plan.feature_names)
    if form.roles.id is None or pool.ids is None:
        return pool.row_ids
    return pool.ids


def gains_of(run: Run, counts: Folded[QueryCounts]) -> tuple[NormalisedGains, ...]:
    """Return what normalises gains of training and held-out rows."""
    gains = (counts.train().gains(), counts.test.gains())
    n_queries = sum(len(part.norms) for part in gains)
    n_empty = sum(int(np.count_nonzero(part.norms == 0)) for part in gains)
    if n_empty:
        run.note(
            f"{n_empty:,} of {n_queries:,} queries have no relevant row and are left out of "
            "the mean NDCG."
        )
    return gains


# --- co-moments ----------------------------------------------------------------------------------


def rows_in_memory(form: LandmarkForm, sample: RowSample, n_features: int) -> JudgedRows:
    """Return the rows of a part, as the judge takes them; those of queries in order."""
    queries = None
    if form.is_ranking and sample.ids is not None:
        sample = sample.taken(np.argsort(sample.row_ids, kind="stable"))
        queries = hash_keys(sample.ids)
    features, target, weight = np.split(sample.values, [n_features, n_features + 1])
    return JudgedRows(features, target, weight[0], queries)


def read_moments(
    run: Run,
    form: LandmarkForm,
    plan: ColumnPlan,
    moments: SimilarityMoments,
    memory: tuple[JudgedRows, ...] | None,
) -> Bundle:
    """Return co-moments of similarities by label: of rows in memory, or by a pass."""
    if memory is None:
        return run.reduce(
            lambda *of: SimilarityReader(form.source(plan, *of), moments), actors="embeddings"
        )
    labels = list(moments.maps)
    members = run.map(partial(moments.of_label, memory), labels)
    return Bundle(dict(zip(labels, members, strict=True)))


def check_similarities(form: LandmarkForm, statistics: Bundle) -> None:
    """Refuse similarities, or a target, that tell nothing."""
    whole = {n: part.train() for n, part in statistics.members.items() if "@" not in n}
    for label, moments in whole.items():
        constant = moments.constant_columns()
        if constant[:-1].all():
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
