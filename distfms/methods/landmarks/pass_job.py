"""The job of learning with similarities to landmarks, for losses that are fitted by passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.errors import DataError
from distfms.methods.classes import ClassReader, find_classes
from distfms.methods.contract import Answer, Content, Context, FoldAnswers, Stage
from distfms.methods.cross_validation import Fold, FoldWork, evaluate_here
from distfms.methods.landmarks.fit import ERRORS, JudgePass, PassFit, PassProcedure
from distfms.methods.landmarks.job import LandmarkJob
from distfms.methods.landmarks.losses import Loss, OrdinalMargin, loss_of
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.procedure import below
from distfms.methods.landmarks.rank_job import RankingJob
from distfms.methods.landmarks.read import EmbeddedReader
from distfms.methods.passes import Passes, Sums, one_pass, said_rows
from distfms.methods.statistics_job import STATISTICS, Solved

CLASSES = "statistics/classes.json"


class PassLandmarkJob(LandmarkJob):
    """Learning with similarity functions by other losses than the squared one."""

    nested: ClassVar[str | None] = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.has_classes = self.options.task in ("ordinal", "classification")
        self.measures = ERRORS if self.has_classes else ERRORS[:-1]
        self.main_measure = "error" if self.options.task == "classification" else "mae"

    def row_values(self) -> int:
        """Return how many numbers a row takes while models are fitted."""
        share = 2 if self.options.precision == "float32" else 1
        return -(-len(self.similarities) * self.most_landmarks() // share) + 2

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        n_bytes = 8 * self.row_values() * self.inputs.train.n_rows
        own = {"loss": self.options.chosen_loss, "passes": said_rows(n_bytes)}
        return {**super().describe(), **own}

    # --- classes ---

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages before the statistics; classes are known before landmarks."""
        *before, landmarks = super().first_stages()
        classes = [Stage("classes", self._classes)] if self.has_classes else []
        return [*before, *classes, landmarks]

    def _classes(self, context: Context) -> Mapping[str, Content]:
        plan = self.target_plan(context)
        found = context.reduce(
            lambda dataset, held_out: ClassReader(self.source(plan, dataset, held_out))
        )
        what, target = f"the task `{self.options.task}`", self.roles.target[0]
        classes = find_classes(found["classes"], target, what)
        levels = self.options.levels
        unknown = np.setdiff1d(classes, classes if levels is None else levels)
        if len(unknown):
            raise DataError(
                f"The target {target!r} has the value {unknown[0]:g}, which is not among "
                f"`landmarks.levels` ({', '.join(f'{level:g}' for level in levels or ())})."
            )
        return {CLASSES: {"classes": list(levels or classes.tolist())}}

    def classes(self, context: Context) -> tuple[float, ...] | None:
        """Return the classes or levels of the target, ascending."""
        return tuple(context.read_json(CLASSES)["classes"]) if self.has_classes else None

    # --- selection ---

    def loss(self, context: Context) -> Loss:
        """Return the loss."""
        moments = next(iter(self.statistics(context).members.values())).train()
        deviation = float(np.sqrt(moments.variance()[-1]))
        return loss_of(self.options, len(self.classes(context) or ()), deviation)

    def procedure(self, context: Context) -> PassProcedure:
        """Return the pure part."""
        own, fit = super().procedure(context), None
        if (context.folder / STATISTICS).exists():
            fit = PassFit(self.loss(context), self.options.ridge, self.options.bound)
        return PassProcedure(**vars(own), fit=fit)

    def _reader(self, context: Context, judges: bool) -> Any:
        plan, maps, classes = self.plan(context), self.maps(context), self.classes(context)
        return lambda dataset, held_out: EmbeddedReader(
            self.source(plan, dataset, held_out), maps, classes, judges
        )

    def _passes(self, context: Context) -> Passes:
        return Passes(context, self._reader(context, False), self.row_values())

    def search(self, context: Context, procedure: Any, problem: Any) -> Sequence[Any]:
        """Return the models of all similarities, fitted by passes over the training rows."""
        train = {rule.name: self.statistics(context)[rule.name].train() for rule in procedure.rules}
        with self._passes(context) as make_pass:
            whole = procedure.problem({**train, "make_pass": make_pass})
            return super().search(context, procedure, whole)

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``, with how far each fit came."""
        found = super().selection(context, solved)
        fits = found["fits"]
        unfinished = [fit for fit in fits if fit["status"] != "converged"]
        if unfinished:
            worst = max(fit["gradient_norm"] / fit["tolerance"] for fit in unfinished)
            context.note(
                f"{len(unfinished)} of {len(fits)} fits ended before they had converged; the "
                f"gradient is up to {worst:.3g} times the tolerance."
            )
        return {**found, "loss": self.options.chosen_loss, "classes": self.classes(context)}

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the models of all sizes with their landmarks."""
        path, loss = solved.path, solved.procedure.fit.loss
        arrays = path.arrays
        more: dict[str, Any] = {"classes": self.classes(context)}
        if isinstance(loss, OrdinalMargin):
            more["thresholds"] = [loss.thresholds(extra).tolist() for extra in arrays["extra"]]
        sizes, weights = arrays["sizes"].tolist(), arrays["weights"]
        return self.model_files(context, path, sizes, weights, arrays["offset"], **more)

    # --- evaluation ---

    def scores(
        self, context: Context, solved: Solved, path: Any, grid: np.ndarray
    ) -> dict[str, Answer]:
        """Score models by one pass over all rows."""
        n_folds, parts = max(self.inputs.section.folds, 1), ["train"]
        if solved.test is not None:
            parts.append("test")
        names = dict.fromkeys(range(n_folds), "train") | {n_folds: "test"}
        found: list[Sums] = []

        def judge(part: str, make: Any) -> Mapping[str, np.ndarray]:
            if not found:
                found.append(one_pass(context, self._reader(context, True), make(names)))
            return below(part, found[0].arrays)

        score = solved.procedure.score
        return {
            part: score(solved.problem, path, {"judge": partial(judge, part)}, grid)
            for part in parts
        }

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate items on folds one after another, by passes over rows that stay in memory."""
        with self._passes(context) as make_pass:

            def judge(number: int, make: Any) -> Mapping[str, np.ndarray]:
                message: JudgePass = make({number: "fold"})
                return below("fold", make_pass(message).arrays)

            def given(fold: Fold) -> AbstractContextManager[Fold]:
                train = {**fold.train, "make_pass": make_pass, "left_out": fold.number}
                held_out = {**fold.held_out, "judge": partial(judge, fold.number)}
                return nullcontext(Fold(train, held_out))

            return evaluate_here(work, self.statistics(context), given)

    def predicted(self, solved: Solved, similarities: np.ndarray) -> np.ndarray:
        """Return the predictions of the whole model, classes and levels as their numbers."""
        model = solved.path.models[-1]
        scores = model.scores(similarities[model.landmarks])
        return solved.procedure.fit.loss.decoded(scores, model.extra)


def make_landmark_job(options: LandmarksOptions, inputs: Any, seed: int) -> LandmarkJob:
    """Return the job of the task and loss."""
    if options.task == "ranking":
        return RankingJob(options, inputs, seed)
    form = LandmarkJob if options.chosen_loss == "squared" else PassLandmarkJob
    return form(options, inputs, seed)
