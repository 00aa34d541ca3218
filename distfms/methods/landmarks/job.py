"""The job of learning with similarities to landmarks, for squared loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.partition import Dataset
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Job, PartialReader, Stage
from distfms.methods.cross_validation import FoldWork
from distfms.methods.landmarks.mapped_job import (
    LANDMARKS,
    MappedJob,
    SimilarityReader,
    split_learned,
)
from distfms.methods.landmarks.options import DEFAULT_LANDMARKS, LandmarksOptions
from distfms.methods.landmarks.references import (
    behind,
    kernel_regression,
    name_columns,
    reference_errors,
)
from distfms.methods.landmarks.similarity import SIGMA_ROWS
from distfms.methods.landmarks.squared import (
    COLUMNS,
    LIGHTGBM,
    MEASURES,
    LandmarkProcedure,
    Linear,
    side_by_side,
)
from distfms.methods.row_predictor import sources_of
from distfms.methods.statistics_job import NamedRule, ScoredOn, Solved
from distfms.methods.tuning import choose
from distfms.stats.base import Bundle
from distfms.stats.fold_means import over_folds

COMPARED = "similarities.json"


class LandmarkJob(MappedJob):
    """Learning with similarity functions (Kar, Jain) as a job, for squared loss."""

    name: ClassVar[str] = "landmarks"
    nested: ClassVar[str | None] = "keep"
    #: What models are measured by, and by which of these similarities are compared.
    measures: tuple[str, ...] = ("mse", "r2")
    main_measure: str = "mse"
    #: What the models on no and on all columns are called.
    reference_names: tuple[str, str] = ("mean", "ridge on the columns")
    options: LandmarksOptions

    # --- what the driver asks ---

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        n_folds = max(self.inputs.section.folds, 1)
        n_matrices = (n_folds + 1) * len(self.similarities)
        if n_folds > 1:
            n_matrices += (n_folds + 1) * len(self.learned)  # two parts for each fold
        moments = n_matrices * (self.most_landmarks() + 1) ** 2
        moments += (n_folds + 1) * (self.n_columns() + 1) ** 2
        sample = (n_folds + 1) * self.sample_size() * (self.guessed_columns() + 4)
        return 8 * max(moments, sample)

    def n_columns(self) -> int:
        """Return about how many columns the linear reference has."""
        n = self.guessed_columns() if COLUMNS in self.options.baselines else 0
        return n if n <= self.most_columns else 0

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        options, n = self.options, self.most_landmarks()
        landmarks = f"{n:,}"
        if options.task == "sparse" or options.keep:
            landmarks += f", of which {options.n_kept(n):,} are kept"
        workers = {"functions": "called where the tasks of the engine run"}
        return {
            "method": f"landmarks, {options.task}",
            "target": self.roles.target[0],
            **self.first_values(),
            "columns": str(len(self.roles.features)),
            "similarity": "; ".join(similarity.label for similarity in self.similarities),
            "metric": self.options.metric if self.learned else "none",
            "landmarks": landmarks,
            "scaling": self.options.used_scaling,
            **(workers if options.functions else {}),
        }

    def class_option(self) -> str:
        """Return how to ask for classes."""
        is_number = self.options.task in ("regression", "sparse")
        return "`landmarks.task: classification` (or `ordinal`)" if is_number else ""

    def check_tried(self, name: str, first: Job) -> None:
        """Refuse more landmarks than there are: all such are the same point."""
        most = first.options.landmarks
        if name == "landmarks" and (self.options.landmarks or 0) > (most or DEFAULT_LANDMARKS):
            raise SpecError(
                f"`landmarks.landmarks` is {self.options.landmarks}, but `tune` tries prefixes of "
                f"{most or DEFAULT_LANDMARKS} landmarks. Set `landmarks.landmarks` to the largest "
                "number to try."
            )
        if name == "keep" and (self.options.keep or 0) > self.most_landmarks():
            raise SpecError(
                f"`landmarks.keep` is {self.options.keep}, and there are {self.most_landmarks()} "
                "landmarks. Write `null` for all of them."
            )

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order, without the report."""
        stages = list(super().stages())
        if len(self.similarities) > 1:
            after = 1 + [stage.name for stage in stages].index("statistics")
            stages.insert(after, Stage("similarities", self._compare))
        return stages

    # --- statistics and selection ---

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> PartialReader:
        """Return the reader of co-moments of similarities."""
        source, gains = self.source(self.plan(context), dataset, held_out), self.gains(context)
        return SimilarityReader(source, self.all_maps(context), self.learned, gains)

    def gains(self, context: Context) -> Sequence[Any]:
        """Return what a ranking predicts of training and held-out rows; empty for the target."""
        return ()

    def check(self, context: Context, statistics: Bundle) -> None:
        """Say where a similarity tells nothing."""
        for label, moments in statistics.members.items():
            constant = moments.train().constant_columns()
            if label != COLUMNS and "@" not in label and constant[:-1].all():
                raise DataError(
                    f"The similarity `{label}` is the same for all rows and landmarks: it is of no "
                    "use."
                )
            if constant[-1]:
                raise DataError(
                    f"Target {self.roles.target[0]!r} is constant in the rows to train on: there "
                    "is nothing to explain. Check `data.target`."
                )

    def procedure(self, context: Context) -> LandmarkProcedure:
        """Return the pure part; once similarities were compared, the best comes first."""
        labels, options = [similarity.label for similarity in self.similarities], self.options
        if len(labels) > 1 and (context.folder / COMPARED).exists():
            best = context.read_json(COMPARED)["best"]
            labels.sort(key=lambda label: label != best)
        n_landmarks = len(context.read_arrays(LANDMARKS)["landmarks"])
        if options.landmarks and not options.is_precomputed:  # `tune` may have chosen fewer
            n_landmarks = min(n_landmarks, options.landmarks)
        labels += [COLUMNS] * (COLUMNS in options.baselines)
        rules = tuple(NamedRule(label) for label in labels)
        return LandmarkProcedure(rules, options, n_landmarks, self.all_maps(context))

    def _fold_work(self, *given: Any) -> FoldWork:
        split = partial(split_learned, self.learned)
        return replace(super()._fold_work(*given), split=split)

    def _compare(self, context: Context) -> Mapping[str, Content]:
        """Compare the similarities by cross-validation."""
        procedure = self.procedure(context)
        ends = np.array([float(procedure.keep)])
        items = [(rule, ends) for rule in procedure.rules if rule.name != COLUMNS]
        work = self._fold_work(context, ScoredOn(procedure), items, [procedure] * len(items))
        found, measure = self.evaluate_folds(context, work), self.main_measure
        errors = {
            rule.name: float(over_folds(np.array([a[measure][0] for a in own]), found.weight).mean)
            for (rule, _), own in zip(items, found.answers, strict=True)
        }
        names = list(errors)
        best = (max if MEASURES[measure] else min)(names, key=errors.__getitem__)
        away = [behind(found, measure, i, names.index(best)) for i in range(len(names))]
        tied = [n for n, by in zip(names, away, strict=True) if by.mean <= by.standard_error]
        others = ", ".join(name for name in tied if name != best)
        context.note(
            f"Of {len(errors)} similarities, {best} is the best in cross-validation"
            + (f"; within one standard error: {others}." if others else ".")
        )
        return {COMPARED: {"best": best, "measure": measure, "errors": errors}}

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        arrays, path = context.read_arrays(LANDMARKS), solved.path
        mapping = self.maps(context)[path.label]
        return {
            "method": self.name,
            "task": self.options.task,
            "similarity": path.label,
            "parameters": dict(mapping.similarity.parameters),
            "landmarks": arrays["ids"][path.order].tolist(),
            "order": path.order.tolist(),
            "n_candidates": solved.procedure.candidates,
            "scaling": self.options.used_scaling,
            "ridge": float(path.arrays["ridge"]),
            "metric": self.metric_of(context, path.label),
            **path.progress,
            "sigma_rows": min(SIGMA_ROWS, self.sample(context).train().n_rows),
        }

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the models of all sizes with their landmarks, so that no data are needed."""
        plan, path, procedure = self.plan(context), solved.path, solved.procedure
        sizes = procedure.grid(path).astype(int)
        models = procedure.models(solved.problem, path, sizes.tolist())
        mapping = self.maps(context)[path.label].restricted(path.order)
        kept, sources = list(plan.feature_names), sources_of(plan)
        if self.options.is_precomputed:
            kept = [plan.feature_names[i] for i in path.order]
            sources = dict.fromkeys(kept)
        return {
            "model.json": {
                "method": self.name,
                "task": self.options.task,
                "id": self.roles.id or self.roles.query,
                "target": self.roles.target[0],
                "sources": sources,
                "features": kept,
                "similarity": mapping.similarity.name,
                "parameters": dict(mapping.similarity.parameters),
                **self.range_of(context),
                **self.decoding(context, procedure, models),
            },
            "weights.npz": {
                "sizes": sizes,
                "weights": side_by_side(models),
                "intercept": np.array([model.offset for model in models]),
                **mapping.arrays,
            },
        }

    def range_of(self, context: Context) -> Mapping[str, Any]:
        """Return the range that predictions are cut to, where they are."""
        if not self.options.clip or self.options.task not in ("regression", "sparse"):
            return {}
        return {"range": context.read_arrays(LANDMARKS)["range"].tolist()}

    def decoding(
        self, context: Context, procedure: Any, models: Sequence[Linear]
    ) -> Mapping[str, Any]:
        """Return what ``model.json`` says of predictions that are no scores."""
        return {}

    # --- evaluation ---

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        found = super().metrics(context, solved, validated)
        found["measure"] = self.main_measure
        maps, sample = self.plain_maps(context), self.sample(context)
        classes, n = self.classes(context), self.plan(context).n_features
        if COLUMNS in self.options.baselines:
            name_columns(found, self.reference_names, self.main_measure, validated)
        if self.has_reference(classes):
            for label in (similarity.label for similarity in self.similarities):
                name = f"kernel regression, {label}"
                predict = partial(kernel_regression, maps[label])
                found["baselines"][name] = reference_errors(predict, classes, sample, n)
        if LIGHTGBM in self.options.baselines and self.options.task != "ranking":
            predict = partial(boosted_trees, self.options.task)
            found["baselines"]["LightGBM"] = reference_errors(predict, classes, sample, n)
        if validated is not None:
            found["enough"] = self._enough(validated, found["curves"][0]["points"])
        return found

    def _enough(self, validated: FoldAnswers, points: Sequence[Mapping[str, Any]]) -> float:
        """Return the fewest landmarks within one standard error of the best number."""
        values = np.stack([answer[self.main_measure] for answer in validated.answers[0]], axis=-1)
        better = MEASURES[self.main_measure]
        chosen = choose(values, validated.weight, "one_standard_error", better).chosen
        return float(points[chosen]["budget"])

    def tune_answers(
        self, context: Context, points: Any, measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate the points of a grid on folds; see :class:`distfms.methods.contract.Job`."""
        if measure not in self.measures:
            raise SpecError(
                f"`tune.measure` is {measure}, which models of the task `{self.options.task}` with "
                f"this loss do not have; they have {', '.join(self.measures)}."
            )
        return super().tune_answers(context, points, measure, saved)

    def has_reference(self, classes: Sequence[float] | None) -> bool:
        """Whether kernel regression is a baseline."""
        options = self.options
        many = options.task == "classification" and len(classes or ()) > 2
        ranks = options.task == "ranking"
        asked = "kernel_regression" in options.baselines
        return asked and not (options.is_precomputed or many or ranks)


def boosted_trees(
    task: str, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict by LightGBM with its defaults: classes for `classification`, otherwise numbers.

    Raises
    ------
    SpecError
        If LightGBM is not installed.
    """
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor
    except ImportError as error:
        raise SpecError(
            "`landmarks.baselines` names `lightgbm`, which is not installed. Install it "
            "(`pip install lightgbm`), or leave it out."
        ) from error
    form = LGBMClassifier if task == "classification" else LGBMRegressor
    # The same trees on any machine.
    model = form(n_jobs=1, deterministic=True, force_row_wise=True, random_state=0, verbose=-1)
    return np.asarray(model.fit(train.T, target).predict(rows.T), dtype=float), 0
