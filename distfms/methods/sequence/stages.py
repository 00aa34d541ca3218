"""What the models of all prefixes say of the rows in memory, and where rows stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.frame.judge import JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.sequence.evaluate import ERROR, kept_prefixes
from distfms.methods.sequence.judged import PrefixScores
from distfms.methods.sequence.learners import Learner, Models
from distfms.methods.sequence.problem import PrefixModels
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
from distfms.stats.base import HELD_OUT, FoldMeans, number_or_none
from distfms.stats.classification import decided, shares_of


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
    states = np.empty(losses.shape)
    right = np.empty(losses.shape)
    for stage, eta in enumerate(scores):
        shares = shares_of(outcome.means(eta).T)
        is_right = decided(shares, np.exp(outcome.prior), threshold) == label
        states[stage] = state_of(shares)
        right[stage] = is_right
        if costs is not None:
            losses[stage] = np.where(is_right, 0.0, np.array(costs)[label])
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    return StagedRows(states, losses, right, weight, np.full(rows.n_rows, part), label)


def learn_stopping(learner: Learner, models: Models, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Find where rows of the chosen sequence should stop, within a step.

    Returns the entries of ``metrics.json`` and what the model has; nothing where no fold tells.
    """
    path = models.paths[learner.rules.chosen.name]
    options = learner.job.options
    costs = tuple(options.threshold["cost"]) if isinstance(options.threshold, dict) else None
    measure = "log_loss" if costs is None else "error_cost"
    names = ("mean_cost", measure, "accuracy")
    stages = kept_prefixes(path)
    spent = path.curve_cost[stages]
    prefix = max(longest_affordable(spent, metrics["stop"]["spent"]) - 1, 0)
    models_of = dict[int, PrefixModels]()
    for (fold, rule), path_without in models.of_folds.items():
        if rule == 0:
            prefixes = [path_without.affordable(cost) for cost in spent]
            models_of[fold] = path_without.models_at(prefixes)
    models_of[HELD_OUT] = path.models_at(stages)
    sample = learner.data.sample
    outcome = learner.data.outcome
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
        "advised": bool(gains),
        "measure": measure,
        **entries["stopping"][stopping.default],
        "validation": by_name(claim.default, names),
        "prefix": entries["stopping_prefixes"][prefix],
        "gain": number_or_none(claim.gain.mean),
        ERROR: number_or_none(claim.gain.standard_error),
    }
    return {"metrics": entries, "rows": chosen, "stopping": stopping}


def entries_of(
    stopping: Stopping,
    claim: Claim,
    rows: StagedRows,
    test: StagedRows | None,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return what ``metrics.json`` says of policies, and of prefixes beside them."""

    def tested(ends: Any) -> dict[str, Any]:
        if test is None:
            return {}
        measures = means(test, stopping.spent, ends).tolist()
        return {"test": dict(zip(names, measures, strict=False))}

    policies = list[dict[str, Any]]()
    bins = stopping.bins(rows.states)
    new_bins = bins if test is None else stopping.bins(test.states)
    for number, policy in enumerate(stopping.policies):
        ends = stops(policy.decisions, bins)
        share = np.bincount(ends, rows.weight, len(stopping.stages)) / rows.weight.sum()
        policies.append(
            {
                "price": policy.price,
                "mean_cost": policy.mean_cost,
                "share": share.tolist(),
                "validation": by_name(claim.policies, names, number),
                **tested(stops(policy.decisions, new_bins)),
            }
        )
    prefixes = [
        {
            "n_groups": n_groups,
            "budget": stopping.spent[stage],
            "validation": by_name(claim.prefixes, names, stage),
            **tested(stage),
        }
        for stage, n_groups in enumerate(stopping.stages)
    ]
    return {"stopping": policies, "stopping_prefixes": prefixes}


def by_name(measures: FoldMeans, names: Sequence[str], place: Any = ...) -> dict[str, float | None]:
    """Return means over folds by name, and their standard errors."""
    entries = dict(zip(names, measures.mean[place], strict=False))
    for name, error in zip(names, measures.standard_error[place], strict=False):
        entries[f"error_of_{name}"] = error
    return {name: number_or_none(value) for name, value in entries.items()}
