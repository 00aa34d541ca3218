"""Predictions of all prefixes by row, from models without the row's fold, and where rows stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.rows.batches import RowBatch
from distfms.data.rows.folds import mix, with_seed
from distfms.methods.frame.contract import Run
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.row_predictor import decided, shares_of
from distfms.methods.frame.trees import FIXED, fitted, scores
from distfms.methods.sequence.evaluate import ERROR, kept_prefixes, thinned
from distfms.methods.sequence.families import FAMILIES, mean_response
from distfms.methods.sequence.learners import Learner, Models
from distfms.methods.sequence.problem import Path, PrefixModels, longest_affordable
from distfms.methods.sequence.read import CHUNK_VALUES, prior_of, response_of, row_weights
from distfms.methods.sequence.read_trees import inputs_of, spans_of
from distfms.methods.sequence.stopping import (
    Claim,
    StagedRows,
    Stopping,
    find_stopping,
    means,
    state_of,
    stops,
)
from distfms.methods.sequence.trees import TreeModels, features_of
from distfms.stats.base import FoldMeans
from distfms.stats.sample import RowSample

#: Most rows that policies are found on, and numbers that are kept of them.
_MOST_ROWS, _MOST_VALUES = 200_000, 1 << 24
#: The same of numbers, and their stages, whose errors LightGBM learns to expect within seconds.
MOST_NUMBERS, _STAGES = 20_000, 12
_OF_NUMBERS = ("mean_cost", "mse")
_SPREAD = {**FIXED, "objective": "regression", "num_leaves": 8, "min_data": 50, "num_trees": 40}


@dataclass(frozen=True, eq=False)
class StageJudge:
    """Samples rows by their hashes, with what models say of them; a `Judge` of one part at a time.

    Values of a row are its weight and its class, then the states, losses and whether the class is
    right by model. `threshold` decides between two classes; with `costs` of a false alarm and of a
    miss these are the loss, otherwise the deviance's. Of numbers they are the weight, losses by
    model, and what LightGBM takes of features, by their `spans`.
    """

    models: PrefixModels
    family: str
    classes: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    seed: int = 0
    size: int = _MOST_ROWS
    threshold: float = 0.5
    costs: tuple[float, float] | None = None
    spans: np.ndarray | None = None

    def __call__(self, batch: RowBatch, parts: slice) -> Mapping[str, Any]:
        """Judge a sample of the rows of a part, some at a time."""
        (own,), models = batch.part_slices[parts], self.models
        hashes, numbers = with_seed(mix(batch.rows.hashes[own]), self.seed), batch.row_ids[own]
        places = np.arange(own.start, own.stop, dtype=np.float64)[np.newaxis]
        sample = RowSample.from_rows(self.size, hashes, np.zeros_like(numbers), places)
        rows = sample.values[0].astype(np.intp)
        step = max(1, CHUNK_VALUES // max(len(models) * models.n_outputs, len(batch.features)))
        judge = self._judged if self.spans is None else self._of_numbers
        blocks = [judge(batch, rows[i : i + step]) for i in range(0, max(len(rows), 1), step)]
        return {"rows": replace(sample, values=np.concatenate(blocks, axis=1))}

    def _of_numbers(self, batch: RowBatch, rows: np.ndarray) -> np.ndarray:
        assert self.spans is not None
        weight = np.ones(len(rows)) if batch.weight is None else batch.weight[rows]
        features, target = batch.features[:, rows], batch.target[:, rows].T[:, np.newaxis]
        losses = np.square(self.models.scores(features) - target).mean(axis=2).T
        inputs = inputs_of(features, np.arange(len(features)), self.spans).T
        return np.concatenate((weight[np.newaxis], losses, inputs))

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


def spread_on(
    run: Run,
    values: np.ndarray,
    fold: np.ndarray,
    path: Path,
    stages: np.ndarray,
    spans: np.ndarray,
) -> tuple[StagedRows, TreeModels]:
    """Learn at each stage what error to expect of numbers, from what a `StageJudge` keeps of them.

    Return the rows, whose states models without their fold expect, and the models of all folds,
    which held-out rows (−1) have. Errors are absolute, as outliers decide less about these; a stage
    without groups, or without a next one, has no model.
    """
    n_stages = len(stages)
    weight, losses, inputs = values[0], values[1 : n_stages + 1], values[n_stages + 1 :].T
    states, texts, inner = np.zeros_like(losses), [""] * n_stages, range(1, n_stages - 1)
    tasks = [
        (np.sqrt(losses[stage]), features_of(path, int(stages[stage]), spans)) for stage in inner
    ]
    fit = partial(errors_expected, inputs, weight, fold, spans)
    for stage, found in zip(inner, run.map(fit, tasks, "Learning where to stop"), strict=True):
        texts[stage], states[stage] = found
    rows = StagedRows(states, losses, 0 * losses, weight, fold, np.full(len(fold), np.nan))
    return rows, TreeModels.of(texts, np.zeros(1), spans)


def errors_expected(
    inputs: np.ndarray,
    weight: np.ndarray,
    fold: np.ndarray,
    spans: np.ndarray,
    stage: tuple[np.ndarray, Sequence[int]],
) -> tuple[str, np.ndarray]:
    """Learn what absolute errors to expect of rows (n, S) by some features.

    Return the text of the model of all folds, and what models without a row's fold expect (n,).
    """
    (errors, features), known, expected = stage, fold >= 0, np.zeros(len(fold))
    used, text = list(features), ""
    named: dict[str, Any] = {"feature_name": [str(f) for f in used]}
    named["categorical_feature"] = np.flatnonzero(spans[used, 2]).tolist()
    X = inputs[:, used]
    for left_out in (*np.unique(fold[known]), -1):
        rows, others = known & (fold != left_out), fold == left_out
        text = fitted(X[rows], errors[rows], _SPREAD, fold[rows], weight=weight[rows], **named)
        if others.any():
            expected[others] = scores(text, X[others])
    return text, expected


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
    path, job, data = models.paths[learner.rules.chosen.name], learner.job, learner.data
    stages, wanted = kept_prefixes(path), job.options.threshold
    costs = tuple(wanted["cost"]) if isinstance(wanted, dict) else None
    prefix = max(longest_affordable(path.curve_cost[stages], metrics["stop"]["spent"]) - 1, 0)
    names: Sequence[str] = ("mean_cost", "log_loss" if costs is None else "error_cost", "accuracy")
    spans, most_rows, size = None, _MOST_ROWS, 2 + 3 * len(stages)
    if (classes := metrics.get("classes")) is None:
        some = np.unique([*thinned(len(stages), _STAGES), prefix])
        stages, prefix, names = stages[some], int(np.searchsorted(some, prefix)), _OF_NUMBERS
        spans, most_rows = spans_of(data.plan), MOST_NUMBERS
        size = 1 + len(stages) + len(spans)
    spent = path.curve_cost[stages]
    asked: dict[int, tuple[PrefixModels, Sequence[int]]] = {
        fold: (own.models_at([own.affordable(cost) for cost in spent]), [fold])
        for fold, own in paths_without(learner, models).items()
    }
    judged = learner.judged(
        {**asked, -1: (path.models_at(stages), [-1])},
        StageJudge,
        seed=job.seed,
        size=min(most_rows, _MOST_VALUES // size) // max(len(asked), 1),
        threshold=0.5 if classes is None else classes["threshold"],
        costs=costs,
        spans=spans,
    )
    samples = {fold: own["rows"] for fold, own in judged.items() if own and own["rows"].n_rows}
    if len(samples.keys() - {-1}) < 2:
        return {}
    values = np.concatenate([own.values for own in samples.values()], axis=1)
    fold, spread = np.repeat(list(samples), [own.n_rows for own in samples.values()]), None
    if spans is None:
        rows = staged(values, fold)
    else:
        rows, spread = spread_on(learner.run, values, fold, path, stages, spans)
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
    learned = {"stopping": stopping.to_dict(), "spread": spread}
    return {"metrics": entries, "rows": chosen} | learned


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
