"""Newton steps for convex losses that are sums over rows, with weights that may be bounded.

Losses with corners have no curvature between them, so that Newton steps alone would run away. To
the Hessian H a share μ of a majorant D is added, which is nowhere less than the Hessian: with μ = 1
every step lowers the value, and as steps do what was predicted of them μ goes to 0.

References
----------
Boyd, Vandenberghe, "Convex Optimization", section 9.5 (Newton decrement); Moré, "The
Levenberg-Marquardt algorithm: implementation and theory", 1978 (μ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distfms.methods.frame.passes import Status

#: Share of the majorant that keeps a Hessian regular, and of its own trace, where that is singular.
_REGULAR, _SINGULAR = 1e-12, 1e-14
#: Share of the majorant that a search begins with.
_FIRST = 1e-2
#: What μ is multiplied by after a step that fell short, and divided by after a good one.
_MORE, _LESS = 4.0, 4.0
#: Parts of the fall that was predicted of a step at which it is taken, and at which it is good.
_TAKEN, _GOOD = 0.1, 0.75
#: Multipliers of a bound are sought between two that are this far apart; the least, beside the
#: Hessian, is far below what is added to that anyway.
_APART, _LEAST, _MOST = 30.0, 1e-8 * _SINGULAR, 1e306
_ROUNDING = 1e-13  # relative rise of a value that may be rounding


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A function and its derivatives at parameters (m, P), of which each column has its Hessian.

    Attributes
    ----------
    value : ndarray of shape (P,)
        Parts of the function, each of one column.
    gradient : ndarray of shape (m, P)
    hessian : ndarray of shape (P, m, m)
    """

    value: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray

    def fall(self, moved: np.ndarray, hessian: np.ndarray) -> np.ndarray:
        """Return how much less (P,) the model with this Hessian is at a step (m, P)."""
        bent = np.einsum("mp,pmn,np->p", moved, hessian, moved)
        return np.asarray(-np.sum(self.gradient * moved, axis=0) - bent / 2)

    def where(self, taken: np.ndarray, other: Quadratic) -> Quadratic:
        """Return these parts where they are taken (P,), and those of another elsewhere."""
        return Quadratic(
            np.where(taken, self.value, other.value),
            np.where(taken, self.gradient, other.gradient),
            np.where(taken[:, np.newaxis, np.newaxis], self.hessian, other.hessian),
        )


@dataclass(frozen=True, eq=False)
class Domain:
    """The parameters that are allowed.

    Attributes
    ----------
    n_weights : int
        The first rows of the parameters are weights.
    radius : float or None
        Largest Euclidean norm of all weights.
    lower : ndarray of shape (m - n_weights,), or None
        Least values of the other parameters.
    """

    n_weights: int
    radius: float | None = None
    lower: np.ndarray | None = None

    def best(self, hessian: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Minimise Σ ½θᵀHθ − cᵀθ over columns; H (P, m, m) is positive definite, c is (m, P)."""
        from scipy.optimize import brentq

        found = self._best(hessian, slope, 0.0)
        if self.radius is None or self._excess(found) <= 0:
            return found

        def excess(multiplier: float) -> float:
            return self._excess(self._best(hessian, slope, multiplier))

        # The norm of the weights falls with the multiplier of the bound, of any size.
        scale = float(np.abs(hessian[:, : self.n_weights, : self.n_weights]).max())
        low = high = 1e-6 * scale
        while excess(high) > 0 and high < _MOST:
            low, high = high, _APART * high
        while excess(low) <= 0 and low > _LEAST * scale:
            low, high = low / _APART, low
        multiplier = low
        if excess(low) > 0:
            ends = {"xtol": 1e-15 * high, "maxiter": 1000, "disp": False}
            multiplier = brentq(excess, low, high, **ends) if excess(high) < 0 else high
        return self.nearest(self._best(hessian, slope, multiplier))

    def nearest(self, parameters: np.ndarray) -> np.ndarray:
        """Return the parameters that are allowed and nearest to others."""
        found, k = np.array(parameters, dtype=np.float64), self.n_weights
        if self.radius is not None:
            norm = float(np.linalg.norm(found[:k]))
            found[:k] *= self.radius / norm if norm > self.radius else 1.0
        if self.lower is not None:
            found[k:] = np.maximum(found[k:], self.lower[:, np.newaxis])
        return found

    def joined(self, parts: np.ndarray) -> np.ndarray:
        """Return parts of columns (P,), or their sum where a bound ties them together."""
        return parts if self.radius is None else np.full_like(parts, parts.sum())

    def _excess(self, parameters: np.ndarray) -> float:
        """Return how far the norm is above the bound, nearly linear in the multiplier."""
        norm = float(np.linalg.norm(parameters[: self.n_weights]))
        return 1.0 - self.radius / max(norm, 1e-300) if self.radius else 0.0

    def _best(self, hessian: np.ndarray, slope: np.ndarray, multiplier: float) -> np.ndarray:
        """Minimise, with a multiple of ‖w‖²/2 in place of the bound."""
        k = self.n_weights
        found = np.empty_like(slope)
        for own, c, out in zip(hessian, slope.T, found.T, strict=True):
            within = own[:k, :k] + (multiplier + _SINGULAR * np.trace(own[:k, :k])) * np.eye(k)
            solved = np.linalg.solve(within, np.column_stack((c[:k], own[:k, k:])))
            rest = own[k:, k:] - own[k:, :k] @ solved[:, 1:]
            least = _REGULAR * float(np.trace(own[k:, k:]))
            out[k:] = self._others(rest, c[k:] - own[k:, :k] @ solved[:, 0], least)
            out[:k] = solved[:, 0] - solved[:, 1:] @ out[k:]
        return found

    def _others(self, hessian: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
        """Minimise over the parameters beside the weights, of curvature `least` or more."""
        from scipy.optimize import lsq_linear

        values, vectors = np.linalg.eigh(hessian)
        # What rounding left of the difference of two matrices may be below zero.
        root = np.sqrt(np.maximum(values, least))
        found = vectors @ ((vectors.T @ slope) / root**2)
        if self.lower is None or (found >= self.lower).all():
            return found
        factor, wanted = root[:, np.newaxis] * vectors.T, (vectors.T @ slope) / root
        bounded = lsq_linear(factor, wanted, (self.lower, np.inf), "bvls", tol=1e-14)
        return np.maximum(bounded.x, self.lower)


@dataclass(frozen=True, eq=False)
class NewtonMinimum:
    """Where a search ended.

    Attributes
    ----------
    parameters : ndarray of shape (m, P)
    value : float
    gap : float
        How far the value is above the minimum: the fall that the Hessian predicts of the whole
        Newton step (half the squared Newton decrement). Exact where the function is quadratic up
        to the minimum.
    n_iterations : int
    status : {"converged", "max_iter", "stalled"}
        ``converged``: the gap is within the tolerance. ``stalled``: rounding hides any further
        fall.
    """

    parameters: np.ndarray
    value: float
    gap: float
    n_iterations: int
    status: Status


def minimise(
    function: Callable[[np.ndarray], Quadratic],
    start: np.ndarray,
    majorant: np.ndarray,
    domain: Domain,
    *,
    tol: float,
    max_iter: int = 1000,
) -> NewtonMinimum:
    """Minimise a convex function.

    Parameters
    ----------
    function : callable
        From parameters (m, P); the Hessian of each column is on its own.
    start : ndarray of shape (m, P)
    majorant : ndarray of shape (m, m)
        Nowhere less than the Hessian of a column.
    domain : Domain
    tol : float
        Gap at which the search has converged.
    max_iter : int
        Steps that are tried.
    """
    here = domain.nearest(start)
    at, share = function(here), np.full(here.shape[1], _FIRST)
    most = tol / len(share)  # of each column
    status: Status
    n_iterations, status = 0, "max_iter"

    def step(damping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hessian = at.hessian + damping[:, np.newaxis, np.newaxis] * majorant
        trial = domain.best(hessian, np.einsum("pmn,np->mp", hessian, here) - at.gradient)
        return trial, domain.joined(at.fall(trial - here, hessian))

    while True:
        trial, predicted = step(share)
        settled = np.abs(predicted) <= most
        if settled.any():
            settled &= np.abs(step(np.full_like(share, _REGULAR))[1]) <= most
        if settled.all():
            status = "converged"
        if settled.all() or n_iterations == max_iter:
            break
        there = function(np.where(settled, here, trial))
        fall = domain.joined(at.value - there.value)
        stuck = (share >= 1.0) & (fall <= _ROUNDING * np.abs(domain.joined(at.value)))
        if (settled | stuck).all():
            status = "stalled"
            break
        taken = fall >= _TAKEN * predicted
        good = taken & (fall >= _GOOD * predicted) & ~settled
        share = np.where(taken, share, np.minimum(share * _MORE, 1.0))
        share = np.where(good, np.maximum(share / _LESS, _REGULAR), share)
        here, at = np.where(taken, trial, here), there.where(taken, at)
        n_iterations += 1
    gaps = step(np.full_like(share, _REGULAR))[1]
    gap = float(gaps.sum() if domain.radius is None else gaps[0])
    return NewtonMinimum(here, float(at.value.sum()), max(gap, 0.0), n_iterations, status)
