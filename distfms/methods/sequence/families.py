"""Response families of generalised linear models: φ, its derivatives, and what goes with them.

A family is stateless. Linear predictors and responses are C-ordered ``(n_outputs, n_samples)``, as
blocks are, so that every row of samples is contiguous.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlogy

from distfms.errors import DataError, SpecError

Array = NDArray[np.float64]
Curvature = Literal["shared", "separate", "full", "bound"]

#: Largest absolute linear predictor that a link function answers with (means on the boundary).
LINK_LIMIT = 30.0
#: Above this linear predictor the Poisson φ continues as a straight line (e⁵⁰ ≈ 5·10²¹ counts).
POISSON_LIMIT = 50.0


@dataclass(frozen=True)
class Family(ABC):
    """What a generalised linear model needs to know about its response.

    The risk of linear predictors η with responses y is the mean of φ(η) − yᵀη over the samples.

    Attributes
    ----------
    name : str
        The name in job specs.
    curvature : {"shared", "separate", "full"}
        Shape of the Hessian over outputs: one matrix for all outputs, one for each, or coupled.

    References
    ----------
    Hu et al., *Efficient Feature Group Sequencing for Anytime Linear Prediction*, Appendix B,
    equation 21.
    """

    name: ClassVar[str]
    curvature: ClassVar[Curvature]

    def responses(self, y: ArrayLike, n_outputs: int) -> Array:
        """Validate and shape responses.

        Parameters
        ----------
        y : (n_samples,) or (n_outputs, n_samples)
            Responses; for softmax a vector holds class numbers 0 … n_outputs − 1.
        n_outputs : int
            Columns of the coefficient matrix.

        Returns
        -------
        (n_outputs, n_samples) float64

        Raises
        ------
        DataError
            When a response is missing, infinite or outside what the family can take.
        """
        values = np.asarray(y, dtype=np.float64)
        values = values[np.newaxis, :] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[0] != n_outputs:
            raise DataError(
                f"The {self.name} family got responses of shape {np.shape(y)}; "
                f"the model has {n_outputs} output(s), so ({n_outputs}, n_samples) is wanted."
            )
        if not np.isfinite(values).all():
            raise DataError(
                "The target holds missing or infinite values; drop these rows or mend the column."
            )
        self._check_range(values)
        return values

    def _check_range(self, y: Array) -> None:
        """Raise DataError when a finite response cannot belong to the family."""
        return  # any finite number is a response unless a family says otherwise

    @abstractmethod
    def phi(self, eta: Array) -> Array:
        """φ(η) for each sample, summed over outputs, shape (n_samples,)."""

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """∇φ(η) = E[y | x], shape (n_outputs, n_samples)."""

    @abstractmethod
    def second(self, eta: Array) -> Array:
        """Diagonal of ∇²φ(η), shape (n_outputs, n_samples)."""

    @abstractmethod
    def saturated(self, y: Array) -> Array:
        """Return min over η of φ(η) − yᵀη for each sample, shape (n_samples,)."""

    @abstractmethod
    def loss(self, eta: Array, y: Array) -> Array:
        """φ(η) − yᵀη less its minimum over η (half the deviance, ≥ 0), shape (n_samples,).

        Computed without the cancellation that the difference would suffer when y is large.
        """

    @abstractmethod
    def link(self, mean: Array) -> Array:
        """η with ∇φ(η) = mean, within ±``LINK_LIMIT`` where the exact one is infinite."""

    def margin(self, eta: Array, y: Array) -> Array:
        """How far a sample is on its right side, shape (n_samples,); −inf when there are no sides.

        All margins positive proves that an unpenalised fit does not exist (separated classes).
        """
        return np.full(eta.shape[1], -np.inf)

    def clipped(self, eta: Array) -> NDArray[np.bool_]:
        """Mark samples whose linear predictor lies where φ was replaced to avoid overflow."""
        return np.zeros(eta.shape[1], dtype=bool)

    def centre(self, weights: Array) -> Array:
        """Pick the kept one of equivalent coefficient matrices, shape (…, n_outputs)."""
        return weights


@dataclass(frozen=True)
class Gaussian(Family):
    """φ(η) = ½‖η‖²: least squares, any number of responses."""

    name: ClassVar[str] = "gaussian"
    curvature: ClassVar[Curvature] = "shared"

    def phi(self, eta: Array) -> Array:
        """½‖η‖²."""
        return 0.5 * np.einsum("pn,pn->n", eta, eta)

    def mean(self, eta: Array) -> Array:
        """Return the argument: linear predictor and mean are one."""
        return eta

    def second(self, eta: Array) -> Array:
        """One everywhere."""
        return np.ones_like(eta)

    def saturated(self, y: Array) -> Array:
        """−½‖y‖²."""
        return -0.5 * np.einsum("pn,pn->n", y, y)

    def loss(self, eta: Array, y: Array) -> Array:
        """½‖η − y‖²."""
        residual = eta - y
        return 0.5 * np.einsum("pn,pn->n", residual, residual)

    def link(self, mean: Array) -> Array:
        """Return the argument: linear predictor and mean are one."""
        return np.array(mean, dtype=np.float64)


@dataclass(frozen=True)
class Logistic(Family):
    """φ(η) = Σ log(1 + e^η): labels (or shares) in [0, 1], each output on its own."""

    name: ClassVar[str] = "logistic"
    curvature: ClassVar[Curvature] = "separate"

    def _check_range(self, y: Array) -> None:
        if y.size and (y.min() < 0.0 or y.max() > 1.0):
            raise DataError(
                "The logistic family wants labels 0 and 1 (or shares between them), "
                f"the target ranges from {y.min():g} to {y.max():g}."
            )

    def phi(self, eta: Array) -> Array:
        """Σ log(1 + e^η)."""
        return np.logaddexp(0.0, eta).sum(axis=0)

    def mean(self, eta: Array) -> Array:
        """1 / (1 + e^−η)."""
        return expit(eta)

    def second(self, eta: Array) -> Array:
        """p(1 − p), without cancellation for large η."""
        return expit(eta) * expit(-eta)

    def saturated(self, y: Array) -> Array:
        """Return the entropy of y, zero for labels."""
        return -(xlogy(y, y) + xlogy(1.0 - y, 1.0 - y)).sum(axis=0)

    def loss(self, eta: Array, y: Array) -> Array:
        """Cross entropy less entropy."""
        # log(1+e^η) − yη = max(η,0) − yη + log1p(e^−|η|): both parts are ≥ 0, none overflows.
        cross = np.maximum(eta, 0.0) - y * eta + np.log1p(np.exp(-np.abs(eta)))
        return cross.sum(axis=0) - self.saturated(y)

    def link(self, mean: Array) -> Array:
        """log(p / (1 − p)) within the limit."""
        with np.errstate(divide="ignore"):
            return np.clip(np.log(mean) - np.log1p(-mean), -LINK_LIMIT, LINK_LIMIT)

    def margin(self, eta: Array, y: Array) -> Array:
        """(2y − 1)η for labels, the least over outputs."""
        sides = np.where(y == np.rint(y), (2.0 * y - 1.0) * eta, -np.inf)
        return sides.min(axis=0)


@dataclass(frozen=True)
class Softmax(Family):
    """φ(η) = log Σ e^η: one of P ≥ 2 classes.

    Adding the same number to all η of a sample changes nothing; coefficients are kept with zero
    mean over classes, which is also what a ridge brings about.
    """

    name: ClassVar[str] = "softmax"
    curvature: ClassVar[Curvature] = "full"

    def responses(self, y: ArrayLike, n_outputs: int) -> Array:
        """Class numbers (n_samples,) or memberships (n_outputs, n_samples); see the base class."""
        codes = np.asarray(y, dtype=np.float64)
        if codes.ndim != 1:
            return super().responses(codes, n_outputs)
        # NaN fails the first comparison too.
        if codes.size and not ((codes == np.rint(codes)) & (codes >= 0)).all():
            raise DataError("The softmax family wants class numbers 0, 1, 2, … without gaps.")
        if codes.size and codes.max() >= n_outputs:
            raise DataError(
                f"The target holds class number {codes.max():g}; "
                f"the model has {n_outputs} classes, numbered from 0."
            )
        return (np.arange(n_outputs)[:, np.newaxis] == codes).astype(np.float64)

    def _check_range(self, y: Array) -> None:
        if y.size and (y.min() < 0.0 or not np.allclose(y.sum(axis=0), 1.0)):
            raise DataError("The softmax family wants class memberships ≥ 0 that add up to one.")

    def phi(self, eta: Array) -> Array:
        """Return log Σ e^η."""
        top = eta.max(axis=0)
        return top + np.log(np.exp(eta - top).sum(axis=0))

    def mean(self, eta: Array) -> Array:
        """e^η / Σ e^η."""
        shares = np.exp(eta - eta.max(axis=0))
        shares /= shares.sum(axis=0)
        return shares

    def second(self, eta: Array) -> Array:
        """π(1 − π); off the diagonal the Hessian is −π_p π_q."""
        shares = self.mean(eta)
        return shares * (1.0 - shares)

    def saturated(self, y: Array) -> Array:
        """Return the entropy of y, zero for class labels."""
        return -xlogy(y, y).sum(axis=0)

    def loss(self, eta: Array, y: Array) -> Array:
        """Cross entropy less entropy."""
        return (y * (self.phi(eta) - eta)).sum(axis=0) - self.saturated(y)

    def link(self, mean: Array) -> Array:
        """Return log π, centred over classes, within the limit."""
        with np.errstate(divide="ignore"):
            eta = np.maximum(np.log(mean), -LINK_LIMIT)
        return eta - eta.mean(axis=0)

    def margin(self, eta: Array, y: Array) -> Array:
        """η of the sample's class less the largest of the others."""
        own = np.where(y == 1.0, eta, -np.inf).max(axis=0)
        others = np.where(y == 1.0, -np.inf, eta).max(axis=0)
        return own - others

    def centre(self, weights: Array) -> Array:
        """Zero mean over classes (the last axis)."""
        return weights - weights.mean(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Poisson(Family):
    """φ(η) = Σ e^η: counts (or rates) ≥ 0, each output on its own.

    Above ``POISSON_LIMIT`` φ continues along its tangent: still convex and increasing, so a step
    that went there is seen to be bad and halved, and nothing overflows.
    """

    name: ClassVar[str] = "poisson"
    curvature: ClassVar[Curvature] = "separate"

    def _check_range(self, y: Array) -> None:
        if y.size and y.min() < 0.0:
            raise DataError(f"The poisson family wants counts ≥ 0, the target has {y.min():g}.")

    def phi(self, eta: Array) -> Array:
        """Σ e^η, along the tangent above the limit."""
        low = np.minimum(eta, POISSON_LIMIT)
        return (np.exp(low) * (1.0 + eta - low)).sum(axis=0)

    def mean(self, eta: Array) -> Array:
        """e^η, constant above the limit."""
        return np.exp(np.minimum(eta, POISSON_LIMIT))

    def second(self, eta: Array) -> Array:
        """e^η; above the limit its value there, so that Newton steps stay bounded."""
        return self.mean(eta)

    def saturated(self, y: Array) -> Array:
        """Σ y − y log y."""
        return (y - xlogy(y, y)).sum(axis=0)

    def loss(self, eta: Array, y: Array) -> Array:
        """Σ y(e^δ − 1 − δ) with δ = η − log y; e^η where y = 0."""
        low = np.minimum(eta, POISSON_LIMIT)
        delta = low - np.log(np.where(y > 0.0, y, 1.0))
        value = np.where(y > 0.0, y * (np.expm1(delta) - delta), np.exp(low))
        value += (np.exp(low) - y) * (eta - low)
        return value.sum(axis=0)

    def link(self, mean: Array) -> Array:
        """Log within the limit."""
        with np.errstate(divide="ignore"):
            return np.clip(np.log(mean), -LINK_LIMIT, POISSON_LIMIT)

    def clipped(self, eta: Array) -> NDArray[np.bool_]:
        """η above the limit in any output."""
        return np.asarray((eta > POISSON_LIMIT).any(axis=0))


FAMILIES: dict[str, Family] = {f.name: f for f in (Gaussian(), Logistic(), Softmax(), Poisson())}


def get_family(family: str | Family) -> Family:
    """Look a family up by name; a family is returned as it is.

    Raises
    ------
    SpecError
        When there is no family of that name.
    """
    if isinstance(family, Family):
        return family
    if family not in FAMILIES:
        raise SpecError(f"There is no family {family!r}; known are {', '.join(FAMILIES)}.")
    return FAMILIES[family]


def predict_glm(eta: ArrayLike, family: str | Family) -> Array:
    """Mean response for linear predictors.

    Parameters
    ----------
    eta : (n_samples,) or (n_samples, n_outputs)
        X @ coefficients + intercept.
    family : str or Family
        Response family. Softmax wants two dimensions.

    Returns
    -------
    Array of the shape of ``eta``
        Values, probabilities (logistic, softmax) or rates (poisson).

    Examples
    --------
    >>> predict_glm([0.0], "logistic")
    array([0.5])
    """
    values = np.asarray(eta, dtype=np.float64)
    outputs = values[np.newaxis, :] if values.ndim == 1 else np.ascontiguousarray(values.T)
    means = get_family(family).mean(outputs)
    return means[0].copy() if values.ndim == 1 else np.ascontiguousarray(means.T)
