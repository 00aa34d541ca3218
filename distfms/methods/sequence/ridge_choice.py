"""Which ridge folds choose: of models of all columns first, then along the order of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best
from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.cross_validation import FoldWork, evaluate_here, evaluate_on_folds
from distfms.methods.frame.moments import TrainMembers, Tuned, TunedItem, fold_work
from distfms.methods.frame.tuning import changed_options
from distfms.methods.sequence.choice import Candidate, best_candidate
from distfms.methods.sequence.data import SequenceData, on_sample
from distfms.methods.sequence.learners import learner_of
from distfms.methods.sequence.options import GAIN, TREES, OrderRule
from distfms.methods.sequence.problem import Ladder
from distfms.methods.sequence.procedure import FIRST_RIDGES, RIDGES
from distfms.methods.sequence.ridge import RidgesAlongOrder, RidgesOnFold, near, ridge_without_folds
from distfms.stats.base import over_folds


@dataclass(frozen=True, eq=False)
class Ridges:
    """What folds say of ridges.

    Attributes
    ----------
    ridge : float
        The best.
    all_columns : numpy.ndarray of shape (n_folds,)
        Losses of models of all columns at the best ridge of these.
    weights : tuple of float
        Of the folds.
    candidates : mapping of float to Candidate
        Losses along the order of groups, by ridge; empty where only all columns were compared.
    """

    ridge: float
    all_columns: np.ndarray
    weights: tuple[float, ...]
    candidates: Mapping[float, Candidate]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Ridges:
        """Inverse of `to_dict`."""
        candidates = {}
        for entry in content["tried"]:
            if "on_grid" in entry:
                losses = np.array(entry["on_grid"], dtype=float)
                candidates[entry["ridge"]] = on_grid(losses)
        all_columns = np.array(content["all_columns"], dtype=float)
        return cls(content["ridge"], all_columns, tuple(content["weights"]), candidates)

    def to_dict(self, tried: Sequence[float], means: np.ndarray) -> dict[str, Any]:
        """Return the content of ``ridge.json``.

        With the mean ``loss`` of models of all columns, and losses ``on_grid`` of no group and at
        each budget, by fold.
        """
        entries = []
        for ridge, mean in zip(tried, means.tolist(), strict=True):
            entry: dict[str, Any] = {"ridge": ridge, "loss": mean}
            if ridge in self.candidates:
                entry["on_grid"] = self.candidates[ridge].losses.tolist()
            entries.append(entry)
        return {
            "ridge": self.ridge,
            "all_columns": self.all_columns.tolist(),
            "weights": list(self.weights),
            "tried": entries,
        }

    def others(self) -> list[Candidate]:
        """Return the candidates beside the best."""
        return [candidate for ridge, candidate in self.candidates.items() if ridge != self.ridge]


def on_grid(losses: np.ndarray) -> Candidate:
    """Return a candidate of losses of no group and of what each budget of the grid pays for."""
    return Candidate(losses, range(1, len(losses)))


def with_options(job: Any, **changes: Any) -> Any:
    """Return a job, or its form, with some options changed."""
    return replace(job, options=changed_options(job.options, changes))


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
    content = run.step("ridge", lambda: choose_ridge(run, job, data), "ridge.json")
    job = with_options(job, ridge=content["ridge"])
    if "weights" not in content:
        return job, data
    return job, replace(data, ridges=Ridges.from_dict(content))


def choose_ridge(run: Run, job: Job, data: SequenceData) -> dict[str, Any]:
    """Choose the ridge on folds, or without these by generalised cross-validation.

    Where that tells nothing it is the least.
    """
    if job.n_folds < 2:
        procedure = data.procedure(with_options(job, model="linear").options)
        train = TrainMembers(data.statistics)
        problem = procedure.problem(train)
        by_ridge = ridge_without_folds(procedure, problem, train["moments"])
        ridge = min(by_ridge, key=by_ridge.__getitem__)
        run.note(f"Chosen by generalised cross-validation: ridge {ridge:g} (`sequence.ridge`).")
        entries = [{"ridge": ridge, "loss": loss} for ridge, loss in by_ridge.items()]
        return {"ridge": ridge, "tried": entries}
    compared = ridges_of_all_columns(run, job, data)
    if compared is None:
        return {"ridge": RIDGES[-1], "tried": []}
    ridges, tried, losses = compared
    if job.options.family == "gaussian" and job.options.model != TREES:
        ridges = along_order(run, job, data, ridges)
    if job.options.model == "linear":
        tell_ridge(run, ridges.ridge)
    return ridges.to_dict(tried, over_folds(losses, ridges.weights).mean)


def tell_ridge(run: Run, ridge: float) -> None:
    """Note the ridge of linear models that folds chose; within a step."""
    run.note(f"Chosen by cross-validation: ridge {ridge:g} (`sequence.ridge`).")


def ridges_of_all_columns(
    run: Run, job: Job, data: SequenceData
) -> tuple[Ridges, Sequence[float], np.ndarray] | None:
    """Return the best ridge for all columns, those that were tried, and their losses by fold."""
    tried: Sequence[float] = RIDGES if job.options.family == "gaussian" else FIRST_RIDGES
    answers, losses = losses_of_all_columns(run, job, data, tried)
    if len(answers.folds) < 2 or not np.isfinite(losses).all():
        return None
    number = best(losses, answers.weight)
    least = tried[0]
    larger = [ridge for ridge in reversed(RIDGES) if ridge > least]
    while number == 0 and larger:
        tried = (larger.pop(0), *tried)
        _, of_larger = losses_of_all_columns(run, job, data, tried[:1])
        losses = np.concatenate((of_larger, losses))
        number = best(losses, answers.weight)
    ridges = Ridges(tried[number], losses[number], answers.weight, {})
    return ridges, tried, losses


def losses_of_all_columns(
    run: Run, job: Job, data: SequenceData, ridges: Sequence[float]
) -> tuple[FoldAnswers, np.ndarray]:
    """Return the answers of folds, and losses (n_ridges, n_folds) of linear models."""
    job = with_options(job, model="linear")
    procedure = replace(data.procedure(job.options), ladder=Ladder(()))
    is_gaussian = job.options.family == "gaussian"
    if is_gaussian:
        item = "all columns", tuple(ridges)
        work = fold_work(job, RidgesOnFold(procedure), [item], [procedure])
        answers = evaluated(run, data, work)
    else:
        as_one = replace(procedure, as_one=True, max_groups=None, rules=(OrderRule("random"),))
        procedures = [replace(as_one, ridge=ridge) for ridge in ridges]
        items = [TunedItem(of_ridge, (None,)) for of_ridge in procedures]
        work = fold_work(job, Tuned("deviance"), items, procedures)
        answers = learner_of(run, job, on_sample(data)).on_folds(work)
    if not answers.folds:
        return answers, np.empty((len(ridges), 0))
    if is_gaussian:
        return answers, answers.values(0, "losses")
    losses = [answers.values(number, "values")[0] for number in range(len(ridges))]
    return answers, np.stack(losses)


def evaluated(run: Run, data: SequenceData, work: FoldWork) -> FoldAnswers:
    """Evaluate on folds of statistics; of rows in memory, in this process."""
    if not data.step:
        return evaluate_here(work, data.statistics, nullcontext)
    return evaluate_on_folds(run, data.statistics, replace(work, step=data.step))


def along_order(run: Run, job: Job, data: SequenceData, ridges: Ridges) -> Ridges:
    """Compare ridges on the grid, in the order of groups at that which is best for all columns."""
    job = with_options(job, model="linear")
    procedure = replace(data.procedure(job.options), ridge=ridges.ridge)
    rule = procedure.rules[0]
    if rule.criterion == GAIN:
        rule = OrderRule("fr")
    procedure = replace(procedure, rules=(rule,))
    tried = near(ridges.ridge, len(procedure.feature_names))
    item = "in an order", tried
    work = fold_work(job, RidgesAlongOrder(procedure), [item], [procedure])
    answers = evaluated(run, data, work)
    losses = answers.values(0, "losses")
    candidates = {ridge: on_grid(losses[number]) for number, ridge in enumerate(tried)}
    number = best_candidate(list(candidates.values()), ridges.weights)
    return replace(ridges, ridge=tried[number], candidates=candidates)
