"""Which ridge folds choose: of models of all columns first, then along the order of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import FoldWork
from distfms.methods.frame.moments import Tuned
from distfms.methods.sequence.choice import Candidate, best_candidate
from distfms.methods.sequence.data import SequenceData, on_sample
from distfms.methods.sequence.learners import learner_of, on_statistics
from distfms.methods.sequence.options import GAIN, TREES, OrderRule
from distfms.methods.sequence.problem import Ladder
from distfms.methods.sequence.procedure import FIRST_RIDGES, LARGER_RIDGES, RIDGES
from distfms.methods.sequence.ridge import along_order_on_fold, near, on_fold, ridge_without_folds
from distfms.stats.base import over_folds
from distfms.stats.folds import FoldAnswers


@dataclass(frozen=True, eq=False)
class Ridges:
    """What folds say of ridges; the content of ``ridge.json``.

    Attributes
    ----------
    ridge : float
        The best.
    all_columns : sequence of float
        Losses of models of all columns at the best ridge of these, by fold.
    weights : sequence of float
        Of the folds.
    tried : sequence of mapping
        For each ``ridge`` the mean ``loss`` of models of all columns; where they were compared
        along the order of groups, losses ``on_grid`` of no group and at each budget, by fold.
    """

    ridge: float
    all_columns: Sequence[float] = ()
    weights: Sequence[float] = ()
    tried: Sequence[Mapping[str, Any]] = ()

    @property
    def candidates(self) -> dict[float, Candidate]:
        """Losses along the order of groups, by ridge."""
        on_grid_of = {e["ridge"]: np.array(e["on_grid"]) for e in self.tried if "on_grid" in e}
        return {ridge: on_grid(losses) for ridge, losses in on_grid_of.items()}

    @property
    def others(self) -> dict[float, Candidate]:
        """The candidates beside the best."""
        others = self.candidates
        others.pop(self.ridge, None)
        return others


def on_grid(losses: np.ndarray) -> Candidate:
    """Return a candidate of losses of no group and of what each budget of the grid pays for."""
    return Candidate(losses, range(1, len(losses)))


def rivals_of(data: SequenceData, chosen: Candidate) -> list[Candidate]:
    """Return what the kind and the ridge were chosen among, of the same folds."""
    ridges = data.ridges
    rivals = [*data.rivals, *([] if ridges is None else ridges.others.values())]
    n_folds = chosen.losses.shape[1]
    return [rival for rival in rivals if rival.losses.shape[1] == n_folds]


def with_options(job: Any, **changes: Any) -> Any:
    """Return a job, or its form, with some options changed."""
    return replace(job, options=job.options.changed(**changes))


# --- ridges ---------------------------------------------------------------------------------------


def chooses_ridge(job: Job) -> bool:
    """Return whether the ridge is chosen before other options are."""
    is_tried = job.tune is not None and "ridge" in job.tune.grid
    return job.form.options.ridge == "auto" and not job.form.mapped and not is_tried


def with_ridge(run: Run, job: Job, data: SequenceData) -> tuple[Job, SequenceData]:
    """Return the job with a ridge in place of ``auto``, and what it was chosen among.

    Step ``ridge``.
    """
    is_gaussian = job.options.family == "gaussian"
    if not chooses_ridge(job) or (job.n_folds < 2 and not is_gaussian):
        return job, data
    content = run.step("ridge", lambda: vars(choose_ridge(run, job, data)), "ridge.json")
    ridges = Ridges(**content)
    job = with_options(job, ridge=ridges.ridge)
    return job, replace(data, ridges=ridges) if ridges.weights else data


def choose_ridge(run: Run, job: Job, data: SequenceData) -> Ridges:
    """Choose the ridge on folds, or without these by generalised cross-validation.

    Where that tells nothing it is the least.
    """
    if job.n_folds < 2:
        procedure = data.procedure(with_options(job, model="linear").options)
        train = data.statistics.train()
        problem = procedure.problem(train)
        by_ridge = ridge_without_folds(procedure, problem, train["moments"])
        ridge = min(by_ridge, key=by_ridge.__getitem__)
        run.note(f"Chosen by generalised cross-validation: ridge {ridge:g} (`sequence.ridge`).")
        entries = [{"ridge": tried, "loss": loss} for tried, loss in by_ridge.items()]
        return Ridges(ridge, tried=entries)
    ridges = ridges_of_all_columns(run, job, data)
    if ridges is None:
        return Ridges(RIDGES[-1])
    if job.options.family == "gaussian" and job.options.model != TREES:
        ridges = along_order(run, job, data, ridges)
    if job.options.model == "linear":
        tell_ridge(run, ridges.ridge)
    return ridges


def tell_ridge(run: Run, ridge: float) -> None:
    """Note the ridge of linear models that folds chose; within a step."""
    run.note(f"Chosen by cross-validation: ridge {ridge:g} (`sequence.ridge`).")


def ridges_of_all_columns(run: Run, job: Job, data: SequenceData) -> Ridges | None:
    """Compare ridges for all columns; None where folds tell nothing."""
    tried: Sequence[float] = RIDGES if job.options.family == "gaussian" else FIRST_RIDGES
    answers, losses = losses_of_all_columns(run, job, data, tried)
    if len(answers.folds) < 2 or not np.isfinite(losses).all():
        return None
    weights = answers.weight
    number = best(losses, weights)
    larger = [ridge for ridge in LARGER_RIDGES if ridge > tried[0]]
    while number == 0 and larger:
        next_larger = larger.pop()
        tried = (next_larger, *tried)
        _, of_larger = losses_of_all_columns(run, job, data, [next_larger])
        losses = np.concatenate((of_larger, losses))
        number = best(losses, weights)
    entries = []
    means = over_folds(losses, weights).mean
    for ridge, mean in zip(tried, means.tolist(), strict=True):
        entries.append({"ridge": ridge, "loss": mean})
    of_best = losses[number].tolist()
    return Ridges(tried[number], of_best, weights, entries)


def losses_of_all_columns(
    run: Run, job: Job, data: SequenceData, ridges: Sequence[float]
) -> tuple[FoldAnswers, np.ndarray]:
    """Return the answers of folds, and losses (n_ridges, n_folds) of linear models."""
    job = with_options(job, model="linear")
    procedure = replace(data.procedure(job.options), ladder=Ladder(()))
    is_gaussian = job.options.family == "gaussian"
    if is_gaussian:
        work = FoldWork.of_job(job, partial(on_fold, procedure), [ridges], [procedure])
        answers = on_statistics(run, data, work)
    else:
        as_one = replace(procedure, as_one=True, max_groups=None, rules=(OrderRule("random"),))
        items = [(replace(as_one, ridge=ridge), (None,)) for ridge in ridges]
        work = Tuned.work(job, items, "deviance")
        answers = learner_of(run, job, on_sample(data)).on_folds(work)
    if not answers.folds:
        return answers, np.empty((len(ridges), 0))
    if is_gaussian:
        return answers, answers.values(0, "losses")
    losses = [answers.values(number, "values")[0] for number in range(len(ridges))]
    return answers, np.stack(losses)


def along_order(run: Run, job: Job, data: SequenceData, ridges: Ridges) -> Ridges:
    """Compare ridges on the grid, in the order of groups at that which is best for all columns."""
    job = with_options(job, model="linear")
    procedure = replace(data.procedure(job.options), ridge=ridges.ridge)
    rule = procedure.rules[0]
    if rule.criterion == GAIN:
        rule = OrderRule("fr")
    procedure = replace(procedure, rules=(rule,))
    tried = near(ridges.ridge, len(procedure.feature_names))
    work = FoldWork.of_job(job, partial(along_order_on_fold, procedure), [tried], [procedure])
    answers = on_statistics(run, data, work)
    losses = answers.values(0, "losses")
    number = best_candidate(list(map(on_grid, losses)), ridges.weights)
    on_grid_of = dict(zip(tried, losses.tolist(), strict=True))
    entries = []
    for entry in ridges.tried:
        losses_on_grid = on_grid_of.get(entry["ridge"])
        entries.append({**entry, "on_grid": losses_on_grid} if losses_on_grid else entry)
    return replace(ridges, ridge=tried[number], tried=entries)
