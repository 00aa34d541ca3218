"""The one judge: from models and rows that they did not learn from to losses by model.

Models give scores of rows (`Models`), an `Outcome` says what scores mean, and the `Judge` turns
both into sums over rows and sums into measures: all that is ever said of how good a model is.

Rows are judged with the same code wherever they are:

- by one pass for all models: ``Judge.by_pass(run, source, {key: judge.question(models)})``
  returns for each question a `Folded` of `LossSums`: of each fold, and of the held-out rows
  (``.train()``, ``.folds[k]``, ``.test``);
- in memory, such as the sample or a fold on an actor: ``judge.of_rows(models, rows)``, or
  ``judged_in_memory(rows by part, questions)``;
- one by one, without sums: ``judge.outcome.errors(scores, target)``;
- by moments, where these tell squared errors of linear models exactly: `squared_errors`, and
  without bias of averages of judgments: `squared_errors_on_averages`.

``judge.measures(sums)`` are numbers by model: ``mse``, ``mae``, ``accuracy``, ``error``, ``loss``,
``deviance`` as the outcome has them, `class_measures` of the models in detail, and ``ndcg@…`` of
rows with queries. Losses of folds, stacked, are what :mod:`distfms.methods.frame.choose` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.data.rows.folds import hash_keys
from distfms.methods.frame.contract import PartialReader, Run
from distfms.methods.frame.outcomes import Outcome
from distfms.methods.frame.ranking import RankingScores
from distfms.methods.frame.read import features_of
from distfms.methods.frame.rows import FoldedSource, naming
from distfms.solve.buying import BuyFrom
from distfms.stats.base import Bundle, Folded
from distfms.stats.classification import CLASS_SUMS, class_measures, class_sums
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentEstimates
from distfms.stats.sums import Sums

Key = TypeVar("Key", bound=Hashable)

#: Picklable: from features (d, n), NaN where missing, to scores (M, P, n) of M models.
Models = Callable[[np.ndarray], np.ndarray]

#: Measures in which rows weigh by their class, too.
_LOSSES = ("loss", "deviance")
#: Numbers that are scored together.
_CHUNK_VALUES = 2**20


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows to judge.

    Attributes
    ----------
    features : ndarray of shape (d, n)
    target : ndarray of shape (T, n)
    weight : ndarray of shape (n,), or None
    queries : ndarray of uint64, shape (n,), or None
        Hashes of the queries of rankings, whose rows follow one another.
    """

    features: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None = None
    queries: np.ndarray | None = None

    @classmethod
    def of_part(cls, batch: RowBatch, part: int) -> Self:
        """Return the rows of a part of a batch, in its memory."""
        rows = batch.part_slices[part]
        weight = None if batch.weight is None else batch.weight[rows]
        queries = None if batch.rows.query is None else hash_keys(batch.rows.query[rows])
        return cls(batch.features[:, rows], batch.target[:, rows], weight, queries)

    @classmethod
    def of_inputs(
        cls, plan: ColumnPlan, inputs: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> Self:
        """Return rows of a sample, whose inputs are numbers and codes of categories."""
        return cls(features_of(plan, inputs), target, weight)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.target.shape[1]

    def chunks(self, step: int) -> Iterator[JudgedRows]:
        """Iterate over the rows, at most so many at a time."""
        for start in range(0, self.n_rows, step):
            rows = slice(start, start + step)
            yield JudgedRows(
                self.features[:, rows],
                self.target[:, rows],
                None if self.weight is None else self.weight[rows],
                None if self.queries is None else self.queries[rows],
            )


@dataclass(frozen=True, eq=False)
class LossSums:
    """What a judge adds up over rows; a mergeable statistic, empty for no rows.

    Attributes
    ----------
    sums : Sums
        ``n_rows``, ``weight`` and ``loss_weight``; of each measure Σ w e, (M,), and of losses also
        Σ (w e)²; ``target`` and ``target_squares`` about the judge's centre, (T,); the sums of
        classes of the models in detail.
    ranking : RankingScores, optional
        Of rows with queries.
    """

    sums: Sums = field(default_factory=lambda: Sums({}))
    ranking: RankingScores | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        return self.sums[name]

    def __contains__(self, name: str) -> bool:
        return name in self.sums.arrays

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.sums.arrays.get("n_rows", 0))

    @property
    def weight(self) -> float:
        """Weight of the rows."""
        return float(self.sums.arrays.get("weight", 0.0))

    @property
    def spread(self) -> np.ndarray:
        """Mean squared distance of targets from the judge's centre, (T,)."""
        return self["target_squares"] / self.weight

    @property
    def variance(self) -> np.ndarray:
        """Variance of targets, (T,); sums about a near centre lose no digits."""
        return self.spread - np.square(self["target"] / self.weight)

    def of_model(self, place: int) -> LossSums:
        """Return the sums of one model, where all are in detail; without rankings."""
        sums = self.sums.arrays.items()
        return LossSums(
            Sums({name: array[[place]] if array.ndim else array for name, array in sums})
        )

    def of_classes(self, place: int) -> dict[str, np.ndarray]:
        """Return the sums of classes of one of the models in detail; see `class_sums`."""
        return {name: self[name][place] for name in CLASS_SUMS}

    def merge(self, later: LossSums) -> LossSums:
        """Add the sums of other rows."""
        ranking = self.ranking or later.ranking
        if self.ranking is not None and later.ranking is not None:
            ranking = self.ranking.merge(later.ranking)
        return LossSums(self.sums.merge(later.sums), ranking)

    def scaled(self, factor: float) -> LossSums:
        """Multiply the weight of every row by `factor`; queries count as they are."""
        return replace(self, sums=self.sums.scaled(factor))


@dataclass(frozen=True, eq=False)
class Judge:
    """Turns scores, targets and weights of rows into sums, and sums into measures.

    Attributes
    ----------
    outcome : Outcome
        What scores say of the target.
    in_detail : slice
        Models of which it is also counted how they tell classes apart: the last by default, as
        these are many numbers.
    centre : float, optional
        About which targets are summed, for `LossSums.spread` and `LossSums.variance`.
    cutoffs : tuple of int
        Places of a ranking that count, where rows have queries.
    """

    outcome: Outcome
    in_detail: slice = field(default_factory=lambda: slice(-1, None))
    centre: float | None = None
    cutoffs: tuple[int, ...] = ()

    def question(
        self, models: Models, parts: Sequence[int] | None = None, n_scores: int = 1
    ) -> Question:
        """Return what a pass is to judge; see `Question`."""
        return Question(models, self, parts, n_scores)

    @staticmethod
    def by_pass(
        run: Run, source: Callable[[Dataset, bool], FoldedSource], questions: Mapping[Key, Question]
    ) -> dict[Key, Folded[Any]]:
        """Judge models by one pass over all rows.

        Parameters
        ----------
        run : Run
        source : callable
            From (dataset, whether all its rows are held out) to what reads its partitions.
        questions : mapping to Question
            By any key.

        Returns
        -------
        dict of Folded of LossSums
            What each judge adds up over the rows of each part; empty for parts that were not asked
            for.
        """
        in_order = list(questions.values())
        bundle = run.reduce(lambda *rows: JudgeReader(source(*rows), in_order), cache=False)
        return {key: bundle[str(number)] for number, key in enumerate(questions)}

    def of_rows(self, models: Models, rows: JudgedRows, n_scores: int = 1) -> LossSums:
        """Judge rows in memory, some at a time where models have many scores in all."""
        step = max(1, _CHUNK_VALUES // max(n_scores, len(rows.features)))
        sums = LossSums()
        for chunk in rows.chunks(step):
            sums = sums.merge(self.of_scores(models(chunk.features), chunk))
        return sums

    def of_scores(self, scores: np.ndarray, rows: JudgedRows) -> LossSums:
        """Add up over rows what M models are measured by, from their scores (M, P, n)."""
        if not rows.n_rows:
            return LossSums()
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        by_class = self.outcome.loss_weights(rows.target)
        loss_weight = weight if by_class is None else weight * by_class
        sums = {
            "n_rows": np.array(rows.n_rows),
            "weight": np.array(weight.sum()),
            "loss_weight": np.array(loss_weight.sum()),
        }
        for name, errors in self.outcome.errors(scores, rows.target).items():
            if name in _LOSSES:
                sums[name] = errors @ loss_weight
                sums[f"{name}_squares"] = np.square(errors * loss_weight).sum(axis=1)
            else:
                sums[name] = errors @ weight
        if self.centre is not None:
            away = rows.target - self.centre
            sums["target"] = away @ weight
            sums["target_squares"] = np.square(away) @ weight
        sums |= self._sums_of_classes(scores, rows.target, weight)
        return LossSums(Sums(sums), self._ranking(scores, rows))

    def _sums_of_classes(
        self, scores: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> dict[str, np.ndarray]:
        by_model = []
        for number in range(len(scores))[self.in_detail]:
            answer = self.outcome.told(scores[number], target, number)
            if answer is not None:
                truth, decoded, n_classes, event_scores, events = answer
                sums = class_sums(truth, decoded, weight, n_classes, event_scores, events)
                by_model.append(sums)
        if not by_model:
            return {}
        stacked = {}
        for name in CLASS_SUMS:
            stacked[name] = np.stack([sums[name] for sums in by_model])
        return stacked

    def _ranking(self, scores: np.ndarray, rows: JudgedRows) -> RankingScores | None:
        if not self.cutoffs or rows.queries is None:
            return None
        # The memory of a batch is used again.
        relevance = rows.target[0].copy()
        return RankingScores.from_rows(rows.queries, relevance, scores[:, 0].T, self.cutoffs)

    def measures(self, sums: LossSums) -> dict[str, np.ndarray]:
        """Return measures of models by name, (M,); none for rows without weight.

        Those of classes are NaN but for models in detail.
        """
        if not sums.weight > 0:
            return {}
        measures = dict[str, np.ndarray]()
        for name in ("mse", "mae", "accuracy", "error"):
            if name in sums:
                measures[name] = sums[name] / sums.weight
        for name in _LOSSES:
            if name in sums:
                total = max(float(sums["loss_weight"]), np.finfo(float).tiny)
                measures[name] = sums[name] / total
        if "confusion" in sums:
            n_models = len(next(iter(measures.values())))
            measures |= self._measures_of_classes(sums, n_models)
        if sums.ranking is not None:
            for cutoff, mean in zip(self.cutoffs, sums.ranking.mean, strict=True):
                measures[f"ndcg@{cutoff}"] = mean
        return measures

    def _measures_of_classes(self, sums: LossSums, n_models: int) -> dict[str, np.ndarray]:
        measures = dict[str, np.ndarray]()
        numbers = range(n_models)[self.in_detail]
        for place, number in enumerate(numbers):
            for name, value in class_measures(sums.of_classes(place)).items():
                if name not in measures:
                    measures[name] = np.full(n_models, np.nan)
                measures[name][number] = value
        return measures


def squared_errors(
    moments: CoMoments, weights: np.ndarray, intercepts: float | np.ndarray
) -> np.ndarray:
    """Return the mean squared errors of linear models on rows that co-moments sum up, exactly.

    Parameters
    ----------
    moments : CoMoments
        Of d features and, last, the target; a missing value counts as the column's mean.
    weights : ndarray of shape (M, d)
    intercepts : float, or ndarray of shape (M,)

    Returns
    -------
    ndarray of shape (M,)

    Notes
    -----
    With v = (−w, 1), mean μ and covariance Σ, E(y − wᵀx − c)² = vᵀΣv + (vᵀμ − c)².
    """
    contrast = np.hstack((-weights, np.ones((len(weights), 1))))
    bias = contrast @ moments.mean - intercepts
    covariance = moments.covariance(pairwise=False)
    spread = np.einsum("mi,mi->m", contrast @ covariance, contrast)
    return np.asarray(np.maximum(spread, 0.0) + bias**2)


def squared_errors_on_averages(
    estimates: JudgmentEstimates,
    weights: ArrayLike,
    intercepts: ArrayLike,
    repeats: ArrayLike,
    buy_from: BuyFrom = "independent",
) -> np.ndarray:
    """Estimate squared errors of linear models on averages of so many judgments.

    The held-out objects need not have `repeats` judgments: with their own S, u, v

        loss = E[(y−ȳ)²] − 2wᵀb + wᵀ(S − Diag(u) + Diag(v/r))w + (ȳ − c − wᵀx̄)²,

    (by the same raters N[a, b] / max(r[a], r[b]) in place of Diag(v/r)),

    where the last term, with intercept c, is what centring at the held-out means left out. It is
    unbiased for a predictor that was fixed without these objects, as long as each has some
    judgment of every attribute in use (else consistent), and so may be negative on few objects.

    Parameters
    ----------
    estimates : JudgmentEstimates
        Of the held-out objects; its external covariance must not be made positive semi-definite.
    weights : array_like of shape (d,), or (n_models, d)
    intercepts : array_like of shape (), or (n_models,)
    repeats : array_like of int, of the shape of `weights`
    buy_from : {"independent", "same"}
        Whose judgments are averaged; ``same`` needs estimates with known raters.

    Returns
    -------
    ndarray of shape (), or (n_models,)
        In squared units of the label, in O(n_models · s²) for s attributes in use.
    """
    weights = np.asarray(weights, dtype=float)
    is_used = np.atleast_2d(weights != 0).any(axis=0)
    used = np.flatnonzero(is_used)
    grid = np.ix_(used, used)
    w = weights[..., used]
    r = np.maximum(np.asarray(repeats)[..., used], 1)
    offset = estimates.label_mean - np.asarray(intercepts) - w @ estimates.means[used]
    external = np.einsum("...j,...j->...", w @ estimates.external[grid], w)
    explained = 2.0 * (w @ estimates.b[used])
    if buy_from == "same" and estimates.noise_covariance is not None:
        most = np.maximum(r[..., np.newaxis], r[..., np.newaxis, :])
        shared = estimates.noise_covariance[grid] / most
        noise = np.einsum("...i,...ij,...j->...", w, shared, w)
    else:
        variance = np.where(w != 0, estimates.v[used] / r, 0.0)
        noise = np.sum(variance * w**2, axis=-1)
    return estimates.label_variance - explained + external + noise + offset**2


# --- by a pass over the rows ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Question:
    """Models to judge by a pass; picklable.

    Attributes
    ----------
    models : callable
        See `Models`.
    judge : Judge
    parts : sequence of int, optional
        Folds, or `HELD_OUT`; by default all of them.
    n_scores : int
        Scores of each row, M · P, which decide how many rows are scored together.
    """

    models: Models
    judge: Judge
    parts: Sequence[int] | None = None
    n_scores: int = 1

    def of_rows(self, rows: JudgedRows) -> Any:
        """Return a mergeable statistic of rows: what the judge adds up."""
        return self.judge.of_rows(self.models, rows, self.n_scores)

    def parts_of(self, n_parts: int) -> list[int]:
        """Return the parts that are asked for, of so many, ascending."""
        parts = range(n_parts) if self.parts is None else self.parts
        return sorted({part % n_parts for part in parts})


@dataclass(frozen=True, eq=False)
class JudgeReader(PartialReader):
    """Reads what each question is told, by its number and part."""

    source: FoldedSource
    questions: Sequence[Question]

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition, unless nobody asks for its rows, and judge."""
        parts_of = [self._parts(question) for question in self.questions]
        batch: Any = self.source.read(partition) if any(parts_of) else None
        members = {}
        with naming(partition):
            for number, question in enumerate(self.questions):
                sums = [LossSums()] * self.source.n_parts
                for part in parts_of[number]:
                    sums[part] = question.of_rows(JudgedRows.of_part(batch, part))
                members[str(number)] = Folded(tuple(sums))
        return Bundle(members)

    def _parts(self, question: Question) -> list[int]:
        """Return the parts of a question that may have rows here."""
        source = self.source
        last = source.n_parts - 1
        parts = question.parts_of(source.n_parts)
        if source.held_out:
            return [part for part in parts if part == last]
        if source.section.test == 0:
            return [part for part in parts if part != last]
        return parts

    def key(self) -> dict[str, Any]:
        """Return nothing: judgments are not cached."""
        return {"kind": "judged"}


def judged_in_memory(
    run: Run, rows: Sequence[JudgedRows], questions: Mapping[Key, Question]
) -> dict[Key, Folded[Any]]:
    """Judge models on rows in memory, by part, a task for each; as `Judge.by_pass` does."""
    sums = run.map(partial(_sums_in_memory, rows), questions.values())
    return dict(zip(questions, sums, strict=True))


def _sums_in_memory(rows: Sequence[JudgedRows], question: Question) -> Folded[Any]:
    sums = [LossSums()] * len(rows)
    for part in question.parts_of(len(rows)):
        sums[part] = question.of_rows(rows[part])
    return Folded(tuple(sums))
