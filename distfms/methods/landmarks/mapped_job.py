"""What a job of landmarks does before its statistics: landmarks, their metric, and the maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan, require_observed
from distfms.data.folds import hash_keys, mix
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, Inputs, Stage
from distfms.methods.landmarks.metric import Fitter, Metric, TaughtRows, choose, learn
from distfms.methods.landmarks.options import DEFAULT_LANDMARKS, LandmarksOptions
from distfms.methods.landmarks.read import SampleReader
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
from distfms.methods.row_job import RowJob
from distfms.methods.row_predictor import plan_of_model, sources_of
from distfms.methods.rows import RowSource
from distfms.stats.base import Folded, below, joined, merge_tree
from distfms.stats.sample import RowSample

LANDMARKS = "statistics/landmarks.npz"
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
        n_values = 7 * max(_LANDMARKS, self.most_landmarks()) + 4 * self.guessed_columns()
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
        self._require_landmarks(train, pool)
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

    def _require_landmarks(self, train: RowSample, pool: RowSample) -> None:
        """Refuse too few rows."""
        wanted = 2 if self.options.is_precomputed else max(2, self.options.landmarks or 2)
        if train.n_rows < 2:
            raise DataError(
                f"There are {train.n_rows} rows to train on in "
                f"{self.inputs.train.place}; at least 2 are needed: add rows, or lower "
                "`data.test`."
            )
        if pool.n_rows < wanted:
            where = (self.inputs.unlabelled or self.inputs.train).place
            raise DataError(
                f"There are {pool.n_rows} rows to take landmarks from in {where}, and "
                f"`landmarks.landmarks` is {wanted}: choose at most {pool.n_rows}."
            )

    def sample(self, context: Context) -> Folded[RowSample]:
        """Return the sampled rows of each part."""
        arrays = context.read_arrays(LANDMARKS)
        return Folded.from_arrays(below("sample/", arrays), RowSample)

    def _metric(self, context: Context) -> Mapping[str, Content]:
        """Learn metrics of all training rows and without each fold, side by side."""
        sample, plain = self.sample(context), self.plain_maps(context)
        n_folds, classes, most = sample.n_folds, self.classes(context), self.metric_rows()
        lessons = dict[str, Lesson]()
        for own in self.similarities:
            if own.label in self.learned:
                mapping = replace(plain[own.label], similarity=own)
                lesson = Lesson(mapping, sample.train().first(most), classes, self.options)
                lessons[own.label] = lesson
                for fold in range(n_folds if n_folds > 1 else 0):
                    rows = sample.train_without(fold).first(most * (n_folds - 1) // n_folds)
                    lessons[of_fold(own.label, fold)] = replace(lesson, sample=rows)
        answers = context.map(Lesson.learned, list(lessons.values()))
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
        own = {label: label if fold is None else of_fold(label, fold) for label in self.learned}
        return {label: found[own.get(label, label)] for label in found if "@" not in label}

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

    def metric_of(self, context: Context, label: str) -> dict[str, Any]:
        """Return what the results say of the metric of a similarity."""
        found: dict[str, Any] = {"kind": "none"}
        return context.read_json(METRIC)[label] if label in self.learned else found


# --- the metric ---------------------------------------------------------------------------------

#: One row in so many is held out from those that teach.
_HELD_OUT = 4
#: Landmarks that a metric is learned with, where there are as many rows: with fewer it may miss the
#: columns that matter.
_LANDMARKS = 500
#: Columns up to which a full metric is tried where the spec does not ask for it.
_MOST_FULL = 500
#: Ridge of a loss of margins, in those of squared loss of classes 0 and 1: scores are several times
#: as large, their squared norm that much more.
_OF_MARGINS = 0.02
#: Rows that are held out at least: fewer say too little of what is better.
_FEWEST = 8


@dataclass(frozen=True, eq=False)
class Lesson:
    """Picklable: what a metric is learned from.

    Attributes
    ----------
    mapping : LandmarkMap
        To the landmarks of the model, isotropic.
    sample : RowSample
        Training rows: features, target and, where there are weights, these.
    classes : sequence of float, or None
        Of the target, where it has any.
    options : LandmarksOptions
    """

    mapping: LandmarkMap
    sample: RowSample
    classes: Sequence[float] | None
    options: Any

    def rows(self) -> tuple[TaughtRows, TaughtRows]:
        """Return the rows that teach and those that judge, by the hash of their id or content."""
        sample, n = self.sample, len(self.mapping.scale)
        target = coded(self.classes, sample.values[n])[np.newaxis]
        if self.options.task == "classification":
            target = (target == np.arange(len(self.classes or ()))[:, np.newaxis]) * 1.0
        keys = sample.hashes if sample.ids is None else hash_keys(sample.ids)
        weight = sample.values[n + 1] if len(sample.values) > n + 1 else np.ones(sample.n_rows)
        judges, features = mix(mix(keys)) % np.uint64(_HELD_OUT) == 0, sample.values[:n]
        taught, judging = (
            TaughtRows(self.mapping.scaled(features[:, own]), target[:, own], weight[own])
            for own in (~judges, judges)
        )
        return taught, judging

    def learned(self) -> list[Metric]:
        """Learn; return the chosen metric, then those that it was compared with."""
        options, given = self.options, dict(self.mapping.similarity.parameters)
        taught, judging = self.rows()
        kinds = ("diagonal", "full") if options.metric == "auto" else (options.metric,)
        if options.metric == "auto" and len(taught.features) > _MOST_FULL:
            kinds = kinds[:1]
        if min(len(taught.weight), len(judging.weight)) < _FEWEST:
            return []
        kernel = self.mapping.similarity.name
        fitter = Fitter(taught, judging, kernel, given.get("sigma"), options.ridge)
        found = learn(fitter, taught.features[:, :_LANDMARKS], kinds, options.iterations)
        best = choose(found) if options.metric == "auto" else found[-1]
        own = self.mapping.scaled(self.mapping.landmarks.T)
        last, _ = fitter.fitted(own, best.kind, best.iteration, best.transform)
        if options.task == "classification" and options.ridge is None:
            last = replace(last, ridge=last.ridge * _OF_MARGINS)
        return [last, *found]


def under(mapping: LandmarkMap, metric: Metric | None) -> LandmarkMap:
    """Return a map under a metric; without one, as it is."""
    if metric is None:
        return mapping
    similarity = replace(mapping.similarity, parameters=(("sigma", metric.sigma),))
    transform = np.zeros(0) if metric.kind == "none" else np.asarray(metric.transform)
    return replace(mapping, similarity=similarity, transform=transform, ridge=metric.ridge)


def told(found: Sequence[Metric], names: Sequence[str]) -> dict[str, Any]:
    """Return what the results say of a metric, the chosen one first, and of its columns."""
    if not found:
        return {"kind": "none"}
    chosen, *compared = found
    content: dict[str, Any] = {"kind": chosen.kind, "iteration": chosen.iteration, "compared": []}
    for metric in compared:
        gain, error = metric.gain_over(compared[0])
        own = {"kind": metric.kind, "iteration": metric.iteration, "error": metric.error}
        content["compared"].append({**own, "gain": gain, "standard_error": error})
    if chosen.kind == "none":
        return content
    t = np.asarray(chosen.transform)
    product = np.diag(t**2) if t.ndim == 1 else t.T @ t
    product /= np.trace(product)
    content["weights"] = _largest(np.diagonal(product), names, len(names))
    if chosen.kind == "full":
        values, vectors = np.linalg.eigh(product)
        content["directions"] = [
            {"share": float(values[-i]), "columns": _largest(vectors[:, -i], names, 5)}
            for i in range(1, min(5, len(values)) + 1)
        ]
    return content


def _largest(vector: np.ndarray, names: Sequence[str], most: int) -> dict[str, float]:
    """Return the largest entries of a vector, turned so that the first of them is positive."""
    order = np.argsort(-np.abs(vector), kind="stable")[:most]
    sign = np.sign(vector[order[0]]) or 1.0
    return {names[i]: float(sign * vector[i]) for i in order}
