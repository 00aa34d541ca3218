"""Which kind of models and order of groups folds choose.

Kinds race: on all columns first, where one that is behind the best by more than two standard
errors, paired by fold, is out; those that are left are compared over a fixed grid of budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best
from distfms.methods.frame.contract import Job, Run
from distfms.methods.sequence.choice import BUDGET_SHARES, Candidate, best_candidate
from distfms.methods.sequence.data import SequenceData, on_sample, splines_of_sample, with_knots
from distfms.methods.sequence.learners import ByRows, learner_of
from distfms.methods.sequence.options import GAIN, N_SPLINES, TREES
from distfms.methods.sequence.read import read_splines
from distfms.methods.sequence.reference import Reference, gains_of_all, is_out
from distfms.methods.sequence.ridge_choice import (
    Ridges,
    along_order,
    chooses_ridge,
    losses_of_all_columns,
    on_grid,
    ridges_of_all_columns,
    tell_ridge,
    with_options,
)
from distfms.report.formatting import percent
from distfms.solve.trees import QUICK
from distfms.stats.base import FoldMeans, number_or_none, over_folds

LINEAR, SPLINES, BY_FR, BY_GAIN = "linear", "splines", "LightGBM by fr", "LightGBM by gain"
_TITLES = {
    LINEAR: "linear models",
    SPLINES: "splines",
    TREES: "LightGBM",
    BY_FR: "LightGBM in the order of linear models",
    BY_GAIN: "LightGBM in the order of its gains",
}
_OPTIONS: Mapping[str, dict[str, Any]] = {
    LINEAR: {"model": "linear"},
    SPLINES: {"model": "linear", "expand": {"splines": N_SPLINES}},
    BY_FR: {"model": TREES, "criterion": "fr"},
    BY_GAIN: {"model": TREES, "criterion": GAIN},
}


def with_kind(
    run: Run, job: Job, data: SequenceData, reference: Reference | None
) -> tuple[Job, SequenceData]:
    """Return the job with a kind of models in place of ``auto``, and an order for trees.

    Step ``kind``.
    """
    if reference is None:
        return job, data
    data = replace(data, gains=reference.gains)
    options = job.options
    tuned = () if job.tune is None else job.tune.grid
    has_order = options.criterion is not None or "criterion" in tuned
    is_open = options.model == "auto" or (options.model == TREES and not has_order)
    if not is_open or len(reference.folds) < 2:
        return job, data
    result = run.step("kind", lambda: Race(run, job, data, reference).result())
    changes = result["options"]
    rivals = list(map(on_grid, result["rivals"]))
    data = replace(data, rivals=rivals, gains=result["gains"])
    job = with_options(job, **changes)
    if "expand" not in changes:
        return job, data
    plan = with_knots(data, data.form.expand.splines)
    return job, read_splines(run, replace(data, plan=plan))


@dataclass(frozen=True, eq=False)
class Race:
    """The kinds that are compared; within a step."""

    run: Run
    job: Job
    data: SequenceData
    reference: Reference

    def result(self) -> dict[str, Any]:
        """Return the options of the best kind, and what the others lose on the grid."""
        on_all, spline_data, spline_ridges = self.all_columns()
        racing = dict(on_all)
        if self.reference.is_out:
            racing.pop(TREES, None)
        still_in = self.still_in(racing)
        is_gaussian = self.job.options.family == "gaussian"
        if SPLINES in still_in and len(still_in) > 1 and is_gaussian:
            spline_ridges = along_order(self.run, self.job, spline_data, spline_ridges)
        kinds = [kind for kind in still_in if kind != TREES]
        if TREES in still_in:
            criterion = self.job.options.criterion or ""
            kinds += {"fr": [BY_FR], GAIN: [BY_GAIN]}.get(criterion, [BY_FR, BY_GAIN])
        if len(kinds) == 1:
            self.tell(still_in[0], on_all, "all columns")
            return self.value(kinds[0], spline_ridges, {})
        candidates = dict[str, Candidate]()
        for kind in kinds:
            if kind in (BY_FR, BY_GAIN):
                candidates[kind] = self.trees_on_grid(_OPTIONS[kind]["criterion"])
            else:
                data = self.data if kind == LINEAR else spline_data
                ridges = self.data.ridges if kind == LINEAR else spline_ridges
                candidates[kind] = self.linear_on_grid(data, ridges)
        number = best_candidate(list(candidates.values()), self.reference.weights)
        chosen = kinds[number]
        losses = {kind: candidate.on_grid for kind, candidate in candidates.items()}
        grid = f"average over budgets of {percent(BUDGET_SHARES[0])} of the cost and more"
        self.tell(chosen, losses, grid)
        return self.value(chosen, spline_ridges, candidates)

    def value(
        self, chosen: str, spline_ridges: Ridges | None, candidates: Mapping[str, Candidate]
    ) -> dict[str, Any]:
        """Return the value of the step."""
        rivals = [rival.losses for kind, rival in candidates.items() if kind != chosen]
        gains = dict(self.reference.gains)
        if chosen == BY_GAIN and -1 not in gains:
            gains[-1] = gains_of_all(self.run, self.data)
        by_kind = {LINEAR: self.data.ridges, SPLINES: spline_ridges}
        ridges = by_kind.get(chosen)
        if ridges is not None and chooses_ridge(self.job):
            tell_ridge(self.run, ridges.ridge)
        options = self.options_of(chosen, spline_ridges)
        return {"options": options, "rivals": rivals, "gains": gains}

    def all_columns(self) -> tuple[dict[str, np.ndarray], Any, Any]:
        """Return the losses of kinds on all columns by fold, and data and ridges of splines."""
        trees = {TREES: self.reference.losses}
        if self.job.options.model != "auto":
            return trees, None, None
        linear = None
        if self.data.ridges is not None:
            linear = np.array(self.data.ridges.all_columns)
        else:
            ridge = self.data.procedure(self.job.options).ridge
            answers, losses = losses_of_all_columns(self.run, self.job, self.data, [ridge])
            if len(answers.folds) > 1:
                linear = losses[0]
        if linear is None or linear.shape != self.reference.losses.shape:
            return {LINEAR: np.zeros(1)}, None, None
        losses_of_kinds = {LINEAR: linear}
        spline_data = spline_ridges = None
        if self.data.form.compares_splines:
            spline_data = splines_of_sample(self.data)
            spline_ridges = ridges_of_all_columns(self.run, self.job, spline_data)
            if spline_ridges is not None:
                losses_of_kinds[SPLINES] = np.array(spline_ridges.all_columns)
        return {**losses_of_kinds, **trees}, spline_data, spline_ridges

    def still_in(self, losses: Mapping[str, np.ndarray]) -> list[str]:
        """Return the kinds that are not behind the best by more than two standard errors."""
        if len(losses) == 1:
            return list(losses)
        weights = self.reference.weights
        kinds = list(losses)
        first = losses[kinds[best(np.stack(list(losses.values())), weights)]]
        return [kind for kind in kinds if not is_out(losses[kind], first, weights)]

    def linear_on_grid(self, data: SequenceData, ridges: Ridges | None) -> Candidate:
        """Return the losses of linear models, or splines, at the budgets of the grid."""
        if ridges is not None and ridges.ridge in ridges.candidates:
            return ridges.candidates[ridges.ridge]
        job = with_options(self.job, model="linear")
        ridge = data.procedure(job.options).ridge if ridges is None else ridges.ridge
        if job.options.family == "gaussian":
            alone = Ridges(ridge, (), self.reference.weights.tolist(), [{"ridge": ridge}])
            compared = along_order(self.run, job, data, alone)
            return compared.candidates[ridge]
        learner = learner_of(self.run, job, on_sample(data))
        assert isinstance(learner, ByRows)
        procedure = replace(learner.procedure, ridge=ridge)
        return on_grid(learner.losses_at(procedure, self.budgets()))

    def trees_on_grid(self, criterion: str) -> Candidate:
        """Return the losses of LightGBM at the budgets of the grid, in an order of groups."""
        job = with_options(self.job, model=TREES, criterion=criterion)
        # As many trees everywhere tell orders apart in half of the time.
        form = self.data.form
        trees = {"num_iterations": min(self.reference.n_trees, QUICK), **form.options.lightgbm}
        quick = replace(self.data, form=with_options(form, lightgbm=trees))
        learner = learner_of(self.run, job, on_sample(quick))
        assert isinstance(learner, ByRows)
        procedure = replace(learner.procedure, max_groups=None)
        losses = learner.losses_at(procedure, self.budgets()[:-1])
        return on_grid(np.vstack((losses, self.reference.losses)))

    def budgets(self) -> list[float]:
        """Return the budgets of the grid."""
        costs = self.data.form.costs
        total = costs.total(range(len(costs.own)))
        return [share * total for share in BUDGET_SHARES]

    def options_of(self, kind: str, spline_ridges: Ridges | None) -> dict[str, Any]:
        """Return the options that a kind stands for."""
        if kind == TREES:
            return {"model": TREES, "criterion": self.job.options.criterion or "fr"}
        options = dict(_OPTIONS[kind])
        if kind == SPLINES and spline_ridges is not None and chooses_ridge(self.job):
            options["ridge"] = spline_ridges.ridge
        return options

    def points(self, gain: FoldMeans) -> str:
        """Write a difference of losses in percentage points of what there is to explain."""
        whole = self.reference.whole
        error = number_or_none(gain.standard_error) or 0.0
        return f"{100 * gain.mean / whole:.1f} ± {100 * error / whole:.1f} percentage points"

    def tell(self, chosen: str, losses: Mapping[str, np.ndarray], scale: str) -> None:
        """Note what the chosen kind explains more than the others, on all columns or the grid."""
        options = self.options_of(chosen, None).items()
        listed = ", ".join(f"`{name}: {value}`" for name, value in options).replace("'", "")
        parts = []
        for kind in losses:
            if kind != chosen:
                behind = over_folds(losses[kind] - losses[chosen], self.reference.weights)
                parts.append(f"{self.points(behind)} more than {_TITLES[kind]}")
        if parts:
            self.run.note(
                f"Chosen by cross-validation, on {scale}: {listed}, explaining "
                f"{' and '.join(parts)}."
            )
