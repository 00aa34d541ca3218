"""What folds choose from: the mean of the target, and linear models mixed with LightGBM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distfms.methods.attribute_efficient.cells import MEAN, MIXED, SHARES, TREES, Trees
from distfms.methods.attribute_efficient.from_pairs import Learned
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.predictors import (
    ByPattern,
    CutLinear,
    Mixed,
    Predictor,
    limits_between,
)
from distfms.methods.frame.judge import Judge, LossSums
from distfms.methods.frame.outcomes import Numbers
from distfms.stats.base import Members, explained_by_fold
from distfms.stats.folds import FoldAnswers


def judge_of(options: AttributeEfficientOptions, train: Members, n_detailed: int = 1) -> Judge:
    """Return what judges models that were learned from some rows, the first of them in detail."""
    outcome = Numbers()
    if has_labels(train):
        outcome = Numbers(threshold=0.0, tells_classes=True)
    # What losses are relative to: the mean of the target, or 0.
    centre = float(train["moments"].mean[-1]) if options.solver == "pairs" else 0.0
    return Judge(outcome, in_detail=slice(n_detailed), centre=centre)


def has_labels(train: Members) -> bool:
    """Whether the targets are −1 and 1."""
    return bool(train["counts"].all_in(-1.0, 1.0)[0])


def measures_of(judge: Judge, sums: LossSums) -> dict[str, np.ndarray]:
    """Return measures of models (M,), the loss relative to that of a constant among them."""
    measures = judge.measures(sums)
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN for targets that are all constant
        relative = measures["mse"] / sums.spread
    return {"relative_loss": relative, **measures}


def pooled(answers: FoldAnswers) -> FoldAnswers:
    """Return answers whose relative losses are those of all folds together, to first order.

    In a fold of few rows the loss of the mean is far from that of all, and so is a ratio to it.
    """

    def relative(item: int) -> dict[str, np.ndarray]:
        losses = answers.values(item, "mse")
        whole = answers.values(item, "loss_of_mean")[0]
        return {"relative_loss": 1.0 - explained_by_fold(losses, whole, answers.weight)}

    return answers.with_values(relative)


def fill_of(members: Members) -> np.ndarray:
    """Return what models take missing values for: the means of what was observed, shape (d,)."""
    mean: np.ndarray = members.get("observed", members["moments"]).mean[:-1]
    return mean


def linear_of(learned: Sequence[Learned], members: Members) -> CutLinear:
    """Return what models make of rows, side by side, within the range of what pairs observed.

    Labels of −1 and 1 are predicted by scores without limits, as all is by the online learner.
    """
    weights = np.array([model.weights for model in learned])
    intercepts = np.array([model.intercept for model in learned])
    limits = np.tile([[-np.inf], [np.inf]], len(members["moments"].mean))
    fill = fill_of(members)
    if (observed := members.get("observed")) is not None:
        limits = limits_between(observed.minimum, observed.maximum, has_labels(members))
    return CutLinear(weights, intercepts, fill, limits)


def predictor_of(learned: Learned, members: Members) -> Predictor:
    """Return what a model makes of rows."""
    if learned.share == 1.0:
        return Trees(learned.trees)
    linear = linear_of([learned], members)
    whole = linear if learned.gaps is None else ByPattern(linear, learned.gaps)
    if learned.share == 0.0:
        return whole
    return Mixed(whole, Trees(learned.trees), [learned.share])


def shares_of(learned: Learned) -> Sequence[float]:
    """Return the shares of LightGBM that a model stands for: its own, or all of a mixed one."""
    return (learned.share,) if learned.share in (0.0, 1.0) else SHARES


def candidates_of(learned: Learned, members: Members) -> list[Learned]:
    """Return what folds choose from, the mean of the target first."""
    mean = learned.of_mean(float(members["moments"].mean[-1]))
    return [mean, *(replace(learned, share=share) for share in shares_of(learned))]


def predictors_of_candidates(learned: Learned, members: Members) -> list[Predictor]:
    """Return predictors that have the candidates' predictions in their order."""
    mean, first, *others = candidates_of(learned, members)
    models = [predictor_of(mean, members), predictor_of(first, members)]
    if others:
        models[1] = Mixed(models[1], Trees(learned.trees), SHARES)
    return models


def alone_beside(candidates: Sequence[Learned], number: int) -> list[int]:
    """Return the candidates of a single model other than the chosen one and the mean."""
    first = 1
    last = len(candidates) - 1
    return [n for n in dict.fromkeys((first, last)) if n != number]


def name_of(candidate: Learned, number: int, linear: str) -> str:
    """Return the name of a candidate, whose linear models have a name."""
    if number == 0:
        return MEAN
    if candidate.share == 1.0:
        return TREES
    if candidate.share > 0.0:
        return MIXED
    return linear
