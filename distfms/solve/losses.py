"""Convex losses of linear scores, smooth enough for fits by passes over rows.

A corner max(t, 0) is rounded over a width 1/β, so that a loss differs from that with corners by at
most 1/(2β).

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", section 3 and appendix D.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distfms.stats.classification import log_odds

Array = np.ndarray


def rounded(t: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return max(t, 0), rounded where 0 < t < width, its slope and its curvature."""
    inside = np.clip(t, 0.0, width)
    value = inside * (np.maximum(t, 0.0) - inside / 2) / width
    return value, inside / width, ((t >= 0.0) & (t <= width)) / width


class Slopes(NamedTuple):
    """A loss of n rows and its derivatives.

    A loss is a sum of T terms of each score, shifted by a linear function of the parameters beside
    the weights (`Loss.shifts`).

    Attributes
    ----------
    value : ndarray of shape (P, n)
    slope, curvature : ndarray of shape (P, T, n)
        First and second derivative of the terms by the shifted scores.
    """

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of P scores of each row.

    Attributes
    ----------
    width : float
        Over which corners are rounded.
    """

    width: float
    n_scores = 1

    def start(self) -> np.ndarray:
        """Return the first values of the parameters beside the weights: P intercepts here."""
        return np.zeros(self.n_scores)

    def least(self) -> np.ndarray | None:
        """Return the least values of these parameters; None where all are allowed."""
        return None

    def offset(self, extra: np.ndarray) -> np.ndarray:
        """Return what is added to the scores, shape (P,)."""
        return extra

    def shifts(self, target: Array) -> np.ndarray:
        """Return the shifts of scores by those parameters of each score, (T, E/P, n)."""
        return np.ones((1, 1, len(target)))

    @property
    def steepest(self) -> float:
        """Largest curvature of a term."""
        return 1.0 / self.width

    @abstractmethod
    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return the loss of scores (P, n), offsets included, and its derivatives."""

    def judged(self, scores: Array, target: Array, extra: Array) -> np.ndarray:
        """Return the loss of rows (n,) by which models are judged."""
        return np.asarray(self.slopes(scores, target, extra).value.sum(axis=0))

    def decoded(self, scores: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return predictions (n,) in the units of the target, or numbers of classes."""
        return scores[0]

    def told(self, scores: Array, target: Array, extra: Array) -> tuple[int, Array, Array] | None:
        """Return how many classes there are, scores of events and whether these hold, (S, n).

        None where the target is a number.
        """
        return None


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """max(|f − y| − ε, 0)."""

    epsilon: float

    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return loss and derivatives."""
        away = scores[0] - target
        value, slope, curvature = rounded(np.abs(away) - self.epsilon, self.width)
        slope = slope * np.sign(away)
        return Slopes(value[None], slope[None, None], curvature[None, None])


@dataclass(frozen=True)
class Margin(Loss):
    """max(1 − m, 0) or log(1 + e^−m) of margins m, each class against the others.

    Attributes
    ----------
    n_classes : int
        With two there is one score, positive for the second.
    logistic : bool
    """

    n_classes: int
    logistic: bool

    @property
    def n_scores(self) -> int:  # type: ignore[override]
        """Number of scores."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def steepest(self) -> float:
        """Largest curvature."""
        return 0.25 if self.logistic else super().steepest

    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return loss and derivatives."""
        from scipy.special import expit

        own = np.arange(self.n_scores)[:, np.newaxis] + (self.n_scores == 1)
        sign = np.where(target == own, 1.0, -1.0)
        margin = sign * scores
        if self.logistic:
            value, slope = np.logaddexp(0.0, -margin), expit(-margin)
            curvature = slope * expit(margin)
        else:
            value, slope, curvature = rounded(1.0 - margin, self.width)
        return Slopes(value, (-sign * slope)[:, None], curvature[:, None])

    def judged(self, scores: Array, target: Array, extra: Array) -> np.ndarray:
        """Return log losses of predicted probabilities, or losses of margins."""
        if not self.logistic:
            return super().judged(scores, target, extra)
        chances = probabilities(scores.T)[np.arange(len(target)), target.astype(np.intp)]
        return np.asarray(-np.log(np.maximum(chances, np.finfo(float).tiny)))

    def decoded(self, scores: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return numbers of classes."""
        return (scores[0] > 0) * 1.0 if self.n_scores == 1 else scores.argmax(axis=0) * 1.0

    def told(self, scores: Array, target: Array, extra: Array) -> tuple[int, Array, Array] | None:
        """Return scores of each class: log-odds of probabilities, or margins."""
        own = np.arange(self.n_scores)[:, np.newaxis] + (self.n_scores == 1)
        if self.logistic and self.n_scores > 1:
            scores = log_odds(probabilities(scores.T).T)
        return self.n_classes, scores, target == own


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Return probabilities of the classes (n, r) by logistic scores (n, P).

    With two classes, that of the second is 1/(1 + e^−s). With more, those of each class against the
    others are divided by their sum.
    """
    from scipy.special import expit, log_expit, softmax

    if scores.shape[1] > 1:
        return np.asarray(softmax(log_expit(scores), axis=1))
    second = expit(scores)
    return np.hstack((1.0 - second, second))


@dataclass(frozen=True)
class OrdinalMargin(Loss):
    """[f − b_y]_γ + [b_{y+1} − f]_γ with [x]_γ = max(γ − x, 0), for levels y = 0 … r − 1.

    Attributes
    ----------
    n_levels : int
        r.
    gamma : float
    spacing : float or None
        Least distance Δ between thresholds that are learned. None for fixed ones, half-way between
        the levels.

    Notes
    -----
    Learned thresholds are b_2 = e_0 and b_{j+1} = b_j + e_j with e_j ≥ Δ, so that the problem stays
    convex; the intercept is in e_0.
    """

    n_levels: int
    gamma: float
    spacing: float | None

    def start(self) -> np.ndarray:
        """Return an intercept, or parameters of thresholds 1 apart."""
        return (
            np.zeros(1) if self.spacing is None else np.array([0.5, *[1.0] * (self.n_levels - 2)])
        )

    def least(self) -> np.ndarray | None:
        """Return the least gaps."""
        if self.spacing is None:
            return None
        return np.array([-np.inf, *[self.spacing] * (self.n_levels - 2)])

    def offset(self, extra: np.ndarray) -> np.ndarray:
        """Return the intercept."""
        return extra if self.spacing is None else np.zeros(1)

    def shifts(self, target: Array) -> np.ndarray:
        """Return how the thresholds below and above a row move with their parameters."""
        if self.spacing is None:
            return np.ones((2, 1, len(target)))
        # A threshold moves with all gaps before it; the ends of the scale do not move.
        moved = np.zeros((self.n_levels + 1, self.n_levels - 1))
        moved[1:-1] = -np.tri(self.n_levels - 1)
        level = target.astype(np.intp)
        return np.stack((moved[level].T, moved[level + 1].T))

    def thresholds(self, extra: np.ndarray) -> np.ndarray:
        """Return b_2 … b_r, ascending."""
        if self.spacing is None:
            return np.arange(self.n_levels - 1) + 0.5
        return np.cumsum(extra)

    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return loss and derivatives."""
        level, f = target.astype(np.intp), scores[0]
        limits = np.concatenate(([-np.inf], self.thresholds(extra), [np.inf]))
        below, down, bent = rounded(self.gamma - (f - limits[level]), self.width)
        above, up, turned = rounded(self.gamma - (limits[level + 1] - f), self.width)
        slope, curvature = np.stack((-down, up)), np.stack((bent, turned))
        return Slopes((below + above)[None], slope[None], curvature[None])

    def decoded(self, scores: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return numbers of levels."""
        return np.searchsorted(self.thresholds(extra), scores[0], side="right") * 1.0

    def told(self, scores: Array, target: Array, extra: Array) -> tuple[int, Array, Array] | None:
        """Return how far rows are above each threshold."""
        levels = np.arange(1, self.n_levels)[:, np.newaxis]
        above = scores[0] - self.thresholds(extra)[:, np.newaxis]
        return self.n_levels, above, target >= levels


@dataclass(frozen=True)
class AllMargins(OrdinalMargin):
    """Σ_{j ≤ y} [f − b_j]_γ + Σ_{j > y} [b_j − f]_γ: margins from every threshold, not just two.

    Thresholds b_j are parameters without constraints: they ascend where this loss is least.

    References
    ----------
    Chu, Keerthi, "Support vector ordinal regression", Neural Computation 19 (2007): implicit
    constraints (IMC), which appendix E.3 of Kar and Jain extends to similarities.
    """

    def start(self) -> np.ndarray:
        """Return thresholds half-way between the levels."""
        return np.arange(self.n_levels - 1) + 0.5

    def offset(self, extra: np.ndarray) -> np.ndarray:
        """Return none: moving all thresholds does the same."""
        return np.zeros(1)

    def shifts(self, target: Array) -> np.ndarray:
        """Return how each score less a threshold moves with that."""
        moved = -np.eye(self.n_levels - 1)[:, :, np.newaxis]
        return np.broadcast_to(moved, (*moved.shape[:2], len(target)))

    def thresholds(self, extra: np.ndarray) -> np.ndarray:
        """Return the thresholds, ascending also where a fit ended a little early."""
        return np.maximum.accumulate(extra)

    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return loss and derivatives."""
        side = np.where(target >= np.arange(1, self.n_levels)[:, np.newaxis], 1.0, -1.0)
        away = side * (scores - extra[:, np.newaxis])
        value, slope, curvature = rounded(self.gamma - away, self.width)
        return Slopes(value.sum(axis=0)[None], (-side * slope)[None], curvature[None])
