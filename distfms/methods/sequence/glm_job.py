"""The job of feature-group sequencing for generalised linear models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.dataset import ParquetDataset, Partition
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs, PartialReader, Stage
from distfms.methods.passes import Passes, Sums, one_pass, said_rows
from distfms.methods.rows import RowSource
from distfms.methods.sequence.anytime import glm_predictor
from distfms.methods.sequence.glm import (
    GLM_CRITERIA,
    GlmDesign,
    GlmPath,
    GlmRows,
    glm_criterion,
    sequence_glm,
)
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.problem import SequenceProblem
from distfms.methods.sequence.procedure import Rule, SequenceProcedure, parse_rule
from distfms.methods.sequence.timeliness import Curve, compared, timeliness
from distfms.methods.statistics_job import Solved
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle

MAX_CLASSES = 1000
"""Most classes that a target is taken to have."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Distinct values of a target; a mergeable statistic."""

    values: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_rows(cls, target: np.ndarray, weight: np.ndarray | None) -> ClassCounts:
        """Count the values of rows."""
        values, index = np.unique(target, return_inverse=True)
        total = np.bincount(index, weight, len(values)).astype(float)
        # One more than allowed stays, so that the excess is seen.
        return cls(values[: MAX_CLASSES + 1], total[: MAX_CLASSES + 1])

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of the rows of both."""
        together = np.concatenate((self.values, other.values))
        return self.from_rows(together, np.concatenate((self.weight, other.weight)))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassCounts:
        """Inverse of `to_arrays`."""
        return cls(arrays["values"], arrays["weight"])


def find_classes(counts: Folded[ClassCounts], target: str, family: str) -> np.ndarray:
    """Classes of a target, ascending."""
    train, test = counts.train(), counts.test
    classes = train.values[train.weight > 0]
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The target {target!r} has more than {MAX_CLASSES} values, so it is no class. Use "
            "another `sequence.family`."
        )
    if len(classes) < 2 or (family == "logistic" and len(classes) > 2):
        few = ", ".join(f"{value:g}" for value in classes[:6])
        wanted = "two classes; with more use softmax" if family == "logistic" else "classes"
        raise DataError(
            f"The {family} family wants a target of {wanted}; {target!r} has {len(classes)} "
            f"values among the training rows ({few})."
        )
    unknown = np.setdiff1d(test.values[test.weight > 0], classes)
    if len(unknown):
        raise DataError(
            f"The value {unknown[0]:g} of the target {target!r} occurs in held-out rows only, so "
            "no model can know it. Leave these rows out, or hold out others."
        )
    return classes


@dataclass(frozen=True)
class ClassReader(PartialReader):
    """Reads ``classes`` (`ClassCounts` of the only target)."""

    source: RowSource

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        return {"classes": ClassCounts}

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition's target."""
        block = self.source.read(partition)

        def counts(part: int) -> ClassCounts:
            rows = block.part_slices[part]
            weight = None if block.weight is None else block.weight[rows]
            return ClassCounts.from_rows(block.target[0, rows], weight)

        nothing = ClassCounts(np.zeros(0), np.zeros(0))
        return Bundle({"classes": self.source.folded(counts, nothing)})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": "classes"}


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.passes.RowReader`."""

    source: RowSource
    design: GlmDesign
    classes: tuple[float, ...] | None
    judges: bool = False

    def read(self, partition: Partition) -> dict[str, GlmRows]:
        """Return standardised rows by part."""
        if self.source.held_out and not self.judges:
            return {}
        batch = self.source.read(partition)
        # Folds follow one another, and the held-out rows come last.
        first = 0 if self.source.held_out else batch.part_slices[-1].start
        parts = {"train": slice(0, first), "test": slice(first, batch.n_rows)}
        return {
            name: self._rows(batch, rows)
            for name, rows in parts.items()
            if self.judges or name == "train"
        }

    def _rows(self, batch: RowBatch, rows: slice) -> GlmRows:
        response = batch.target[:, rows]
        if self.classes is not None:
            response = np.searchsorted(np.array(self.classes), response[0])
        if self.design.family != "softmax":
            response = np.atleast_2d(response)
        weight = None if batch.weight is None else batch.weight[rows]
        return self.design.rows(batch.features[:, rows], response, weight)

    def sums(self, rows: Mapping[str, GlmRows], weights: np.ndarray) -> Sums:
        """Add up over rows, at weights (d + 1, P), or of models (K, d + 1, P)."""
        if not self.judges:
            return self.design.sums(rows["train"], weights) if rows else Sums({})
        return Sums(
            {
                f"{part}/{name}": array
                for part, own in rows.items()
                for name, array in self.design.losses(own, weights).arrays.items()
            }
        )


CLASSES = "statistics/classes.json"

#: Explained deviance from which classes without a ridge count as separated.
_SEPARATED = 1 - 1e-6
_DEFAULT_BASELINES = ("oracle",)


@dataclass(frozen=True)
class GlmProcedure(SequenceProcedure):
    """Group sequencing of which only the searches are not pure: they pass over the rows."""

    path_type: ClassVar[Any] = GlmPath


class GlmSequenceJob(SequenceJob):
    """Feature-group sequencing for logistic, softmax and Poisson models as a job.

    Every iteration of every refit is a pass over the training rows.
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

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages that read the levels of categories and the classes of the target."""
        classes = [Stage("classes", self._classes)] if self._has_classes else []
        return [*super().first_stages(), *classes]

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        refits = self.options.max_refits
        cap = "after every group" if refits is None else f"at most {refits} times"
        n_bytes = 8 * self._row_values(self.guessed_columns()) * self.inputs.train.n_rows
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
        plan = self.plan(context)
        if self.inputs.section.missing != "drop":  # otherwise features decide which rows there are
            plan = plan.restricted(())
        bundle = context.reduce(
            lambda dataset, held_out: ClassReader(self.source(plan, dataset, held_out))
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

    def procedure(self, context: Context) -> GlmProcedure:
        """Return the pure part."""
        found = replace(super().procedure(context), rules=self.compared)
        return GlmProcedure(**vars(found))

    def _design(self, context: Context, problem: SequenceProblem) -> GlmDesign:
        classes = self._known_classes(context)
        softmax = self.options.family == "softmax" and classes is not None
        n_outputs = len(classes) if softmax and classes else len(self.roles.target)
        return GlmDesign(self.options.family, n_outputs, problem.scaling)

    def _reader(
        self, context: Context, design: GlmDesign, judges: bool
    ) -> Callable[[ParquetDataset, bool], GlmReader]:
        plan, classes = self.plan(context), self._known_classes(context)
        return lambda dataset, held_out: GlmReader(
            self.source(plan, dataset, held_out), design, classes, judges
        )

    def search(
        self, context: Context, procedure: GlmProcedure, problem: SequenceProblem
    ) -> Sequence[GlmPath]:
        """Return the paths of all rules, fitted by passes over the training rows."""
        design = self._design(context, problem)
        reader = self._reader(context, design, judges=False)
        n_columns = len(procedure.feature_names)
        with Passes(context, reader, self._row_values(n_columns)) as make_pass:
            return [
                sequence_glm(
                    make_pass,
                    problem,
                    design,
                    criterion=rule.criterion,
                    cost_aware=rule.cost_aware,
                    max_refits=self.options.max_refits,
                    max_groups=procedure.max_groups,
                )
                for rule in procedure.rules
            ]

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        problem: SequenceProblem = solved.problem
        path: GlmPath = solved.path
        n_candidates = path.n_candidates(len(problem.groups))
        context.count(n_candidates=n_candidates)
        return {
            **self.described(problem.scaling.dropped),
            "doubling": False,
            "classes": self._known_classes(context),
            "sequence": _steps(self.plan(context), problem, path),
            "timeliness": timeliness(path.curve_cost, path.curve_value),
            "doubling_capable": None,
            "refit_at": path.refit_at.tolist(),
            "n_candidates": n_candidates,
            "n_passes": int(path.n_passes[-1]),
            "notes": self._notes(problem, path),
        }

    def _notes(self, problem: SequenceProblem, path: GlmPath) -> list[str]:
        """Return what a reader of the result should know."""
        notes = ["Explained variance means explained deviance throughout."]
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

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the predictor of all prefixes."""
        classes = self._known_classes(context)
        labels = None
        if classes is not None and self.options.family == "softmax":
            labels = tuple(f"{self.roles.target[0]}={value:g}" for value in classes)
        design = self._design(context, solved.problem)
        predictor = glm_predictor(solved.path, solved.problem, design, labels)
        return self.model_files(context, predictor, classes=classes)

    def validate(self, context: Context, solved: Solved) -> None:
        """Note that folds are not used."""
        if self.inputs.section.folds > 1:
            context.note(
                "Folds are not used: cross-validating a generalised linear sequence would take as "
                "many passes again for each. Hold out rows with `data.test` instead."
            )

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``, by one pass for all models."""
        design = self._design(context, solved.problem)
        weights = np.concatenate([path.weights for path in solved.paths.values()])
        sums = one_pass(context, self._reader(context, design, judges=True), weights)
        found = {part: _measures(sums, part) for part in ("train", "test")}
        curves, start = {}, 0
        for name, path in solved.paths.items():
            part = slice(start, start + len(path.weights))
            start = part.stop
            test = {measure: values[part] for measure, values in found["test"].items()}
            curves[name] = _curve(solved.problem, path, test)
        last = len(solved.path.weights) - 1
        parts = {
            part: {measure: float(values[last]) for measure, values in measures.items()}
            | {"n_rows": int(sums[f"{part}/n_rows"])}
            if measures
            else None
            for part, measures in found.items()
        }
        with_oracle = Rule("oracle") in self.baselines
        own = curves[self.rule.name]
        return {**parts, "folds": [], **compared(curves, own, self.options.alpha, with_oracle)}


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
