"""Cost-weighted group lasso on the Gram matrix (Hu et al., Section 5.2).

With G = XᵀX/n and b = XᵀY/n of standardised columns, coefficients w minimise

    ½ wᵀGw − bᵀw + λ Σ c(g) ‖w_g‖,

the paper's ‖Y − Xw‖² + λ' Σ c(g) ‖w_g‖ divided by 2n, with λ = λ'/2n. Groups without a cost have no
penalty. With several targets norms are over these, too.

Each λ starts from the solution of the one before. Proximal steps on single groups find out which
are 0 (Yuan, Lin, "Model selection and estimation in regression with grouped variables", 2006),
Newton steps on the others, where the objective is smooth, make the solution exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from distfms.stats.base import ratio

#: Violation of the optimality conditions that ends a solution.
_ENOUGH = 1e-9
#: Rounds of steps that end it anyway.
_MOST_ROUNDS = 2_000
#: Ridge of a Newton step, for columns that depend linearly on others.
_DAMPING = 1e-10
#: How often a Newton step is halved.
_HALVINGS = 30
#: Rise of the objective that may be rounding.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class GroupLasso:
    """The minimisation for any λ.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        G, with the columns of each group side by side.
    target : ndarray of shape (d, P)
        b.
    sizes, costs : ndarray of shape (J,)
        Of the groups.
    """

    gram: np.ndarray
    target: np.ndarray
    sizes: np.ndarray
    costs: np.ndarray

    @classmethod
    def of(
        cls,
        gram: np.ndarray,
        target: np.ndarray,
        groups: Sequence[Sequence[int]],
        costs: np.ndarray,
    ) -> GroupLasso:
        """Put the columns of each group side by side."""
        columns = np.array([column for group in groups for column in group], dtype=np.intp)
        sizes = np.array([len(group) for group in groups])
        return cls(gram[np.ix_(columns, columns)], target[columns], sizes, costs)

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def _rows(self) -> list[slice]:
        edges = [*self._starts.tolist(), len(self.gram)]
        return [slice(*pair) for pair in pairwise(edges)]

    @cached_property
    def _smoothness(self) -> list[float]:
        """Largest eigenvalue of each G_gg."""
        return [float(np.linalg.eigvalsh(self.gram[rows, rows])[-1]) for rows in self._rows]

    def norms(self, values: np.ndarray) -> np.ndarray:
        """Return ‖values_g‖ of each group, from values (d, P)."""
        squares = np.square(values).sum(axis=1)
        return np.sqrt(np.add.reduceat(squares, self._starts))

    def penalties(self, weight: float) -> np.ndarray:
        """Return λ c(g) of each group; 0 of those without a cost, for an infinite λ too."""
        penalties = np.zeros(len(self.costs))
        return np.multiply(self.costs, weight, out=penalties, where=self.costs > 0)

    def gradient(self, coefficients: np.ndarray) -> np.ndarray:
        """Return s = b − Gw, shape (d, P)."""
        return self.target - self.gram @ coefficients

    def entering_at(self, coefficients: np.ndarray) -> np.ndarray:
        """Return ‖s_g‖ / c(g) of each group: the λ below which it would no longer be 0."""
        return ratio(self.norms(self.gradient(coefficients)), self.costs)

    def violations(self, coefficients: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Return for each group how far its optimality conditions are from holding.

        These are s_g = λ c(g) w_g / ‖w_g‖, and ‖s_g‖ ≤ λ c(g) where w_g = 0.
        """
        gradient = self.gradient(coefficients)
        norms = self.norms(coefficients)
        pull = ratio(penalties, norms)
        pull_of_column = np.repeat(pull, self.sizes)[:, np.newaxis]
        of_others = self.norms(gradient - pull_of_column * coefficients)
        of_zeros = np.maximum(self.norms(gradient) - penalties, 0.0)
        return np.where(norms > 0, of_others, of_zeros)

    def solve(self, weight: float, start: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the coefficients (d, P) of a λ, found from others, and their violation."""
        coefficients = start.copy()
        penalties = self.penalties(weight)
        for _ in range(_MOST_ROUNDS):
            violations = self.violations(coefficients, penalties)
            if violations.max() <= _ENOUGH:
                break
            moved = (violations > _ENOUGH) | self._is_free(coefficients)
            self._proximal(coefficients, penalties, moved)
            coefficients = self._newton(coefficients, penalties)
        return coefficients, float(violations.max())

    def _is_free(self, coefficients: np.ndarray) -> np.ndarray:
        """Return which groups are not 0, or have no penalty."""
        return (self.norms(coefficients) > 0) | (self.costs == 0)

    def _proximal(
        self, coefficients: np.ndarray, penalties: np.ndarray, groups: np.ndarray
    ) -> None:
        """Take a step on each of some groups in turn, which never raises the objective.

        w_g ← u (1 − λ c(g)/(ℓ‖u‖))₊ with u = w_g + s_g/ℓ, ℓ the largest eigenvalue of G_gg.
        """
        for group in np.flatnonzero(groups).tolist():
            rows = self._rows[group]
            smoothness = self._smoothness[group]
            gradient = self.target[rows] - self.gram[rows] @ coefficients
            moved = coefficients[rows] + gradient / smoothness
            norm = float(np.linalg.norm(moved))
            least = float(penalties[group]) / smoothness
            coefficients[rows] = moved * (1.0 - least / norm) if norm > least else 0.0

    def _newton(self, coefficients: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Take a Newton step on the groups that are not 0, halved until it does not ascend."""
        is_free = np.repeat(self._is_free(coefficients), self.sizes)
        free = np.flatnonzero(is_free)
        step = self._newton_step(coefficients, penalties, free)
        rounding = _ROUNDING * self.target.shape[1]
        most = self._objective(coefficients, penalties) + rounding
        for length in 0.5 ** np.arange(_HALVINGS):
            trial = coefficients.copy()
            trial[free] += length * step
            if self._objective(trial, penalties) <= most:
                return trial
        return coefficients

    def _newton_step(
        self, coefficients: np.ndarray, penalties: np.ndarray, free: np.ndarray
    ) -> np.ndarray:
        """Return H⁻¹ times the gradient, of some columns (k,) in groups that are not 0.

        Such a group adds (I − uuᵀ) λ c(g) / ‖w_g‖ to the Hessian, where u = w_g / ‖w_g‖.
        """
        n_targets = self.target.shape[1]
        group_of = np.repeat(np.arange(len(self.sizes)), self.sizes)[free]
        norms = self.norms(coefficients)[group_of]
        penalty = penalties[group_of]
        curvature = ratio(penalty, norms)
        lengths = np.where(norms > 0, norms, 1.0)
        unit = coefficients[free] / lengths[:, np.newaxis]
        slope_of_penalty = penalty[:, np.newaxis] * unit
        gradient = self.gradient(coefficients)[free] - slope_of_penalty
        # Rows of all targets side by side.
        group_of = np.repeat(group_of, n_targets)
        curvature = np.repeat(curvature, n_targets)
        flat_unit = unit.ravel()
        same_group = group_of[:, np.newaxis] == group_of
        gram = self.gram[np.ix_(free, free)]
        hessian = np.kron(gram, np.eye(n_targets))
        along_unit = np.outer(curvature * flat_unit, flat_unit)
        hessian -= same_group * along_unit
        hessian.flat[:: len(hessian) + 1] += curvature + _DAMPING
        step = np.linalg.solve(hessian, gradient.ravel())
        return np.asarray(step.reshape(unit.shape))

    def _objective(self, coefficients: np.ndarray, penalties: np.ndarray) -> float:
        """Return ½ wᵀGw − bᵀw + λ Σ c(g) ‖w_g‖."""
        halves = 0.5 * (self.gram @ coefficients) - self.target
        smooth = np.sum(coefficients * halves)
        norms = self.norms(coefficients)
        is_other = norms > 0
        return float(smooth + penalties[is_other] @ norms[is_other])
