"""Which ridge, kind of models and order of groups folds choose.

Kinds race: on all columns first, where one that is behind the best by more than two standard
errors, paired by fold, is out; those that are left are compared over a fixed grid of budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best
from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.cross_validation import FoldWork, evaluate_here, evaluate_on_folds
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.moments import TrainMembers, Tuned, TunedItem, fold_work
from distfms.methods.frame.tuning import changed_options
from distfms.methods.sequence.choice import BUDGET_SHARES, Candidate, best_candidate
from distfms.methods.sequence.data import SequenceData, read_splines, splines_of_rows
from distfms.methods.sequence.learners import ByRows, learner_of
from distfms.methods.sequence.options import GAIN, N_SPLINES, TREES, OrderRule
from distfms.methods.sequence.problem import Ladder
from distfms.methods.sequence.procedure import FIRST_RIDGES, RIDGES
from distfms.methods.sequence.reference import OUT, Reference, gains_of_all
from distfms.methods.sequence.ridge import RidgesAlongOrder, RidgesOnFold, near, ridge_without_folds
from distfms.report.formatting import percent
from distfms.stats.base import FoldMeans, over_folds

#: Products in the co-moments of splines that make these take seconds, and of other families' fits.
_MOST_PRODUCTS, _MOST_OF_FITS = 1e11, 1e9
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
        candidates = {
            entry["ridge"]: _on_grid(np.array(entry["on_grid"], dtype=float))
            for entry in content["tried"]
            if "on_grid" in entry
        }
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


def _on_grid(losses: np.ndarray) -> Candidate:
    """Return a candidate of losses of no group and of what each budget of the grid pays for."""
    return Candidate(losses, range(1, len(losses)))


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
    job = replace(job, options=changed_options(job.options, {"ridge": content["ridge"]}))
    if "weights" not in content:
        return job, data
    return job, replace(data, ridges=Ridges.from_dict(content))


def choose_ridge(run: Run, job: Job, data: SequenceData) -> dict[str, Any]:
    """Choose the ridge on folds, or without these by generalised cross-validation.

    Where that tells nothing it is the least.
    """
    if job.n_folds < 2:
        linear = changed_options(job.options, {"model": "linear"})
        procedure, train = data.procedure(linear), TrainMembers(data.statistics)
        by_ridge = ridge_without_folds(procedure, procedure.problem(train), train["moments"])
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
    first = best(losses, answers.weight)
    larger = [ridge for ridge in reversed(RIDGES) if ridge > tried[0]]
    while first == 0 and larger:
        tried = (larger.pop(0), *tried)
        _, more = losses_of_all_columns(run, job, data, tried[:1])
        losses = np.concatenate((more, losses))
        first = best(losses, answers.weight)
    return Ridges(tried[first], losses[first], answers.weight, {}), tried, losses


def losses_of_all_columns(
    run: Run, job: Job, data: SequenceData, ridges: Sequence[float]
) -> tuple[FoldAnswers, np.ndarray]:
    """Return the answers of folds, and losses (n_ridges, n_folds) of linear models."""
    job = replace(job, options=changed_options(job.options, {"model": "linear"}))
    procedure = replace(data.procedure(job.options), ladder=Ladder(()))
    if job.options.family == "gaussian":
        item = "all columns", tuple(ridges)
        work = fold_work(job, RidgesOnFold(procedure), [item], [procedure])
        answers = evaluated(run, data, work)
        if not answers.folds:
            return answers, np.empty((len(ridges), 0))
        return answers, answers.values(0, "losses")
    as_one = replace(procedure, as_one=True, max_groups=None, rules=(OrderRule("random"),))
    items = [TunedItem(replace(as_one, ridge=ridge), (None,)) for ridge in ridges]
    work = fold_work(job, Tuned("deviance"), items, [item.procedure for item in items])
    answers = learner_of(run, job, data).on_folds(work)
    if not answers.folds:
        return answers, np.empty((len(ridges), 0))
    values = [answers.values(number, "values")[0] for number in range(len(items))]
    return answers, np.stack(values)


def evaluated(run: Run, data: SequenceData, work: FoldWork) -> FoldAnswers:
    """Evaluate on folds of statistics; of rows in memory, in this process."""
    if not data.step:
        return evaluate_here(work, data.statistics, nullcontext)
    return evaluate_on_folds(run, data.statistics, replace(work, step=data.step))


def along_order(run: Run, job: Job, data: SequenceData, ridges: Ridges) -> Ridges:
    """Compare ridges on the grid, in the order of groups at that which is best for all columns."""
    job = replace(job, options=changed_options(job.options, {"model": "linear"}))
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
    candidates = {ridge: _on_grid(losses[number]) for number, ridge in enumerate(tried)}
    chosen = tried[best_candidate(list(candidates.values()), ridges.weights)]
    return replace(ridges, ridge=chosen, candidates=candidates)


# --- kinds ----------------------------------------------------------------------------------------


def with_kind(
    run: Run, job: Job, data: SequenceData, reference: Reference | None
) -> tuple[Job, SequenceData]:
    """Return the job with a kind of models in place of ``auto``, and an order for trees.

    Step ``kind``. A grid of `tune` that holds no criterion for a point gets the chosen one.
    """
    if reference is not None:
        data = replace(data, gains=reference.gains, fitted=reference.fitted)
    options = job.options
    grid = {} if job.tune is None else job.tune.grid
    tried = grid.get("criterion", [options.criterion])
    is_open = options.model == "auto" or (options.model == TREES and None in tried)
    if reference is None or not is_open or len(reference.folds) < 2:
        return job, data
    result = run.step("kind", lambda: Race(run, job, data, reference).result())
    changes = dict(result["options"])
    rivals = [_on_grid(np.array(losses)) for losses in result["rivals"]]
    data = replace(data, rivals=rivals, gains=result["gains"])
    if "criterion" in grid and changes.get("criterion"):
        criteria = list(dict.fromkeys(criterion or changes["criterion"] for criterion in tried))
        tune = job.tune.model_copy(update={"grid": {**grid, "criterion": criteria}})  # type: ignore[union-attr]
        job, changes = replace(job, tune=tune), {"model": TREES}
    job = replace(job, options=changed_options(options, changes))
    return job, read_splines(run, data) if "expand" in changes else data


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
        if self.reference.is_out and LINEAR in on_all:
            left = self.still_in({kind: on_all[kind] for kind in on_all if kind != TREES})
        else:
            left = self.still_in(on_all)
        is_gaussian = self.job.options.family == "gaussian"
        if SPLINES in left and len(left) > 1 and is_gaussian:
            spline_ridges = along_order(self.run, self.job, spline_data, spline_ridges)
        kinds = [kind for kind in on_all if kind in left and kind != TREES]
        if TREES in left:
            asked = self.job.options.criterion
            kinds += {"fr": [BY_FR], GAIN: [BY_GAIN]}.get(asked or "", [BY_FR, BY_GAIN])
        if len(kinds) == 1:
            self.tell_race(kinds[0], on_all)
            return self.found(kinds[0], spline_ridges, {})
        candidates = dict[str, Candidate]()
        for kind in kinds:
            if kind in (BY_FR, BY_GAIN):
                candidates[kind] = self.trees_on_grid(_OPTIONS[kind]["criterion"])
            else:
                data = self.data if kind == LINEAR else spline_data
                ridges = self.data.ridges if kind == LINEAR else spline_ridges
                candidates[kind] = self.linear_on_grid(data, ridges)
        weights = self.reference.weights
        chosen = kinds[best_candidate(list(candidates.values()), weights)]
        self.tell(chosen, candidates)
        return self.found(chosen, spline_ridges, candidates)

    def found(
        self, chosen: str, spline_ridges: Ridges | None, candidates: Mapping[str, Candidate]
    ) -> dict[str, Any]:
        """Return the value of the step."""
        rivals = [own.losses.tolist() for kind, own in candidates.items() if kind != chosen]
        gains = dict(self.reference.gains)
        if chosen == BY_GAIN and -1 not in gains:
            gains[-1] = gains_of_all(self.run, self.data)
        ridges = self.data.ridges if chosen == LINEAR else spline_ridges
        if chosen in (LINEAR, SPLINES) and ridges is not None and chooses_ridge(self.job):
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
            linear = self.data.ridges.all_columns
        else:
            ridge = self.data.procedure(self.job.options).ridge
            answers, losses = losses_of_all_columns(self.run, self.job, self.data, [ridge])
            if len(answers.folds) > 1:
                linear = losses[0]
        if linear is None or linear.shape != self.reference.losses.shape:
            return {LINEAR: np.zeros(1)}, None, None
        losses_of_kinds = {LINEAR: linear}
        spline_data = self.spline_data()
        spline_ridges = None
        if spline_data is not None:
            ridges = ridges_of_all_columns(self.run, self.job, spline_data)
            if ridges is not None:
                spline_ridges = ridges[0]
                losses_of_kinds[SPLINES] = spline_ridges.all_columns
        return {**losses_of_kinds, **trees}, spline_data, spline_ridges

    def spline_data(self) -> SequenceData | None:
        """Return splines of the rows in memory, where these are all and it takes seconds."""
        form, rows = self.data.form, self.data.rows
        is_asked = self.job.options.expand == "auto" and form.expand.splines > 0
        if not is_asked or rows is None or not rows.is_all:
            return None
        n_products = form.inputs.train.n_rows * float(form.guessed_columns) ** 2
        is_gaussian = self.job.options.family == "gaussian"
        if n_products > (_MOST_PRODUCTS if is_gaussian else _MOST_OF_FITS):
            return None
        return splines_of_rows(self.data)

    def still_in(self, losses: Mapping[str, np.ndarray]) -> list[str]:
        """Return the kinds that are not behind the best by more than two standard errors."""
        if len(losses) == 1:
            return list(losses)
        weights = self.reference.weights
        kinds = list(losses)
        first = losses[kinds[best(np.stack(list(losses.values())), weights)]]
        left = []
        for kind in kinds:
            behind = over_folds(losses[kind] - first, weights)
            if behind.mean <= OUT * np.nan_to_num(behind.standard_error):
                left.append(kind)
        return left

    def linear_on_grid(self, data: SequenceData, ridges: Ridges | None) -> Candidate:
        """Return the losses of linear models, or splines, at the budgets of the grid."""
        if ridges is not None and ridges.ridge in ridges.candidates:
            return ridges.candidates[ridges.ridge]
        job = replace(self.job, options=changed_options(self.job.options, {"model": "linear"}))
        ridge = data.procedure(job.options).ridge if ridges is None else ridges.ridge
        if job.options.family == "gaussian":
            alone = Ridges(ridge, np.empty(0), tuple(self.reference.weights), {})
            return along_order(self.run, job, data, alone).candidates[ridge]
        learner = learner_of(self.run, job, data)
        assert isinstance(learner, ByRows)
        procedure = replace(learner.procedure, ridge=ridge)
        return _on_grid(learner.losses_at(procedure, self.budgets()))

    def trees_on_grid(self, criterion: str) -> Candidate:
        """Return the losses of LightGBM at the budgets of the grid, in an order of groups."""
        job = replace(
            self.job,
            options=changed_options(self.job.options, {"model": TREES, "criterion": criterion}),
        )
        # As many trees everywhere tell orders apart in half of the time.
        form = self.data.form
        trees = {"num_iterations": self.reference.n_quick, **form.options.lightgbm}
        quick = replace(form, options=changed_options(form.options, {"lightgbm": trees}))
        learner = learner_of(self.run, job, replace(self.data, form=quick))
        assert isinstance(learner, ByRows)
        procedure = replace(learner.procedure, max_groups=None)
        losses = learner.losses_at(procedure, self.budgets()[:-1])
        return _on_grid(np.concatenate((losses, self.reference.losses[np.newaxis])))

    def budgets(self) -> list[float]:
        """Return the budgets of the grid."""
        costs = self.data.form.costs
        total = costs.total(range(len(costs.own)))
        return [share * total for share in BUDGET_SHARES]

    def options_of(self, kind: str, spline_ridges: Ridges | None) -> dict[str, Any]:
        """Return the options that a kind stands for."""
        if kind == TREES:
            asked = self.job.options.criterion
            return {"model": TREES, "criterion": asked or "fr"}
        options = dict(_OPTIONS[kind])
        if kind == SPLINES and spline_ridges is not None and chooses_ridge(self.job):
            options["ridge"] = spline_ridges.ridge
        return options

    def tell_race(self, chosen: str, losses: Mapping[str, np.ndarray]) -> None:
        """Note what the only kind that is left explains more than the others on all columns."""
        parts = []
        for kind in losses:
            if kind != chosen and kind in (LINEAR, SPLINES, TREES):
                behind = over_folds(losses[kind] - losses[chosen], self.reference.weights)
                parts.append(f"{self.points(behind)} more than {_TITLES[kind]}")
        if parts:
            self.run.note(
                f"Chosen by cross-validation, on all columns: {_said(chosen)}, explaining "
                f"{' and '.join(parts)}."
            )

    def points(self, gain: FoldMeans) -> str:
        """Write a difference of losses in percentage points of what there is to explain."""
        whole = self.reference.whole
        error = number_or_none(gain.standard_error) or 0.0
        return f"{100 * gain.mean / whole:.1f} ± {100 * error / whole:.1f} percentage points"

    def tell(self, chosen: str, candidates: Mapping[str, Candidate]) -> None:
        """Note what the chosen kind explains more than the others, on average over the grid."""
        parts = []
        for kind, candidate in candidates.items():
            if kind != chosen:
                behind = candidate.on_grid - candidates[chosen].on_grid
                gain = over_folds(behind, self.reference.weights)
                parts.append(f"{self.points(gain)} more than {_TITLES[kind]}")
        self.run.note(
            f"Chosen by cross-validation, on average over budgets from "
            f"{percent(BUDGET_SHARES[0])} of the cost on: {_said(chosen)}, explaining "
            f"{' and '.join(parts)}."
        )


def _said(kind: str) -> str:
    """Write the options of a kind."""
    listed = (f"`{name}: {value}`" for name, value in _OPTIONS[kind].items())
    return ", ".join(listed).replace("'", "")
