"""Models scored on the rows themselves, where their statistics do not say how good they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from distfms.data.dataset import ParquetDataset, Partition
from distfms.data.folds import FoldPlan, assign_parts
from distfms.data.roles import Roles
from distfms.methods import load_method
from distfms.methods.contract import Context, FinishedRun, Job
from distfms.methods.passes import Sums


@dataclass(frozen=True, eq=False)
class RowJudge:
    """Picklable function from a partition to how far models are off on its held-out rows.

    Attributes
    ----------
    predictors : tuple
        Of the models, of the same dataset.
    roles : Roles
    folds : FoldPlan or None
        How rows are divided; None where all of them are held out.
    positive : tuple of (float or None)
        By model, the value of the target that counts as 1, all others as −1; None for none.
    """

    predictors: tuple[Any, ...]
    roles: Roles
    folds: FoldPlan | None
    positive: tuple[float | None, ...]

    def __call__(self, partition: Partition) -> Sums:
        """Read, predict and add up; of a large partition some rows after the others."""
        reader, needed = self.predictors[0].reader, self._needed
        if not partition.batch_rows:
            return self._judged(reader, partition)
        found = []
        for piece_reader, piece in reader.batches(partition, needed):
            models = tuple(replace(model, reader=piece_reader) for model in self.predictors)
            found.append(replace(self, predictors=models)._judged(piece_reader, piece))
        return reduce(Sums.merge, found)

    @property
    def _needed(self) -> list[str]:
        roles = self.roles
        own = (*roles.target, *(c for c in (roles.weight, roles.fold_key) if c is not None))
        return list(dict.fromkeys([*own, *(c for m in self.predictors for c in m.columns)]))

    def _judged(self, reader: Any, partition: Partition) -> Sums:
        key, weight_column = self.roles.fold_key, self.roles.weight
        kept = np.ones(partition.n_rows, dtype=bool)
        if self.folds is not None:
            plan, keys = self.folds, None
            if key is not None:
                keys = reader.read(partition, [key]).column(0)
            parts = assign_parts(
                keys, partition=partition, n_folds=plan.n_folds, test=plan.test, seed=plan.seed
            )
            kept = parts == plan.test_part
        targets = reader.read(partition, list(self.roles.target))
        weight = np.ones(partition.n_rows)
        if weight_column is not None:
            weight = reader.read(partition, [weight_column]).column(0).to_numpy().astype(float)
        for column in targets.columns:
            kept &= ~column.is_null(nan_is_null=True).to_numpy()
        kept &= weight > 0
        if not kept.any():
            return Sums({})
        found = [self._errors(number, partition, targets, kept) for number in range(len(self))]
        sums = {name: np.array([weight[kept] @ own[name] for own in found]) for name in found[0]}
        return Sums({"n": np.array(kept.sum()), "weight": np.array(weight[kept].sum()), **sums})

    def __len__(self) -> int:
        return len(self.predictors)

    def _errors(
        self, number: int, partition: Partition, targets: Any, kept: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return for each row kept whether a model is right, and its squared error, as it has."""
        table, positive = self.predictors[number](partition), self.positive[number]
        names = [f"predicted_{name}" for name in targets.column_names]
        if names[0] not in table.column_names:  # a model of classes, one column for each
            names = [name for name in table.column_names if name.startswith("predicted_")][:1]
        found: dict[str, np.ndarray] = {}
        squares = []
        for column, name in zip(targets.columns, names, strict=False):
            truth, value = (c.to_numpy()[kept] for c in (column, table.column(name)))
            if positive is not None:
                truth = np.where(truth == positive, 1.0, -1.0)
            if self._has_classes(table, number):
                found["accuracy"] = (_text(truth) == _text(value)).astype(float)
            if truth.dtype.kind in "fiub" and value.dtype.kind in "fiub":
                squares.append((truth.astype(float) - value.astype(float)) ** 2)
        return found | ({"mse": np.mean(squares, axis=0)} if squares else {})

    def _has_classes(self, table: Any, number: int) -> bool:
        model = self.predictors[number]
        values = getattr(getattr(model, "predict", None), "classes", None)
        return bool(getattr(model, "classes", ())) or values is not None


def _text(values: np.ndarray) -> np.ndarray:
    """Return numbers as numbers and all else as text, to be compared."""
    return values.astype(float) if values.dtype.kind in "fiub" else values.astype(str)


def judge_rows(
    job: Job, context: Context, models: Sequence[FinishedRun]
) -> tuple[int, list[Mapping[str, float]]]:
    """Score models on the held-out rows of the context's data; also return how many there are."""
    method, section = load_method(job.name), context.inputs.section
    plan = FoldPlan(section.folds, section.test, job.seed)

    def judge(dataset: ParquetDataset, folds: FoldPlan | None) -> Sums:
        predictors = tuple(method.predictor(model, dataset, None) for model in models)
        positive = tuple(model.model.get("positive") for model in models)
        rows = RowJudge(predictors, job.roles, folds, positive)  # type: ignore[attr-defined]
        return reduce(Sums.merge, context.map(rows, dataset.partitions))

    found = Sums({})
    if section.test:
        found = judge(context.inputs.train, plan)
    if context.inputs.test is not None:
        found = found.merge(judge(context.inputs.test, None))
    sums = dict(found.arrays)
    if not sums:
        return 0, []
    n_rows, weight = int(sums.pop("n")), float(sums.pop("weight"))
    scores: list[Mapping[str, float]] = [
        {name: float(values[number] / weight) for name, values in sums.items()}
        for number in range(len(models))
    ]
    return n_rows, scores
