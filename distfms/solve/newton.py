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
from typing import Literal

import numpy as np

Status = Literal["converged", "max_iter", "stalled"]
#: Share of the majorant that keeps a Hessian regular.
_REGULAR = 1e-12
#: Share of its own trace that keeps a singular Hessian regular.
_SINGULAR = 1e-14
#: Share of the majorant that a search begins with.
_FIRST = 1e-2
#: What μ is multiplied by after a step that fell short, and divided by after a good one.
_FACTOR = 4.0
#: Parts of the fall that was predicted of a step at which it is taken, and at which it is good.
_TAKEN = 0.1
_GOOD = 0.75
#: Multipliers of a bound are sought between two that are this far apart.
_APART = 30.0
#: The least multiplier, beside the Hessian, is far below what is added to that anyway.
_LEAST = 1e-8 * _SINGULAR
_MOST = 1e306
_MOST_STEPS = 1000
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
        """Return how much less (P,) the model with this Hessian is at a step s (m, P).

        −gᵀs − ½ sᵀHs, column by column.
        """
        linear = np.sum(self.gradient * moved, axis=0)
        curvature = np.einsum("mp,pmn,np->p", moved, hessian, moved)
        return np.asarray(-linear - curvature / 2)

    def where(self, is_taken: np.ndarray, before: Quadratic) -> Quadratic:
        """Return these parts where they are taken (P,), and those before elsewhere."""
        value = np.where(is_taken, self.value, before.value)
        gradient = np.where(is_taken, self.gradient, before.gradient)
        of_matrices = is_taken[:, np.newaxis, np.newaxis]
        hessian = np.where(of_matrices, self.hessian, before.hessian)
        return Quadratic(value, gradient, hessian)


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
        unbounded = self._best(hessian, slope, 0.0)
        if self._excess(unbounded) <= 0:
            return unbounded
        multiplier = self._multiplier(hessian, slope)
        return self.nearest(self._best(hessian, slope, multiplier))

    def nearest(self, parameters: np.ndarray) -> np.ndarray:
        """Return the parameters that are allowed and nearest to others."""
        allowed = np.array(parameters, dtype=np.float64)
        k = self.n_weights
        if self.radius is not None:
            norm = float(np.linalg.norm(allowed[:k]))
            if norm > self.radius:
                allowed[:k] *= self.radius / norm
        if self.lower is not None:
            allowed[k:] = np.maximum(allowed[k:], self.lower[:, np.newaxis])
        return allowed

    def joined(self, parts: np.ndarray) -> np.ndarray:
        """Return parts of columns (P,), or their sum where a bound ties them together."""
        return parts if self.radius is None else np.full_like(parts, parts.sum())

    def _excess(self, parameters: np.ndarray) -> float:
        """Return how far the norm is above the bound, nearly linear in the multiplier."""
        if not self.radius:
            return 0.0
        norm = float(np.linalg.norm(parameters[: self.n_weights]))
        return 1.0 - self.radius / max(norm, 1e-300)

    def _multiplier(self, hessian: np.ndarray, slope: np.ndarray) -> float:
        """Return the multiplier of the bound, of any size: the norm of the weights falls with it.

        It may be a little below the bound's, where rounding hides the difference.
        """
        from scipy.optimize import brentq

        def excess(multiplier: float) -> float:
            return self._excess(self._best(hessian, slope, multiplier))

        scale = float(np.abs(hessian[:, : self.n_weights, : self.n_weights]).max())
        low = high = 1e-6 * scale
        while excess(high) > 0 and high < _MOST:
            low = high
            high *= _APART
        while excess(low) <= 0 and low > _LEAST * scale:
            high = low
            low /= _APART
        if excess(low) <= 0:
            return low
        if excess(high) >= 0:
            return high
        multiplier: float = brentq(excess, low, high, xtol=1e-15 * high, maxiter=1000, disp=False)
        return multiplier

    def _best(self, hessian: np.ndarray, slope: np.ndarray, multiplier: float) -> np.ndarray:
        """Minimise, with a multiple of ‖w‖²/2 in place of the bound."""
        best = np.empty_like(slope)
        for column, matrix in enumerate(hessian):
            best[:, column] = self._best_of_column(matrix, slope[:, column], multiplier)
        return best

    def _best_of_column(
        self, hessian: np.ndarray, slope: np.ndarray, multiplier: float
    ) -> np.ndarray:
        """Minimise for one column: eliminate the weights, which leaves a Schur complement.

        Reference: Boyd, Vandenberghe, appendix C.4.
        """
        k = self.n_weights
        weights = hessian[:k, :k]
        across = hessian[k:, :k]
        beside = hessian[k:, k:]
        right_sides = np.column_stack((slope[:k], hessian[:k, k:]))
        ridge = multiplier + _SINGULAR * np.trace(weights)
        solved = np.linalg.solve(weights + ridge * np.eye(k), right_sides)
        free = solved[:, 0]
        response = solved[:, 1:]
        schur = beside - across @ response
        left_slope = slope[k:] - across @ free
        least = _REGULAR * float(np.trace(beside))
        best = np.empty_like(slope)
        best[k:] = self._best_beside_weights(schur, left_slope, least)
        best[:k] = free - response @ best[k:]
        return best

    def _best_beside_weights(
        self, hessian: np.ndarray, slope: np.ndarray, least: float
    ) -> np.ndarray:
        """Minimise over the parameters beside the weights, of curvature `least` or more."""
        from scipy.optimize import lsq_linear

        values, vectors = np.linalg.eigh(hessian)
        # What rounding left of the difference of two matrices may be below zero.
        root = np.sqrt(np.maximum(values, least))
        rotated = vectors.T @ slope
        best = vectors @ (rotated / root**2)
        if self.lower is None or (best >= self.lower).all():
            return best
        factor = root[:, np.newaxis] * vectors.T
        bounds = (self.lower, np.inf)
        bounded = lsq_linear(factor, rotated / root, bounds, "bvls", tol=1e-14)
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
    """
    point = domain.nearest(start)
    local = function(point)
    share = np.full(point.shape[1], _FIRST)
    tol_of_column = tol / len(share)
    n_iterations = 0
    status: Status = "max_iter"

    def step(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best point of the model with shares of the majorant, and its fall."""
        hessian = local.hessian + shares[:, np.newaxis, np.newaxis] * majorant
        slope = np.einsum("pmn,np->mp", hessian, point) - local.gradient
        trial = domain.best(hessian, slope)
        return trial, domain.joined(local.fall(trial - point, hessian))

    def newton_fall() -> np.ndarray:
        return step(np.full_like(share, _REGULAR))[1]

    while True:
        trial, predicted = step(share)
        is_settled = np.abs(predicted) <= tol_of_column
        if is_settled.any():
            is_settled &= np.abs(newton_fall()) <= tol_of_column
        if is_settled.all():
            status = "converged"
            break
        if n_iterations == _MOST_STEPS:
            break
        tried = function(np.where(is_settled, point, trial))
        fall = domain.joined(local.value - tried.value)
        rounding = _ROUNDING * np.abs(domain.joined(local.value))
        is_stuck = (share >= 1.0) & (fall <= rounding)
        if (is_settled | is_stuck).all():
            status = "stalled"
            break
        is_taken = fall >= _TAKEN * predicted
        is_good = is_taken & (fall >= _GOOD * predicted) & ~is_settled
        share = _adapted(share, is_taken, is_good)
        point = np.where(is_taken, trial, point)
        local = tried.where(is_taken, local)
        n_iterations += 1
    gaps = newton_fall()
    gap = float(gaps.sum() if domain.radius is None else gaps[0])
    return NewtonMinimum(point, float(local.value.sum()), max(gap, 0.0), n_iterations, status)


def _adapted(share: np.ndarray, is_taken: np.ndarray, is_good: np.ndarray) -> np.ndarray:
    """Raise the shares μ of steps that are not taken, and lower those of good ones."""
    raised = np.minimum(share * _FACTOR, 1.0)
    share = np.where(is_taken, share, raised)
    lowered = np.maximum(share / _FACTOR, _REGULAR)
    return np.where(is_good, lowered, share)
