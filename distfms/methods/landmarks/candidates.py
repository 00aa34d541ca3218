"""What a model may compare rows by, judged by folds on a sample of the training rows.

A candidate is a similarity, with the metric, the width and the ridge that it has. The first one is
the constant, which has no landmark; then the candidates of each similarity follow, wide ones before
narrow ones and large ridges before small ones. What is learned from the target, as a metric is, is
learned without the fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.choose import Rule, best, chosen_without
from distfms.methods.frame.judge import Judge, JudgedRows
from distfms.methods.frame.outcomes import Numbers, Responses
from distfms.methods.landmarks.metric import learned_transform, under
from distfms.methods.landmarks.similarity import KERNELS, LINEAR, PRECOMPUTED, LandmarkMap
from distfms.solve.logistic import logistic_scores
from distfms.solve.losses import FAMILIES, probabilities
from distfms.solve.ridge import Ridges
from distfms.stats.base import number_or_none, over_folds
from distfms.stats.classification import log_odds
from distfms.stats.folds import FoldAnswers

#: What the constant is called among candidates.
CONSTANT = "constant"
#: Part of the loss of the constant by which a candidate must be better.
_NO_GAIN = 1e-3
#: Widths that are tried, in median distances between rows, and the rows that these are taken of.
WIDTHS, _UNIT_ROWS = (4.0, 2.0, 1.0, 0.5), 256
#: Ridges that are tried; of a logistic loss, whose fits take longer, fewer.
RIDGES, LOGISTIC_RIDGES = np.logspace(2.0, -9.0, 23), np.logspace(1.0, -6.0, 8)
#: Landmarks that candidates are judged with: more of them take long, and differ little. A linear
#: similarity has two for each column, which say all there is.
LANDMARKS_JUDGED = 256
#: Rows that likely scales are learned from.
_LIKELY_ROWS = 384


@dataclass(frozen=True)
class Form:
    """A similarity under a kind of metric, of a width in median distances between rows.

    Attributes
    ----------
    label : str
        Of the similarity; `CONSTANT` for none.
    metric : {"none", "diagonal", "full"}
    width : float or None
        None where the similarity has none, or one that was given.
    """

    label: str
    metric: str = "none"
    width: float | None = None


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows of a sample, in random order; equal rows of one object are one row of their weight.

    Attributes
    ----------
    features : ndarray of shape (d, n)
        As the data have them.
    target : ndarray of shape (P, n)
        Numbers; of classes whether rows are of each, of two classes of the second.
    weight : ndarray of shape (n,)
    fold : ndarray of int, shape (n,)
    n_merged : int
        Rows of the data that they are.
    """

    features: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    fold: np.ndarray
    n_merged: int = 0

    def where(self, rows: slice | np.ndarray) -> SampledRows:
        """Return some rows."""
        return SampledRows(
            self.features[:, rows], self.target[:, rows], self.weight[rows], self.fold[rows]
        )

    def without(self, fold: int) -> SampledRows:
        """Return the rows of all folds but one; all rows for −1."""
        return self.where(self.fold != fold)


#: A form and its ridge.
Candidate = tuple[Form, float]


def candidates_of(forms: Sequence[Form], ridges: np.ndarray) -> tuple[Candidate, ...]:
    """Return the candidates of forms: the constant, then each other with every ridge."""
    candidates: list[Candidate] = [(forms[0], 0.0)]
    for form in forms[1:]:
        candidates += [(form, float(ridge)) for ridge in ridges]
    return tuple(candidates)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What folds say of candidates.

    Attributes
    ----------
    candidates : tuple of (Form, float)
        The constant first.
    losses, errors : ndarray of shape (n_candidates, n_folds)
        Mean loss of the rows of each fold: squared errors in units of the variance of the target,
        of classes log losses; and the mean size of errors, of classes the share of wrong ones.
    weight : ndarray of shape (n_folds,)
        Of the rows of each fold.
    variance : float
        Of the target; 1 for classes.
    """

    candidates: tuple[Candidate, ...]
    losses: np.ndarray
    errors: np.ndarray
    weight: np.ndarray
    variance: float

    @property
    def forms(self) -> list[Form]:
        """All forms, the constant first."""
        return list(dict.fromkeys(form for form, _ in self.candidates))

    def best_of(self, label: str, metric: str | None = None) -> int:
        """Return the best candidate of a similarity, or of one with a kind of metric."""
        places = []
        for place, (form, _) in enumerate(self.candidates):
            if form.label == label and metric in (None, form.metric):
                places.append(place)
        return places[best(self.losses[places], self.weight)]

    @property
    def is_constant(self) -> bool:
        """Whether no candidate is better than the constant by more than a large ridge makes it."""
        least = self.mean_loss(best(self.losses, self.weight))
        return self.mean_loss(0) <= least * (1.0 + _NO_GAIN)

    def mean_loss(self, candidate: int) -> float:
        """Return the mean over folds of a candidate's loss."""
        return float(over_folds(self.losses[candidate], self.weight).mean)

    def listed(self, chosen: int) -> list[dict[str, Any]]:
        """Return the best of each similarity and metric beside the chosen one, for results."""
        entries = list[dict[str, Any]]()
        for label, metric in dict.fromkeys((form.label, form.metric) for form in self.forms):
            try:
                candidate = self.best_of(label, metric)
            except DataError:  # the same for all rows and landmarks
                continue
            form, ridge = self.candidates[candidate]
            behind = over_folds(self.losses[candidate] - self.losses[chosen], self.weight)
            entry = {
                "similarity": label,
                "metric": metric,
                "width": form.width,
                "ridge": ridge,
                "loss": self.mean_loss(candidate),
                "behind": float(behind.mean),
                "chosen": candidate == chosen,
                "standard_error": number_or_none(behind.standard_error),
            }
            entries.append(entry)
        return entries

    def measures(self, main: str) -> dict[str, np.ndarray]:
        """Return measures (n_candidates, n_folds) by the names that metrics have of them."""
        if main == "error":
            return {"error": self.errors, "loss": self.losses}
        if main == "mse":
            return {"mse": self.losses * self.variance}
        return {"mae": self.errors} if main == "mae" else {}

    def without_a_say(self, values: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """Return what folds measured of the model, had they had no say in the candidate.

        Parameters
        ----------
        values : ndarray of shape (n_candidates, n_folds)
            The measure of candidates, on the sample.
        measured : ndarray of shape (n_folds,)
            That of the model, whose candidate is the best.

        Returns
        -------
        ndarray of shape (n_folds,)
            `measured`, and the difference of what the other folds choose; no worse than this is
            itself, as a model of few landmarks is nearer to the constant.
        """
        folds = np.arange(len(self.weight))
        chosen = values[chosen_without(self.losses, self.weight), folds]
        moved = measured + chosen - values[best(self.losses, self.weight)]
        return np.minimum(moved, np.maximum(measured, chosen))


@dataclass(frozen=True, eq=False)
class FoldChoice:
    """What folds chose among values by squared error.

    Attributes
    ----------
    value : float
    added : ndarray of shape (n_folds,)
        By how much the error of each fold is greater of what the other folds choose.
    """

    value: float
    added: np.ndarray

    @classmethod
    def of(cls, tried: np.ndarray, answers: FoldAnswers, item: int, rule: Rule) -> FoldChoice:
        """Choose among what was tried, by what folds answered an item."""
        losses = answers.values(item, "mse")
        weight = np.array(answers.weight)
        chosen = rule(losses, weight)
        choices = chosen_without(losses, weight, rule)
        folds = np.arange(len(weight))
        return cls(float(tried[chosen]), losses[choices, folds] - losses[chosen])


@dataclass(frozen=True, eq=False)
class FoldAnswer:
    """What a fold says of candidates.

    Attributes
    ----------
    losses, errors : ndarray of shape (n_candidates,)
        See `Comparison`; the losses of numbers in their own units.
    transforms : mapping of str to ndarray
        T by kind of metric, learned without the fold.
    """

    losses: np.ndarray
    errors: np.ndarray
    transforms: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Judging:
    """Picklable function from a fold to what candidates lose on it.

    Attributes
    ----------
    rows : SampledRows
    maps : mapping of str to LandmarkMap
        By the label of the similarity, without a metric.
    forms : tuple of Form
    has_classes : bool
        Whether the loss is that of probabilities of classes.
    has_levels : bool
        Whether numbers are those of levels.
    intercept : bool
        Whether models have one.
    """

    rows: SampledRows
    maps: Mapping[str, LandmarkMap]
    forms: tuple[Form, ...]
    has_classes: bool
    has_levels: bool
    intercept: bool = True

    @property
    def grid(self) -> np.ndarray:
        """Ridges that are tried."""
        return LOGISTIC_RIDGES if self.has_classes else RIDGES

    def transforms(self, fold: int) -> dict[str, np.ndarray]:
        """Return T of each kind of metric, learned without a fold (−1: from all rows)."""
        first = self.rows.without(fold).where(slice(_LIKELY_ROWS))
        features = next(iter(self.maps.values())).scaled(first.features)
        transforms = dict[str, np.ndarray]()
        for kind in dict.fromkeys(form.metric for form in self.forms):
            if kind != "none":
                transforms[kind] = learned_transform(kind, features, first.target, first.weight)
        return transforms

    def mapping(
        self, form: Form, transforms: Mapping[str, np.ndarray], ridge: float
    ) -> LandmarkMap:
        """Return the map of a form with a ridge."""
        plain = self.maps[form.label]
        if form.width is None and form.metric == "none":
            return replace(plain, ridge=ridge)
        transform = transforms.get(form.metric, np.zeros(0))
        sigma = dict(plain.similarity.parameters)["sigma"]
        if form.width is not None:
            scaled = replace(plain, transform=transform).scaled(self.rows.features[:, :_UNIT_ROWS])
            sigma = form.width * median_distance(scaled)
        return under(plain, transform, sigma, ridge)

    def __call__(self, fold: int) -> FoldAnswer:
        """Return what a fold says; for −1 no more than the metrics of all rows."""
        transforms = self.transforms(fold)
        is_held_out = self.rows.fold == fold
        if not is_held_out.any():
            n_candidates = len(candidates_of(self.forms, self.grid))
            unknown = np.full(n_candidates, np.nan)
            return FoldAnswer(unknown, unknown, transforms)
        train = self.rows.without(fold)
        held_out = self.rows.where(is_held_out)
        scores = [self._constant(train, held_out)]
        for form in self.forms[1:]:
            mapping = self.mapping(form, transforms, 0.0)
            scores.append(self._scores(mapping, train, held_out))
        losses, errors = self._judged(np.concatenate(scores), held_out)
        return FoldAnswer(losses, errors, transforms)

    def _constant(self, train: SampledRows, held_out: SampledRows) -> np.ndarray:
        """Return the score (1, P, m) of the constant."""
        level = np.average(train.target, axis=1, weights=train.weight)
        if self.has_classes:
            level = log_odds(level)
        return np.broadcast_to(level[:, np.newaxis], (1, *held_out.target.shape))

    def _scores(
        self, mapping: LandmarkMap, train: SampledRows, held_out: SampledRows
    ) -> np.ndarray:
        """Return scores (n_ridges, P, m) of held-out rows by models of all ridges."""
        mapping = _of_few_landmarks(mapping)
        similar = mapping(train.features)
        unseen = mapping(held_out.features)
        share = train.weight / train.weight.sum()
        level = np.zeros((len(train.target), 1))
        if self.intercept:
            mean = (similar @ share)[:, np.newaxis]
            similar = similar - mean
            unseen = unseen - mean
            level = (train.target @ share)[:, np.newaxis]
        weighed = similar * share
        covariance = weighed @ similar.T
        penalty = mapping.penalty()
        if penalty is None:
            penalty = np.mean(np.diagonal(covariance)) * np.eye(len(covariance))
        if not np.trace(penalty) > 0:  # the same for all rows and landmarks
            return np.full((len(self.grid), *held_out.target.shape), np.nan)
        ridges = Ridges.of(covariance, weighed @ (train.target - level).T, penalty)
        if not self.has_classes:
            return ridges.predictions(self.grid, unseen) + level
        return logistic_scores(
            self.grid,
            ridges.values,
            ridges.basis.T @ similar,
            train.target,
            share,
            ridges.basis.T @ unseen,
            held_out.target,
            self.intercept,
        )

    def _judged(self, scores: np.ndarray, rows: SampledRows) -> tuple[np.ndarray, np.ndarray]:
        """Return mean losses and shares of errors (n,) of scores (n, P, m)."""
        if self.has_classes:
            return _judged_classes(scores, rows)
        judge = Judge(Numbers(absolute=True))
        judged = JudgedRows(rows.features, rows.target, rows.weight)
        measures = judge.measures(judge.of_scores(scores, judged))
        if not self.has_levels:
            return measures["mse"], measures["mae"]
        levels = judge.measures(judge.of_scores(np.round(scores), judged))
        return measures["mse"], levels["mae"]


def _of_few_landmarks(mapping: LandmarkMap) -> LandmarkMap:
    """Return a map to the first landmarks, with which candidates are judged."""
    name = mapping.similarity.name
    n_judged = 2 * len(mapping.scale) if name == LINEAR else LANDMARKS_JUDGED
    if mapping.n_landmarks <= n_judged or name == PRECOMPUTED:
        return mapping
    return mapping.restricted(range(n_judged))


def _judged_classes(scores: np.ndarray, rows: SampledRows) -> tuple[np.ndarray, np.ndarray]:
    """Return log losses and shares of wrong classes of scores (n, P, m)."""
    truth = class_numbers(rows.target)[np.newaxis]
    n_classes = max(len(rows.target), 2)
    classes = tuple(float(number) for number in range(n_classes))
    # Chances of one class against the others are brought to one by `probabilities`.
    chances = np.stack([probabilities(of_model.T).T for of_model in scores])
    logs = np.log(np.maximum(chances, np.finfo(float).tiny))
    judge = Judge(Responses(FAMILIES["softmax"], classes), in_detail=slice(0))
    sums = judge.of_scores(logs, JudgedRows(rows.features, truth, rows.weight))
    measures = judge.measures(sums)
    return measures["deviance"] / 2.0, 1.0 - measures["accuracy"]


def class_numbers(target: np.ndarray) -> np.ndarray:
    """Return the numbers of classes, from whether rows are of each, of two of the second."""
    if len(target) == 1:
        return target[0].astype(np.intp)
    return np.asarray(target.argmax(axis=0))


def median_distance(rows: np.ndarray) -> float:
    """Return the median distance between two of some rows (d, n)."""
    from scipy.spatial.distance import pdist

    distances = pdist(rows.T)
    return float(np.median(distances[distances > 0])) if distances.any() else 1.0


def forms_of(
    maps: Mapping[str, LandmarkMap], kinds: Sequence[str], given: Mapping[str, float | None]
) -> tuple[Form, ...]:
    """Return the forms of similarities, the constant first.

    Parameters
    ----------
    maps : mapping of str to LandmarkMap
    kinds : sequence of {"none", "diagonal", "full"}
        Metrics that kernels may have. Without one, a kernel is as it is.
    given : mapping of str to float or None
        Width that the spec has for a similarity, which is that under the metric too.
    """
    forms = [Form(CONSTANT)]
    for label, mapping in maps.items():
        if mapping.similarity.name not in KERNELS or not kinds:
            forms.append(Form(label))
            continue
        widths = WIDTHS if given.get(label) is None else (None,)
        forms += [Form(label, kind, width) for kind in kinds for width in widths]
    return tuple(forms)


def comparison(judging: Judging, answers: Sequence[FoldAnswer]) -> Comparison:
    """Gather what the folds said."""
    rows = judging.rows
    variance = 1.0
    if not judging.has_classes:
        level = np.average(rows.target, axis=1, weights=rows.weight)
        squares = np.sum((rows.target - level[:, np.newaxis]) ** 2, axis=0)
        variance = max(float(np.average(squares, weights=rows.weight)), np.finfo(float).tiny)
    losses = np.stack([answer.losses for answer in answers], axis=1)
    return Comparison(
        candidates_of(judging.forms, judging.grid),
        losses / variance,
        np.stack([answer.errors for answer in answers], axis=1),
        np.bincount(rows.fold, rows.weight, len(answers)),
        variance,
    )
