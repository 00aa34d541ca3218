"""What group sequencing reads beside co-moments: expanded columns, rows to fit, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.data.rows.folds import hash_keys, with_seed
from distfms.errors import SpecError, nearest
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judging import Verdict
from distfms.methods.frame.passes import Sums
from distfms.methods.frame.ranking import RankingScores
from distfms.methods.frame.row_data import RowForm
from distfms.methods.frame.rows import RowCounts, RowSource, SummaryReader, missing_by_source
from distfms.methods.sequence.glm import GlmDesign, GlmModel, GlmRows
from distfms.methods.sequence.options import ExpandSection
from distfms.methods.sequence.problem import Path, PrefixModels
from distfms.solve.losses import FAMILIES
from distfms.stats.classification import class_measures, class_sums, log_odds
from distfms.stats.sample import RowSample

# --- columns in place of numbers: piecewise linear functions, indicators of missing values -------

#: Rows whose quantiles are knots.
_SAMPLED = 2000


def _sampled(seed: int, batch: RowBatch, part: int) -> dict[str, Any]:
    """Sample the features of a part, whose rows are told apart by their hashes alone."""
    own = batch.part_slices[part]
    hashes, numbers = with_seed(batch.rows.hashes[own], seed), np.zeros_like(batch.row_ids[own])
    sample = RowSample.from_rows(_SAMPLED, hashes, numbers, batch.features[:, own])
    return {"sample": sample, "counts": RowCounts.from_block(batch, part)}


def knots_of(values: np.ndarray, n_knots: int) -> list[float]:
    """Return the inner quantiles of values, at most so many, each between two values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    levels = np.arange(1, n_knots + 1) / (n_knots + 1)
    found = np.unique(np.quantile(known, levels, method="inverted_cdf"))
    return found[(found > known.min()) & (found < known.max())].tolist()


def expanded(run: Run, form: RowForm, wanted: ExpandSection, plan: ColumnPlan) -> ColumnPlan:
    """Return a plan with knots of numbers, and flags of missing values; step ``expand``."""

    def find() -> dict[str, Any]:
        found = run.reduce(
            lambda *of: SummaryReader(
                form.source(plan, *of),
                "quantiles",
                partial(_sampled, form.seed),
                {"size": _SAMPLED},
            )
        )
        sample, counts = found["sample"].train(), found["counts"].train()
        knots = {
            column.name: knots_of(sample.values[column.start], wanted.splines)
            for column in plan.columns[: len(form.roles.features)]
            if column.levels is None
        }
        rows = {c.name: sample.values[c.start] for c in plan.columns if knots.get(c.name)}
        limits = {name: (np.nanmin(own), np.nanmax(own)) for name, own in rows.items()}
        missing = list(missing_by_source(plan, counts.n_missing)) if wanted.missing else []
        return {"knots": knots, "flagged": missing, "limits": limits}

    return plan.expanded(**run.step("expand", find))


# --- rows to fit ---------------------------------------------------------------------------------


def response_of(target: np.ndarray, family: str, classes: Sequence[float] | None) -> np.ndarray:
    """Return targets (P, n) as a family takes them: (P, n), or class numbers (n,)."""
    if classes is not None:
        target = np.searchsorted(np.array(classes), target[:1])
    return target[0] if family == "softmax" else target


def row_weights(response: np.ndarray, of_classes: Sequence[float] | None) -> np.ndarray:
    """Return what rows weigh by their class, from class numbers (n,) or (1, n)."""
    if of_classes is None:
        return np.ones(response.shape[-1])
    return np.array(of_classes)[response.ravel().astype(np.intp)]


def weights_of_classes(
    wanted: Mapping[str, float] | str, own: Sequence[float], names: Sequence[str]
) -> tuple[float, ...]:
    """Return what a row of each class weighs in fits, from what the rows of each weigh together."""
    if isinstance(wanted, str):  # balanced
        return tuple(sum(own) / (len(own) * weight) for weight in own)
    for name in wanted:
        if name not in names:
            raise SpecError(
                f"`sequence.class_weights` names {name!r}, which is not a class of the "
                f"target.{nearest(name, names)}"
            )
    return tuple(wanted.get(name, 1.0) for name in names)


def prior_of(weights: Sequence[float] | None, family: str) -> np.ndarray:
    """Return what weights of classes add to a model's scores, (P,), or (1,) where there are none.

    Where class k weighs w_k, the odds that are fitted are w_k times the odds of the classes as
    frequent as they are. See King, Zeng, "Logistic Regression in Rare Events Data".
    """
    if weights is None:
        return np.zeros(1)
    logs = np.log([weight or 1.0 for weight in weights])
    return logs if family == "softmax" else logs[1:] - logs[0]


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.frame.passes.RowReader`.

    `class_weights` is what a row of each class weighs, beside its own weight.
    """

    source: RowSource
    design: GlmDesign
    classes: tuple[float, ...] | None
    class_weights: tuple[float, ...] | None = None

    def read(self, partition: Partition) -> GlmRows | None:
        """Return the standardised training rows; None of held-out data."""
        if self.source.held_out:
            return None
        batch = self.source.read(partition)
        # Folds follow one another, and the held-out rows come last.
        *folds, test = batch.part_slices
        rows = slice(0, test.start)
        fold = np.repeat(np.arange(len(folds)), [own.stop - own.start for own in folds])
        response = response_of(batch.target[:, rows], self.design.family, self.classes)
        weight = row_weights(response, self.class_weights)
        if batch.weight is not None:
            weight = weight * batch.weight[rows]
        return self.design.rows(batch.features[:, rows], response, weight, fold)

    def sums(self, rows: GlmRows | None, models: Sequence[GlmModel]) -> Sums:
        """Add up over rows, for models side by side."""
        return Sums({}) if rows is None else self.design.sums(rows, models)


# --- scores of held-out rows ---------------------------------------------------------------------

#: Numbers that are scored together.
CHUNK_VALUES = 1 << 20
#: As few rows that decide about a deviance are told; of fewer rows in all, fewer.
_FEW_ROWS, _ENOUGH_ROWS = 160, 400


@dataclass(frozen=True, eq=False)
class PrefixJudge:
    """Adds up ``scores`` (`Sums`) and ``ranking`` of models; a `Judge` of one part at a time.

    `threshold` lies between the two values of binary targets; with `ranks` rows have a query. With
    `classes`, losses weigh rows by `class_weights`, which decide about classes but are taken off
    probabilities, and rows are counted by class for the last model.
    """

    models: PrefixModels
    family: str
    classes: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    threshold: float | None = None
    ranks: bool = False

    def __call__(self, batch: RowBatch, parts: slice) -> Mapping[str, Any]:
        """Judge the rows of a part, some at a time."""
        (rows,), models = batch.part_slices[parts], self.models
        step = max(1, CHUNK_VALUES // max(len(models) * models.n_outputs, len(batch.features)))
        found = Verdict({"scores": Sums({})})
        for start in range(rows.start, rows.stop, step):
            chunk = slice(start, min(start + step, rows.stop))
            scores = models.scores(batch.features[:, chunk])
            weight = np.ones(len(scores)) if batch.weight is None else batch.weight[chunk]
            own: dict[str, Any] = {
                "scores": sums_of_scores(
                    scores,
                    batch.target[:, chunk],
                    weight,
                    self.family,
                    self.classes,
                    self.class_weights,
                    self.threshold,
                )
            }
            if self.ranks:
                own["ranking"] = _ranking(batch, chunk, scores)
            found = found.merge(Verdict(own))
        return found.members


def sums_of_scores(
    scores: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    family: str,
    classes: Sequence[float] | None = None,
    class_weights: Sequence[float] | None = None,
    threshold: float | None = None,
) -> Sums:
    """Add up over rows what M models are measured by.

    Parameters
    ----------
    scores : numpy.ndarray of shape (n, M, P)
    target : numpy.ndarray of shape (P, n)
        As the data have it.
    weight : numpy.ndarray of shape (n,)
    family, classes, class_weights, threshold
        See `PrefixJudge`.
    """
    sums = {"n_rows": np.array(len(weight)), "weight": np.array(weight.sum())}
    if family == "gaussian":
        if threshold is not None:
            right = (scores > threshold) == (threshold < target.T)[:, np.newaxis]
            sums["correct"] = np.tensordot(weight, right, axes=(0, 0)).mean(axis=1)
        squares = np.square(scores - target.T[:, np.newaxis]).mean(axis=2)
        sums["squared"] = weight @ squares
        return Sums(sums)
    kind = FAMILIES[family]
    response = response_of(target, family, classes)
    y = kind.responses(response, scores.shape[2])
    counts = weight * row_weights(response, class_weights)
    squared, correct = list[float](), list[float]()
    losses = np.empty((scores.shape[1], len(weight)))
    prior = prior_of(class_weights, family)[:, np.newaxis]
    for number, eta in enumerate(np.ascontiguousarray(scores.transpose(1, 2, 0))):
        mean = kind.mean(eta - prior)
        losses[number] = counts * kind.loss(eta, y)
        squared.append(weight @ np.square(mean - y).mean(axis=0))
        correct.append(weight @ kind.correct(eta, y))
    sums["squared"] = np.array(squared)
    sums["correct"] = np.array(correct)
    sums["loss"] = losses.sum(axis=1)
    sums["loss_squares"] = np.square(losses).sum(axis=1)
    sums["loss_weight"] = np.array(counts.sum())
    if classes is not None:
        is_several = len(eta) > 1
        decoded = eta.argmax(axis=0) if is_several else eta[0] > 0
        odds = log_odds(mean) if is_several else eta - prior
        sums |= class_sums(response.ravel(), decoded, weight, len(classes), odds, y > 0.5)
    return Sums(sums)


def _ranking(batch: RowBatch, rows: slice, scores: np.ndarray) -> RankingScores:
    assert batch.rows.query is not None
    relevance = batch.target[0, rows].copy()  # the batch's memory is used again
    return RankingScores.from_rows(hash_keys(batch.rows.query[rows]), relevance, scores[:, :, 0])


def measures_of(judged: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what the models of a `PrefixJudge` are measured by, each of shape (M,).

    `judged` is what it adds up. The first model is that of no group. Empty where there is
    no row of positive weight; measures by class are NaN but for the last model.
    """
    sums: Mapping[str, np.ndarray] = judged["scores"].arrays if judged else {}
    weight = float(sums.get("weight", 0.0))
    if not weight > 0:
        return {}
    mse = sums["squared"] / weight
    if "loss" in sums:
        deviance = 2.0 * sums["loss"] / max(float(sums["loss_weight"]), np.finfo(float).tiny)
        whole = deviance[0] if deviance[0] > 0 else np.nan
        found = {"explained_deviance": 1.0 - deviance / whole, "deviance": deviance, "mse": mse}
    else:
        found = {"mse": mse, "explained_variance": 1.0 - mse / (mse[0] if mse[0] > 0 else np.nan)}
    if "correct" in sums and np.isfinite(sums["correct"]).all():
        found["accuracy"] = sums["correct"] / weight
    if "ranking" in judged:
        found["ndcg@5"] = judged["ranking"].mean[0]
    if "confusion" in sums:
        for name, values in class_measures(sums).items():
            found[name] = np.full(len(mse), np.nan)
            found[name][-1] = values
    return found


def few_rows(sums: Sums, rows: str) -> str:
    """Say where a few rows decide about a deviance, which has no bound; empty where none do.

    Of n equal losses (Σ l)² / Σ l² is n.
    """
    n_rows, squares = int(sums["n_rows"]), float(sums["loss_squares"][0])
    n_deciding = float(sums["loss"][0]) ** 2 / squares if squares else n_rows
    if n_deciding > _FEW_ROWS * min(1.0, n_rows / _ENOUGH_ROWS) ** 2:
        return ""
    return (
        f"About {n_deciding:.0f} of {n_rows:,} {rows} decide about the deviance: the model is "
        "confidently wrong there."
    )


def step_entries(plan: ColumnPlan, path: Path, explained: np.ndarray) -> list[dict[str, Any]]:
    """Return entries of ``selection.json`` for the steps of a path.

    `explained` (K + 1,) are the shares of the training rows.
    """
    source = {name: column.name for column in plan.columns for name in column.value_names}
    columns, spent = path.columns, path.spent
    details, fitted = path.step_details(), set(path.fitted.tolist())
    return [
        {
            "group": group,
            "columns": list(dict.fromkeys(source[name] for name in columns[k])),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(explained[k + 1]),
            **{name: values[k].item() for name, values in details.items()},
            **({} if k + 1 in fitted else {"gain": None}),
        }
        for k, group in enumerate(path.groups)
    ]
