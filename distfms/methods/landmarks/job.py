"""The job of learning with similarities to landmarks, for squared loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.partition import Dataset
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Job, PartialReader, Stage
from distfms.methods.cross_validation import FoldWork
from distfms.methods.curves import number_or_none
from distfms.methods.landmarks.mapped_job import (
    LANDMARKS,
    METRIC,
    MappedJob,
    SimilarityReader,
    split_learned,
)
from distfms.methods.landmarks.options import DEFAULT_LANDMARKS, LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import (
    COLUMNS,
    LIGHTGBM,
    MEASURES,
    LandmarkProcedure,
    Linear,
    coded,
    side_by_side,
)
from distfms.methods.row_predictor import sources_of
from distfms.methods.statistics_job import NamedRule, Solved, scored
from distfms.methods.tuning import choose
from distfms.stats.base import Bundle, Folded, FoldMeans, over_folds
from distfms.stats.sample import RowSample

COMPARED = "similarities.json"
#: Rows whose predictions the report shows.
_SHOWN_ROWS = 400


class LandmarkJob(MappedJob):
    """Learning with similarity functions (Kar, Jain) as a job, for squared loss."""

    name: ClassVar[str] = "landmarks"
    nested: ClassVar[str | None] = "keep"
    folds_cost = True
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
        return {
            "method": f"landmarks, {options.task}",
            "target": self.roles.target[0],
            **self.first_values(),
            "columns": str(len(self.roles.features)),
            "similarity": "; ".join(similarity.label for similarity in self.similarities),
            "metric": self.options.metric if self.learned else "none",
            "landmarks": landmarks,
            "scaling": self.options.used_scaling,
        }

    def class_option(self) -> str:
        """Return how to ask for classes."""
        is_number = self.options.task in ("regression", "sparse")
        return "`landmarks.task: classification` (or `ordinal`)" if is_number else ""

    def check_tried(self, name: str, first: Job) -> None:
        """Refuse more landmarks than there are: all such are the same point."""
        most = first.options.landmarks or DEFAULT_LANDMARKS
        if name == "keep":
            most = self.most_landmarks()
        if name in ("landmarks", "keep") and (getattr(self.options, name) or 0) > most:
            raise SpecError(
                f"`landmarks.{name}` is {getattr(self.options, name)}, but there are {most} "
                "landmarks to try. Set `landmarks.landmarks` to the largest number to try."
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
        whole = {n: own.train() for n, own in statistics.members.items() if "@" not in n}
        for label, moments in whole.items():
            constant = moments.constant_columns()
            if label != COLUMNS and constant[:-1].all():
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
        evaluate = partial(scored, procedure)
        work = self._fold_work(context, evaluate, items, [procedure] * len(items))
        found, measure = self.evaluate_folds(context, work), self.main_measure
        names, better = [rule.name for rule, _ in items], MEASURES[measure]
        values = np.array([[answer[measure][0] for answer in own] for own in found.answers])
        choice = choose(values, found.weight, "best", better)
        best, errors = names[choice.best], dict(zip(names, choice.mean.tolist(), strict=True))
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
        metrics = context.read_json(METRIC) if self.learned else {}
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
            "metric": metrics.get(path.label, {"kind": "none"}),
            **path.progress,
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
                **self.decoding(context, procedure, models),
            },
            "weights.npz": {
                "sizes": sizes,
                "weights": side_by_side(models),
                "intercept": np.array([model.offset for model in models]),
                **mapping.arrays,
            },
        }

    def decoding(
        self, context: Context, procedure: Any, models: Sequence[Linear]
    ) -> dict[str, Any]:
        """Return what ``model.json`` says of how scores become predictions."""
        if not self.options.clip or self.options.task not in ("regression", "sparse"):
            return {}
        return {"range": context.read_arrays(LANDMARKS)["range"].tolist()}

    # --- evaluation ---

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        found = super().metrics(context, solved, validated)
        found["measure"] = self.main_measure
        sample, n = self.sample(context), self.plan(context).n_features
        classes = self.classes(context)
        if COLUMNS in self.options.baselines:
            self._name_columns(found, validated)
        task, options = self.options.task, self.options
        several = task == "ranking" or (task == "classification" and len(classes or ()) > 2)
        if "kernel_regression" in options.baselines and not (several or options.is_precomputed):
            for label, mapping in self.plain_maps(context).items():
                predict = partial(kernel_regression, mapping)
                errors = reference_errors(predict, classes, sample, n)
                found["baselines"][f"kernel regression, {label}"] = errors
        if LIGHTGBM in options.baselines and task != "ranking":
            predict = partial(boosted_trees, task)
            found["baselines"]["LightGBM"] = reference_errors(predict, classes, sample, n)
        if validated is not None:  # the fewest landmarks within one standard error
            values = np.stack([a[self.main_measure] for a in validated.answers[0]], axis=-1)
            better = MEASURES[self.main_measure]
            if np.isfinite(values).all(axis=-1).any():  # a ranking needs grades that differ
                enough = choose(values, validated.weight, "one_standard_error", better).chosen
                found["enough"] = float(found["curves"][0]["points"][enough]["budget"])
        if classes is None:
            found["predicted"] = self._predicted(context, solved)
        return found

    def _predicted(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Predict some sampled rows: held-out ones where there are any."""
        sample = self.sample(context)
        rows = (sample.test if sample.test.n_rows else sample.train()).first(_SHOWN_ROWS)
        path, procedure = solved.path, solved.procedure
        model = procedure.models(solved.problem, path, [len(path.order)])[-1]
        mapping = self.maps(context)[path.label]
        n = len(mapping.scale)
        similarities = mapping(rows.values[:n])[model.landmarks]
        return {
            "rows": "test" if sample.test.n_rows else "train",
            "true": rows.values[n].tolist(),
            "predicted": procedure.decoded(model, model.scores(similarities)).tolist(),
        }

    def _name_columns(self, found: dict[str, Any], validated: FoldAnswers | None) -> None:
        """Make baselines of the last curve, of the columns: the models on none and on all."""
        points, baselines = found["curves"].pop()["points"], found["baselines"]
        del baselines[COLUMNS]
        baselines[self.reference_names[0]] = points[0]
        if not points[-1]["budget"]:  # the columns are too many, or similarities
            return
        baselines[self.reference_names[1]] = points[-1]
        if validated is not None:
            by = behind(validated, self.main_measure, 0, len(validated.answers) - 1)
            error = number_or_none(by.standard_error)
            found["linear"] = {"behind": number_or_none(by.mean), "standard_error": error}

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


# --- what landmarks are compared with -----------------------------------------------------------

#: A sum of similarities counts as none where it is at most this part of the sum of their sizes.
_NO_WEIGHT = 1e-6
#: Rows that similarities to all rows of a sample are computed for at a time.
_JUDGED_ROWS = 512


def behind(validated: FoldAnswers, measure: str, one: int, other: int) -> FoldMeans:
    """Return how much worse the last model of one item is than that of another, by folds."""
    values = [np.array([a[measure][-1] for a in validated.answers[i]]) for i in (one, other)]
    worse = values[0] - values[1]
    return over_folds(-worse if MEASURES[measure] else worse, validated.weight)


def kernel_regression(
    mapping: LandmarkMap, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict Σ y_i K(x, x_i) / Σ K(x, x_i) over sampled rows, the paper's baseline.

    Parameters
    ----------
    mapping : LandmarkMap
        Its landmarks are not used.
    train : ndarray of shape (d, m)
        Features of the sample.
    target : ndarray of shape (m,)
    rows : ndarray of shape (d, n)
        Features of the rows to predict.

    Returns
    -------
    values : ndarray of shape (n,)
    n_guarded : int
        Rows whose similarities add up to about nothing, so that they were predicted by the mean.
    """
    everyone = replace(mapping, landmarks=np.ascontiguousarray(train.T))
    values, n_guarded = np.empty(rows.shape[1]), 0
    for start in range(0, rows.shape[1], _JUDGED_ROWS):
        own = slice(start, start + _JUDGED_ROWS)
        similarities = everyone(rows[:, own])
        total, size = similarities.sum(axis=0), np.abs(similarities).sum(axis=0)
        guarded = np.abs(total) <= _NO_WEIGHT * size
        total[guarded] = 1.0
        values[own] = np.where(guarded, target.mean(), target @ similarities / total)
        n_guarded += int(np.count_nonzero(guarded))
    return values, n_guarded


Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, int]]
"""From features and target of a sample, and features of rows, to predictions and n_guarded."""


def reference_errors(
    predict: Predict, classes: Sequence[float] | None, sample: Folded[RowSample], n: int
) -> dict[str, Any]:
    """Judge a reference of n features on samples of the held-out rows, and of each fold."""

    def errors(train: RowSample, held_out: RowSample) -> dict[str, Any]:
        target, truth = (coded(classes, own.values[n]) for own in (train, held_out))
        values, n_guarded = predict(train.values[:n], target, held_out.values[:n])
        if classes is not None:
            values = np.clip(np.round(values), 0, len(classes) - 1)
        return {
            "mse": float(np.mean((values - truth) ** 2)),
            "mae": float(np.mean(np.abs(values - truth))),
            "error": float(np.mean(values != truth)),
            "n_guarded": n_guarded,
            "n_train": train.n_rows,
            "n_rows": held_out.n_rows,
        }

    found: dict[str, Any] = {}
    own = []
    if sample.n_folds > 1:
        pairs = [(sample.train_without(f), own) for f, own in enumerate(sample.folds)]
        own = [errors(*pair) for pair in pairs if min(one.n_rows for one in pair) > 1]
    if own:
        found["validation"] = {
            **{name: float(np.mean([e[name] for e in own])) for name in ("mse", "mae", "error")},
            **{name: sum(e[name] for e in own) for name in ("n_guarded", "n_rows")},
            "n_train": max(e["n_train"] for e in own),
        }
    if sample.test.n_rows > 1:
        found["test"] = errors(sample.train(), sample.test)
    return found


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
