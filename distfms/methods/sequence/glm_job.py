"""The job of feature-group sequencing for generalised linear models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan
from distfms.data.dataset import ParquetDataset
from distfms.errors import SpecError
from distfms.methods.contract import Content, Context, Inputs, Stage
from distfms.methods.passes import Passes, Sums, one_pass, said_rows
from distfms.methods.sequence.evaluate import Curve, compared
from distfms.methods.sequence.glm import (
    GLM_CRITERIA,
    GlmDesign,
    GlmPath,
    glm_criterion,
    glm_predictor,
    sequence_glm,
)
from distfms.methods.sequence.glm_read import ClassReader, GlmReader, class_labels, find_classes
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.problem import SequenceProblem
from distfms.methods.sequence.rules import Rule, parse_rule
from distfms.methods.sequence.timeliness import timeliness

CLASSES = "statistics/classes.json"
MODELS = "statistics/glm.npz"

#: Explained deviance from which classes without a ridge count as separated.
_SEPARATED = 1 - 1e-6
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
        n_bytes = 8 * self._row_values(self._guessed_columns()) * self.inputs.train.n_rows
        model = f"{self.options.family}, refitted {cap}"
        return {**super().describe(), "model": model, "passes": said_rows(n_bytes)}

    def _row_values(self, n_columns: int) -> int:
        """Numbers that a row takes while a model is fitted: columns, target and weight."""
        return n_columns + len(self.roles.target) + 1

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

    def _problem(self, context: Context, plan: ColumnPlan) -> tuple[SequenceProblem, GlmDesign]:
        problem = self._settings(plan).problem(self._bundle(context)["moments"].train())
        classes = self._known_classes(context)
        softmax = self.options.family == "softmax" and classes is not None
        n_outputs = len(classes) if softmax and classes else len(self.roles.target)
        return problem, GlmDesign(self.options.family, n_outputs, problem.scaling)

    def _reader(
        self, context: Context, plan: ColumnPlan, design: GlmDesign, judges: bool
    ) -> Callable[[ParquetDataset, bool], GlmReader]:
        classes = self._known_classes(context)
        return lambda dataset, held_out: GlmReader(
            self._source(plan, dataset, held_out), design, classes, judges
        )

    def _select(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        problem, design = self._problem(context, plan)
        rules = [self.rule, *(r for r in self.baselines if r.criterion != "oracle")]
        reader = self._reader(context, plan, design, judges=False)
        with Passes(context, reader, self._row_values(plan.n_features)) as make_pass:
            paths = {
                rule.name: sequence_glm(
                    make_pass,
                    problem,
                    design,
                    criterion=rule.criterion,
                    cost_aware=rule.cost_aware,
                    max_refits=self.options.max_refits,
                    max_groups=self.options.max_groups,
                )
                for rule in rules
            }
        arrays = {
            f"{name}/{key}": array
            for name, path in paths.items()
            for key, array in path.to_arrays().items()
        }
        selection = self._glm_selection(context, plan, problem, paths[self.rule.name])
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
        self, context: Context, plan: ColumnPlan, problem: SequenceProblem, path: GlmPath
    ) -> dict[str, Any]:
        alone = self.costs.alone
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
            "sequence": _steps(plan, problem, path),
            "timeliness": timeliness(path.curve_cost, path.curve_value),
            "doubling_capable": None,
            "constant": list(problem.scaling.dropped),
            "costs": {name: float(alone[g]) for g, name in enumerate(self.groups.names)},
            "shared_costs": self.options.shared(),
            "refit_at": path.refit_at.tolist(),
            "n_candidates": path.n_candidates(len(problem.groups)),
            "n_passes": int(path.n_passes[-1]),
            "notes": self._notes(problem, path),
        }

    def _notes(self, problem: SequenceProblem, path: GlmPath) -> list[str]:
        """Say what a reader of the result should know."""
        notes = []
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
            notes.append(
                f"Some fits ended otherwise than converged: {', '.join(unfinished)}. The gradient "
                f"is up to {path.gradient_norm.max():.3g} times the tolerance."
            )
        if problem.ridge == 0 and path.curve_value[-1] > _SEPARATED:
            notes.append(
                "The model explains the training rows entirely: classes are separated, and the "
                "coefficients have no bound. A ridge (`sequence.ridge`) gives them one."
            )
        if problem.scaling.dropped:
            notes.append(f"Constant columns left out: {', '.join(problem.scaling.dropped)}.")
        return notes

    # --- model and evaluation ---

    def _model(self, context: Context) -> Mapping[str, Content]:
        plan = self._plan(context)
        problem, design = self._problem(context, plan)
        classes = self._known_classes(context)
        labels = None
        if classes is not None and self.options.family == "softmax":
            labels = class_labels(self.roles.target[0], classes)
        predictor = glm_predictor(self._paths(context)[self.rule.name], problem, design, labels)
        return self._model_files(plan, predictor, classes=classes)

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        if self.inputs.section.folds > 1:
            context.note(
                "Folds are not used: cross-validating a generalised linear sequence would take as "
                "many passes again for each. Hold out rows with `data.test` instead."
            )
        plan = self._plan(context)
        problem, design = self._problem(context, plan)
        paths = self._paths(context)
        weights = np.concatenate([path.weights for path in paths.values()])
        sums = one_pass(context, self._reader(context, plan, design, judges=True), weights)
        bounds = np.cumsum([len(path.weights) for path in paths.values()])[:-1]
        scores: dict[str, list[dict[str, np.ndarray]]] = {}
        for part in ("train", "test"):
            parts = _measures(sums, part)
            split = {measure: np.split(values, bounds) for measure, values in parts.items()}
            scores[part] = [
                {measure: values[k] for measure, values in split.items()} for k in range(len(paths))
            ]
        curves = {
            name: _curve(problem, path, test)
            for (name, path), test in zip(paths.items(), scores["test"], strict=True)
        }
        own = curves[self.rule.name]
        metrics = {
            part: {
                **{measure: float(values[-1]) for measure, values in scores[part][0].items()},
                "n_rows": int(sums[f"{part}/n_rows"]),
            }
            if scores[part][0]
            else None
            for part in ("train", "test")
        }
        compare = compared(curves, own, self.options.alpha, Rule("oracle") in self.baselines)
        return {"metrics.json": {**metrics, "folds": [], **compare}}


def _measures(sums: Sums, part: str) -> dict[str, np.ndarray]:
    """Measures of every model on one part; none where it has no rows."""
    weight = float(sums[f"{part}/weight"])
    if not weight > 0:
        return {}
    deviance = 2.0 * sums[f"{part}/loss"] / weight
    whole = deviance[0] if deviance[0] > 0 else np.nan
    found = {"explained_deviance": 1.0 - deviance / whole, "deviance": deviance}
    if f"{part}/correct" in sums.arrays:
        found["accuracy"] = sums[f"{part}/correct"] / weight
    return found


def _curve(problem: SequenceProblem, path: GlmPath, test: Mapping[str, np.ndarray]) -> Curve:
    """Write a path and its measures on the held-out rows by prefix."""
    at, value = path.model_of_prefix, path.curve_value
    more = {"explained_deviance": value}
    if test:
        more["test_deviance"] = test["deviance"][at]
    if "accuracy" in test:
        more["accuracy"] = test["accuracy"][at]
    return Curve(
        groups=tuple(problem.groups.names[g] for g in path.order),
        cost=path.curve_cost,
        value=value,
        test=test["explained_deviance"][at] if test else None,
        more=more,
    )


def _glm_rule(name: str) -> Rule | None:
    """Return the form that a baseline has for generalised linear models, if it has one."""
    rule = parse_rule(name)
    if rule.criterion == "oracle":
        return rule
    criterion = "omp" if rule.criterion == "fr" else rule.criterion
    if rule.doubling or criterion not in GLM_CRITERIA:
        return None
    return replace(rule, criterion=criterion)


def _steps(plan: ColumnPlan, problem: SequenceProblem, path: GlmPath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path."""
    sources = [column.name for column in plan.columns for _ in column.value_names]
    names, columns = problem.groups.names, problem.groups.columns
    at, explained, spent = path.model_of_prefix, path.curve_value, path.spent
    kept, loss = problem.scaling.kept, path.loss[path.model_of_prefix]
    return [
        {
            "group": names[group],
            "columns": list(dict.fromkeys(sources[kept[c]] for c in columns[group])),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(explained[k + 1]),
            "explained_deviance": float(explained[k + 1]),
            "gain": float(loss[k] - loss[k + 1]),
            "score": float(path.score[k]),
            "status": str(path.status[at[k + 1]]),
            "gradient_norm": float(path.gradient_norm[at[k + 1]]),
            "n_iterations": int(path.n_iterations[at[k + 1]]),
        }
        for k, group in enumerate(path.order.tolist())
    ]
