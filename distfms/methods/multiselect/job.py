"""The job of feature multi-selection: what it reads, checks and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.judgments import JudgmentLayout, detect_layout
from distfms.data.partition import Dataset
from distfms.data.roles import require_same_kinds
from distfms.engine.storage import remove_tree
from distfms.errors import DataError, SpecError, nearest
from distfms.methods.contract import (
    Content,
    Context,
    FinishedRun,
    FoldAnswers,
    Inputs,
    Judged,
    Stage,
)
from distfms.methods.multiselect.choice_job import ChoosingJob, choices
from distfms.methods.multiselect.evaluate import (
    Evaluation,
    attribute_entries,
    evaluation_remarks,
    named_repeats,
    optimum_entry,
    path_entries,
    selection_remarks,
)
from distfms.methods.multiselect.model import LinearModel, projected_model, refit
from distfms.methods.multiselect.objective import (
    BUDGET_TOLERANCE,
    Problem,
    SelectionPath,
    full_objective,
    objective_of,
)
from distfms.methods.multiselect.options import MultiselectOptions, resolve_costs
from distfms.methods.multiselect.procedure import Rule, SelectionProcedure
from distfms.methods.multiselect.read import (
    PLAN,
    JudgmentSource,
    WritePlan,
    averages_reader,
    judgment_reader,
    loss_on,
    trained_columns,
    trained_model,
)
from distfms.methods.multiselect.same_raters import (
    check_buying,
    rater_remarks,
    raters_in_words,
)
from distfms.methods.remarks import far_remarks
from distfms.methods.rows import SummaryReader, section_roles
from distfms.methods.statistics_job import STATISTICS, Solved
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.raters import COUNTS

AVERAGES = "statistics/averages.npz"

_NO_PLAIN_ERROR = (
    "cannot be measured: no object holds enough judgments (at most {:g}, fewer than the budget "
    "pays for)"
)

#: Most judgments a search may have to buy one at a time; so many take a minute or two.
MOST_STEPS = 200_000


class MultiselectJob(ChoosingJob):
    """Feature multi-selection (Sabato & Kalai 2013) as a job."""

    name: ClassVar[str] = "multiselect"
    nested: ClassVar[str | None] = "budget"
    rows: ClassVar[str] = "objects"
    weighs_partitions = True
    compared_by = "judgments"

    def __init__(self, options: MultiselectOptions, inputs: Inputs, seed: int) -> None:
        self.options, self.inputs, self.seed = options, inputs, seed
        self.judged_by = {"projected_loss": False}
        if len(inputs.section.target) != 1:
            raise SpecError(
                "Multi-selection predicts one label; `data.target` names "
                f"{len(inputs.section.target)}."
            )
        self.roles = section_roles(inputs.train, inputs.section, judgments=True)
        self.layout = detect_layout(inputs.train.schema, self.roles, options.raters)
        names = self.layout.names
        _check_names(options, names)
        if options.buy_from == "same":
            check_buying(len(names), self.layout.knows_raters)
        if inputs.test is not None:
            test = inputs.test
            require_same_kinds(inputs.train.schema, test.schema, self.columns(), test.place)
        known = options.internal_variance
        self.choices = choices(options, inputs.section.folds)
        preferred = self.choices[0]
        bought = "lasso" if preferred["selection"] == "lasso" else options.algorithm
        rules = dict.fromkeys((bought, options.algorithm, *options.baselines))
        self.settings = SelectionProcedure(
            names=names,
            budget=options.budget,
            costs=resolve_costs(options.costs, names),
            ridge=preferred["ridge"],
            psd=options.psd,
            criterion=options.criterion,
            internal_variance=np.array([known.get(name, np.nan) for name in names]),
            n_judgments=options.baseline_judgments,
            rules=tuple(map(Rule, rules)),
            refine=options.refine,
            buy_from=options.buy_from,
        )
        self.most_steps = _most_steps(options.budget, self.settings.costs, names)

    # --- what the driver asks ---

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        low, high = self.settings.costs.min(), self.settings.costs.max()
        most = np.array([a.most_judgments for a in self.layout.attributes])
        short = self._wants_averages and most @ self.settings.costs + high <= self.options.budget
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return {
            "method": f"feature multi-selection, {self.options.algorithm}",
            "label": self.roles.target[0],
            "attributes": f"{len(self.layout.names)} (cost {price} per judgment)",
            "budget": f"{self.options.budget:g} per object",
            "search": f"up to {self.most_steps:,} judgments, bought one at a time",
            "raters": raters_in_words(self.layout.knows_raters, self.options.buy_from),
            **({"plain error": _NO_PLAIN_ERROR.format(most.sum())} if short else {}),
            "baselines": ", ".join(rule.name for rule in self.settings.rules[1:]) or "none",
        }

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        width = len(self.layout.names) + 1
        n_matrices = 9 if self.layout.knows_raters else 3
        return 8 * n_matrices * width**2 * (max(self.inputs.section.folds, 1) + 1)

    def kept_bytes(self) -> int:
        """Return the size of the statistics in the run folder, and of folds between two stages."""
        n_matrices = self.inputs.section.folds if self.options.psd == "nearest" else 0
        n_matrices *= 2 if self.options.buy_from == "same" else 1
        return self.statistics_bytes() + 8 * n_matrices * len(self.layout.names) ** 2

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        layout, time = self.layout, self.roles.time
        names = (*layout.columns, *layout.rater_columns, *self.roles.target)
        return [*self.roles.with_row_columns(names), *([] if time is None else [time])]

    def last_stages(self) -> Sequence[Stage]:
        """Return the stage of the acquisition plan, if it is asked for."""
        return [Stage("plan", self._plan)] if self.options.plan else []

    # --- statistics ---

    def source(self, dataset: Dataset, held_out: bool) -> JudgmentSource:
        """Return all that is needed to read a partition of a dataset."""
        section = self.inputs.section
        return JudgmentSource(dataset.reader, section, self.seed, held_out, self.layout, self.roles)

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of a dataset's partitions."""
        return judgment_reader(self.source(dataset, held_out))

    def _statistics(self, context: Context) -> Mapping[str, Content]:
        bundle = context.reduce(partial(self.reader, context))
        self.check(context, bundle)
        return {STATISTICS: bundle.to_arrays()}

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what nothing can be learned from; count and note what was read."""
        judgments: Folded[JudgmentStatistics] = statistics["judgments"]
        train, test, names = judgments.train(), judgments.test, self.layout.names
        _check_objects(train, test, self.inputs)
        train.estimates(self.settings.internal_variance, names)
        n_rows = sum(data.n_rows for data in self.inputs.datasets)
        left_out = n_rows - train.n_objects - test.n_objects
        if left_out:
            context.note(
                f"{left_out:,} of {n_rows:,} objects were left out: they have no label, or "
                "weight 0."
            )
        columns, signs = (*names, self.roles.target[0]), statistics["signs"].parts[0]
        far = far_remarks(signs, columns, self.inputs.datasets)
        for text in (*far, *rater_remarks(train, self.options.buy_from)):
            context.note(text)
        if train.raters is not None:
            context.account(raters=dict(zip(COUNTS, train.raters.counts.tolist(), strict=True)))
        context.account(
            objects={"train": int(train.n_objects), "test": int(test.n_objects)},
            judgments={
                "total": int(train.n_judgments.sum() + test.n_judgments.sum()),
                "train": dict(zip(names, train.n_judgments.tolist(), strict=True)),
            },
        )

    def procedure(self, context: Context) -> SelectionProcedure:
        """Return the pure part."""
        return self.settings

    # --- selection ---

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        training, train = solved.problem, solved.train["judgments"]
        context.count(n_candidates=solved.path.n_candidates)
        content = self.path_content(training.problem, solved.path)
        for text in selection_remarks(train, content["projected_loss"]):
            context.note(text)
        content["attributes"] = attribute_entries(
            self.layout.names, self.settings.costs, training.estimates, train.n_judgments
        )
        return content

    def path_content(self, problem: Problem, path: SelectionPath) -> dict[str, Any]:
        """Return ``selection.json`` but for its entries of single attributes."""
        names, repeats, rule = self.layout.names, path.selected, self.settings.rules[0]
        scoring = rule.objective == "scoring"
        return {
            "method": self.name,
            "algorithm": rule.name,
            **self.choices[0],
            "criterion": path.criterion,
            "budget": self.options.budget,
            "spent": float(repeats @ self.settings.costs),
            "label_variance": problem.label_variance,
            "objective": objective_of(problem, rule.objective, repeats),
            "projected_loss": problem.label_variance - full_objective(problem, repeats),
            "status": path.status,
            "n_candidates": path.n_candidates,
            "refined": bool((repeats != path.final_repeats).any()),
            "repeats": named_repeats(names, repeats),
            "optimum": optimum_entry(problem, self.options.budget) if scoring else None,
            "path": path_entries(problem, path),
            "constant": [names[int(a)] for a in np.flatnonzero(~problem.candidates)],
        }

    def _chosen(self, repeats: np.ndarray) -> tuple[np.ndarray, JudgmentLayout]:
        """Return the selected attributes and their columns."""
        support = np.flatnonzero(repeats)
        return support, self.layout.restricted([self.layout.names[a] for a in support])

    # --- model ---

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Fit the model on the selected repeats, reading averages only if they are asked for."""
        files: dict[str, Content] = {}
        averages: CoMoments | None = None
        repeats, problem = solved.path.selected, solved.problem.problem
        support, chosen = self._chosen(repeats)
        if self._wants_averages:
            counts = tuple(repeats[support].tolist())
            whose = self.options.buy_from
            bundle = context.reduce(
                lambda *of: averages_reader(replace(self.source(*of), layout=chosen), counts, whose)
            )
            averages, files[AVERAGES] = bundle["averages"].train(), bundle.to_arrays()
            n_lacking = solved.train["judgments"].n_objects - averages.n_samples
            if self.options.model == "refit" and n_lacking:
                context.note(
                    f"The refit used {averages.n_samples:,} training objects; {n_lacking:,} hold "
                    "fewer judgments than the selection needs."
                )
        model = self._fit(solved, averages)
        arrays = {
            "weights": model.weights[support],
            "repeats": repeats[support],
            "means": problem.means[support],
        }
        if self.options.model == "projected" and np.isin(solved.path.attributes, support).all():
            own = problem.take(support), solved.path.on(support)
            for kind, part in zip(("problem", "path"), own, strict=True):
                arrays |= {f"{kind}/{name}": a for name, a in part.to_arrays().items()}
        description = {
            "method": self.name,
            "kind": self.options.model,
            "target": self.roles.target[0],
            "id": self.roles.id,
            "attributes": list(chosen.names),
            "intercept": model.intercept,
            **trained_columns(chosen, self.inputs.train.schema.names),
        }
        return {**files, "model.json": description, "weights.npz": arrays}

    @property
    def _wants_averages(self) -> bool:
        return self.options.model == "refit" or self.options.plain_error

    def _fit(self, solved: Solved, averages: CoMoments | None) -> LinearModel:
        repeats = solved.path.selected
        if self.options.model == "refit" and averages is not None:
            ridge = solved.problem.problem.ridge
            return refit(averages, self.layout.names, repeats, ridge=ridge)
        return projected_model(solved.problem.problem, repeats)

    # --- evaluation ---

    def on_folds(self, context: Context, solved: Solved) -> SelectionProcedure:
        """Return the procedure that looks at every path at the same budgets."""
        grid = solved.procedure.grid(solved.path)
        return replace(solved.procedure, budgets=grid)

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        folds = () if validated is None else validated.folds
        for text in evaluation_remarks(solved.procedure, solved.statistics["judgments"], folds):
            context.note(text)
        averages: Folded[CoMoments] | None = None
        if self._wants_averages:
            arrays = context.read_arrays(AVERAGES)
            averages = Bundle.from_arrays(arrays, {"averages": CoMoments})["averages"]
        model = self._fit(solved, averages.train() if averages else None)
        return Evaluation(solved, validated, averages, model, self.options.confidence).metrics()

    # --- comparison with another run ---

    summary_reader = reader

    def summary_names(self, context: Context) -> Sequence[str]:
        """Return the attributes and the label."""
        return (*self.layout.names, *self.roles.target)

    def judge(self, context: Context, models: Sequence[FinishedRun]) -> Judged:
        """Return the unbiased loss of models; NaN where nothing is known of an attribute."""
        held_out: JudgmentStatistics = self.held_out(context)["judgments"]
        n_objects = held_out.n_objects
        return n_objects, [self._loss(run, held_out) for run in models if n_objects]

    def _loss(self, run: FinishedRun, held_out: JudgmentStatistics) -> dict[str, float]:
        names, model = self.layout.names, trained_model(run)
        used = [names.index(name) for name in model.names]
        statistics, v = held_out.take(used), self.settings.internal_variance[used]
        if (statistics.n_judged == 0).any():
            return {"projected_loss": math.nan}
        return {"projected_loss": loss_on(run, statistics, v, self.options.buy_from)[1]}

    # --- plan ---

    def _plan(self, context: Context) -> Mapping[str, Content]:
        """List the judgments that training objects lack."""
        import pyarrow as pa

        bought = context.read_json("selection.json")["repeats"]
        repeats = np.array([bought.get(name, 0) for name in self.layout.names], dtype=np.int64)
        support, layout = self._chosen(repeats)
        id_, place = self.roles.id, context.folder / PLAN
        id_type = pa.int64() if id_ is None else self.inputs.train.schema.field(id_).type
        writer = WritePlan(
            source=replace(self.source(self.inputs.train, False), layout=layout),
            repeats=tuple(repeats[support].tolist()),
            costs=tuple(self.settings.costs[support].tolist()),
            folder=place,
            id_type=id_type.value_type if pa.types.is_dictionary(id_type) else id_type,
            buy_from=self.options.buy_from,
        )
        remove_tree(place)  # what an earlier attempt may have left
        totals = context.map(writer, self.inputs.train.partitions)
        judgments, cost = (sum(own) for own in zip(*totals, strict=True))
        context.account(plan={"judgments": judgments, "cost": cost})
        context.note(
            f"To train on as many judgments of each object as the selection buys, {judgments:,} "
            f"more have to be collected (cost {cost:,.10g}); the folder {PLAN} lists them."
        )
        return {PLAN: None}


# --- checks -------------------------------------------------------------------------------------


def _check_names(options: MultiselectOptions, names: Sequence[str]) -> None:
    singles = [b.removeprefix("single:") for b in options.baselines if b.startswith("single:")]
    for key, given in (("internal_variance", options.internal_variance), ("baselines", singles)):
        for name in given:
            if name not in names:
                raise SpecError(
                    f"`multiselect.{key}` names `{name}`, which is not an attribute of the "
                    f"data.{nearest(name, names)}"
                )


def _check_objects(train: JudgmentStatistics, test: JudgmentStatistics, inputs: Inputs) -> None:
    n = train.n_objects
    if n < 2:
        raise DataError(
            f"{inputs.train.place} has {n} object{'' if n == 1 else 's'} to train on (held "
            f"out: {test.n_objects}); at least 2 are needed. Add objects, or lower `data.test`."
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
            f"{names[cheapest]!r} at {costs[cheapest]:g} each; the search takes at most "
            f"{MOST_STEPS:,} steps. Lower the budget, or let `multiselect.costs` be those of a "
            "dozen or a hundred judgments."
        )
    return most
