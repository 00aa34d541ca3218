"""Models scored on the rows themselves, where their statistics do not say how good they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from distfms.data.folds import FoldPlan, assign_parts
from distfms.data.partition import Dataset, Partition
from distfms.data.roles import Roles
from distfms.methods import load_method
from distfms.methods.contract import Context, FinishedRun, Judged
from distfms.methods.passes import Sums


@dataclass(frozen=True, eq=False)
class RowJudge:
    """Picklable function from a partition to how far models are off on its held-out rows.

    Attributes
    ----------
    predictors : tuple
        Of the models, of the same dataset.
    roles : Roles
    has_classes : bool
        Whether models predict classes, which may be numbers.
    coded : callable
        From values of the target to what models predict of it.
    folds : FoldPlan or None
        How rows are divided; None where all of them are held out.
    """

    predictors: tuple[Any, ...]
    roles: Roles
    has_classes: bool
    coded: Callable[[np.ndarray], np.ndarray]
    folds: FoldPlan | None

    def __call__(self, partition: Partition) -> Sums:
        """Read, predict and add up; of a large partition some rows after the others."""
        reader, roles = self.predictors[0].reader, self.roles
        if not partition.batch_rows:
            return self._judged(reader, partition)
        others = (c for predictor in self.predictors for c in predictor.columns)
        needed = dict.fromkeys((*roles.target, roles.weight, roles.fold_key, *others))
        found = Sums({})
        for own, piece in reader.batches(partition, [n for n in needed if n is not None]):
            predictors = tuple(replace(one, reader=own) for one in self.predictors)
            found = found.merge(replace(self, predictors=predictors)._judged(own, piece))
        return found

    def _judged(self, reader: Any, partition: Partition) -> Sums:
        roles, kept = self.roles, np.ones(partition.n_rows, dtype=bool)
        named = dict.fromkeys((*roles.target, roles.weight, roles.fold_key))
        table = reader.read(partition, [name for name in named if name is not None])
        if (plan := self.folds) is not None:
            keys = None if roles.fold_key is None else table.column(roles.fold_key)
            parts = assign_parts(
                keys, partition=partition, n_folds=plan.n_folds, test=plan.test, seed=plan.seed
            )
            kept = parts == plan.test_part
        weight = np.ones(partition.n_rows)
        if roles.weight is not None:
            weight = table.column(roles.weight).to_numpy().astype(float)
        for name in roles.target:
            kept &= ~table.column(name).is_null(nan_is_null=True).to_numpy()
        kept &= weight > 0
        if not kept.any():
            return Sums({})
        truth, w = table.select(list(roles.target)).filter(kept), weight[kept]
        found = [self._errors(truth, one(partition).filter(kept)) for one in self.predictors]
        sums = {name: np.array([w @ own[name] for own in found]) for name in found[0]}
        return Sums({"n": np.array(w.size), "weight": np.array(w.sum()), **sums})

    def _errors(self, truth: Any, predicted: Any) -> dict[str, np.ndarray]:
        """Return of each row whether a class is right, and the squared error of numbers."""
        found, squares = dict[str, np.ndarray](), []
        for name in truth.column_names:
            # Probabilities of classes leave one column of predictions.
            one = predicted.column(f"predicted_{name}")
            values, own = one.to_numpy(), self.coded(truth.column(name).to_numpy())
            if self.has_classes:
                found["accuracy"] = (own == values).astype(float)
            if own.dtype.kind in "fiub" and values.dtype.kind in "fiub":
                squares.append((own.astype(float) - values.astype(float)) ** 2)
        return found | ({"mse": np.mean(squares, axis=0)} if squares else {})


def judge_rows(
    name: str,
    roles: Roles,
    context: Context,
    models: Sequence[FinishedRun],
    has_classes: bool = False,
    coded: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Judged:
    """Score predictions of a method's models on held-out rows; see `Job.judge` and `RowJudge`."""
    method, section = load_method(name), context.inputs.section
    plan = FoldPlan(section.folds, section.test, context.seed)

    def judge(dataset: Dataset, folds: FoldPlan | None) -> Sums:
        predictors = tuple(method.predictor(model, dataset, None) for model in models)
        rows = RowJudge(predictors, roles, has_classes, coded, folds)
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
