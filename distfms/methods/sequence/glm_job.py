"""The job of feature-group sequencing for generalised linear models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.contract import Answer, Content, Context, FoldAnswers, Inputs, Stage
from distfms.methods.cross_validation import Fold, FoldWork, Unit, arranged, evaluated, split_fold
from distfms.methods.passes import Passes, Sums, said_rows, together
from distfms.methods.row_job import CLASSES
from distfms.methods.sequence.glm import GlmModel, GlmPath
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import Rule, SequenceOptions
from distfms.methods.sequence.problem import Ladder, Path, SequenceProblem
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.read import (
    GlmReader,
    few_rows,
    measures_of,
    prior_of,
    weights_of_classes,
)
from distfms.methods.sequence.trees import (
    Refit,
    TreeFit,
    TreePath,
    features_of,
    require_trees,
    spans_of,
)
from distfms.methods.statistics_job import Solved, TrainMembers
from distfms.stats.classification import at_threshold, best_threshold, class_report

#: Explained deviance from which classes without a ridge count as separated.
_SEPARATED = 1 - 1e-6
_NO_FOLDS = (
    "`sequence.threshold` is chosen on folds: set `data.folds` to at least 2, or give a "
    "probability."
)
_ROWS = {"test": "held-out rows", "validation": "rows of the folds", "train": "training rows"}

#: Searches that make passes together: their models are summed up in one product with the rows.
_SIDE_BY_SIDE = 32


@dataclass(frozen=True, eq=False)
class Search:
    """A search for a path: its problem, the fold whose rows it does not see (−1: none), and a
    function of the problem, with passes, and of what it may ask.
    """  # noqa: D205

    problem: SequenceProblem
    run: Callable[[SequenceProblem, Callable[[Any], Any]], Any]
    fold: int = -1


class GlmSequenceJob(SequenceJob):
    """The job for logistic, softmax and Poisson models.

    Every iteration of a fit is a pass over the training rows, which all fits side by side share:
    those of the folds, of the rules and of the values that are tried.
    """

    weighs_partitions = False
    folds_cost = True
    default_baselines = ("oracle",)

    def __init__(self, options: SequenceOptions, inputs: Inputs, seed: int) -> None:
        self._of_folds: dict[Unit, Path] = {}
        super().__init__(options, inputs, seed)
        if options.model == "lightgbm":
            require_trees(options.lightgbm, len(self.roles.target))
            self.missing_said = "Missing values, which count as the mean where groups are ordered"
        if not isinstance(options.threshold, float) and inputs.section.folds < 2:
            raise SpecError(_NO_FOLDS)
        for name, default in (("class_weights", None), ("threshold", 0.5)):
            if getattr(options, name) != default and not self.has_classes:
                raise SpecError(f"`sequence.{name}` needs one target of classes.")
        n_targets = len(self.roles.target)
        if n_targets > 1 and (self.text_targets or options.family == "softmax"):
            raise SpecError(f"Classes need a single target; `data.target` names {n_targets}.")

    @property
    def has_classes(self) -> bool:
        """Whether the target holds classes."""
        return self.options.family in ("logistic", "softmax") and len(self.roles.target) == 1

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages that read the levels of categories and the classes of the target."""
        classes = [Stage("classes", self._classes)] if self.has_classes else []
        return [*super().first_stages(), *classes]

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        n_groups = min(self.options.max_groups or len(self.groups), len(self.groups))
        n_fits = len(Ladder(self.options.prefixes).numbers(n_groups))
        n_values = self.guessed_columns() + len(self.roles.target) + 1
        n_folds = self.inputs.section.folds
        again = f", and again without each of {n_folds} folds" if n_folds > 1 else ""
        kind = "" if self.options.model == "linear" else "LightGBM, "
        model = f"{kind}{self.options.family}, fitted at {n_fits} of {n_groups} prefixes{again}"
        return {
            **super().describe(),
            "model": model,
            "passes": said_rows(8 * n_values * self.inputs.train.n_rows),
        }

    # --- classes ---

    def _classes(self, context: Context) -> Mapping[str, Content]:
        family = self.options.family
        most = 2 if family == "logistic" else None
        found = self.read_classes(context, f"`sequence.family` {family}", most)
        if self.options.threshold != 0.5 and len(found["classes"]) != 2:
            raise SpecError(
                f"`sequence.threshold` is for two classes; {found['target']!r} has "
                f"{len(found['classes'])}. Leave it out: the most probable class is predicted."
            )
        return {CLASSES: found}

    def output_names(self, context: Context) -> tuple[str, ...]:
        """Return the names of what the model predicts: targets, or classes of a target."""
        if not self.has_classes or self.options.family != "softmax":
            return self.roles.target
        return tuple(self.class_texts(context))

    def _class_weights(self, context: Context) -> tuple[float, ...] | None:
        """Return what a row of each class weighs in a fit."""
        wanted = self.options.class_weights
        if wanted is None:
            return None
        own = context.read_json(CLASSES)["train_weight"]
        return weights_of_classes(wanted, own, self.class_texts(context))

    def prior(self, context: Context) -> np.ndarray:
        """Return what weights of classes add to scores."""
        return prior_of(self._class_weights(context), self.options.family)

    @staticmethod
    def takes_text(options: Any) -> bool:
        """Return whether the target may be text, which names classes."""
        return options.family in ("logistic", "softmax")

    # --- selection ---

    def procedure(self, context: Context) -> SequenceProcedure:
        """Return the pure part."""
        return replace(super().procedure(context), n_outputs=len(self.output_names(context)))

    def _side_by_side(
        self, context: Context, problem: SequenceProblem, searches: Sequence[Search]
    ) -> list[Any]:
        """Run searches that make passes over the training rows together.

        `problem` is that of all training rows.
        """
        plan, design = self.plan(context), self.procedure(context).design(problem.scaling)
        weighted = self.classes(context), self._class_weights(context)

        def answer(asked: Mapping[int, Any]) -> Mapping[int, Any]:
            models = {n: asked[n] for n in asked if isinstance(asked[n], GlmModel)}
            refits = {n: asked[n] for n in asked if isinstance(asked[n], Refit)}
            if models:
                sums = make_pass(list(models.values())).arrays
                return {
                    n: Sums({name: array[i] for name, array in sums.items()})
                    for i, n in enumerate(models)
                }
            if refits:
                return dict(zip(refits, self._refitted(context, refits.values()), strict=True))
            paths = [(path, [fold]) for fold, path in asked.values()]
            return dict(zip(asked, self.measured(context, paths), strict=True))

        def run(search: Search, ask: Callable[[Any], Any]) -> Any:
            def refit(path: Path, ladder: Ladder) -> Any:
                return ask(Refit(path, tuple(ladder.of_path(path.spent)), search.fold))

            own = design.asker(search.problem.scaling, search.fold, ask)
            return search.run(replace(search.problem, make_pass=own, refit=refit), ask)

        opened: Any = nullcontext()
        if self.options.family != "gaussian":
            opened = Passes(
                context,
                lambda *of: GlmReader(self.source(plan, *of), design, *weighted),
                plan.n_columns + 1,
                design.n_outputs,
            )
        found: list[Any] = []
        with opened as make_pass:
            for start in range(0, len(searches), _SIDE_BY_SIDE):
                own = searches[start : start + _SIDE_BY_SIDE]
                found += together(answer, [partial(run, search) for search in own])
        return found

    def search(
        self, context: Context, procedure: SequenceProcedure, problem: SequenceProblem
    ) -> Sequence[Path]:
        """Return the paths of all rules, fitted by passes over the training rows."""

        def by(rule: Rule, own: SequenceProblem, ask: Any) -> Path:
            return procedure.search(own, rule)

        searches = [Search(problem, partial(by, rule)) for rule in procedure.rules]
        return self._side_by_side(context, problem, searches)

    def _refitted(self, context: Context, asked: Iterable[Refit]) -> list[TreePath]:
        """Fit trees to the prefixes of paths, each by a task of its own."""
        plan, train = self.plan(context), self.inputs.train
        options, spans, asked = self.options, spans_of(self.plan(context)), list(asked)
        fit = TreeFit(
            self.source(plan, train, False), train.partitions, options.family, options.lightgbm,
            self.seed, self.classes(context), self._class_weights(context),
        )  # fmt: skip
        tasks = [(features_of(own.path, n, spans), own.fold) for own in asked for n in own.prefixes]
        texts = iter(context.map(fit, tasks))
        paths = [own.path_of([next(texts) for _ in own.prefixes], spans) for own in asked]
        folds = range(max(self.inputs.section.folds, 1))
        whole = [n for n, own in enumerate(asked) if own.fold < 0]
        wanted = [(paths[n], paths[n].fitted, folds) for n in whole]
        judged = self.judged(context, wanted) if wanted else []
        for n, members in zip(whole, judged, strict=True):
            share = measures_of(members)[self.procedure(context).share]
            paths[n] = replace(paths[n], share=share)
        return paths

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        path = solved.path
        return {
            **super().selection(context, solved),
            "classes": self.class_names(context),
            "model": self.options.model,
            "refit_at": path.refit_at.tolist(),
            **({"n_passes": int(path.n_passes[-1])} if isinstance(path, GlmPath) else {}),
        }

    def notes(self, path: Path) -> list[str]:
        """Return what a reader of the result should know of the fits."""
        notes = []
        if self.options.class_weights is not None:
            notes.append(
                "The explained deviance weighs rows by class (`sequence.class_weights`), in the "
                "model and in the null model; other measures do not. Probabilities are those of "
                "classes as frequent as in the training rows; the class is predicted whose "
                "probability times its weight is largest, unless `sequence.threshold` is set."
            )
        if len(path.fitted) <= len(path):
            listed = ", ".join(map(str, path.fitted[1:].tolist()))
            notes.append(
                f"Models were fitted to the prefixes of {listed} groups (`sequence.prefixes`); "
                "other prefixes use the model of the next smaller one."
            )
        if not isinstance(path, GlmPath):
            return notes
        unfinished = sorted(set(path.status.tolist()) - {"converged"})
        if unfinished:
            notes.append(
                f"Some fits did not converge: {', '.join(unfinished)}. The gradient is up to "
                f"{path.gradient_norm.max():.3g} times the tolerance."
            )
        if path.outline.ridge == 0 and path.curve_value[-1] > _SEPARATED:
            notes.append(
                "The model separates the classes of the training rows completely, so the "
                "coefficients are unbounded. Set a ridge (`sequence.ridge`) to bound them."
            )
        return notes

    # --- evaluation ---

    def validate(self, context: Context, solved: Solved) -> FoldAnswers | None:
        """Evaluate all rules on the folds, keeping the sequence of each fold."""
        self._of_folds.clear()
        return super().validate(context, solved)

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``, with the classes by the model where to stop."""
        content = super().metrics(context, solved, validated)
        stop, n_prefixes = content["stop"], len(solved.path) + 1
        # The rule of the model that predictions use: the chosen one, or that of a budget.
        rule, spent = 0, stop["spent"]
        if stop["model"] >= n_prefixes:
            rule, spent = len(self.compared) + stop["model"] - n_prefixes, np.inf
        path = list(solved.paths.values())[rule]
        models = {
            "train": [(path, [*range(max(self.inputs.section.folds, 1))])],
            "validation": [(p, [f]) for (f, r), p in sorted(self._of_folds.items()) if r == rule],
            "test": [(path, [-1])],
        }
        rows = "train" if validated is None else "validation"
        rows = rows if solved.test is None else "test"
        if isinstance(self.options.threshold, float) or validated is None:
            models = {rows: models[rows]}
        found = self._sums_at(context, spent, models)
        by_deviance = self.options.family != "gaussian"
        if by_deviance and (text := few_rows(found[rows], _ROWS[rows])):
            advice = "" if self.chooses_ridge else ", or raise `sequence.ridge`"
            context.note(f"{text} Look at these rows{advice}.")
        if self.has_classes:
            names, sums = self.class_texts(context), found[rows].arrays
            threshold = self.options.threshold
            if not isinstance(threshold, float):
                if validated is None:
                    raise DataError(_NO_FOLDS)
                asked = threshold["cost"] if isinstance(threshold, dict) else threshold
                threshold = best_threshold(found["validation"].arrays, asked)
                sums = at_threshold(sums, threshold)
            report = class_report(sums, names, rows, calibrated=True, threshold=threshold)
            if weights := self._class_weights(context):
                # Also what the explained deviance weighs rows by.
                content["class_weights"] = dict(zip(names, weights, strict=True))
                if self.options.threshold == 0.5 and len(weights) == 2:
                    report["threshold"] = weights[0] / sum(weights)
            content["classes"] = report
        return content

    def _sums_at(
        self, context: Context, spent: float, models: Mapping[str, Sequence[tuple[Path, list[int]]]]
    ) -> dict[str, Sums]:
        """Judge, by one pass, what a cost buys of paths; merge what is of one name."""
        wanted = [(name, *one) for name, of_name in models.items() for one in of_name]
        asked = [(path, [path.affordable(spent)], parts) for _, path, parts in wanted]
        merged = dict.fromkeys(models, Sums({}))
        for (name, *_), members in zip(wanted, self.judged(context, asked), strict=True):
            merged[name] = merged[name].merge(members["scores"])
        return merged

    def judged(self, context: Context, asked: Sequence[Any], **options: Any) -> list[Any]:
        """Make a pass that judges models, by classes where there are any."""
        weights = self._class_weights(context)
        more = {"classes": self.classes(context), "class_weights": weights}
        return super().judged(context, asked, **options | more)

    def measures(
        self, context: Context, solved: Solved, path: Any, chosen: bool
    ) -> dict[str, Answer]:
        """Measure all prefixes by one pass over the rows."""
        rows: dict[str, Sequence[int]] = {"test": [-1]}
        if chosen:
            rows = {"train": range(max(self.inputs.section.folds, 1)), **rows}
        found = self.measured(context, [(path, parts) for parts in rows.values()])
        return {name: own for name, own in zip(rows, found, strict=True) if own}

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate all items on all folds side by side, by passes over the rows."""
        statistics, procedure = self.statistics(context), self.procedure(context)
        whole = procedure.problem(TrainMembers(statistics))
        units = product(range(work.n_folds), range(len(work.items)))
        searches, found = dict[Unit, Search](), dict[Unit, Answer]({unit: {} for unit in units})
        folds = (split_fold(statistics, work, number) for number in range(work.n_folds))
        for fold in filter(None, folds):
            problem = procedure.problem(fold.train)
            for item in range(len(work.items)):
                evaluate = partial(self._evaluate_fold, work, fold, item)
                searches[fold.number, item] = Search(problem, evaluate, fold.number)
        answers = self._side_by_side(context, whole, list(searches.values()))
        return arranged(work, found | dict(zip(searches, answers, strict=True)), 0)

    def _evaluate_fold(
        self, work: FoldWork, fold: Fold, item: int, problem: SequenceProblem, ask: Any
    ) -> Answer:
        def judge(path: Path) -> Answer:
            self._of_folds[fold.number, item] = path
            found: Answer = ask((fold.number, path))
            return found

        own = Fold(fold.train, {**fold.held_out, "judge": judge}, fold.number)
        own.once("problem", lambda: problem)
        return evaluated(work, own, item)
