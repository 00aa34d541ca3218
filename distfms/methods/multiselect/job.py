"""The job of feature multi-selection: its stages, from statistics to report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.dataset import ParquetDataset
from distfms.data.judgments import JudgmentLayout, detect_layout
from distfms.data.roles import Roles, require_same_kinds
from distfms.engine.storage import absolute
from distfms.errors import DataError, SpecError, nearest
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs, Job, Stage
from distfms.methods.fold_pool import tuned_answers
from distfms.methods.multiselect.costs import resolve_costs
from distfms.methods.multiselect.curves import (
    CrossValidate,
    LazyFoldTask,
    budget_grid,
)
from distfms.methods.multiselect.evaluate import (
    Evaluation,
    attribute_entries,
    named_repeats,
    path_entries,
    scoring_yardstick,
)
from distfms.methods.multiselect.model import (
    LinearModel,
    RefitStatistics,
    projected_model,
    refit,
)
from distfms.methods.multiselect.objective import (
    Problem,
    full_objective,
    scoring_objective,
)
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.path import BUDGET_TOLERANCE, SelectionPath, check_budget
from distfms.methods.multiselect.predictor import stored_model
from distfms.methods.multiselect.read import AveragesReader, JudgmentReader, JudgmentSource
from distfms.methods.multiselect.read_columns import TrainedColumns
from distfms.methods.multiselect.remarks import evaluation_remarks, selection_remarks
from distfms.methods.multiselect.training import Sample, Settings, Training
from distfms.methods.multiselect.tuning_job import tune_work
from distfms.methods.multiselect.write_plan import WritePlan
from distfms.methods.rows import section_roles
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.judgments import JudgmentStatistics

STATISTICS = "statistics/judgments.npz"
AVERAGES = "statistics/averages.npz"
PLAN = "plan"

#: Most judgments a search may have to buy one at a time; so many take a minute or two.
MOST_STEPS = 200_000


class MultiselectJob(Job):
    """Feature multi-selection (Sabato & Kalai 2013) as a job.

    Parameters
    ----------
    options : MultiselectOptions
    inputs : Inputs
    seed : int

    Raises
    ------
    SpecError, DataError
        If the options do not fit the columns of the data.
    """

    name: ClassVar[str] = "multiselect"
    options: MultiselectOptions

    def __init__(self, options: MultiselectOptions, inputs: Inputs, seed: int) -> None:
        self.options = options
        self.inputs = inputs
        self.seed = seed
        self.roles = _roles(inputs.train, inputs)
        self.layout = detect_layout(inputs.train.schema, self.roles)
        _check_names(options, self.layout.names)
        if inputs.test is not None:
            require_same_kinds(
                inputs.train.schema,
                inputs.test.schema,
                self.columns(),
                inputs.test.files[0].path,
            )
        self.settings = Settings(
            names=self.layout.names,
            budget=options.budget,
            costs=resolve_costs(options.costs, self.layout.names),
            ridge=options.ridge,
            psd=options.psd,
            criterion=options.criterion,
            internal_variance=_known_variance(options, self.layout.names),
            n_judgments=options.baseline_judgments,
            algorithms=tuple(dict.fromkeys((options.algorithm, *options.baselines))),
            refine=options.refine,
        )
        self.most_steps = _most_steps(options.budget, self.settings.costs, self.layout.names)

    # --- what the driver asks ---

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order."""
        stages = [
            Stage("statistics", self._statistics),
            Stage("select", self._select),
            Stage("averages", self._averages),
            Stage("model", self._model),
            Stage("evaluate", self._evaluate),
        ]
        if self.options.plan:
            stages.append(Stage("plan", self._plan))
        return stages

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        low, high = self.settings.costs.min(), self.settings.costs.max()
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return {
            "method": f"feature multi-selection, {self.options.algorithm}",
            "label": self.roles.target[0],
            "attributes": f"{len(self.layout.names)} ({price} a judgment)",
            "budget": f"{self.options.budget:g} an object",
            "search": f"at most {self.most_steps:,} steps of one judgment each",
            "baselines": ", ".join(self.settings.algorithms[1:]) or "none",
        }

    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        width = len(self.layout.names) + 1
        copies = len(self.layout.names) * self._n_copies() + 1
        per_part = 3 * width**2 + (3 * copies**2 if copies > 1 else 0)
        return 8 * per_part * (max(self.inputs.section.folds, 1) + 1)

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        roles = self.roles
        others = (*roles.target, roles.weight, roles.query, roles.id, roles.time)
        return [*self.layout.columns, *(c for c in others if c is not None)]

    def _n_copies(self) -> int:
        wanted = "copies" in self.settings.algorithms
        return self.options.baseline_judgments if wanted else 0

    def source(self, dataset: ParquetDataset, held_out: bool) -> JudgmentSource:
        """Return all that is needed to read a partition of a dataset."""
        section = self.inputs.section
        return JudgmentSource(dataset.reader, section, self.seed, held_out, self.layout, self.roles)

    # --- stages ---

    def _statistics(self, context: Context) -> Mapping[str, Content]:
        """Read the data once; refuse what nothing can be learned from."""
        bundle = context.reduce(
            lambda dataset, held_out: JudgmentReader(
                self.source(dataset, held_out), self._n_copies()
            )
        )
        judgments: Folded[JudgmentStatistics] = bundle["judgments"]
        train = judgments.train()
        _check_objects(train, judgments.test, self.inputs)
        # What else can be wrong with the data shows here, before anything is written.
        as_it_is = replace(self.settings, psd="none")
        check_budget(self.options.budget, as_it_is.problem(as_it_is.estimates(train)))
        left_out = _all_rows(self.inputs) - train.n_objects - judgments.test.n_objects
        if left_out:
            context.note(
                f"{left_out:,} of {_all_rows(self.inputs):,} objects were left out: they have no "
                "label, or weight 0."
            )
        context.account(
            objects={
                "train": int(train.means.n_samples),
                "test": int(judgments.test.means.n_samples),
            },
            judgments={
                "total": int(train.n_judgments.sum() + judgments.test.n_judgments.sum()),
                "train": dict(zip(self.layout.names, train.n_judgments.tolist(), strict=True)),
            },
        )
        return {STATISTICS: bundle.to_arrays()}

    def _bundle(self, context: Context) -> Bundle:
        reader = JudgmentReader(self.source(self.inputs.train, False), self._n_copies())
        return Bundle.from_arrays(context.read_arrays(STATISTICS), reader.part_types)

    def check_tuning(self) -> None:
        """Let `tune` compare options on folds."""

    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid; see :class:`distfms.methods.contract.Job`."""
        folds, stored = self.inputs.section.folds, self.statistics_bytes()
        work = tune_work(self.settings, self.options, points, STATISTICS, folds, stored)
        return tuned_answers(context, work, saved)

    def _select(self, context: Context) -> Mapping[str, Content]:
        """Search, and exchange judgments if asked to; baselines wait for the evaluation."""
        settings, train = self.settings, self._bundle(context)["judgments"].train()
        training = Training.of(settings, Sample(train))
        path = training.choose(self.options.algorithm)
        context.count(n_candidates=path.n_candidates)
        selection = self.selection(training.problem, path, training.selected(path))
        for text in selection_remarks(train, selection["projected_loss"]):
            context.note(text)
        selection["attributes"] = attribute_entries(
            settings.names, settings.costs, training.estimates, train.n_judgments
        )
        return {"selection.json": selection}

    def selection(
        self,
        problem: Problem,
        path: SelectionPath,
        repeats: np.ndarray,
    ) -> dict[str, Any]:
        """Return ``selection.json`` but for its entries of single attributes."""
        names = self.layout.names
        score = scoring_objective if self.options.algorithm == "scoring" else full_objective
        objective = score(problem, repeats)
        return {
            "method": self.name,
            "algorithm": self.options.algorithm,
            "criterion": path.criterion,
            "budget": self.options.budget,
            "spent": float(repeats @ self.settings.costs),
            "label_variance": problem.label_variance,
            "objective": objective,
            "projected_loss": problem.label_variance - full_objective(problem, repeats),
            "status": path.status,
            "n_candidates": path.n_candidates,
            "refined": bool((repeats != path.final_repeats).any()),
            "repeats": named_repeats(names, repeats),
            "optimum": scoring_yardstick(problem, self.options.algorithm, self.options.budget),
            "path": path_entries(problem, path),
            "constant": [names[int(a)] for a in np.flatnonzero(~problem.candidates)],
        }

    def _repeats(self, context: Context) -> np.ndarray:
        chosen = context.read_json("selection.json")["repeats"]
        return np.array([chosen.get(name, 0) for name in self.layout.names], dtype=np.int64)

    def _chosen_layout(self, support: np.ndarray) -> JudgmentLayout:
        """Columns of the selected attributes."""
        return self.layout.restricted([self.layout.names[a] for a in support])

    def _averages(self, context: Context) -> Mapping[str, Content]:
        """Read averages of as many judgments as were selected, for refit and plain error."""
        repeats = self._repeats(context)
        support = np.flatnonzero(repeats)
        layout = self._chosen_layout(support)
        counts = tuple(int(r) for r in repeats[support])
        bundle = context.reduce(
            lambda dataset, held_out: AveragesReader(
                replace(self.source(dataset, held_out), layout=layout), counts
            )
        )
        return {AVERAGES: bundle.to_arrays()}

    def _averages_of(self, context: Context) -> Folded[RefitStatistics]:
        types = {"averages": RefitStatistics}
        return Bundle.from_arrays(context.read_arrays(AVERAGES), types)["averages"]

    def _model(self, context: Context) -> Mapping[str, Content]:
        """Fit the model on the selected repeats."""
        repeats = self._repeats(context)
        judgments = self._bundle(context)["judgments"].train()
        problem = self.settings.problem(self.settings.estimates(judgments))
        if self.options.model == "refit":
            averages = self._averages_of(context).train()
            model = refit(averages, self.layout.names, repeats, ridge=self.options.ridge)
            if averages.n_dropped:
                context.note(
                    f"The refit used {averages.comoments.n_samples} training objects; "
                    f"{averages.n_dropped} hold fewer judgments than the selection asks for."
                )
        else:
            model = projected_model(problem, repeats)
        support = np.flatnonzero(repeats)
        chosen = self._chosen_layout(support)
        description = {
            "method": self.name,
            "kind": self.options.model,
            "target": self.roles.target[0],
            "id": self.roles.id,
            "attributes": list(chosen.names),
            "intercept": model.intercept,
            **TrainedColumns.of(chosen, self.inputs.train.schema.names).to_json(),
        }
        arrays = {
            "weights": model.weights[support],
            "repeats": repeats[support],
            "means": problem.means[support],
        }
        return {"model.json": description, "weights.npz": arrays}

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        """Measure the selection and the baselines on the folds and the held-out objects."""
        bundle = self._bundle(context)
        judgments: Folded[JudgmentStatistics] = bundle["judgments"]
        training = Training.of(self.settings, Sample.of(bundle.members))
        paths = self._paths(training)
        budgets = budget_grid(paths[self.options.algorithm])
        folds = self._folds(judgments, context)
        for text in evaluation_remarks(self.settings, judgments, folds):
            context.note(text)
        model = self._fitted(context)
        tasks = [
            LazyFoldTask(partial(Sample.of, bundle.members, f), judgments.folds[f]) for f in folds
        ]
        validate = CrossValidate(self.settings, budgets, model.repeats)
        evaluation = Evaluation(
            training=training,
            judgments=judgments,
            averages=self._averages_of(context),
            model=model,
            paths=paths,
            budgets=budgets,
            folds=tuple(folds),
            per_fold=tuple(context.map(validate, tasks)),
            confidence=self.options.confidence,
        )
        return {"metrics.json": evaluation.metrics()}

    def _paths(self, training: Training) -> dict[str, SelectionPath]:
        """Paths of all algorithms on the training objects, the chosen one first."""
        return {name: training.choose(name) for name in self.settings.algorithms}

    def _folds(self, judgments: Folded[JudgmentStatistics], context: Context) -> list[int]:
        """Folds to cross-validate over."""
        return _usable_folds(judgments, context)

    def _fitted(self, context: Context) -> LinearModel:
        """Write the stored model over all attributes."""
        restricted = stored_model(
            context.read_json("model.json"), context.read_arrays("weights.npz")
        )
        position = {name: a for a, name in enumerate(self.layout.names)}
        support = [position[name] for name in restricted.names]
        d = len(self.layout.names)
        weights, means, repeats = np.zeros(d), np.zeros(d), np.zeros(d, dtype=np.int64)
        weights[support], means[support] = restricted.weights, restricted.means
        repeats[support] = restricted.repeats
        return LinearModel(self.layout.names, repeats, weights, restricted.intercept, means)

    def _plan(self, context: Context) -> Mapping[str, Content]:
        """List the judgments that training objects lack."""
        repeats = self._repeats(context)
        support = np.flatnonzero(repeats)
        layout = self._chosen_layout(support)
        writer = WritePlan(
            source=replace(self.source(self.inputs.train, False), layout=layout),
            repeats=tuple(int(r) for r in repeats[support]),
            costs=tuple(float(c) for c in self.settings.costs[support]),
            folder=absolute(context.folder) / PLAN,
        )
        totals = context.map(writer, self.inputs.train.partitions)
        writer.remove_others(self.inputs.train.partitions)
        judgments = sum(t.judgments for t in totals)
        cost = sum(t.cost for t in totals)
        context.account(plan={"judgments": judgments, "cost": cost})
        context.note(
            f"To train on {self.options.budget:g} a training object, {judgments:,} more judgments "
            f"are to be collected (cost {cost:,.10g}); the folder {PLAN} lists them."
        )
        return {PLAN: None}


# --- small parts --------------------------------------------------------------------------------


def _roles(dataset: ParquetDataset, inputs: Inputs) -> Roles:
    section = inputs.section
    if len(section.target) != 1:
        raise SpecError(
            f"Multi-selection predicts one label; `data.target` names {len(section.target)}."
        )
    return section_roles(dataset, section, judgments=True)


def _check_names(options: MultiselectOptions, names: Sequence[str]) -> None:
    singles = [b.removeprefix("single:") for b in options.baselines if b.startswith("single:")]
    for key, given in (("internal_variance", options.internal_variance), ("baselines", singles)):
        for name in given:
            if name not in names:
                raise SpecError(
                    f"`multiselect.{key}` names `{name}`, which is no attribute of the data."
                    f"{nearest(name, names)}"
                )


def _known_variance(options: MultiselectOptions, names: Sequence[str]) -> np.ndarray | None:
    if not options.internal_variance:
        return None
    return np.array([options.internal_variance.get(name, np.nan) for name in names])


def _check_objects(train: JudgmentStatistics, test: JudgmentStatistics, inputs: Inputs) -> None:
    n = train.means.n_samples
    if n < 2:
        raise DataError(
            f"There are {n} objects to train on in {inputs.train.files[0].path} (held out: "
            f"{test.means.n_samples}); at least 2 are needed. Add objects, or lower `data.test`."
        )
    if train.means.constant_columns()[-1]:
        raise DataError(
            f"The label {inputs.section.target[0]!r} is {train.means.mean[-1]:.6g} for all {n} "
            "training objects, so there is nothing to predict. Check `data.target`."
        )


def _most_steps(budget: float, costs: np.ndarray, names: Sequence[str]) -> int:
    """Count the steps a search may take; refuse none and too many before any row is read."""
    cheapest = int(np.argmin(costs))
    if costs[cheapest] > budget * (1.0 + BUDGET_TOLERANCE):
        raise SpecError(
            f"`multiselect.budget` is {budget:g}, which buys nothing: a judgment of the cheapest "
            f"attribute, {names[cheapest]!r}, costs {costs[cheapest]:g}. Raise the budget or lower "
            "`multiselect.costs`."
        )
    most = math.floor(budget / costs[cheapest] * (1.0 + BUDGET_TOLERANCE))
    if most > MOST_STEPS:
        raise SpecError(
            f"`multiselect.budget` is {budget:g}, which buys {most:,} judgments of "
            f"{names[cheapest]!r} at {costs[cheapest]:g} each. The search buys one at a time and "
            f"takes at most {MOST_STEPS:,} steps. Lower the budget (the shares of the attributes "
            "hardly change any more with so many judgments), or let `multiselect.costs` be those "
            "of a dozen or a hundred judgments."
        )
    return most


def _all_rows(inputs: Inputs) -> int:
    return inputs.train.n_rows + (0 if inputs.test is None else inputs.test.n_rows)


def _usable_folds(judgments: Folded[JudgmentStatistics], context: Context) -> list[int]:
    """Folds to cross-validate over: none without folds, and none that is empty."""
    if judgments.n_folds < 2:
        return []
    usable = [f for f, fold in enumerate(judgments.folds) if fold.means.n_samples > 1]
    if len(usable) < judgments.n_folds:
        context.note(
            f"{judgments.n_folds - len(usable)} of {judgments.n_folds} folds hold fewer than two "
            "objects and are left out of the cross-validation; choose fewer folds."
        )
    return usable if len(usable) > 1 else []
