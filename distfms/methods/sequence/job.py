"""The job of feature-group sequencing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan
from distfms.data.partition import Dataset
from distfms.methods.contract import (
    Answer,
    Content,
    Context,
    FinishedRun,
    FoldAnswers,
    Inputs,
    Judged,
    Stage,
)
from distfms.methods.row_predictor import sources_of
from distfms.methods.rows import RowCounts, RowSource
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.evaluate import (
    Curve,
    add_validation,
    advised,
    budget_ladder,
    choose_models,
    compared,
    stopping_prefix,
    timeliness,
    values_of,
)
from distfms.methods.sequence.options import (
    Rule,
    SequenceOptions,
    parse_rule,
    resolve_costs,
    resolve_groups,
)
from distfms.methods.sequence.problem import FeatureGroups, Ladder, Path
from distfms.methods.sequence.procedure import RIDGES, SequenceProcedure
from distfms.methods.sequence.read import ExpandedJob, NarrowedSource, ScoreReader, measures_of
from distfms.methods.statistics_job import Solved, Tuned, TunedItem
from distfms.methods.tuning import choose
from distfms.stats.base import Folded, over_folds

RIDGE = "ridge.json"


class SequenceJob(ExpandedJob):
    """Feature-group sequencing (Hu, Grubb, Bagnell, Hebert) as a job, for squared loss."""

    name: ClassVar[str] = "sequence"
    nested: ClassVar[str | None] = "max_groups"
    weighs_partitions = True
    options: SequenceOptions
    #: What a sequence is compared with when the spec does not say.
    default_baselines: ClassVar[tuple[str, ...]] = ("omp", "fr-blind", "oracle")
    #: Where the job is done, if that is worth saying before it starts.
    advice: str | None = None
    #: All columns, where a row counts by more of them (`missing: drop`) than are read.
    everything: ColumnPlan | None = None

    def __init__(self, options: SequenceOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options, inputs, seed)
        if self.weighs_partitions:
            self.judged_by = {"mse": False, "r2": True}
        features, separator = self.roles.features, options.prefix_separator
        self.groups = resolve_groups(features, options.groups, separator)
        self.costs = resolve_costs(
            self.groups.names, options.costs, options.shared_costs, options.requires
        )
        asked = Rule(options.criterion or "fr", options.cost_aware, options.doubling)
        names = self.default_baselines if options.baselines is None else options.baselines
        self.rule, *others = (asked, *map(parse_rule, names))
        #: Baselines, each once and without the chosen rule itself.
        self.baselines = tuple(rule for rule in dict.fromkeys(others) if rule != self.rule)
        budgets = budget_ladder(self.costs) if options.budgets == "auto" else options.budgets
        one = () if options.budget is None else (options.budget,)
        #: What finds the sets of the budgets, ascending.
        self.of_budgets = tuple(Rule("fr", budget=b) for b in sorted({*budgets, *one}))
        self.chooses_ridge = options.ridge == "auto" and inputs.section.folds > 1
        if self.chooses_ridge:
            self.tuned_after = "ridge"

    def class_option(self) -> str:
        """Return how to ask for classes."""
        is_number = self.options.family == "gaussian" and self.roles.query is None
        return "`sequence.family: softmax` (or `logistic`, for two)" if is_number else ""

    @property
    def compared(self) -> tuple[Rule, ...]:
        """Rules whose sequences are compared, the chosen one first."""
        return (self.rule, *(rule for rule in self.baselines if rule.criterion != "oracle"))

    @property
    def searched(self) -> tuple[Rule, ...]:
        """Rules that find paths: those that are compared, then those of budgets."""
        return (*self.compared, *self.of_budgets)

    # --- what the driver asks ---

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        low, high = self.costs.alone.min(), self.costs.alone.max()
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        n_shared, n_derived = len(self.options.shared_costs), len(self.costs.requires)
        shared = f", {n_shared} costs shared" if n_shared else ""
        shared += f", {n_derived} computed from others" if n_derived else ""
        n_categories = len(self.categorical)
        kinds = f", {n_categories} of them categorical" if n_categories else ""
        wide = f", expanded to about {self.guessed_columns():,}" if self.options.expand else ""
        return {
            "method": f"feature-group sequencing, {self.rule.name}",
            "target": ", ".join(self.roles.target),
            **self.first_values(),
            "columns": f"{len(self.roles.features)}{kinds}{wide}",
            "groups": f"{len(self.groups)} ({price} each{shared})",
            "baselines": ", ".join(rule.name for rule in self.baselines) or "none",
            "budgets": ", ".join(f"{rule.budget:g}" for rule in self.of_budgets) or "none",
            **({"search": self.advice} if self.advice else {}),
        }

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order: the evaluation says where the model is to stop."""
        *first, select, model, evaluate = super().stages()
        ridge = [Stage("ridge", self._ridge)] if self.chooses_ridge else []
        return [*first, *ridge, select, evaluate, model]

    # --- statistics, selection and model ---

    def source(self, plan: ColumnPlan, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        source = super().source(plan, dataset, held_out)
        if self.everything is None:
            return source
        return NarrowedSource(**vars(source), everything=self.everything)

    def procedure(self, context: Context) -> SequenceProcedure:
        """Return the pure part."""
        options, plan = self.options, self.plan(context)
        ridge = RIDGES[-1] if options.ridge == "auto" else options.ridge
        if self.chooses_ridge and (context.folder / RIDGE).exists():
            ridge = context.read_json(RIDGE)["ridge"]
        rows = list(plan.column_groups.values())
        columns = (tuple(sorted(r for c in own for r in rows[c])) for own in self.groups.columns)
        return SequenceProcedure(
            rules=self.searched,
            feature_names=plan.feature_names,
            target_names=plan.roles.target,
            groups=FeatureGroups(self.groups.names, tuple(columns)),
            costs=self.costs,
            ridge=ridge,
            max_groups=options.max_groups,
            seed=self.seed,
            family=options.family,
            model=options.model,
            ladder=Ladder(options.prefixes),
        )

    def _ridge(self, context: Context) -> Mapping[str, Content]:
        """Choose the ridge by cross-validation; where that tells nothing it is the least.

        Linear models are compared, which decide the order of the groups, at the end of the
        sequence. Where that has all groups no search is needed.
        """
        own = replace(self.procedure(context), model="linear", ladder=Ladder(()))
        if self.options.max_groups is None:
            own = replace(own, as_one=True, rules=(Rule("random"),))
        items = [TunedItem(replace(own, ridge=ridge), (None,)) for ridge in RIDGES]
        tried = [item.procedure for item in items]
        work = self._fold_work(context, Tuned("explained_variance"), items, tried)
        found = self.evaluate_folds(context, work)
        values = np.array([[a["values"][0] for a in answers] for answers in found.answers])
        if values.shape[1] < 2 or not np.isfinite(values).all():
            return {RIDGE: {"ridge": RIDGES[-1], "tried": []}}
        choice = choose(values, found.weight, "best", True)
        ridge = RIDGES[choice.chosen]
        context.note(
            f"Chosen by cross-validation among {len(RIDGES)} ridges from {RIDGES[-1]:g} to "
            f"{RIDGES[0]:g}: {ridge:g} (`sequence.ridge`)."
        )
        pairs = zip(RIDGES, choice.mean.tolist(), strict=True)
        return {RIDGE: {"ridge": ridge, "tried": [{"ridge": r, "mean": m} for r, m in pairs]}}

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        path: Path = solved.path
        context.count(n_candidates=path.n_candidates)
        options, plan = self.options, self.plan(context)
        curve = path.curve_cost[path.fitted], path.curve_value[path.fitted]
        return {
            "method": self.name,
            "criterion": self.rule.criterion,
            "cost_aware": self.rule.cost_aware,
            "ridge": solved.problem.ridge,
            "family": options.family,
            "rule": self.rule.name,
            "targets": list(self.roles.target),
            "constant": list(path.scaling.dropped),
            "costs": dict(zip(self.groups.names, self.costs.alone.tolist(), strict=True)),
            **options.model_dump(mode="json", include={"shared_costs", "requires"}),
            "doubling": self.rule.doubling,
            "sequence": _steps(plan, path),
            "budgets": [
                {"budget": rule.budget, "sequence": _steps(plan, solved.paths[rule.name])}
                for rule in self.of_budgets
            ],
            "timeliness": timeliness(*curve),
            "step_timeliness": timeliness(*curve, steps=True),
            "n_candidates": path.n_candidates,
            "notes": [*path.notes, *self.notes(path), *path.outline.notes()],
        }

    def notes(self, path: Any) -> list[str]:
        """Return what a reader of the result should know of the models."""
        return []

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the predictor of all prefixes."""
        metrics = context.read_json("metrics.json")
        sets = [solved.paths[rule.name] for rule in self.of_budgets]
        predictor = AnytimePredictor.from_path(
            solved.path, self.options.family, self.output_names(context), sets, values_of(metrics)
        )
        predictor = replace(predictor, prior=self.prior(context))
        content = {
            "method": self.name,
            "id": self.roles.id,
            "sources": sources_of(self.plan(context)),
            "stop": metrics["stop"],
            "classes": self.class_names(context),
            "threshold": metrics.get("classes", {}).get("threshold", 0.5),
        }
        return {
            "model.json": content | predictor.to_dict(),
            "weights.npz": predictor.to_arrays(),
        }

    def output_names(self, context: Context) -> tuple[str, ...]:
        """Return the names of what the model predicts."""
        return self.roles.target

    def prior(self, context: Context) -> np.ndarray:
        """Return what weights of classes add to scores."""
        return np.zeros(1)

    # --- evaluation ---

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        curves, last, share = {}, {}, solved.procedure.share
        for number, rule in enumerate(self.searched):
            path = solved.paths[rule.name]
            found = self.measures(context, solved, path, rule == self.rule)
            if rule == self.rule:
                last = {
                    part: {name: float(values[-1]) for name, values in own.items()}
                    for part, own in found.items()
                }
            mean = {}
            if validated is not None:
                own = [answer[share] for answer in validated.answers[number]]
                scored = over_folds(np.stack(own, -1), validated.weight).mean[:-1]
                mean = {share: path.of_prefixes(solved.procedure.points(path), scored)[path.fitted]}
            test = {name: values[path.fitted] for name, values in found.get("test", {}).items()}
            cost, value = path.curve_cost[path.fitted], path.curve_value[path.fitted]
            curves[rule.name] = Curve(path.groups, path.fitted, cost, value, share, test, mean)
        sets = [curves.pop(rule.name).points()[-1] for rule in self.of_budgets]
        with_oracle = Rule("oracle") in self.baselines
        content = {
            **self.head(solved, validated, last),
            **compared(curves, self.options.alpha, with_oracle),
            "budgets": [
                {"budget": rule.budget, "set": point}
                for rule, point in zip(self.of_budgets, sets, strict=True)
            ],
        }
        if validated is not None:
            grid = solved.procedure.grid(solved.path)
            add_validation(content["budgets"], validated, share, grid)
        stop = self.stop(solved, content["alpha"]["alpha"], validated)
        return {**content, "stop": choose_models(solved.path, content, self.options.budget, stop)}

    def stop(self, solved: Solved, alpha: float, validated: FoldAnswers | None) -> dict[str, Any]:
        """Find the prefix that predictions use by default, and the best one.

        All of a sequence whose length `tune` chose. Else with folds the smallest within one
        standard error of the best in cross-validation; without, the first with the share α of what
        all groups explain on the training rows.
        """
        path: Path = solved.path
        n_groups, best = (stopping_prefix(path.curve_value, a) for a in (alpha, 1.0))
        rule = "training_plateau"
        if validated is not None:
            share, kept = solved.procedure.share, solved.procedure.points(path)
            values = np.stack([answer[share][:-1] for answer in validated.answers[0]], axis=-1)
            if not np.isnan(values).any():
                choice = choose(values, validated.weight, "one_standard_error", True)
                # Folds were asked what a cost affords, to which what is free after it belongs.
                n_groups, best = (
                    path.fitted_within(path.affordable(path.curve_cost[kept[i]]))
                    for i in (choice.chosen, choice.best)
                )
                rule = "one_standard_error"
        if "max_groups" in self.tuned:
            n_groups, rule = len(path), "tuned"
        return {
            "rule": rule,
            "n_groups": n_groups,
            "spent": float(path.curve_cost[n_groups]),
            "best_n_groups": best,
            "best_spent": float(path.curve_cost[best]),
        }

    def measures(
        self, context: Context, solved: Solved, path: Any, chosen: bool
    ) -> dict[str, Answer]:
        """Measure prefixes 0..K by name, for ``train`` (of the chosen rule) and ``test``."""
        found = {"train": path.held_out(solved.train["moments"])} if chosen else {}
        if solved.test is not None:
            found["test"] = path.held_out(solved.test["moments"])
            if chosen:
                found["test"] |= self._scores(context, solved)
        return found

    def _scores(self, context: Context, solved: Solved) -> Answer:
        """Accuracy and NDCG of prefixes, by a pass over the held-out rows."""
        counts: Folded[RowCounts] = solved.statistics["counts"]
        threshold = _threshold(counts.train().merge(counts.test))
        ranks = self.roles.query is not None and len(self.roles.target) == 1
        if threshold is None and not ranks:
            return {}
        options: dict[str, Any] = {"threshold": threshold, "ranks": ranks}
        (found,) = self.measured(context, [(solved.path, [-1])], **options)
        return {name: own for name, own in found.items() if name in ("accuracy", "ndcg@5")}

    def judge(self, context: Context, models: Sequence[FinishedRun]) -> Judged:
        """Return the errors of the prefixes that runs predict with, from statistics."""
        sources = [own for run in models for own in run.model["sources"].values()]
        if not self.weighs_partitions or any(isinstance(own, Mapping) for own in sources):
            return super().judge(context, models)
        moments, names = self.held_out(context)["moments"], self.plan(context).feature_names
        scores = [
            AnytimePredictor.from_arrays(run.weights, run.model).errors_on(
                moments, names, advised(run.model)
            )
            for run in models
            if moments.n_samples
        ]
        return moments.n_samples, scores

    def measured(
        self, context: Context, asked: Sequence[tuple[Path, Sequence[int]]], **options: Any
    ) -> list[Answer]:
        """Measure all prefixes of paths on folds, or on held-out rows (−1), by a pass over them."""
        wanted = [(path, SequenceProcedure.points(path), parts) for path, parts in asked]
        judged = self.judged(context, wanted, **options)
        return [
            {name: path.of_prefixes(own, v) for name, v in measures_of(members).items()}
            for (path, own, _), members in zip(wanted, judged, strict=True)
        ]

    def judged(
        self,
        context: Context,
        asked: Sequence[tuple[Any, Sequence[int] | np.ndarray, Sequence[int]]],
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Make a pass that judges models of prefixes of paths on folds, or on held-out rows (−1).

        Returns for each what `ScoreReader` reads of all these rows.
        """
        plan, models = self.plan(context), []
        for path, prefixes, parts in asked:
            numbers = np.searchsorted(path.fitted, prefixes, side="right") - 1
            models.append((path.prefix_models().only(numbers), parts))
        bundle = context.reduce(
            lambda *of: ScoreReader(self.source(plan, *of), models, self.options.family, **options),
            cache=False,
        )
        found: list[dict[str, Any]] = [{} for _ in models]
        for name, part in bundle.members.items():
            kind, _, number = name.partition("/")
            held_out = -1 in asked[int(number)][2]
            found[int(number)][kind] = part.test if held_out else part.train()
        return found


# --- small parts --------------------------------------------------------------------------------


def _steps(plan: ColumnPlan, path: Path) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path."""
    source = {name: column.name for column in plan.columns for name in column.value_names}
    columns, spent, value = path.columns, path.spent, path.curve_value
    details, fitted = path.step_details(), set(path.fitted.tolist())
    return [
        {
            "group": group,
            "columns": list(dict.fromkeys(source[name] for name in columns[k])),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(value[k + 1]),
            **{name: values[k].item() for name, values in details.items()},
            **({} if k + 1 in fitted else {"gain": None}),
        }
        for k, group in enumerate(path.groups)
    ]


def _threshold(counts: RowCounts) -> float | None:
    """Middle of the two values of binary targets; None if one target is not binary."""
    if counts.all_in(0.0, 1.0).all():
        return 0.5
    return 0.0 if counts.all_in(-1.0, 1.0).all() else None
