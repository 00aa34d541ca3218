"""Boosted trees on all columns: what sequences are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import LossSums
from distfms.methods.frame.read import spans_of
from distfms.methods.sequence.data import SequenceData, thinned
from distfms.methods.sequence.fits import tree_fit
from distfms.methods.sequence.judged import LOSS_OF
from distfms.methods.sequence.learners import Learner, Scores
from distfms.methods.sequence.options import TREES
from distfms.methods.sequence.problem import FeatureGroups
from distfms.methods.sequence.procedure import RIDGES
from distfms.methods.sequence.ridge_choice import losses_of_all_columns
from distfms.methods.sequence.trees import Grown, TreeModels
from distfms.solve.trees import gains_by_feature
from distfms.stats.base import HELD_OUT, explained_by_fold, number_or_none, over_folds

#: What a reference explains more than a sequence and that is worth another kind of model.
_WORTH_SAYING = 0.01
_WHAT = "Fitting the reference"
REFERENCE = "reference"
"""What the judge's sums of the reference on held-out rows are known by."""
#: Rows that the race begins with, and goes on with.
_GROWING = (5_000, 20_000)
#: Standard errors of the paired differences by which a kind of models is out of the race.
_OUT = 2.0


@dataclass(frozen=True, eq=False)
class Reference:
    """Models of LightGBM on all columns, without each fold, and of all rows where these are wanted.

    Attributes
    ----------
    n_train, n_trees : int
        Rows that they learn from, and the median number of their trees.
    folds : sequence of mapping
        What each explains of its fold.
    whole_model : TreeModels or None
        That of no group and that of all rows, where some are held out.
    losses, weights : numpy.ndarray of shape (n_folds,)
        Of the folds.
    whole : float
        Mean loss of the constant model.
    gains : mapping of int to tuple of (str, float)
        What they gain by each group, by fold (−1: of all rows).
    validation : mapping
        Measures of the rows of all folds together.
    is_out : bool
        Whether few rows told that linear models are better.
    """

    n_train: int
    n_trees: int
    folds: Sequence[Mapping[str, Any]]
    whole_model: TreeModels | None
    losses: np.ndarray
    weights: np.ndarray
    whole: float
    gains: Mapping[int, tuple[tuple[str, float], ...]]
    validation: Mapping[str, Any]
    is_out: bool = False


def fit_reference(run: Run, learner: Learner) -> Reference:
    """Fit LightGBM to all columns, without each fold, and measure it; within a step.

    Of many rows it learns from some, and of these it is measured on the folds: how much that tells
    less is in the spread between folds. It begins with few rows. Where linear models of the same
    rows are better there by more than two standard errors, paired by fold, the race is over.
    """
    rows = learner.data.rows
    assert rows is not None
    n_all = len(rows.fold)
    for size in (*_GROWING, n_all):
        if size >= n_all:
            break
        some = thinned(learner.data, size)
        reference = _fitted_to(run, learner, some)
        if is_behind(run, learner, reference, some):
            return replace(reference, is_out=True)
    return _fitted_to(run, learner, learner.data)


def is_behind(run: Run, learner: Learner, reference: Reference, data: SequenceData) -> bool:
    """Return whether LightGBM is behind linear models of the same rows."""
    if data.form.options.model == TREES or len(reference.losses) < 2:
        return False
    if data.form.mapped is not None:  # products of all columns do not fit into memory
        return False
    is_gaussian = learner.procedure.family == "gaussian"
    ridges = RIDGES if is_gaussian else (learner.procedure.ridge,)
    answers, losses = losses_of_all_columns(run, learner.job, data, ridges)
    if list(answers.folds) != [entry["fold"] for entry in reference.folds]:
        return False
    linear = losses[best(losses, answers.weight)]
    return is_out(reference.losses, linear, reference.weights)


def is_out(losses: np.ndarray, of_best: np.ndarray, weights: np.ndarray) -> bool:
    """Return whether a kind of models is behind the best by more than two standard errors."""
    behind = over_folds(losses - of_best, weights)
    return bool(behind.mean > _OUT * np.nan_to_num(behind.standard_error))


def _fitted_to(run: Run, learner: Learner, data: SequenceData) -> Reference:
    """Return the reference of the rows in memory, as if these were all."""
    rows = data.rows
    assert rows is not None
    features = tuple(range(len(data.plan.roles.features)))
    folds = [fold.number for fold in learner.folds()]
    section = learner.job.inputs.section
    has_held_out = bool(section.test or learner.job.inputs.test)
    needs_whole = has_held_out or not folds or data.form.options.model == TREES
    numbers = [HELD_OUT, *folds] if needs_whole else folds
    tasks = [(features, number) for number in numbers]
    grown = run.map(tree_fit(data, to_sample=True), tasks, _WHAT)
    models: dict[int, Grown] = dict(zip(numbers, grown, strict=True))
    spans = spans_of(data.plan)
    share = learner.procedure.share
    whole = models.get(HELD_OUT)
    losses = np.empty((2, len(folds)))
    weights = np.empty(len(folds))
    entries = list[dict[str, Any]]()
    all_folds = LossSums()
    for place, number in enumerate(folds):
        sums = learner.judged_here(models[number].beside_null(spans), [number], data)
        measures = learner.measures_of(sums)
        losses[:, place] = measures[LOSS_OF[share]]
        weights[place] = sums.weight
        entries.append({"fold": number, **_last(measures)})
        all_folds = all_folds.merge(sums)
    shares = explained_by_fold(losses[1], losses[0], weights)
    for entry, explained in zip(entries, shares.tolist(), strict=True):
        entry[share] = number_or_none(explained)
    groups = data.form.groups
    n_trees = [model.n_trees for model in models.values()]
    return Reference(
        n_train=len(rows.fold) if whole is None else whole.n_rows,
        n_trees=int(np.median(n_trees)),
        folds=entries,
        whole_model=whole.beside_null(spans) if whole and has_held_out else None,
        losses=losses[1],
        weights=weights,
        whole=float(over_folds(losses[0], weights).mean),
        gains={number: gains_of(model.text, groups) for number, model in models.items()},
        validation=_last(learner.judge.measures(all_folds)),
    )


def _last(measures: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: number_or_none(values[-1]) for name, values in measures.items()}


def gains_of(text: str, groups: FeatureGroups) -> tuple[tuple[str, float], ...]:
    """Return what a model of LightGBM on all columns gains by each group of them, by name."""
    by_feature = gains_by_feature(text)
    gains = [float(by_feature[list(columns)].sum()) for columns in groups.columns]
    return tuple(zip(groups.names, gains, strict=True))


def gains_of_all(run: Run, data: SequenceData) -> tuple[tuple[str, float], ...]:
    """Return what LightGBM on all columns of all rows gains by each group, by its name."""
    features = tuple(range(len(data.plan.roles.features)))
    (model,) = run.map(tree_fit(data, to_sample=True), [(features, -1)], _WHAT)
    return gains_of(model.text, data.form.groups)


def beside_sequence(
    learner: Learner, reference: Reference, scores: Scores, last: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Return what a reference explains more than a sequence of all groups; on folds, if any.

    `last` are measures of that sequence by rows. Linear models are far from it where that is more
    than a standard error.
    """
    share = learner.procedure.share
    folds = scores.folds
    of_held_out = dict[str, Any]()
    if REFERENCE in scores.sums:
        of_held_out = _last(learner.measures_of(scores.sums[REFERENCE]))
    tests = [own.get(share) for own in (last.get("test", {}), of_held_out)]
    ours, theirs = np.array(tests, dtype=float).reshape(2, 1)
    weights: Sequence[float] = (1.0,)
    if folds is not None:
        weights = folds.weight
        ours = folds.values(0, share)[-1]
        known = {entry["fold"]: entry.get(share) for entry in reference.folds}
        theirs = np.array([known.get(fold) for fold in folds.folds], dtype=float)
    gain, mean = over_folds(theirs - ours, weights), over_folds(theirs, weights).mean
    more = number_or_none(gain.mean) or 0.0
    error = number_or_none(gain.standard_error) or 0.0
    is_far = more > max(error, _WORTH_SAYING)
    if is_far:
        rows = "held-out rows" if folds is None else "cross-validation"
        learner.run.note(
            f"Boosted trees (LightGBM with its defaults, on all columns) explain {100 * more:.1f} "
            f"± {100 * error:.1f} percentage points more than all groups of the sequence ({rows})."
        )
    return {
        "n_train": reference.n_train,
        "n_trees": reference.n_trees,
        "folds": reference.folds,
        "test": of_held_out,
        "validation": {**reference.validation, share: number_or_none(mean)} if folds else {},
        "more": more,
        "standard_error": error,
        "is_far": is_far and learner.procedure.model == "linear",
    }
