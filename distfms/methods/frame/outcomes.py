"""What scores say of a target, and how wrong they are of each row: the losses of the judge.

An `Outcome` is told to a `Judge` (:mod:`distfms.methods.frame.judge`), which alone asks for errors.
Scores have the shape (M, P, n), of M models with P scores for each of n rows; targets (T, n). What
is judged is what ships: clipping, rounding and thresholds are in the scores, or in the outcome.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from distfms.solve.losses import Family, Loss
from distfms.stats.classification import log_odds


class Told(NamedTuple):
    """How one model tells classes or levels apart.

    Attributes
    ----------
    truth, decoded : ndarray of shape (n,)
        Numbers of the true and the predicted class.
    n_classes : int
    scores : ndarray of shape (S, n)
        Larger where an event is more likely: log-odds where there are probabilities.
    events : ndarray of bool, shape (S, n)
        Whether the row is of the class, or above the level, that a score is for.
    """

    truth: np.ndarray
    decoded: np.ndarray
    n_classes: int
    scores: np.ndarray
    events: np.ndarray


class Outcome(ABC):
    """What scores say of a target; a frozen, picklable value."""

    @abstractmethod
    def errors(self, scores: np.ndarray, target: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return how wrong models are of each row.

        Parameters
        ----------
        scores : ndarray of shape (M, P, n)
        target : ndarray of shape (T, n)
            As the data have it.

        Returns
        -------
        mapping of str to ndarray of shape (M, n)
            By the name of the measure that is their weighted mean: ``mse``, ``mae``, ``accuracy``,
            ``error`` (share of wrong classes), ``loss`` or ``deviance``.
        """

    def loss_weights(self, target: np.ndarray) -> np.ndarray | None:
        """Return what rows (n,) weigh in ``loss`` and ``deviance``, times their own weight."""
        return None

    def told(self, scores: np.ndarray, target: np.ndarray, number: int) -> Told | None:
        """Return how the scores (P, n) of a model tell classes apart; None where there are none."""
        return None


@dataclass(frozen=True, eq=False)
class Numbers(Outcome):
    """Scores that are predictions of numbers: ``mse``, the mean over the outputs.

    Attributes
    ----------
    absolute : bool
        Whether the size of errors counts, too: ``mae``.
    threshold : float or ndarray of shape (T,), optional
        Between the two values of binary targets: ``accuracy``, the share of outputs on the right
        side.
    tells_classes : bool
        Whether the classes on both sides of the threshold are told apart; of one output.
    counts_errors : bool
        Whether predictions are numbers of classes or levels: ``error``, the share that differs.
    """

    absolute: bool = False
    threshold: float | np.ndarray | None = None
    tells_classes: bool = False
    counts_errors: bool = False

    def errors(self, scores: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
        """Return errors of predictions; see `Outcome`."""
        away = scores - target
        errors = {"mse": np.square(away).mean(axis=1)}
        if self.absolute:
            errors["mae"] = np.abs(away).mean(axis=1)
        if self.threshold is not None:
            threshold = np.reshape(self.threshold, (-1, 1))
            is_right = (scores > threshold) == (target > threshold)
            errors["accuracy"] = is_right.mean(axis=1)
        if self.counts_errors:
            errors["error"] = np.any(away != 0, axis=1).astype(float)
        return errors

    def told(self, scores: np.ndarray, target: np.ndarray, number: int) -> Told | None:
        """Return which side of the threshold rows and scores are on."""
        if not self.tells_classes:
            return None
        assert self.threshold is not None
        is_positive = target[0] > self.threshold
        decoded = scores[0] > self.threshold
        return Told(is_positive, decoded, 2, scores[:1], is_positive[np.newaxis])


@dataclass(frozen=True, eq=False)
class Responses(Outcome):
    """Linear scores of a generalised linear model, or of trees with its link.

    ``deviance``, ``mse`` of means (of classes, of probabilities: Brier's score) and, of classes or
    labels, ``accuracy``.

    Attributes
    ----------
    family : Family
    classes : tuple of float, optional
        Values of the target that stand for classes, ascending.
    class_weights : tuple of float, optional
        What a row of each class weighs in fits and losses, beside its own weight. They decide
        about classes and are taken off probabilities (King, Zeng, "Logistic Regression in Rare
        Events Data", 2001).
    """

    family: Family
    classes: tuple[float, ...] | None = None
    class_weights: tuple[float, ...] | None = None

    def response(self, target: np.ndarray) -> np.ndarray:
        """Return targets (T, n) as the family takes them: (T, n), or class numbers (n,)."""
        if self.classes is not None:
            target = np.searchsorted(np.array(self.classes), target[:1])
        return target[0] if self.family.name == "softmax" else target

    def loss_weights(self, target: np.ndarray) -> np.ndarray | None:
        """Return what rows weigh by their class."""
        if self.class_weights is None:
            return None
        numbers = self.response(target).ravel().astype(np.intp)
        return np.array(self.class_weights)[numbers]

    @cached_property
    def prior(self) -> np.ndarray:
        """What weights of classes add to scores, (P,), or (1,) where there are none.

        Where class k weighs w_k, the odds that are fitted are w_k times those of the classes as
        frequent as they are.
        """
        if self.class_weights is None:
            return np.zeros(1)
        logs = np.log([weight or 1.0 for weight in self.class_weights])
        return logs if self.family.name == "softmax" else logs[1:] - logs[0]

    def means(self, scores: np.ndarray) -> np.ndarray:
        """Return what is predicted of scores (P, n): means or probabilities, (P, n)."""
        return self.family.mean(scores - self.prior[:, np.newaxis])

    def errors(self, scores: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
        """Return deviances and errors of means; see `Outcome`."""
        family = self.family
        response = self.response(target)
        n_models, n_scores, n_rows = scores.shape
        y = family.responses(response, n_scores)
        deviance, squares, right = np.empty((3, n_models, n_rows))
        for number, eta in enumerate(scores):
            deviance[number] = 2.0 * family.loss(eta, y)
            away = self.means(eta) - y
            squares[number] = np.square(away).mean(axis=0)
            right[number] = family.correct(eta, y)
        errors = {"deviance": deviance, "mse": squares}
        if not np.isnan(right).any():  # counts are no classes
            errors["accuracy"] = right
        return errors

    def told(self, scores: np.ndarray, target: np.ndarray, number: int) -> Told | None:
        """Return log-odds of classes, without what weights of classes add."""
        if self.classes is None:
            return None
        response = self.response(target)
        y = self.family.responses(response, len(scores))
        n_classes = len(self.classes)
        if len(scores) > 1:
            decoded = scores.argmax(axis=0)
            odds = log_odds(self.means(scores))
        else:
            decoded = scores[0] > 0
            odds = scores - self.prior[:, np.newaxis]
        return Told(response.ravel(), decoded, n_classes, odds, y > 0.5)


@dataclass(frozen=True, eq=False)
class Margins(Outcome):
    """Scores of a convex loss of classes, levels or numbers: ``loss``, and errors of predictions.

    Attributes
    ----------
    convex : Loss
    extras : sequence of ndarray
        Parameters of each model beside its weights, such as thresholds of levels.
    classes : tuple of float, optional
        Values of the target that are read as their numbers.
    """

    convex: Loss
    extras: Sequence[np.ndarray]
    classes: tuple[float, ...] | None = None

    def truth(self, target: np.ndarray) -> np.ndarray:
        """Return the target (n,), of classes and levels their numbers."""
        if self.classes is None:
            return np.asarray(target[0])
        return np.searchsorted(np.array(self.classes), target[0]).astype(float)

    def errors(self, scores: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
        """Return losses and errors of predictions; see `Outcome`."""
        truth = self.truth(target)
        losses, away = np.empty((2, len(scores), len(truth)))
        for number, extra in enumerate(self.extras):
            losses[number] = self.convex.judged(scores[number], truth, extra)
            away[number] = np.abs(self.convex.decoded(scores[number], extra) - truth)
        errors = {"loss": losses, "mae": away, "mse": np.square(away)}
        if self.classes is not None:
            errors["error"] = (away > 0).astype(float)
        return errors

    def told(self, scores: np.ndarray, target: np.ndarray, number: int) -> Told | None:
        """Return scores of each class, or above each level."""
        truth = self.truth(target)
        extra = self.extras[number]
        classes_and_events = self.convex.told(scores, truth, extra)
        if classes_and_events is None:
            return None
        n_classes, event_scores, events = classes_and_events
        return Told(truth, self.convex.decoded(scores, extra), n_classes, event_scores, events)
