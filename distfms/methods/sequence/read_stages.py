"""Predictions of all prefixes by row, from models without the row's fold, and where rows stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.data.rows.batches import RowBatch
from distfms.data.rows.folds import mix, with_seed
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.row_predictor import decided, shares_of
from distfms.methods.sequence.evaluate import ERROR, kept_prefixes
from distfms.methods.sequence.learners import Learner, Models
from distfms.methods.sequence.problem import Path, PrefixModels
from distfms.methods.sequence.read import CHUNK_VALUES, prior_of, response_of, row_weights
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
from distfms.solve.losses import FAMILIES, mean_response
from distfms.stats.base import FoldMeans
from distfms.stats.sample import RowSample

#: Most rows that policies are found on, and numbers that are kept of them.
_MOST_ROWS, _MOST_VALUES = 200_000, 1 << 24


@dataclass(frozen=True, eq=False)
class StageJudge:
    """Samples rows by their hashes, with what models say of them; a `Judge` of one part at a time.

    Values of a row are its weight and its class, then the states, losses and whether the class is
    right by model. `threshold` decides between two classes; with `costs` of a false alarm and of a
    miss these are the loss, otherwise the deviance's.
    """

    models: PrefixModels
    family: str
    classes: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    seed: int = 0
    size: int = _MOST_ROWS
    threshold: float = 0.5
    costs: tuple[float, float] | None = None

    def __call__(self, batch: RowBatch, parts: slice) -> Mapping[str, Any]:
        """Judge a sample of the rows of a part, some at a time."""
        (own,), models = batch.part_slices[parts], self.models
        hashes, numbers = with_seed(mix(batch.rows.hashes[own]), self.seed), batch.row_ids[own]
        places = np.arange(own.start, own.stop, dtype=np.float64)[np.newaxis]
        sample = RowSample.from_rows(self.size, hashes, np.zeros_like(numbers), places)
        rows = sample.values[0].astype(np.intp)
        step = max(1, CHUNK_VALUES // max(len(models) * models.n_outputs, len(batch.features)))
        starts = range(0, max(len(rows), 1), step)
        blocks = [self._judged(batch, rows[start : start + step]) for start in starts]
        return {"rows": replace(sample, values=np.concatenate(blocks, axis=1))}

    def _judged(self, batch: RowBatch, rows: np.ndarray) -> np.ndarray:
        family = FAMILIES[self.family]
        response = response_of(batch.target[:, rows], self.family, self.classes)
        label = response.ravel().astype(np.intp)
        weight = np.ones(len(rows)) if batch.weight is None else batch.weight[rows]
        of_class = row_weights(response, self.class_weights)
        prior = prior_of(self.class_weights, self.family)
        scores = self.models.scores(batch.features[:, rows])
        y, found = family.responses(response, scores.shape[2]), list[np.ndarray]()
        for eta in scores.transpose(1, 0, 2):
            shares = shares_of(mean_response(self.family, eta - prior))
            place = decided(shares, np.exp(prior), self.threshold)
            loss = of_class * family.loss(np.ascontiguousarray(eta.T), y)
            if self.costs is not None:
                loss = np.where(place == label, 0.0, np.array(self.costs)[label])
            found.append(np.stack((state_of(shares), loss, place == label)))
        return np.concatenate((np.stack((weight, label)), *np.stack(found, axis=1)))


def staged(values: np.ndarray, fold: np.ndarray) -> StagedRows:
    """Return rows of classes from what a `StageJudge` keeps of them."""
    weight, label, *rest = values
    states, losses, right = np.array(rest).reshape(3, -1, len(weight))
    return StagedRows(states, losses, right, weight, fold, label)


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
    size = 2 + 3 * len(stages)
    spent = path.curve_cost[stages]
    asked: dict[int, tuple[PrefixModels, Sequence[int]]] = {
        fold: (own.models_at([own.affordable(cost) for cost in spent]), [fold])
        for fold, own in paths_without(learner, models).items()
    }
    judged = learner.judged(
        {**asked, -1: (path.models_at(stages), [-1])},
        StageJudge,
        seed=job.seed,
        size=min(_MOST_ROWS, _MOST_VALUES // size) // max(len(asked), 1),
        threshold=metrics["classes"]["threshold"],
        costs=costs,
    )
    samples = {fold: own["rows"] for fold, own in judged.items() if own and own["rows"].n_rows}
    if len(samples.keys() - {-1}) < 2:
        return {}
    values = np.concatenate([own.values for own in samples.values()], axis=1)
    fold = np.repeat(list(samples), [sample.n_rows for sample in samples.values()])
    rows = staged(values, fold)
    is_test = fold < 0
    rows, test = rows.taken(~is_test), rows.taken(is_test) if is_test.any() else None
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
