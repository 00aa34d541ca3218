"""What the models of all prefixes say of the rows in memory, and where rows stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.judge import HELD_OUT, JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.row_predictor import decided, shares_of
from distfms.methods.sequence.evaluate import ERROR, kept_prefixes
from distfms.methods.sequence.judged import PrefixScores
from distfms.methods.sequence.learners import Learner, Models
from distfms.methods.sequence.problem import Path, PrefixModels
from distfms.methods.sequence.stopping import (
    Claim,
    StagedRows,
    Stopping,
    find_stopping,
    means,
    state_of,
    stops,
)
from distfms.solve.costs import longest_affordable
from distfms.stats.base import FoldMeans


def staged(
    outcome: Responses,
    models: PrefixModels,
    rows: JudgedRows,
    part: int,
    threshold: float,
    costs: Sequence[float] | None,
) -> StagedRows:
    """Return what models say of rows of a fold, or of held-out rows, at all stages.

    `threshold` decides between two classes; with `costs` of a false alarm and of a miss these are
    the loss, otherwise the deviance's.
    """
    scores = PrefixScores(models)(rows.features)
    label = outcome.response(rows.target).ravel().astype(np.intp)
    losses = 0.5 * outcome.errors(scores, rows.target)["deviance"]
    of_class = outcome.loss_weights(rows.target)
    if of_class is not None:
        losses = losses * of_class
    states, right = np.empty(losses.shape), np.empty(losses.shape)
    for stage, eta in enumerate(scores):
        shares = shares_of(outcome.means(eta).T)
        place = decided(shares, np.exp(outcome.prior), threshold)
        states[stage] = state_of(shares)
        right[stage] = place == label
        if costs is not None:
            losses[stage] = np.where(place == label, 0.0, np.array(costs)[label])
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    return StagedRows(states, losses, right, weight, np.full(rows.n_rows, part), label)


def paths_without(learner: Learner, models: Models) -> dict[int, Path]:
    """Return the paths of the chosen rule without each fold."""
    found = {fold: path for (fold, rule), path in models.of_folds.items() if rule == 0}
    # Where statistics tell all, these are kept nowhere.
    own, folds = learner.procedure, [] if found else learner.folds()
    return found or {f.number: own.search(own.problem_on(f), own.rules[0]) for f in folds}


def learn_stopping(learner: Learner, models: Models, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Find where rows of the chosen sequence should stop, within a step.

    Returns the entries of ``metrics.json`` and what the model has; nothing where no fold tells.
    """
    path, job = models.paths[learner.rules.chosen.name], learner.job
    stages, wanted = kept_prefixes(path), job.options.threshold
    costs = tuple(wanted["cost"]) if isinstance(wanted, dict) else None
    prefix = max(longest_affordable(path.curve_cost[stages], metrics["stop"]["spent"]) - 1, 0)
    names = ("mean_cost", "log_loss" if costs is None else "error_cost", "accuracy")
    spent = path.curve_cost[stages]
    models_of: dict[int, PrefixModels] = {
        fold: own.models_at([own.affordable(cost) for cost in spent])
        for fold, own in paths_without(learner, models).items()
    }
    models_of[HELD_OUT] = path.models_at(stages)
    sample, outcome = learner.data.sample, learner.data.outcome
    assert sample is not None
    assert outcome is not None
    threshold = metrics["classes"]["threshold"]
    of_parts = dict[int, StagedRows]()
    for part, models_of_part in models_of.items():
        of_part = sample.rows_of(learner.data.plan, [part])
        if of_part.n_rows:
            of_parts[part] = staged(outcome, models_of_part, of_part, part, threshold, costs)
    test = of_parts.pop(HELD_OUT, None)
    if len(of_parts) < 2:
        return {}
    rows = StagedRows.joined(list(of_parts.values()))
    outline = Stopping(tuple(stages.tolist()), tuple(spent.tolist()), (), ())
    stopping, claim = find_stopping(rows, outline, prefix)
    entries = entries_of(stopping, claim, rows, test, names)
    gains = claim.gain.mean > claim.gain.standard_error and claim.default.mean[0] < spent[prefix]
    chosen = {
        "advised": job.options.stopping == "rows" or bool(gains),
        "measure": names[1],
        **entries["stopping"][stopping.default],
        "validation": said(claim.default, names),
        "prefix": entries["stopping_prefixes"][prefix],
        "gain": number_or_none(claim.gain.mean),
        ERROR: number_or_none(claim.gain.standard_error),
    }
    return {"metrics": entries, "rows": chosen, "stopping": stopping.to_dict()}


def entries_of(
    stopping: Stopping,
    claim: Claim,
    rows: StagedRows,
    test: StagedRows | None,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return what ``metrics.json`` says of policies, and of prefixes beside them."""

    def tested(at: Any) -> dict[str, Any]:
        if test is None:
            return {}
        found = means(test, stopping.spent, at).tolist()
        return {"test": dict(zip(names, found, strict=False))}

    policies, prefixes = list[dict[str, Any]](), list[dict[str, Any]]()
    bins = stopping.bins(rows.states)
    new_bins = bins if test is None else stopping.bins(test.states)
    for number, policy in enumerate(stopping.policies):
        at = stops(policy.decisions, bins)
        share = np.bincount(at, rows.weight, len(stopping.stages)) / rows.weight.sum()
        policies.append(
            {
                "price": policy.price,
                "mean_cost": policy.mean_cost,
                "share": share.tolist(),
                "validation": said(claim.policies, names, number),
                **tested(stops(policy.decisions, new_bins)),
            }
        )
    for stage, n_groups in enumerate(stopping.stages):
        own = {"validation": said(claim.prefixes, names, stage), **tested(stage)}
        prefixes.append({"n_groups": n_groups, "budget": stopping.spent[stage], **own})
    return {"stopping": policies, "stopping_prefixes": prefixes}


def said(found: FoldMeans, names: Sequence[str], place: Any = ...) -> dict[str, float | None]:
    """Return means over folds by name, and their standard errors."""
    means, errors = found.mean[place], found.standard_error[place]
    pairs = {name: number_or_none(mean) for name, mean in zip(names, means, strict=False)}
    return pairs | {f"error_of_{n}": number_or_none(e) for n, e in zip(names, errors, strict=False)}
