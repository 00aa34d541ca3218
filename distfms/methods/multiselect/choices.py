"""What is chosen of the data: the ridge, the way to buy, and whether to buy at all.

On folds these are a list of candidates, from the simplest on: to buy nothing, then every way to buy
with every ridge. The best way is taken, and nothing unless that is better than the mean label by a
standard error. Without folds, generalised cross-validation chooses the ridge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.methods.frame.choose import InTurn, Rule, best, fewest
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.moments import points_on_folds
from distfms.methods.frame.tuning import Compared, LeftOpen, Point, choose_options, grid_points
from distfms.methods.multiselect.options import MEASURES, MultiselectOptions
from distfms.methods.multiselect.procedure import SelectionProcedure, Training
from distfms.report.formatting import options_text
from distfms.solve.buying import covariance_of_averages, full_weights, inverse_of
from distfms.solve.ridge import generalised_loss
from distfms.spec import Grid
from distfms.stats.base import Bundle

RIDGES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.01, 0.001, 0.0)
"""What the ridge ``auto`` chooses from, the simplest models first."""

NOTHING = "nothing"
MEASURE = next(iter(MEASURES))


def left_open(options: MultiselectOptions, n_folds: int) -> list[Grid]:
    """Return what there is to choose from, as grids like that of `tune`, the simplest first.

    Empty where options leave nothing open.

    Raises
    ------
    SpecError
        If there are several ridges and no cross-validation to choose by.
    """
    has_folds = n_folds > 1
    ridges = options.ridge if isinstance(options.ridge, tuple) else (options.ridge,)
    if len(ridges) > 1 and not has_folds:
        raise SpecError(
            "`multiselect.ridge` needs cross-validation, which this job does not have. Set "
            "`data.folds` to at least 2, or give one value; a search in slabs has no folds."
        )
    tried: Sequence[Any] = RIDGES if options.ridge == "auto" else ridges
    if options.algorithm != "auto":
        return [{"algorithm": (options.algorithm,), "ridge": tried}]
    if not has_folds:
        return [{"algorithm": ("full",), "ridge": tried}]
    nothing: Grid = {"algorithm": (NOTHING,), "ridge": (0.0,)}
    return [nothing, {"algorithm": ("full", "lasso"), "ridge": tried}]


def grids_of_choice(options: MultiselectOptions, n_folds: int) -> list[Grid]:
    """Return the same, none where that is but one point; see `Job.candidates`."""
    is_open = len(candidates(options, n_folds)) > 1
    return left_open(options, n_folds) if is_open else []


def candidates(options: MultiselectOptions, n_folds: int) -> list[Point]:
    """Return the same as options, one that has all of them where nothing is open."""
    return [point for grid in left_open(options, n_folds) for point in grid_points(grid)]


def preferred(options: MultiselectOptions, n_folds: int) -> Point:
    """Return the first way to buy, which stands for all in what is known before a choice."""
    tried = candidates(options, n_folds)
    ways = [point for point in tried if point["algorithm"] != NOTHING]
    return {**ways[0], "ridge": ways[-1]["ridge"]} if ways else tried[0]


def rule_of(tried: Sequence[Point]) -> Rule:
    """Return the rule for the best way to buy or, unless that is better, for buying nothing.

    It is better by more than one standard error. Where `tune` sets the way, points lack its name.
    """
    numbers = range(len(tried))
    nothing = tuple(i for i in numbers if tried[i].get("algorithm") == NOTHING)
    ways = tuple(i for i in numbers if i not in nothing)
    groups = tuple(group for group in (nothing, ways) if group)
    return partial(chosen_on_known, InTurn(groups, (best,) * len(groups), fewest))


def chosen_on_known(rule: InTurn, losses: np.ndarray, weights: np.ndarray) -> int:
    """Choose by the folds that judge all candidates, as some may lack an attribute.

    If none does, the first way to buy is taken.
    """
    is_known = np.isfinite(losses).all(axis=0)
    kept = np.asarray(weights)[is_known]
    if not kept.sum() > 0:
        return rule.groups[-1][0]
    return rule(losses[:, is_known], kept)


# --- on the folds of a job ------------------------------------------------------------------------


def with_tuned(run: Run, job: Job, statistics: Bundle) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with the best options of a grid, and the comparison; step ``tune``.

    Each point has the best of what it leaves open.
    """
    open_options = LeftOpen(partial(candidates, n_folds=job.n_folds), rule_of)
    procedure_of = job.form.procedure
    options, tuning = choose_options(run, job, statistics, procedure_of, left_open=open_options)
    return replace(job, options=options), tuning


def with_choice(
    run: Run, job: Job, statistics: Bundle, training: Callable[[], Training]
) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with one ridge and one way to select, and the comparison; step ``ridge``.

    Without a step where there is nothing to choose from. `training` is made only without folds.
    """
    tried = candidates(job.options, job.n_folds)
    if len(tried) == 1:
        return replace(job, options=job.options.changed(**tried[0])), None

    def compared() -> dict[str, Any]:
        on_folds = _compared_on_folds(run, job, statistics, tried) if job.n_folds > 1 else None
        if on_folds is not None:
            return on_folds
        n_objects = statistics["judgments"].train().means.n_counted
        return _compared_without_folds(run, job, training(), n_objects, tried)

    comparison = run.step("ridge", compared)
    options = job.options.changed(**comparison["chosen"])
    return replace(job, options=options), comparison if "points" in comparison else None


def _compared_on_folds(
    run: Run, job: Job, statistics: Bundle, tried: Sequence[Point]
) -> dict[str, Any] | None:
    """Compare on folds; return None where fewer than two judge all candidates."""
    procedure_of = job.form.procedure
    on_folds, losses = points_on_folds(run, job, statistics, procedure_of, tried, MEASURE)
    if np.isfinite(losses).all(axis=0).sum() < 2:
        return None
    choice = Compared(tried, on_folds, losses, higher_is_better=False).choice(rule_of(tried))
    run.note(f"Chosen by cross-validation: {options_text(choice['chosen'])}.")
    return {"measure": MEASURE, "rule": "best", "tuned": [], **choice}


# --- without folds --------------------------------------------------------------------------------


def _compared_without_folds(
    run: Run, job: Job, training: Training, n_objects: float, tried: Sequence[Point]
) -> dict[str, Any]:
    """Choose the ridge of the greedy search, or of the one way there is."""
    first = next(point["algorithm"] for point in tried if point["algorithm"] != NOTHING)
    tried = [point for point in tried if point["algorithm"] == first]
    losses = []
    for candidate in tried:
        procedure: SelectionProcedure = job.form.procedure(job.options.changed(**candidate))
        penalised = procedure.with_ridge(training)
        repeats = procedure.search(penalised, procedure.rules[0]).final_repeats
        losses.append(loss_without_folds(penalised, repeats, n_objects))
    chosen = tried[int(np.argmin(losses))]
    run.note(f"Chosen by generalised cross-validation: {options_text(chosen)}.")
    return {"chosen": chosen}


def loss_without_folds(training: Training, repeats: np.ndarray, n_objects: float) -> float:
    """Estimate a selection's loss on new objects from the training objects alone.

    The weights w = (M + ρ)⁻¹ b smooth the labels of the n training objects linearly, with
    df = 1 + tr(S (M + ρ)⁻¹) degrees of freedom for the second moment S of their averages, so that

        generalised_loss(σ_y² − 2 wᵀb + wᵀSw, df, n) + wᵀ(M − S)w

    is their generalised cross-validation, and what judgments as they are bought change of it.
    """
    problem = training.problem
    support = np.flatnonzero(repeats)
    block = np.ix_(support, support)
    moment = training.estimates.second_moment[block]
    penalised = covariance_of_averages(problem, repeats, support)
    smoother = inverse_of(penalised) @ moment
    freedom = 1.0 + float(np.trace(smoother))
    all_weights = full_weights(problem, repeats)
    weights = all_weights[support]
    of_averages = float(weights @ moment @ weights)
    explained = 2.0 * float(weights @ problem.b[support])
    residual = problem.label_variance - explained + of_averages
    penalty = problem.ridge[support] @ weights**2
    of_bought = float(weights @ penalised @ weights - penalty)
    loss = float(generalised_loss(residual, freedom, n_objects))
    return loss + of_bought - of_averages
