"""Convex losses of linear scores: exponential families, margins and distances.

A family has a linear predictor η, of which φ(η) is convex: a row costs φ(η) − yᵀη, and ∇φ(η) is the
mean that it says of y (McCullagh, Nelder, "Generalized Linear Models", section 2.2). Other losses
have corners. A corner max(t, 0) is rounded over a width 1/β, so that a loss differs from that with
corners by at most 1/(2β) (Kar, Jain, "Supervised Learning with Similarity Functions", section 3 and
appendix D.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from distfms.errors import DataError
from distfms.stats.classification import log_odds

#: Largest absolute linear predictor of a mean on the boundary.
_LINK_LIMIT = 30.0
#: Above this linear predictor the Poisson φ continues as a straight line (e⁵⁰ ≈ 5·10²¹ counts).
_POISSON_LIMIT = 50.0

Array = np.ndarray


# --- exponential families ------------------------------------------------------------------------


class Family(ABC):
    """What a generalised linear model needs to know about its response."""

    name: ClassVar[str]

    def responses(self, y: np.ndarray, n_outputs: int) -> np.ndarray:
        """Return responses (n_outputs, n); class numbers (n,) become memberships."""
        return y

    def require(self, y: np.ndarray) -> None:  # noqa: B027
        """Raise `DataError` where a response cannot belong to the family."""

    @abstractmethod
    def mean(self, eta: np.ndarray) -> np.ndarray:
        """∇φ(η) = E[y | x]."""

    @abstractmethod
    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """φ(η) − yᵀη less its minimum over η (half the deviance, ≥ 0), shape (n,).

        Written without the difference of large numbers.
        """

    def correct(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Share of the outputs of each row that are classified correctly, shape (n,)."""
        is_correct = (eta > 0) == (y > 0.5)
        return np.asarray(is_correct.mean(axis=0))

    @abstractmethod
    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return η with ∇φ(η) = mean; finite also on the boundary."""

    def variance(self, mean: np.ndarray) -> np.ndarray:
        """Diagonal of ∇²φ where ∇φ is the mean, μ(1 − μ) of probabilities."""
        return mean * (1.0 - mean)


class Logistic(Family):
    """φ(η) = Σ log(1 + e^η): labels (or shares) in [0, 1], each output on its own."""

    name = "logistic"

    def require(self, y: np.ndarray) -> None:
        """Refuse what is not between 0 and 1."""
        if y.size and (y.min() < 0.0 or y.max() > 1.0):
            raise DataError(
                "The logistic family needs labels 0 and 1 (or shares between them); the target "
                f"ranges from {y.min():g} to {y.max():g}."
            )

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """1 / (1 + e^−η)."""
        with np.errstate(over="ignore"):
            inverse = np.exp(-eta)
        inverse += 1.0
        return np.reciprocal(inverse, out=inverse)

    def losses(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross entropy of each output, log(1 + e^η) − yη.

        As max(η, 0) − yη + log(1 + e^−|η|): both parts are ≥ 0, none overflows.
        """
        cross = -np.abs(eta)
        np.log1p(np.exp(cross, out=cross), out=cross)
        cross += np.maximum(eta, 0.0)
        cross -= y * eta
        return cross

    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross entropy less entropy."""
        cross = self.losses(eta, y)
        is_label = (y == 0.0) | (y == 1.0)
        if not is_label.all():  # labels have no entropy
            from scipy.special import xlogy

            cross += xlogy(y, y) + xlogy(1.0 - y, 1.0 - y)
        return cross.sum(axis=0)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """log(μ / (1 − μ)) within the limit."""
        with np.errstate(divide="ignore"):
            eta = np.log(mean) - np.log1p(-mean)
        return np.clip(eta, -_LINK_LIMIT, _LINK_LIMIT)


class Softmax(Family):
    """φ(η) = log Σ e^η: one of P ≥ 2 classes.

    The same number added to all η of a sample changes nothing. A fit that begins at coefficients
    of zero mean over the classes keeps to such, since its gradients have zero mean.
    """

    name = "softmax"

    def responses(self, y: np.ndarray, n_outputs: int) -> np.ndarray:
        """Return memberships of class numbers."""
        is_class = np.arange(n_outputs)[:, np.newaxis] == y
        return is_class.astype(np.float64)

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """e^η / Σ e^η."""
        shares = np.exp(eta - eta.max(axis=0))
        shares /= shares.sum(axis=0)
        return shares

    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross entropy log Σ e^η − yᵀη, of η less its largest value."""
        below = eta - eta.max(axis=0)
        total = np.exp(below).sum(axis=0)
        return np.log(total) - (y * below).sum(axis=0)

    def correct(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Whether the greatest score is that of the class."""
        is_correct = eta.argmax(axis=0) == y.argmax(axis=0)
        return np.asarray(is_correct, dtype=np.float64)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return log μ, centred over classes, within the limit."""
        with np.errstate(divide="ignore"):
            eta = np.maximum(np.log(mean), -_LINK_LIMIT)
        return eta - eta.mean(axis=0)


class Poisson(Family):
    """φ(η) = Σ e^η: counts (or rates) ≥ 0, each output on its own."""

    name = "poisson"

    def require(self, y: np.ndarray) -> None:
        """Refuse what is below 0."""
        if y.size and y.min() < 0.0:
            raise DataError(f"The poisson family needs counts ≥ 0; the target has {y.min():g}.")

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """e^η, constant above the limit."""
        return np.exp(np.minimum(eta, _POISSON_LIMIT))

    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Σ y(e^δ − 1 − δ) with δ = η − log y; e^η where y = 0."""
        low = np.minimum(eta, _POISSON_LIMIT)
        delta = low - np.log(np.where(y > 0.0, y, 1.0))
        value = np.where(y > 0.0, y * (np.expm1(delta) - delta), np.exp(low))
        straight = (np.exp(low) - y) * (eta - low)
        return np.asarray((value + straight).sum(axis=0))

    def correct(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """NaN: counts are no classes."""
        return np.full(eta.shape[1], np.nan)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Log μ within the limit."""
        with np.errstate(divide="ignore"):
            return np.clip(np.log(mean), -_LINK_LIMIT, _POISSON_LIMIT)

    def variance(self, mean: np.ndarray) -> np.ndarray:
        """Return the mean itself."""
        return mean


LOGISTIC = Logistic()
FAMILIES: dict[str, Family] = {family.name: family for family in (LOGISTIC, Softmax(), Poisson())}


def mean_response(family: str, scores: np.ndarray) -> np.ndarray:
    """Return predictions ∇φ(η) (n, P) from linear scores (n, P)."""
    if family == "gaussian":
        return scores
    return FAMILIES[family].mean(np.ascontiguousarray(scores.T)).T


# --- losses that Newton steps minimise -----------------------------------------------------------


def rounded(t: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return max(t, 0), rounded where 0 < t < width, its slope and its curvature.

    u(t − u/2)/w with u = min(max(t, 0), w): Kar, Jain, appendix D.1.
    """
    inside = np.clip(t, 0.0, width)
    value = inside * (np.maximum(t, 0.0) - inside / 2) / width
    is_inside = (t >= 0.0) & (t <= width)
    return value, inside / width, is_inside / width


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
    has_intercept : bool
        Whether there is a constant beside the weights of each score.
    """

    width: float
    has_intercept: bool = field(default=True, kw_only=True)
    n_scores = 1

    def start(self) -> np.ndarray:
        """Return the first values of the parameters beside the weights: intercepts here."""
        return np.zeros(self.n_scores if self.has_intercept else 0)

    def least(self) -> np.ndarray | None:
        """Return the least values of these parameters; None where all are allowed."""
        return None

    def offset(self, extra: np.ndarray) -> np.ndarray:
        """Return what is added to the scores, shape (P,)."""
        return extra if self.has_intercept else np.zeros(self.n_scores)

    def shifts(self, target: Array) -> np.ndarray:
        """Return the shifts of scores by those parameters of each score, (T, E/P, n)."""
        return np.ones((1, int(self.has_intercept), len(target)))

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
        """Return loss and derivatives, of which the slope has the sign of f − y."""
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
        """Largest curvature: μ(1 − μ) ≤ ¼ of the logistic loss."""
        return 0.25 if self.logistic else super().steepest

    def slopes(self, scores: Array, target: Array, extra: Array) -> Slopes:
        """Return loss and derivatives, by margins m = ±f or by the family's μ − y and μ(1 − μ)."""
        is_class = self._is_class(target)
        if self.logistic:
            mean = LOGISTIC.mean(scores)
            value = LOGISTIC.losses(scores, is_class)
            curvature = LOGISTIC.variance(mean)
            return Slopes(value, (mean - is_class)[:, None], curvature[:, None])
        sign = np.where(is_class, 1.0, -1.0)
        value, slope, curvature = rounded(1.0 - sign * scores, self.width)
        return Slopes(value, (-sign * slope)[:, None], curvature[:, None])

    def judged(self, scores: Array, target: Array, extra: Array) -> np.ndarray:
        """Return log losses of predicted probabilities, or losses of margins."""
        if not self.logistic:
            return super().judged(scores, target, extra)
        of_classes = probabilities(scores.T)
        of_target = of_classes[np.arange(len(target)), target.astype(np.intp)]
        return np.asarray(-np.log(np.maximum(of_target, np.finfo(float).tiny)))

    def decoded(self, scores: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return numbers of classes."""
        numbers = scores[0] > 0 if self.n_scores == 1 else scores.argmax(axis=0)
        return numbers * 1.0

    def told(self, scores: Array, target: Array, extra: Array) -> tuple[int, Array, Array] | None:
        """Return scores of each class: log-odds of probabilities, or margins."""
        if self.logistic and self.n_scores > 1:
            scores = log_odds(probabilities(scores.T).T)
        return self.n_classes, scores, self._is_class(target)

    def _is_class(self, target: np.ndarray) -> np.ndarray:
        """Return whether rows are of the class of each score, (P, n)."""
        numbers = np.arange(self.n_scores) if self.n_scores > 1 else np.ones(1)
        return np.asarray(target == numbers[:, np.newaxis])


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
    convex; the intercept is in e_0. Reference: Kar, Jain, section 3.2 and appendix E.3.
    """

    n_levels: int
    gamma: float
    spacing: float | None

    def start(self) -> np.ndarray:
        """Return an intercept if there is one, or parameters of thresholds 1 apart."""
        if self.spacing is None:
            return super().start()
        return np.append(0.5, np.ones(self.n_levels - 2))

    def least(self) -> np.ndarray | None:
        """Return the least gaps e_j ≥ Δ."""
        if self.spacing is None:
            return None
        return np.append(-np.inf, np.full(self.n_levels - 2, self.spacing))

    def offset(self, extra: np.ndarray) -> np.ndarray:
        """Return the intercept."""
        return super().offset(extra) if self.spacing is None else np.zeros(1)

    def shifts(self, target: Array) -> np.ndarray:
        """Return how the thresholds below and above a row move with their parameters."""
        if self.spacing is None:
            return np.ones((2, int(self.has_intercept), len(target)))
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
        """Return loss and derivatives of the corners at the thresholds below and above a row."""
        level = target.astype(np.intp)
        limits = np.concatenate(([-np.inf], self.thresholds(extra), [np.inf]))
        above_lower = scores[0] - limits[level]
        below_upper = limits[level + 1] - scores[0]
        lower = rounded(self.gamma - above_lower, self.width)
        upper = rounded(self.gamma - below_upper, self.width)
        slope = np.stack((-lower[1], upper[1]))
        curvature = np.stack((lower[2], upper[2]))
        return Slopes((lower[0] + upper[0])[None], slope[None], curvature[None])

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
        """Return loss and derivatives of the corners at all thresholds."""
        levels = np.arange(1, self.n_levels)[:, np.newaxis]
        side = np.where(target >= levels, 1.0, -1.0)
        away = side * (scores - extra[:, np.newaxis])
        value, slope, curvature = rounded(self.gamma - away, self.width)
        return Slopes(value.sum(axis=0)[None], (-side * slope)[None], curvature[None])
