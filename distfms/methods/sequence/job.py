"""The job of feature-group sequencing: its stages, from categories to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan, require_observed
from distfms.data.categories import categorical_columns
from distfms.data.dataset import ParquetDataset
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs, Job, Stage
from distfms.methods.fold_pool import tuned_answers
from distfms.methods.rows import (
    CategoryReader,
    MomentReader,
    RowCounts,
    RowSource,
    identifier_remarks,
    missing_by_source,
    moments_bytes,
    require_levels,
    section_roles,
)
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.costs import resolve_costs
from distfms.methods.sequence.evaluate import (
    MAX_POINTS,
    CrossValidate,
    Curve,
    FoldTask,
    Settings,
    compared,
    measures,
    thinned,
)
from distfms.methods.sequence.groups import FeatureGroups, resolve_groups
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.read import ScoreReader, Scorers
from distfms.methods.sequence.rules import Rule, parse_rule
from distfms.methods.sequence.timeliness import timeliness
from distfms.methods.sequence.tuning_job import tune_work
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments
from distfms.stats.fold_means import over_folds

CATEGORIES = "statistics/categories.json"
MOMENTS = "statistics/moments.npz"

#: Names in a note; ``constant`` in ``selection.json`` has them all.
_NAMES_SAID = 12
#: Levels that a category is taken to have when a job's size is projected.
LEVELS_GUESSED = 32


class SequenceJob(Job):
    """Feature-group sequencing (Hu, Grubb, Bagnell, Hebert) as a job, for squared loss.

    Parameters
    ----------
    options : SequenceOptions
    inputs : Inputs
    seed : int

    Raises
    ------
    SpecError, DataError
        If the options do not fit the columns of the data.
    """

    name: ClassVar[str] = "sequence"
    options: SequenceOptions
    #: Where the job is done, if that is worth saying before it starts.
    advice: str | None = None

    def __init__(self, options: SequenceOptions, inputs: Inputs, seed: int) -> None:
        self.options = options
        self.inputs = inputs
        self.seed = seed
        self.roles = section_roles(inputs.train, inputs.section)
        if not self.roles.target:
            raise SpecError("`data.target` is missing: name the column to predict.")
        self.categorical = categorical_columns(inputs.train.schema, self.roles)
        self.groups = resolve_groups(
            self.roles.features,
            {name: list(patterns) for name, patterns in options.groups.items()},
            prefix_separator=options.prefix_separator,
        )
        self.costs = resolve_costs(self.groups.names, options.costs, shared=options.shared())
        self.rule = Rule(options.criterion, options.cost_aware, options.doubling)
        self.baselines = _baselines(options, self.rule)

    # --- what the driver asks ---

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order."""
        first = [Stage("categories", self._categories)] if self.categorical else []
        return [
            *first,
            Stage("statistics", self._statistics),
            Stage("select", self._select),
            Stage("model", self._model),
            Stage("evaluate", self._evaluate),
        ]

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        low, high = self.costs.alone.min(), self.costs.alone.max()
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        shared = f", {len(self.costs.shared)} costs shared" if self.costs.shared else ""
        n_categories = len(self.categorical)
        kinds = f", {n_categories} of them categorical" if n_categories else ""
        return {
            "method": f"feature-group sequencing, {self.rule.name}",
            "target": ", ".join(self.roles.target),
            "columns": f"{len(self.roles.features)}{kinds}",
            "groups": f"{len(self.groups)} ({price} each{shared})",
            "baselines": ", ".join(rule.name for rule in self.baselines) or "none",
            **({"search": self.advice} if self.advice else {}),
        }

    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        return moments_bytes(self._guessed_columns() + len(self.roles.target), self.inputs.section)

    def _guessed_columns(self) -> int:
        """Count the feature columns before the levels of categories are known."""
        n_categories = len(self.categorical)
        return len(self.roles.features) + (LEVELS_GUESSED - 1) * n_categories

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        others = (*self.roles.target, self.roles.weight, self.roles.id, self.roles.query)
        return [*self.roles.features, *dict.fromkeys(c for c in others if c is not None)]

    # --- statistics ---

    def _categories(self, context: Context) -> Mapping[str, Content]:
        bundle = context.reduce(
            lambda dataset, held_out: CategoryReader(dataset.reader, self.categorical)
        )
        levels = require_levels(bundle["categories"].train())
        datasets = self.inputs.datasets
        for text in identifier_remarks(levels, sum(d.n_rows for d in datasets)):
            context.note(text)
        return {CATEGORIES: {"levels": levels}}

    def _plan(self, context: Context) -> ColumnPlan:
        levels = context.read_json(CATEGORIES)["levels"] if self.categorical else {}
        return ColumnPlan.from_schema(self.inputs.train.schema, self.roles, levels)

    def _source(self, plan: ColumnPlan, dataset: ParquetDataset, held_out: bool) -> RowSource:
        return RowSource(dataset.reader, self.inputs.section, self.seed, held_out, plan)

    def _statistics(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        bundle = context.reduce(
            lambda dataset, held_out: MomentReader(self._source(plan, dataset, held_out))
        )
        moments: Folded[CoMoments] = bundle["moments"]
        train = moments.train()
        self._require_rows(train, moments.test)
        require_observed(plan.feature_names, train.observed_weight[: plan.n_features])
        # What else can be wrong with the data shows here, before anything is written.
        self._settings(plan).problem(train)
        self._tell_counts(context, plan, bundle["counts"])
        return {MOMENTS: bundle.to_arrays()}

    def _require_rows(self, train: CoMoments, test: CoMoments) -> None:
        """Refuse too few rows to learn from."""
        if train.n_samples < 2:
            raise DataError(
                f"There are {train.n_samples} rows to train on in "
                f"{self.inputs.train.files[0].path} (held out: {test.n_samples}); at "
                "least 2 are needed. Add rows, or lower `data.test`."
            )

    def _tell_counts(self, context: Context, plan: ColumnPlan, counts: Folded[RowCounts]) -> None:
        """Account for rows left out and values filled in."""
        everything = counts.train().merge(counts.test)
        missing = missing_by_source(plan, everything.n_missing)
        context.account(
            objects={"train": counts.train().n_rows, "test": counts.test.n_rows},
            dropped={"rows": everything.n_dropped} if everything.n_dropped else {},
            imputed=missing,
        )
        if everything.n_dropped:
            what = "the target" if self.inputs.section.missing == "mean" else "a value"
            context.note(f"{everything.n_dropped:,} rows were left out because {what} is missing.")
        if missing:
            listed = ", ".join(f"{name} {count:,}" for name, count in missing.items())
            context.note(f"Missing values that count as the mean of their column: {listed}.")

    def _settings(self, plan: ColumnPlan) -> Settings:
        return Settings(
            feature_names=plan.feature_names,
            target_names=self.roles.target,
            groups=_block_groups(self.groups, plan),
            costs=self.costs,
            ridge=self.options.ridge,
            max_groups=self.options.max_groups,
            seed=self.seed,
        )

    def _bundle(self, context: Context) -> Bundle:
        types = {"moments": CoMoments, "counts": RowCounts}
        return Bundle.from_arrays(context.read_arrays(MOMENTS), types)

    def _path(self, context: Context) -> SequencePath:
        """Sequence of the chosen rule on all training rows."""
        settings = self._settings(self._plan(context))
        problem = settings.problem(self._bundle(context)["moments"].train())
        return settings.path(self.rule, problem)

    # --- selection and model ---

    def check_tuning(self) -> None:
        """Let `tune` compare options on folds."""

    def check_tried(self, name: str) -> None:
        """Refuse an end of the sequence that no sequence reaches: all such are the same point."""
        end = self.options.max_groups
        if name == "max_groups" and end is not None and end > len(self.groups):
            raise SpecError(
                f"`sequence.max_groups` is {end}, and there are {len(self.groups)} groups: every "
                "value beyond that is the same point. Leave it out, or write `null` for all groups."
            )

    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid; see :class:`distfms.methods.contract.Job`."""
        plan, section = self._plan(context), self.inputs.section
        settings = self._settings(plan)
        n_columns = len(plan.feature_names) + len(settings.target_names)
        held = moments_bytes(n_columns, section)
        work = tune_work(settings, self.options, points, measure, MOMENTS, section.folds, held)
        return tuned_answers(context, work, saved)

    def _select(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        path = self._path(context)
        context.count(n_candidates=path.n_candidates)
        return {"selection.json": self._selection(plan, path)}

    def _selection(self, plan: ColumnPlan, path: SequencePath) -> dict[str, Any]:
        index = {name: g for g, name in enumerate(self.groups.names)}
        alone = self.costs.alone
        return {
            "method": self.name,
            "criterion": path.criterion,
            "cost_aware": path.cost_aware,
            "doubling": path.doubling,
            "ridge": path.ridge,
            "family": self.options.family,
            "rule": self.rule.name,
            "targets": list(self.roles.target),
            "sequence": _steps(plan, path),
            "timeliness": timeliness(path.curve_cost, path.curve_value),
            "doubling_capable": path.doubling_capable,
            "n_candidates": path.n_candidates,
            "constant": list(path.scaling.dropped),
            "costs": {name: float(alone[g]) for name, g in index.items()},
            "shared_costs": self.options.shared(),
            "notes": _sentences(path.notes),
        }

    def _model(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        return self._model_files(plan, AnytimePredictor.from_path(self._path(context)))

    def _model_files(
        self, plan: ColumnPlan, predictor: AnytimePredictor, **more: Any
    ) -> Mapping[str, Content]:
        description = {
            "method": self.name,
            "id": self.roles.id,
            "sources": {
                column.name: None if column.levels is None else list(column.levels)
                for column in plan.columns[: len(self.roles.features)]
            },
            **more,
            **predictor.to_dict(),
        }
        return {"model.json": description, "weights.npz": predictor.to_arrays()}

    # --- evaluation ---

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        settings = self._settings(plan)
        bundle = self._bundle(context)
        moments: Folded[CoMoments] = bundle["moments"]
        rules = [self.rule, *(r for r in self.baselines if r.criterion != "oracle")]
        if Rule("sparse") in rules and not _has_celer():
            rules.remove(Rule("sparse"))
            context.note(
                "The baseline `sparse` was left out: the package celer is not installed "
                "(pip install 'distfms[sparse]')."
            )
        found = self._sequences(context, settings, moments, with_omp(rules))
        paths = {rule.name: found[rule.name] for rule in rules}
        train, test = moments.train(), moments.test
        folds = self._cross_validated(context, settings, moments, rules, paths)
        held_out = {name: path.held_out(test) for name, path in paths.items() if test.n_samples}
        scores = self._scores(context, plan, bundle, len(paths[self.rule.name]))
        curves = {}
        for name, path in paths.items():
            errors = held_out.get(name)
            curves[name] = Curve(
                path.groups,
                path.curve_cost,
                path.curve_value,
                test=None if errors is None else errors.explained_variance,
                more=({} if errors is None else {"test_mse": errors.mse.mean(axis=1)})
                | (scores if name == self.rule.name else {}),
                validation=_validated(folds, name) if folds else None,
            )
        omp = found["omp"]
        own = held_out.get(self.rule.name)
        last = {name: float(values[-1]) for name, values in scores.items()}
        metrics = {
            "train": {
                **measures(paths[self.rule.name].held_out(train)),
                "n_rows": train.n_samples,
            },
            "test": None if own is None else {**measures(own), **last, "n_rows": test.n_samples},
            "folds": [
                {"fold": f, **result.model, "n_rows": rows.n_samples, "weight": float(rows.weight)}
                for f, rows, result in folds
            ],
            **compared(
                curves,
                Curve(omp.groups, omp.curve_cost, omp.curve_value),
                self.options.alpha,
                Rule("oracle") in self.baselines,
            ),
        }
        return {"metrics.json": metrics}

    def _sequences(
        self,
        context: Context,
        settings: Settings,
        moments: Folded[CoMoments],
        rules: Sequence[Rule],
    ) -> dict[str, SequencePath]:
        """Sequences of some rules on all training rows, by name."""
        problem = settings.problem(moments.train())
        found = context.map(_Sequencer(settings, problem), rules)
        return {rule.name: path for rule, path in zip(rules, found, strict=True)}

    def _cross_validated(
        self,
        context: Context,
        settings: Settings,
        moments: Folded[CoMoments],
        rules: Sequence[Rule],
        paths: Mapping[str, SequencePath],
    ) -> tuple[Any, ...]:
        if moments.n_folds < 2:
            return ()
        usable = [f for f, fold in enumerate(moments.folds) if fold.n_samples > 1]
        if len(usable) < moments.n_folds:
            context.note(
                f"{moments.n_folds - len(usable)} of {moments.n_folds} folds hold fewer than two "
                "rows and are left out of the cross-validation; choose fewer folds."
            )
        if len(usable) < 2:
            return ()
        grids = {
            name: path.curve_cost[thinned(len(path) + 1, MAX_POINTS)]
            for name, path in paths.items()
        }
        tasks = [FoldTask(moments.train_without(f), moments.folds[f]) for f in usable]
        results = context.map(CrossValidate(settings, tuple(rules), grids), tasks)
        return tuple(
            (f, task.held_out, result)
            for f, task, result in zip(usable, tasks, results, strict=True)
        )

    def _scores(
        self, context: Context, plan: ColumnPlan, bundle: Bundle, n_groups: int
    ) -> dict[str, np.ndarray]:
        """Accuracy and NDCG of prefixes, NaN for others, by a pass over the held-out rows."""
        prefixes = thinned(n_groups + 1, MAX_POINTS)
        counts: Folded[RowCounts] = bundle["counts"]
        threshold = _threshold(counts.train().merge(counts.test))
        ranks = self.roles.query is not None and len(self.roles.target) == 1
        if not counts.test.n_rows or (threshold is None and not ranks):
            return {}
        model = AnytimePredictor.from_arrays(
            context.read_arrays("weights.npz"), context.read_json("model.json")
        )
        scorers = Scorers(model.coefficients[prefixes], model.intercept[prefixes], model.fill)
        result = context.reduce(
            lambda dataset, held_out: ScoreReader(
                self._source(plan, dataset, held_out), scorers, threshold, ranks
            )
        )
        found = {}
        if threshold is not None:
            found["accuracy"] = result["accuracy"].test.accuracy
        if ranks:
            found["ndcg@5"] = result["ranking"].test.mean
        scores = {name: np.full(n_groups + 1, np.nan) for name in found}
        for name, values in found.items():
            scores[name][prefixes] = values
        return scores


# --- small parts --------------------------------------------------------------------------------


class _Sequencer:
    """Picklable function from a rule to its sequence on one problem."""

    def __init__(self, settings: Settings, problem: Any) -> None:
        self.settings = settings
        self.problem = problem

    def __call__(self, rule: Rule) -> SequencePath:
        return self.settings.path(rule, self.problem)


def with_omp(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules with CS-G-OMP among them, whose curve decides where α-timeliness is cut."""
    return tuple(dict.fromkeys([*rules, Rule("omp")]))


def _has_celer() -> bool:
    return find_spec("celer") is not None


def _baselines(options: SequenceOptions, chosen: Rule) -> tuple[Rule, ...]:
    """Baselines, each once and without the chosen rule itself."""
    rules = [parse_rule(name) for name in options.wanted_baselines]
    return tuple(rule for rule in dict.fromkeys(rules) if rule != chosen)


def _block_groups(groups: FeatureGroups, plan: ColumnPlan) -> FeatureGroups:
    """Write groups of source columns as groups of block columns."""
    rows = list(plan.column_groups.values())
    return FeatureGroups(
        groups.names,
        tuple(tuple(sorted(r for c in columns for r in rows[c])) for columns in groups.columns),
    )


def _steps(plan: ColumnPlan, path: SequencePath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path."""
    source = {name: column.name for column in plan.columns for name in column.value_names}
    ranks = np.diff(path.ranks, prepend=0)
    return [
        {
            "group": path.groups[k],
            "columns": list(dict.fromkeys(source[name] for name in path.columns[k])),
            "n_independent": int(ranks[k]),
            "cost": float(path.cost[k]),
            "spent": float(path.spent[k]),
            "explained_variance": float(path.explained_variance[k]),
            "gain": float(path.gain[k]),
        }
        for k in range(len(path))
    ]


def _validated(folds: Sequence[Any], name: str) -> np.ndarray:
    """Mean over folds of the explained variance, weighted by their rows."""
    values = np.stack([result.validation[name] for _, _, result in folds], axis=-1)
    return over_folds(values, [rows.weight for _, rows, _ in folds]).mean


def _threshold(counts: RowCounts) -> float | None:
    """Middle of the two values of binary targets; None if one target is not binary."""
    if counts.zero_one.all():
        return 0.5
    return 0.0 if counts.plus_minus.all() else None


def _sentences(notes: Sequence[str]) -> list[str]:
    """Write the notes of a path for readers: long lists cut, the same list not said twice."""
    by_list = {note.partition(": ")[2] or note: note for note in reversed(notes)}
    return [_sentence(note) for note in notes if note in by_list.values()]


def _sentence(note: str) -> str:
    what, colon, listed = note.partition(": ")
    items = listed.split(", ")
    if len(items) > _NAMES_SAID:
        more = f" and {len(items) - _NAMES_SAID} more"
        note = f"{len(items)} {what}{colon}{', '.join(items[:_NAMES_SAID])}{more}"
    return note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".")
