"""Boosted trees on all columns: what sequences are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.moments import Tuned, TunedItem, fold_work
from distfms.methods.frame.trees import MOST_ROWS, MOST_VALUES, QUICK, gains_by_feature
from distfms.methods.frame.tuning import Choice, changed_options, choose
from distfms.methods.sequence.data import SequenceData, with_splines
from distfms.methods.sequence.learners import Learner, learner_of, tree_fit
from distfms.methods.sequence.options import GAIN, N_SPLINES, TREES, OrderRule
from distfms.methods.sequence.problem import FeatureGroups, Ladder
from distfms.methods.sequence.procedure import RIDGES
from distfms.methods.sequence.read import measures_of
from distfms.methods.sequence.read_trees import spans_of
from distfms.methods.sequence.trees import TreeModels
from distfms.stats.base import over_folds

#: What a reference explains more than a sequence and that is worth another kind of model.
_WORTH_SAYING = 0.01
#: Rows of all folds that a reference is judged on, about, where there are more.
_MOST_JUDGED = 100_000
#: Shares of all cost whose prefixes are fitted to compare orders.
_SHARES = (0.05, 0.1, 0.2, 0.4)
_WHAT = "Fitting the reference"
#: Kinds of models: what they are called, and the options that stand for them.
_KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "linear": ("linear models", {"model": "linear"}),
    TREES: ("LightGBM", {"model": TREES}),
    "splines": ("splines", {"model": "linear", "expand": {"splines": N_SPLINES}}),
}
#: Products in the co-moments of splines that make these take seconds, and of other families' fits.
_MOST_PRODUCTS, _MOST_OF_FITS = 1e11, 1e9


def fit_reference(run: Run, learner: Learner) -> dict[str, Any]:
    """Fit LightGBM to all columns, also without each fold, and measure it; within a step.

    Of many rows it learns from some, and of some of the folds it is measured on: how much that
    tells less is in the spread between folds.
    """
    data, (n_rows, _) = learner.data, learner.procedure.size(learner.whole.train)
    features, spans = tuple(range(len(data.plan.roles.features))), spans_of(data.plan)
    most = min(MOST_ROWS, MOST_VALUES // len(features))
    share = min(1.0, most / n_rows)
    fit = tree_fit(run, data, share)
    (whole,) = run.map(fit, [(features, -1)], _WHAT)
    folds = [-1, *(own.number for own in learner.folds())]
    tasks = [(features, fold) for fold in folds[1:]]
    models = list(zip(folds, [whole, *run.map(fit, tasks, _WHAT)], strict=True))
    asked = {
        fold: (TreeModels.of(["", model.text], model.null, spans), [fold]) for fold, model in models
    }
    found = {
        fold: {name: number_or_none(own[-1]) for name, own in measures_of(members).items()}
        for fold, members in learner.judged(asked, share=_MOST_JUDGED / n_rows).items()
    }
    return {
        "n_train": whole.n_rows,
        "n_trees": whole.n_trees,
        "gains": [gains_of(own.text, data.form.groups) for _, own in models],
        "texts": [own.text for _, own in models] if share == 1.0 else [],
        "test": found.pop(-1),
        "folds": [{"fold": fold, **own} for fold, own in found.items()],
    }


def shares_on_folds(reference: Mapping[str, Any], share: str, folds: FoldAnswers) -> np.ndarray:
    """Return what a reference explains of each fold, NaN where nobody knows."""
    known = {own["fold"]: own.get(share) for own in reference["folds"]}
    return np.array([known.get(fold) for fold in folds.folds], dtype=float)


def best_linear(
    run: Run, job: Job, data: SequenceData, ridges: Sequence[float], as_one: bool
) -> tuple[FoldAnswers, np.ndarray, Choice | None]:
    """Compare linear models on folds, at the end of a sequence or (`as_one`) of all groups.

    Returns the answers, what each explains of each fold, and the best, if folds tell.
    """
    job = replace(job, options=changed_options(job.options, {"model": "linear"}))
    own = replace(data.procedure(job.options), ladder=Ladder(()))
    if as_one:
        own = replace(own, as_one=True, max_groups=None, rules=(OrderRule("random"),))
    items = [TunedItem(replace(own, ridge=ridge), (None,)) for ridge in ridges]
    work = fold_work(job, Tuned("explained_variance"), items, [i.procedure for i in items])
    found = learner_of(run, job, data).on_folds(work)
    if len(found.folds) < 2:
        return found, np.empty((len(items), 0)), None
    values = np.stack([found.values(number, "values")[0] for number in range(len(items))])
    if not np.isfinite(values).all():
        return found, values, None
    return found, values, choose(values, found.weight, "best", True)


def chooses_ridge(job: Job) -> bool:
    """Return whether the ridge is chosen before other options are."""
    is_tried = job.tune is not None and "ridge" in job.tune.grid
    return job.form.options.ridge == "auto" and job.n_folds > 1 and not is_tried


def with_kind(
    run: Run, job: Job, data: SequenceData, reference: Mapping[str, Any] | None
) -> tuple[Job, SequenceData]:
    """Return the job with a kind of models in place of ``auto``, and its data; step ``kind``.

    Kinds are compared on all columns; splines, which need knots, are no simpler than trees. With
    `expand: auto` the data of trees have splines too, which put groups in order.
    """
    options, own = job.options, data.procedure(job.options)
    has_splines = options.expand == "auto" and data.form.expand.splines > 0
    if options.model != "auto" or reference is None:
        return job, with_splines(run, data) if has_splines else data
    n_products = data.form.inputs.train.n_rows * float(data.form.guessed_columns) ** 2
    most = _MOST_PRODUCTS if options.family == "gaussian" else _MOST_OF_FITS
    wide = with_splines(run, data) if has_splines and n_products <= most else None

    def compare() -> dict[str, Any]:
        # The ridge that was chosen on all columns; else nothing that `tune` may vary decides.
        is_best = chooses_ridge(job) and options.max_groups is None
        shares, ridge = {"linear": np.empty(0), TREES: np.empty(0)}, own.ridge
        for kind, of in {"linear": data, **({"splines": wide} if wide else {})}.items():
            ridges = [own.ridge] if is_best and of is data else RIDGES
            if is_best and options.family != "gaussian":  # fits with less of one take long
                ridges = [r for r in ridges if r >= own.ridge]
            found, values, best = best_linear(run, job, of, ridges, as_one=True)
            if best is None:
                return _KINDS["linear"][1]
            shares[kind], ridge = values[best.chosen], ridges[best.chosen]
        shares[TREES] = shares_on_folds(reference, own.share, found)
        kind, said = chosen_kind(shares, found.weight)
        run.note(said)
        is_new = kind == "splines" and chooses_ridge(job)
        return {**_KINDS[kind][1], **({"ridge": ridge} if is_new else {})}

    found = run.step("kind", compare)
    job = replace(job, options=changed_options(options, found))
    if found["model"] == TREES and has_splines:
        return job, wide or with_splines(run, data)
    return job, wide if wide and "expand" in found else data


def chosen_kind(shares: Mapping[str, np.ndarray], weights: Sequence[float]) -> tuple[str, str]:
    """Return the first kind that the best is no more than a standard error better than, and why.

    `shares` are what kinds explain of the folds, NaN where nobody knows.
    """
    known = {kind: own for kind, own in shares.items() if np.isfinite(own).all()}
    best = max(known, key=lambda kind: over_folds(known[kind], weights).mean)
    less = {kind: over_folds(known[best] - own, weights) for kind, own in known.items()}
    chosen = next(kind for kind, own in less.items() if own.mean <= own.standard_error)
    options = ", ".join(f"`{n}: {v}`" for n, v in _KINDS[chosen][1].items()).replace("'", "")
    gains = {kind: over_folds(known[chosen] - own, weights) for kind, own in known.items()}
    said = " and ".join(
        f"{100 * abs(gain.mean):.1f} ± {100 * gain.standard_error:.1f} percentage points "
        f"{'more' if gain.mean > 0 else 'less'} than {_KINDS[kind][0]}"
        for kind, gain in gains.items()
        if kind != chosen
    )
    said = f"{options}, explaining {said}" if said else options
    return chosen, f"Chosen by cross-validation on all columns: {said}."


def ordered_for_trees(
    run: Run, job: Job, data: SequenceData, reference: Mapping[str, Any] | None
) -> tuple[Job, SequenceData]:
    """Return the job and data with what puts groups in order for trees; step ``order``.

    Without a criterion this is what trees on all columns gain by a group if this order explains
    more, on the folds by more than a standard error: as the area under what prefixes explain
    against what they cost.
    """
    options, form = job.options, data.form
    if reference is None:
        return job, data
    folds = [-1, *(own["fold"] for own in reference["folds"])]
    names = form.groups.names
    gains = [tuple(zip(names, own, strict=True)) for own in reference["gains"]]
    features = tuple(range(len(data.plan.roles.features)))
    fitted = {(features, f): text for f, text in zip(folds, reference["texts"], strict=False)}
    data = replace(data, gains=dict(zip(folds, gains, strict=True)), fitted=fitted)
    grid = {} if job.tune is None else job.tune.grid
    tried = grid.get("criterion", [options.criterion])
    if None not in tried or len(folds) < 3:
        return job, data

    def choose() -> dict[str, Any]:
        # As many trees everywhere tell orders apart in half of the time.
        trees = {"num_iterations": min(reference["n_trees"], QUICK), **form.options.lightgbm}
        quick = replace(form, options=changed_options(form.options, {"lightgbm": trees}))
        # Nothing here depends on options that `tune` may vary.
        own = replace(data.procedure(options), ridge=RIDGES[-1], max_groups=None)
        costs = form.costs.total(range(len(form.groups))) * np.array(_SHARES)
        own = replace(own, ladder=Ladder(costs=tuple(costs.tolist())))
        procedures = [replace(own, rules=(OrderRule(name),)) for name in ("fr", GAIN)]
        items = [TunedItem(procedure, (None,)) for procedure in procedures]
        work = fold_work(job, Tuned("timeliness"), items, procedures)
        found = learner_of(run, job, replace(data, form=quick)).on_folds(work)
        areas = [found.values(number, "values")[0] for number in range(2)]
        gain = over_folds(areas[1] - areas[0], found.weight)
        if gain.mean <= gain.standard_error:
            return {"criterion": "fr"}
        run.note(
            "Chosen by cross-validation: the order of groups by what LightGBM gains "
            f"(`sequence.criterion: {GAIN}`), not by what linear models do. Over all costs its "
            f"prefixes explain {100 * gain.mean:.1f} ± {100 * gain.standard_error:.1f} percentage "
            "points more on average."
        )
        return {"criterion": GAIN}

    found = run.step("order", choose)
    if job.tune is None or "criterion" not in grid:
        return replace(job, options=changed_options(options, found)), data
    # A point without a criterion is the run that chooses it.
    points = list(dict.fromkeys(own or found["criterion"] for own in tried))
    tune = job.tune.model_copy(update={"grid": {**grid, "criterion": points}})
    return replace(job, tune=tune), data


def gains_of(text: str, groups: FeatureGroups) -> list[float]:
    """Return what a model of LightGBM on all columns gains by each group of them."""
    by_feature = gains_by_feature(text)
    return [float(by_feature[list(columns)].sum()) for columns in groups.columns]


def beside_sequence(
    learner: Learner,
    reference: Mapping[str, Any],
    folds: FoldAnswers | None,
    last: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """Add what a reference explains more than a sequence of all groups, on folds if there are any.

    `last` are measures of that sequence by rows. Linear models are far from it
    where that is more than a standard error.
    """
    share = learner.procedure.share
    tests = [own.get("test", {}).get(share) for own in (last, reference)]
    ours, theirs = np.array(tests, dtype=float).reshape(2, 1)
    weights = (1.0,) if folds is None else folds.weight
    if folds is not None:
        ours, theirs = folds.values(0, share)[-1], shares_on_folds(reference, share, folds)
    gain, mean = over_folds(theirs - ours, weights), over_folds(theirs, weights).mean
    more, error = (number_or_none(own) or 0.0 for own in (gain.mean, gain.standard_error))
    if more > max(error, _WORTH_SAYING):
        rows = "held-out rows" if folds is None else "cross-validation"
        learner.run.note(
            f"Boosted trees (LightGBM with its defaults, on all columns) explain {100 * more:.1f} "
            f"± {100 * error:.1f} percentage points more than all groups of the sequence ({rows})."
        )
    return {
        **{name: own for name, own in reference.items() if name not in ("gains", "texts")},
        "validation": {} if folds is None else {share: number_or_none(mean)},
        "more": more,
        "standard_error": error,
        "is_far": learner.procedure.model == "linear" and more > max(error, _WORTH_SAYING),
    }
