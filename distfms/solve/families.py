"""Families of generalised linear models: means, deviances and weights of their responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from distfms.errors import DataError

#: Largest absolute linear predictor of a mean on the boundary.
_LINK_LIMIT = 30.0
#: Above this linear predictor the Poisson φ continues as a straight line (e⁵⁰ ≈ 5·10²¹ counts).
_POISSON_LIMIT = 50.0


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
        return np.asarray(((eta > 0) == (y > 0.5)).mean(axis=0))

    @abstractmethod
    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return η with ∇φ(η) = mean; finite also on the boundary."""

    def variance(self, mean: np.ndarray) -> np.ndarray:
        """Diagonal of ∇²φ where ∇φ is the mean, by default that of probabilities."""
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
            found = np.exp(-eta)
        found += 1.0
        return np.reciprocal(found, out=found)

    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross entropy less entropy."""
        # log(1+e^η) − yη = max(η,0) − yη + log1p(e^−|η|): both parts are ≥ 0, none overflows.
        cross = -np.abs(eta)
        np.log1p(np.exp(cross, out=cross), out=cross)
        cross += np.maximum(eta, 0.0)
        cross -= y * eta
        if not ((y == 0.0) | (y == 1.0)).all():  # labels have no entropy
            from scipy.special import xlogy

            cross += xlogy(y, y) + xlogy(1.0 - y, 1.0 - y)
        return cross.sum(axis=0)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """log(p / (1 − p)) within the limit."""
        with np.errstate(divide="ignore"):
            return np.clip(np.log(mean) - np.log1p(-mean), -_LINK_LIMIT, _LINK_LIMIT)


class Softmax(Family):
    """φ(η) = log Σ e^η: one of P ≥ 2 classes.

    The same number added to all η of a sample changes nothing. A fit that begins at coefficients
    of zero mean over the classes keeps to such, since its gradients have zero mean.
    """

    name = "softmax"

    def responses(self, y: np.ndarray, n_outputs: int) -> np.ndarray:
        """Return memberships of class numbers."""
        return (np.arange(n_outputs)[:, np.newaxis] == y).astype(np.float64)

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """e^η / Σ e^η."""
        shares = np.exp(eta - eta.max(axis=0))
        shares /= shares.sum(axis=0)
        return shares

    def loss(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross entropy."""
        top = eta.max(axis=0)
        below = eta - top
        return np.log(np.exp(below).sum(axis=0)) - (y * below).sum(axis=0)

    def correct(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Whether the greatest score is that of the class."""
        return np.asarray(eta.argmax(axis=0) == y.argmax(axis=0), dtype=np.float64)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return log π, centred over classes, within the limit."""
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
        return np.asarray((value + (np.exp(low) - y) * (eta - low)).sum(axis=0))

    def correct(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """NaN: counts are no classes."""
        return np.full(eta.shape[1], np.nan)

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Log within the limit."""
        with np.errstate(divide="ignore"):
            return np.clip(np.log(mean), -_LINK_LIMIT, _POISSON_LIMIT)

    def variance(self, mean: np.ndarray) -> np.ndarray:
        """Return the mean itself."""
        return mean


FAMILIES: dict[str, Family] = {f.name: f for f in (Logistic(), Softmax(), Poisson())}


def mean_response(family: str, scores: np.ndarray) -> np.ndarray:
    """Return predictions (n, P) from linear scores (n, P)."""
    if family == "gaussian":
        return scores
    return FAMILIES[family].mean(np.ascontiguousarray(scores.T)).T
