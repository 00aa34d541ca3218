"""What is chosen of the data: the ridge, the way to buy, and whether to buy at all.

On folds these are a list of candidates, from the simplest on: to buy nothing, then every way to buy
with every ridge. The best way is taken, and nothing unless that is better than the mean label by a
standard error. Without folds, generalised cross-validation chooses the ridge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.methods.frame.choose import best, chosen_without, fewest
from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.moments import TrainMembers, points_on_folds
from distfms.methods.frame.tuning import Choice as Tuned
from distfms.methods.frame.tuning import changed_options, choose_options, compared
from distfms.methods.multiselect.objective import covariance_of_averages, full_weights, inverse_of
from distfms.methods.multiselect.options import MEASURES, MultiselectOptions
from distfms.methods.multiselect.procedure import SelectionProcedure, Training
from distfms.report.formatting import options_text
from distfms.stats.base import Bundle, over_folds

#: Ridges of `auto`, the simplest first, and larger ones, tried where the first of these is best.
RIDGES = (0.1, 0.01, 0.001, 0.0)
LARGER_RIDGES = (30.0, 10.0, 3.0, 1.0, 0.3)
ALL_RIDGES = (*LARGER_RIDGES, *RIDGES)
#: The candidate that the mean label is.
NOTHING: dict[str, Any] = {"selection": "nothing", "ridge": 0.0}

Candidate = dict[str, Any]


def candidates(options: MultiselectOptions, n_folds: int) -> list[Candidate]:
    """List what there is to choose from on folds, as options, the simplest first.

    One that is all the options leave is no choice; without folds it is what they leave first.

    Raises
    ------
    SpecError
        If there are several ridges and no cross-validation to choose by.
    """
    has_folds = n_folds > 1
    if isinstance(options.ridge, tuple) and len(options.ridge) > 1 and not has_folds:
        raise SpecError(
            "`multiselect.ridge` needs cross-validation, which this job does not have. Set "
            "`data.folds` to at least 2, or give one value; a search in slabs has no folds."
        )
    ridges = options.ridge if isinstance(options.ridge, tuple) else (options.ridge,)
    if options.ridge == "auto":
        ridges = RIDGES if has_folds else (0.0,)
    if options.selection != "auto":
        return buys((options.selection,), ridges)
    if not has_folds:
        return buys(("greedy",), ridges)
    return [NOTHING, *buys(("greedy", "lasso"), ridges)]


def buys(ways: Sequence[str], ridges: Sequence[Any]) -> list[Candidate]:
    """Return every way to buy with every ridge."""
    return [{"selection": way, "ridge": ridge} for way in ways for ridge in ridges]


def preferred(options: MultiselectOptions, n_folds: int) -> Candidate:
    """Return the first way to buy, which stands for all in what is known before a choice."""
    tried = candidates(options, n_folds)
    return tried[1] if tried[0] is NOTHING else tried[0]


def choose(tried: Sequence[Candidate], losses: np.ndarray, weights: Sequence[float]) -> int:
    """Choose the best way to buy or, unless it is better by a standard error, to buy nothing.

    `losses` are by candidate and fold. Folds that do not judge all candidates, as they lack an
    attribute, do not count; if none does, the first way to buy is taken.
    """
    is_known = np.isfinite(losses).all(axis=0)
    known, kept = losses[:, is_known], np.asarray(weights)[is_known]
    ways = [i for i, candidate in enumerate(tried) if candidate["selection"] != "nothing"]
    if not kept.sum() > 0:
        return ways[0] if ways else 0
    ends = [i for i in range(len(tried)) if i not in ways]
    if ways:
        ends.append(ways[best(known[ways], kept)])
    return ends[fewest(known[ends], kept)]


# --- on the folds of a job ------------------------------------------------------------------------


def with_tuned(run: Run, job: Job, statistics: Bundle) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with the best options of a grid, and the comparison; step ``tune``.

    Each point has the best of what it leaves open.
    """

    def answers(
        points: Sequence[Mapping[str, Any]], measure: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        left_open = [candidates(changed_options(job.options, p), job.n_folds) for p in points]
        tried = []
        for point, of_point in zip(points, left_open, strict=True):
            tried += [{**point, **candidate} for candidate in of_point]
        on_folds, losses = losses_on_folds(run, job, statistics, tried, measure)
        ends = np.cumsum([len(of_point) for of_point in left_open])[:-1]
        chosen = [
            losses_of_point[choose(of_point, losses_of_point, on_folds.weight)]
            for of_point, losses_of_point in zip(left_open, np.split(losses, ends), strict=True)
        ]
        return on_folds, np.array(chosen)

    options, tuning = choose_options(run, job, answers)
    return replace(job, options=options), tuning


def with_choice(run: Run, job: Job, statistics: Bundle) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with one ridge and one way to select, and the comparison; step ``ridge``.

    Without a step where there is nothing to choose from.
    """
    tried = candidates(job.options, job.n_folds)
    if len(tried) > 1:
        comparison = run.step("ridge", lambda: _compared_on_folds(run, job, statistics, tried))
    elif job.options.ridge == "auto":
        comparison = run.step("ridge", lambda: _compared_without_folds(run, job, statistics))
    else:
        return job, None
    job = replace(job, options=changed_options(job.options, comparison["chosen"]))
    return job, comparison if "points" in comparison else None


def _compared_on_folds(
    run: Run, job: Job, statistics: Bundle, tried: Sequence[Candidate]
) -> dict[str, Any]:
    measure = next(iter(MEASURES))
    evaluate = partial(losses_on_folds, run, job, statistics, measure=measure)
    on_folds, losses = evaluate(tried)
    if np.isfinite(losses).all(axis=0).sum() < 2:
        return _compared_without_folds(run, job, statistics)
    ways = dict.fromkeys(candidate["selection"] for candidate in tried)
    ends = [way for way in ways if _is_at_end(way, tried, losses, on_folds.weight)]
    if job.options.ridge == "auto" and ends:
        larger = buys(ends, LARGER_RIDGES)
        _, larger_losses = evaluate(larger)
        place = 1 if "nothing" in ways else 0
        tried = [*tried[:place], *larger, *tried[place:]]
        losses = np.insert(losses, [place], larger_losses, axis=0)
    chosen = choose(tried, losses, on_folds.weight)
    run.note(f"Chosen by cross-validation: {options_text(tried[chosen])}.")
    means = over_folds(losses, on_folds.weight)
    least = int(np.argmin(np.where(np.isnan(means.mean), np.inf, means.mean)))
    choice = Tuned(means.mean, means.standard_error, least, chosen)
    kind = {"measure": measure, "higher_is_better": False, "rule": "by_difference"}
    return kind | compared(tried, on_folds, losses, choice)


def _is_at_end(
    way: str, tried: Sequence[Candidate], losses: np.ndarray, weights: Sequence[float]
) -> bool:
    """Return whether the largest ridge is the best of a way to buy."""
    rows = [i for i, candidate in enumerate(tried) if candidate["selection"] == way]
    of_way = [tried[row] for row in rows]
    return len(rows) > 1 and choose(of_way, losses[rows], weights) == 0


def losses_on_folds(
    run: Run, job: Job, statistics: Bundle, points: Sequence[Mapping[str, Any]], measure: str
) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points on folds; a path for a greater budget answers smaller ones."""
    procedure_of = job.form.procedure
    return points_on_folds(run, job, statistics, procedure_of, points, measure, nested="budget")


def losses_without_choice(comparison: Mapping[str, Any], weights: Sequence[float]) -> np.ndarray:
    """Return the loss on each fold of what all the other folds choose, shape (n_folds,).

    `comparison` has the options and the losses by fold of everything that was tried, by
    `with_tuned` or `with_choice`.
    """
    points = comparison["points"]
    losses = np.array([point["folds"] for point in points], dtype=np.float64)
    rules = {"best": best, "one_standard_error": fewest}
    tried = [point["options"] for point in points]
    rule = rules.get(comparison["rule"], partial(choose, tried))
    choices = chosen_without(losses, weights, rule)
    of_folds: np.ndarray = losses[choices, np.arange(losses.shape[1])]
    return of_folds


# --- without folds --------------------------------------------------------------------------------


def _compared_without_folds(run: Run, job: Job, statistics: Bundle) -> dict[str, Any]:
    """Choose the ridge of the greedy search, or of the one way there is."""
    train = TrainMembers(statistics)
    n_objects = float(train["judgments"].means.weight)  # an object twice is one of weight 2
    way = "greedy" if job.options.selection == "auto" else job.options.selection
    ridges = job.options.ridge if isinstance(job.options.ridge, tuple) else ALL_RIDGES
    tried = buys((way,), ridges)
    procedure: SelectionProcedure = job.form.procedure(changed_options(job.options, tried[0]))
    training = procedure.problem(train)  # what takes long is the same for all ridges
    losses = []
    for candidate in tried:
        with_ridge = replace(procedure, ridge=candidate["ridge"])
        problem = with_ridge.with_ridge(training.problem)
        penalised = replace(training, problem=problem)
        repeats = with_ridge.search(penalised, with_ridge.rules[0]).final_repeats
        losses.append(loss_without_folds(penalised, repeats, n_objects))
    chosen = tried[int(np.argmin(losses))]
    run.note(f"Chosen by generalised cross-validation: {options_text(chosen)}.")
    return {"chosen": chosen}


def loss_without_folds(training: Training, repeats: np.ndarray, n_objects: float) -> float:
    """Estimate a selection's loss on new objects from the training objects alone.

    The weights w = (M + ρ)⁻¹ b smooth the labels of the n training objects linearly, with
    df = 1 + tr(S (M + ρ)⁻¹) degrees of freedom for the second moment S of their averages, so that

        (σ_y² − 2 wᵀb + wᵀSw) · (n / (n − df))² + wᵀ(M − S)w

    is their generalised cross-validation [1]_, and what judgments as they are bought change of it.

    References
    ----------
    .. [1] Golub, Heath, Wahba, "Generalized cross-validation as a method for choosing a good ridge
       parameter", Technometrics 21 (1979).
    """
    problem = training.problem
    support = np.flatnonzero(repeats)
    penalised = covariance_of_averages(problem, repeats, support)
    moment = training.estimates.second_moment[np.ix_(support, support)]
    smoother = inverse_of(penalised) @ moment
    freedom = 1.0 + float(np.trace(smoother))
    if freedom >= n_objects:
        return np.inf
    weights = full_weights(problem, repeats)[support]
    of_averages = float(weights @ moment @ weights)
    residual = problem.label_variance - 2.0 * float(weights @ problem.b[support]) + of_averages
    inflation = (n_objects / (n_objects - freedom)) ** 2
    ridge = problem.ridge[support]
    of_bought = float(weights @ penalised @ weights - ridge @ weights**2)
    return residual * inflation + of_bought - of_averages
