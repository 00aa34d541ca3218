"""The job of feature-group sequencing for generalised linear models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan
from distfms.data.dataset import ParquetDataset
from distfms.errors import SpecError
from distfms.methods.contract import Content, Context, Inputs, Stage
from distfms.methods.sequence.glm_evaluate import GlmEvaluation, GlmScores
from distfms.methods.sequence.glm_problem import GLM_CRITERIA, GlmPath, GlmProblem, glm_criterion
from distfms.methods.sequence.glm_read import (
    ClassReader,
    GlmLossReader,
    GlmReader,
    GlmSource,
    class_labels,
    find_classes,
)
from distfms.methods.sequence.glm_statistics import GlmLosses, GlmStatistics
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.rules import Rule, parse_rule
from distfms.methods.sequence.scores import AccuracyCounts
from distfms.methods.sequence.timeliness import timeliness
from distfms.stats.base import Folded

CLASSES = "statistics/classes.json"
MODELS = "statistics/glm.npz"

#: Classes that a softmax target is taken to have when a job's size is projected.
_CLASSES_GUESSED = 10
_DEFAULT_BASELINES = ("oracle",)


class GlmSequenceJob(SequenceJob):
    """Feature-group sequencing for logistic, softmax and Poisson models as a job.

    Every Newton step of every refit is one map-reduce over the training rows.

    Parameters
    ----------
    options : SequenceOptions
        With a `family` other than ``gaussian``.
    inputs : Inputs
    seed : int

    Raises
    ------
    SpecError, DataError
        If the options do not fit the family or the columns of the data.
    """

    def __init__(self, options: SequenceOptions, inputs: Inputs, seed: int) -> None:
        wanted = options.baselines if options.baselines is not None else _DEFAULT_BASELINES
        self.asked_criterion = options.criterion
        self.left_out = tuple(name for name in wanted if _glm_rule(name) is None)
        rules = [rule.name for name in wanted if (rule := _glm_rule(name)) is not None]
        criterion = glm_criterion(options.criterion, options.doubling)
        changed = {"criterion": criterion, "baselines": tuple(rules)}
        super().__init__(options.model_copy(update=changed), inputs, seed)
        if options.family == "softmax" and len(self.roles.target) > 1:
            raise SpecError(
                "The softmax family wants one column of classes; `data.target` names "
                f"{len(self.roles.target)}."
            )

    @property
    def _has_classes(self) -> bool:
        return self.options.family in ("logistic", "softmax") and len(self.roles.target) == 1

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order."""
        stages = list(super().stages())
        if self._has_classes:
            stages.insert(1 if self.categorical else 0, Stage("classes", self._classes))
        return stages

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        refits = self.options.max_refits
        cap = "after every group" if refits is None else f"at most {refits} times"
        return {**super().describe(), "model": f"{self.options.family}, refitted {cap}"}

    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory, the larger of moments and Hessian."""
        n_columns = len(self.roles.features) + 1
        outputs = len(self.roles.target)
        if self.options.family == "softmax":
            side = min(n_columns * (_CLASSES_GUESSED - 1), 2048)
            return max(super().statistics_bytes(), 8 * side**2)
        return max(super().statistics_bytes(), 8 * outputs * n_columns**2)

    def check_tuning(self) -> None:
        """Refuse `tune`: these families have no cross-validation."""
        raise SpecError(
            f"`tune` compares by cross-validation, which the family {self.options.family} does "
            "not have: each point and fold would be a fit with passes of its own over the rows. "
            "Hold rows out with `data.test` and run the job once for each value."
        )

    # --- classes ---

    def _classes(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        if self.inputs.section.missing != "drop":  # otherwise features decide which rows there are
            plan = plan.restricted(())
        bundle = context.reduce(
            lambda dataset, held_out: ClassReader(self._source(plan, dataset, held_out))
        )
        counts, target = bundle["classes"], self.roles.target[0]
        classes = find_classes(counts, target, self.options.family)
        weight = dict(zip(counts.train().values, counts.train().weight, strict=True))
        return {
            CLASSES: {
                "target": target,
                "classes": classes.tolist(),
                "train_weight": [float(weight[value]) for value in classes],
            }
        }

    def _known_classes(self, context: Context) -> tuple[float, ...] | None:
        return tuple(context.read_json(CLASSES)["classes"]) if self._has_classes else None

    # --- selection ---

    def _problem(self, context: Context, plan: ColumnPlan) -> GlmProblem:
        moments = self._bundle(context)["moments"].train()
        classes = self._known_classes(context)
        softmax = self.options.family == "softmax" and classes is not None
        n_outputs = len(classes) if softmax and classes else len(self.roles.target)
        problem = self._settings(plan).problem(moments)
        return GlmProblem.of(problem, self.options.family, n_outputs)

    def _glm_source(
        self,
        plan: ColumnPlan,
        glm: GlmProblem,
        classes: tuple[float, ...] | None,
        dataset: ParquetDataset,
        held_out: bool,
    ) -> GlmSource:
        return GlmSource(self._source(plan, dataset, held_out), glm.design, classes)

    def _select(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        glm = self._problem(context, plan)
        source = partial(self._glm_source, plan, glm, self._known_classes(context))

        def pass_fn(weights: np.ndarray, support: np.ndarray) -> GlmStatistics:
            bundle = context.reduce(
                lambda dataset, held_out: GlmReader(source(dataset, held_out), weights, support),
                cache=False,
            )
            return bundle["glm"].train()

        rules = [self.rule, *(r for r in self.baselines if r.criterion != "oracle")]
        paths = {
            rule.name: GlmPath.of(
                glm.sequence(
                    pass_fn,
                    criterion=rule.criterion,
                    cost_aware=rule.cost_aware,
                    max_refits=self.options.max_refits,
                    max_groups=self.options.max_groups,
                )
            )
            for rule in rules
        }
        arrays = {
            f"{name}/{key}": array
            for name, path in paths.items()
            for key, array in path.to_arrays().items()
        }
        selection = self._glm_selection(context, plan, glm, paths[self.rule.name])
        context.count(n_candidates=selection["n_candidates"])
        return {"selection.json": selection, MODELS: arrays}

    def _paths(self, context: Context) -> dict[str, GlmPath]:
        """Sequences by the name of their rule, the chosen one first."""
        by_name: dict[str, dict[str, np.ndarray]] = {self.rule.name: {}}
        for key, array in context.read_arrays(MODELS).items():
            name, _, member = key.partition("/")
            by_name.setdefault(name, {})[member] = array
        return {name: GlmPath.from_arrays(arrays) for name, arrays in by_name.items()}

    def _glm_selection(
        self, context: Context, plan: ColumnPlan, glm: GlmProblem, path: GlmPath
    ) -> dict[str, Any]:
        problem, alone = glm.problem, self.costs.alone
        return {
            "method": self.name,
            "criterion": self.rule.criterion,
            "cost_aware": self.rule.cost_aware,
            "doubling": False,
            "ridge": problem.ridge,
            "family": self.options.family,
            "rule": self.rule.name,
            "targets": list(self.roles.target),
            "classes": self._known_classes(context),
            "sequence": _steps(plan, glm, path),
            "timeliness": timeliness(path.curve_cost, path.explained_deviance),
            "doubling_capable": None,
            "constant": list(problem.scaling.dropped),
            "costs": {name: float(alone[g]) for g, name in enumerate(self.groups.names)},
            "shared_costs": self.options.shared(),
            "refit_at": path.refit_at.tolist(),
            "n_candidates": path.n_candidates(len(problem.groups)),
            "n_passes": path.n_passes,
            "notes": self._notes(glm, path),
        }

    def _notes(self, glm: GlmProblem, path: GlmPath) -> list[str]:
        """Say what a reader of the result should know."""
        problem, notes = glm.problem, []
        notes.append("Explained variance means explained deviance throughout.")
        if self.asked_criterion != self.rule.criterion:
            notes.append(
                f"The criterion {self.asked_criterion} needs squared loss; groups were chosen by "
                f"{self.rule.criterion}, the whitened gradient."
            )
        if self.left_out:
            notes.append(f"Baselines for squared loss only, left out: {', '.join(self.left_out)}.")
        if len(path.refit_at) < len(path):
            listed = ", ".join(map(str, path.refit_at.tolist()))
            notes.append(
                f"The model was refitted at the prefixes of {listed} groups; a prefix in between "
                "has the model of the last one before it."
            )
        unfinished = sorted(set(path.status.tolist()) - {"converged"})
        if unfinished:
            notes.append(f"Some fits ended otherwise than converged: {', '.join(unfinished)}.")
        if problem.scaling.dropped:
            notes.append(f"Constant columns left out: {', '.join(problem.scaling.dropped)}.")
        return notes

    # --- model and evaluation ---

    def _model(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        glm = self._problem(context, plan)
        classes = self._known_classes(context)
        labels = None
        if classes is not None and self.options.family == "softmax":
            labels = class_labels(self.roles.target[0], classes)
        predictor = glm.predictor(self._paths(context)[self.rule.name], labels)
        description = {
            "method": self.name,
            "id": self.roles.id,
            "sources": {
                column.name: None if column.levels is None else list(column.levels)
                for column in plan.columns[: len(self.roles.features)]
            },
            "classes": classes,
            **predictor.to_dict(),
        }
        return {"model.json": description, "weights.npz": predictor.to_arrays()}

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        if self.inputs.section.folds > 1:
            context.note(
                "Folds are not used: cross-validating a generalised linear sequence would take as "
                "many passes again for each. Hold out rows with `data.test` instead."
            )
        plan = self._plan(context)
        glm = self._problem(context, plan)
        source = partial(self._glm_source, plan, glm, self._known_classes(context))
        paths = self._paths(context)
        weights = np.concatenate([path.weights for path in paths.values()])
        result = context.reduce(
            lambda dataset, held_out: GlmLossReader(source(dataset, held_out), weights)
        )
        accuracy = result.members.get("accuracy")
        scores, start = {}, 0
        for name, path in paths.items():
            own = slice(start, start + len(path.weights))
            scores[name] = _scores_of(result["losses"], accuracy, own)
            start = own.stop
        evaluation = GlmEvaluation(
            paths=paths,
            scores=scores,
            groups=glm.problem.groups.names,
            with_oracle=Rule("oracle") in self.baselines,
            alpha=self.options.alpha,
        )
        return {"metrics.json": evaluation.metrics()}


def _glm_rule(name: str) -> Rule | None:
    """Return the form that a baseline has for generalised linear models, if it has one."""
    rule = parse_rule(name)
    if rule.criterion == "oracle":
        return rule
    criterion = "omp" if rule.criterion == "fr" else rule.criterion
    if rule.doubling or criterion not in GLM_CRITERIA:
        return None
    return replace(rule, criterion=criterion)


def _steps(plan: ColumnPlan, glm: GlmProblem, path: GlmPath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path."""
    sources = [column.name for column in plan.columns for _ in column.value_names]
    names, columns = glm.problem.groups.names, glm.columns
    at, explained, spent = path.model_of_prefix, path.explained_deviance, path.spent
    loss = path.loss[at]
    return [
        {
            "group": names[group],
            "columns": list(dict.fromkeys(sources[c] for c in columns[group])),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(explained[k + 1]),
            "explained_deviance": float(explained[k + 1]),
            "gain": float(loss[k] - loss[k + 1]),
            "score": float(path.score[k]),
            "status": str(path.status[at[k + 1]]),
        }
        for k, group in enumerate(path.order.tolist())
    ]


def _scores_of(
    losses: Folded[GlmLosses], accuracy: Folded[AccuracyCounts] | None, own: slice
) -> GlmScores:
    """Take the scores of some of the models."""
    return GlmScores(
        Folded(tuple(replace(part, losses=part.losses[own]) for part in losses.parts)),
        None
        if accuracy is None
        else Folded(tuple(replace(part, correct=part.correct[own]) for part in accuracy.parts)),
    )
