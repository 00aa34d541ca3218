"""Cost-weighted group lasso on the Gram matrix, for the baseline ``sparse``.

For descending penalties λ, with κ_g = λ c(g) and the residual R = b − GW,

    min ½ tr WᵀGW − tr bᵀW + Σ_g κ_g ‖W_g‖.

As κ‖W_g‖ is the minimum of ½‖W_g‖²/u + ½κ²u over u ≥ 0, there remains one number for each group,
in which the problem is smooth and convex. With U = diag(u), every column having that of its group,

    φ(u) = ½ Σ_g κ_g² u_g − ½ tr bᵀW,   W = UR,   R = (I + GU)⁻¹ b,
    ∂φ/∂u_g = ½ (κ_g² − ‖R_g‖²),
    ∂²φ/∂u_g∂u_h = tr R_gᵀ T_gh R_h,   T = G − GU^½ (I + U^½GU^½)⁻¹ U^½G.

At u_g = 0 the derivative is the first-order condition ‖R_g‖ ≤ κ_g, so that Newton's steps, cut
off at 0, also find which groups enter and leave.

References
----------
Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear Prediction",
Section 5 (the baseline). Bach, Jenatton, Mairal, Obozinski, "Optimization with Sparsity-Inducing
Penalties", Section 5 (the form in u).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distfms.methods.sequence.problem import SequenceProblem
from distfms.methods.sequence.residual import group_norms

TOLERANCE = 1e-8
"""Share of κ by which ‖R_g‖ may differ from it where u_g > 0, or exceed it where u_g = 0."""

_N_PENALTIES = 100
_LAST_PENALTY = 1e-4  # as a share of the first
_MAX_STEPS = 100
_MAX_TRIALS = 20  # lengths of one step
_ARMIJO = 1e-4
_ROUNDING = 1e-13  # relative rise of a value that may be rounding
_EXPLAINED = 1e-10  # share of a column's variance that free columns leave


def sparse_order(problem: SequenceProblem) -> list[int]:
    """Return the groups by entry, within one penalty by descending ‖W_g‖ / c(g).

    Groups without a cost have no penalty and come first, those that never enter come last; both by
    descending ‖R_g‖, per cost.
    """
    columns, costs = problem.groups.columns, _weights(problem)
    left, order = np.arange(len(columns)), list[int]()

    def take(entering: np.ndarray, strength: np.ndarray) -> None:
        nonlocal left
        per_cost = strength / np.where(costs > 0, costs, 1.0)
        order.extend(sorted(left[entering[left]].tolist(), key=lambda g: -per_cost[g]))
        left = left[~entering[left]]

    residual = problem.target
    take(costs == 0, group_norms(residual, columns))
    for _, weights in sparse_path(problem) if len(left) else ():
        norms = group_norms(weights, columns)
        take(norms > 0, norms)
        if not len(left):
            break
        residual = problem.target - problem.gram @ weights
    take(np.ones(len(columns), dtype=bool), group_norms(residual, columns))
    return order


def sparse_path(
    problem: SequenceProblem, penalties: Iterable[float] | None = None
) -> Iterator[tuple[float, np.ndarray]]:
    """Find the minima for descending penalties, each from the one before.

    Yields penalties and weights (d, P) on standardised columns. By default there are 100 penalties,
    from the first where all weights of groups that cost something are 0.
    """
    costs = _weights(problem)
    groups = [list(problem.groups.columns[g]) for g in np.flatnonzero(costs)]
    free = [c for g in np.flatnonzero(costs == 0) for c in problem.groups.columns[g]]
    own, costs = [c for group in groups for c in group], costs[costs > 0]
    gram, target = problem.gram[np.ix_(own, own)], problem.target[own]
    if free:
        # Weights without a penalty take their best values, whatever the others are.
        inverse = np.linalg.pinv(problem.gram[np.ix_(free, free)], hermitian=True)
        answer = inverse @ problem.gram[np.ix_(free, own)]
        alone = inverse @ problem.target[free]
        gram = gram - problem.gram[np.ix_(own, free)] @ answer
        target = target - problem.gram[np.ix_(own, free)] @ alone
        # What is left of columns that are combinations of the free ones is rounding.
        explained = np.diagonal(gram) <= _EXPLAINED * np.diagonal(problem.gram)[own]
        gram[explained], gram[:, explained], target[explained] = 0.0, 0.0, 0.0
    lasso = _GroupLasso(gram, target, [len(group) for group in groups])
    found = lasso.at(np.zeros(len(groups)))
    if penalties is None:
        top = float((found.norms / costs).max())
        penalties = np.geomspace(top, top * _LAST_PENALTY, _N_PENALTIES).tolist() if top else []
    for penalty in penalties:
        found = lasso.minimum(found, penalty * costs)
        weights = np.zeros_like(problem.target)
        weights[own] = found.weights
        if free:
            weights[free] = alone - answer @ found.weights
        yield penalty, weights


def _weights(problem: SequenceProblem) -> np.ndarray:
    """Return what the penalty of each group is multiplied with: its cost, where any has one."""
    costs = problem.costs.alone
    return costs if costs.any() else np.ones_like(costs)


@dataclass(frozen=True, eq=False)
class _Point:
    """What is known at u: of columns where it is not 0 (`active`), its root and the factor of
    I + U^½GU^½; weights, residual, its norms by group, and tr bᵀW.
    """  # noqa: D205

    u: np.ndarray
    active: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    weights: np.ndarray
    residual: np.ndarray
    norms: np.ndarray
    fit: float


class _GroupLasso:
    """Minimisation over u; the columns of `gram` and `target` are in the order of their groups."""

    def __init__(self, gram: np.ndarray, target: np.ndarray, sizes: Sequence[int]) -> None:
        self.gram, self.target = gram, target
        self.starts = np.array([0, *itertools.accumulate(sizes[:-1])])
        self.group_of = np.repeat(np.arange(len(sizes)), sizes)
        self._last = np.empty(0, dtype=np.intp), np.empty((0, 0))

    def _square(self, columns: np.ndarray) -> np.ndarray:
        """Return some rows and columns of the Gram matrix, which are mostly those of last time."""
        if not np.array_equal(columns, self._last[0]):
            self._last = columns, self.gram[columns][:, columns]
        return self._last[1]

    def at(self, u: np.ndarray) -> _Point:
        """Work out what belongs to u."""
        from scipy.linalg import cho_solve, cholesky

        active = np.flatnonzero(u[self.group_of])
        root = np.sqrt(u[self.group_of[active]])[:, np.newaxis]
        inner = self._square(active) * root
        inner *= root.T
        inner.flat[:: len(inner) + 1] += 1.0
        # The matrix is symmetric, and its transpose in the order that LAPACK wants.
        factor = cholesky(inner.T, lower=True, overwrite_a=True, check_finite=False)
        white = cho_solve((factor, True), root * self.target[active], check_finite=False)
        weights = np.zeros_like(self.target)
        weights[active] = root * white
        residual = self.target - self.gram @ weights
        # This is the same without the difference of large numbers.
        residual[active] = white / root
        norms = np.sqrt(np.add.reduceat(np.sum(residual**2, axis=1), self.starts))
        fit = float(np.sum(self.target * weights))
        return _Point(u, active, root, factor, weights, residual, norms, fit)

    def minimum(self, point: _Point, kappa: np.ndarray) -> _Point:
        """Take steps from a point until the first-order conditions hold, or no step is better."""
        for _ in range(_MAX_STEPS):
            excess = point.norms / kappa - 1.0
            free = np.flatnonzero((point.u > 0) | (excess > TOLERANCE))
            if not (np.abs(excess[free]) > TOLERANCE).any():
                break
            after = self._step(point, kappa, free)
            if after is None:
                break
            point = after
        return point

    def _step(self, point: _Point, kappa: np.ndarray, free: np.ndarray) -> _Point | None:
        """Lower φ in the numbers of the `free` groups."""
        slope = 0.5 * (kappa[free] ** 2 - point.norms[free] ** 2)
        value = float(kappa**2 @ point.u) - point.fit
        for direction in self._directions(point, kappa[free], free):
            for length in 0.5 ** np.arange(_MAX_TRIALS):
                u = point.u.copy()
                u[free] = np.maximum(u[free] + length * direction, 0.0)
                fall = 2.0 * float(slope @ (u - point.u)[free])
                if fall >= 0:
                    break
                try:
                    after = self.at(u)
                except np.linalg.LinAlgError:  # so far that rounding decides
                    continue
                allowed = _ARMIJO * fall + _ROUNDING * abs(point.fit)
                if float(kappa**2 @ u) - after.fit <= value + allowed:
                    return after
        return None

    def _directions(
        self, point: _Point, kappa: np.ndarray, free: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Newton's direction for 1/‖R_g‖ = 1/κ_g, and one that lowers φ in any case.

        1/‖R_g‖ is nearly linear in u, as that of a group alone with G_gg = I is entirely.
        """
        norms, curvature = point.norms[free], self._curvature(point, free)
        wanted = norms**2 * (norms / kappa - 1.0)
        scale = np.sqrt(np.maximum(np.diagonal(curvature), _ROUNDING * norms**2))
        scaled = curvature / np.outer(scale, scale)
        # Groups that say the same share what they add.
        scaled.flat[:: len(scaled) + 1] += _ROUNDING * len(scaled)
        yield np.linalg.solve(scaled, wanted / scale) / scale
        yield wanted / scale**2

    def _curvature(self, point: _Point, free: np.ndarray) -> np.ndarray:
        """∂²φ/∂u_g∂u_h of the groups `free`, among which are the active ones."""
        from scipy.linalg import solve_triangular

        is_free = np.zeros(len(self.starts), dtype=bool)
        is_free[free] = True
        columns = np.flatnonzero(is_free[self.group_of])
        starts = np.searchsorted(self.group_of[columns], free)
        gram, active = self._square(columns), np.searchsorted(columns, point.active)
        curvature = np.zeros((len(free), len(free)))
        for residual in point.residual[columns].T:
            products = np.add.reduceat(gram * residual, starts, axis=1)
            white = solve_triangular(
                point.factor, point.root * products[active], lower=True, check_finite=False
            )
            own = np.add.reduceat(products * residual[:, np.newaxis], starts, axis=0)
            curvature += own - white.T @ white
        return curvature
