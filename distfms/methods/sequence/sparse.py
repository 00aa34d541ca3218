"""The baseline ``sparse``: cost-weighted group lasso on the Gram matrix (Hu et al., Section 5.2).

With G = XᵀX/n and b = XᵀY/n of standardised columns, coefficients w minimise

    ½ wᵀGw − bᵀw + λ Σ c(g) ‖w_g‖,

the paper's ‖Y − Xw‖² + λ' Σ c(g) ‖w_g‖ divided by 2n, with λ = λ'/2n. Groups are computed in the
order in which they enter as λ falls, and their models are those of other rules: refitted without
the penalty. Groups without a cost have no penalty and come first. With several targets norms are
over these, too.

Each λ starts from the solution of the one before. Proximal steps on single groups find out which
are 0, Newton steps on the others, where the objective is smooth, make the solution exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import SequenceProblem

KKT = 1e-8
"""Largest violation of the optimality conditions, in units of b, without a note."""

#: Violation that ends a solution, and rounds of steps that end it anyway.
_ENOUGH, _MOST_ROUNDS = 1e-9, 2_000
#: Ridge of a Newton step, for columns that depend linearly on others, and how often it is halved.
_DAMPING, _HALVINGS = 1e-10, 30
#: Least λ, as a share of that at which the first group enters.
_LEAST = 1e-6
#: Longest step in log λ, and the shortest: groups that enter within it enter together.
_LONGEST, _SHORTEST = 0.5, 1e-7


@dataclass(frozen=True, eq=False)
class GroupLasso:
    """The minimisation for any λ.

    `gram` (d, d) and `target` (d, P) have the columns of each group side by side; `sizes` and
    `costs` (J,) are of the groups.
    """

    gram: np.ndarray
    target: np.ndarray
    sizes: np.ndarray
    costs: np.ndarray

    @classmethod
    def of(cls, problem: SequenceProblem) -> GroupLasso:
        """Return the minimisation of a problem, without its ridge."""
        groups = problem.groups.columns
        own = np.concatenate([np.array(group, np.intp) for group in groups])
        sizes = np.array([len(group) for group in groups])
        return cls(problem.gram[np.ix_(own, own)], problem.target[own], sizes, problem.costs.alone)

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def _rows(self) -> list[slice]:
        edges = [*self._starts.tolist(), len(self.gram)]
        return [slice(*pair) for pair in pairwise(edges)]

    @cached_property
    def _smoothness(self) -> list[float]:
        """Largest eigenvalue of each group's block."""
        return [float(np.linalg.eigvalsh(self.gram[own, own])[-1]) for own in self._rows]

    def norms(self, values: np.ndarray) -> np.ndarray:
        """Return ‖values_g‖ of each group, from values (d, P)."""
        return np.sqrt(np.add.reduceat(np.square(values).sum(axis=1), self._starts))

    def penalties(self, weight: float) -> np.ndarray:
        """Return λ c(g) of each group; 0 of those without a cost, for an infinite λ too."""
        found = np.zeros(len(self.costs))
        return np.multiply(self.costs, weight, out=found, where=self.costs > 0)

    def entering_at(self, coefficients: np.ndarray) -> np.ndarray:
        """Return for each group the λ below which it would no longer be 0 at these coefficients."""
        found = np.zeros(len(self.costs))
        gradient = self.norms(self.target - self.gram @ coefficients)
        return np.divide(gradient, self.costs, out=found, where=self.costs > 0)

    def violations(self, coefficients: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Return for each group how far its optimality conditions are from holding.

        With the gradient s = b − Gw these are s_g = λ c(g) w_g / ‖w_g‖, and ‖s_g‖ ≤ λ c(g) where
        w_g = 0.
        """
        gradient, norms = self.target - self.gram @ coefficients, self.norms(coefficients)
        pull = np.divide(penalties, norms, out=np.zeros(len(norms)), where=norms > 0)
        off = self.norms(gradient - np.repeat(pull, self.sizes)[:, np.newaxis] * coefficients)
        return np.where(norms > 0, off, np.maximum(self.norms(gradient) - penalties, 0.0))

    def solve(self, weight: float, start: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the coefficients (d, P) of a λ, found from others, and their violation."""
        coefficients, penalties = start.copy(), self.penalties(weight)
        for _ in range(_MOST_ROUNDS):
            wrong = self.violations(coefficients, penalties)
            if wrong.max() <= _ENOUGH:
                break
            self._proximal(coefficients, penalties, (wrong > _ENOUGH) | self._free(coefficients))
            coefficients = self._newton(coefficients, penalties)
        return coefficients, float(wrong.max())

    def _free(self, coefficients: np.ndarray) -> np.ndarray:
        """Return which groups are not 0, or have no penalty."""
        return (self.norms(coefficients) > 0) | (self.costs == 0)

    def _proximal(
        self, coefficients: np.ndarray, penalties: np.ndarray, groups: np.ndarray
    ) -> None:
        """Take a step on each of some groups in turn, which never raises the objective."""
        for g in np.flatnonzero(groups).tolist():
            own, smoothness = self._rows[g], self._smoothness[g]
            gradient = self.target[own] - self.gram[own] @ coefficients
            moved = coefficients[own] + gradient / smoothness
            norm, least = float(np.linalg.norm(moved)), float(penalties[g]) / smoothness
            coefficients[own] = moved * (1.0 - least / norm) if norm > least else 0.0

    def _newton(self, coefficients: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Take a Newton step on the groups that are not 0, shortened until it does not ascend.

        Such a group adds (I − uuᵀ) λ c(g) / ‖w_g‖ to the Hessian, where u = w_g / ‖w_g‖.
        """
        own = np.flatnonzero(np.repeat(self._free(coefficients), self.sizes))
        n_targets = self.target.shape[1]
        norms = np.repeat(self.norms(coefficients), self.sizes)[own]
        penalty = np.repeat(penalties, self.sizes)[own]
        curved = np.divide(penalty, norms, out=np.zeros(len(own)), where=norms > 0)
        unit = coefficients[own] / np.where(norms > 0, norms, 1.0)[:, np.newaxis]
        gradient = self.target[own] - self.gram[own] @ coefficients
        gradient -= penalty[:, np.newaxis] * unit
        group = np.repeat(np.repeat(np.arange(len(self.sizes)), self.sizes)[own], n_targets)
        curved = np.repeat(curved, n_targets)
        hessian = np.kron(self.gram[np.ix_(own, own)], np.eye(n_targets))
        hessian -= (group[:, np.newaxis] == group) * np.outer(curved * unit.ravel(), unit)
        hessian.flat[:: len(hessian) + 1] += curved + _DAMPING
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(len(own), n_targets)
        most = self._objective(coefficients, penalties) + 1e-14 * n_targets
        for length in 0.5 ** np.arange(_HALVINGS):
            trial = coefficients.copy()
            trial[own] += length * step
            if self._objective(trial, penalties) <= most:
                return trial
        return coefficients

    def _objective(self, coefficients: np.ndarray, penalties: np.ndarray) -> float:
        smooth = np.sum(coefficients * (0.5 * (self.gram @ coefficients) - self.target))
        norms = self.norms(coefficients)
        return float(smooth + penalties[norms > 0] @ norms[norms > 0])


@dataclass(frozen=True, eq=False)
class LassoPath:
    """Groups in the order in which they enter as λ falls.

    `weights` are the values of λ at which they were first seen not to be 0: infinite of groups
    without a cost, 0 of those that did not enter. `violation` is the largest of all solutions.
    """

    order: Sequence[int]
    weights: Sequence[float]
    violation: float

    def notes(self) -> list[str]:
        """Return what a reader of the result should know."""
        n_left = sum(weight == 0 for weight in self.weights)
        notes = []
        if n_left:
            notes.append(
                f"{n_left} of {len(self.order)} groups did not enter the group lasso (`sparse`) "
                f"down to {_LEAST:g} of the first λ; they come last."
            )
        if self.violation > KKT:
            notes.append(
                "The group lasso (`sparse`) did not converge everywhere: optimality conditions are "
                f"violated by up to {self.violation:.3g}."
            )
        return notes


def lasso_path(problem: SequenceProblem, most: int | None = None) -> LassoPath:
    """Follow the group lasso from no group to all, or to `most`, one group at a time.

    λ falls by steps that are halved where several groups enter in one. What still enters together
    is ordered by the gradient per cost before the step, and then by index. A group that leaves the
    model again stays where it entered.
    """
    lasso = GroupLasso.of(problem)
    most = len(lasso.costs) if most is None else min(most, len(lasso.costs))
    entered, order = lasso.costs == 0, np.flatnonzero(lasso.costs == 0).tolist()
    weights = [np.inf] * len(order)
    coefficients, violation = lasso.solve(np.inf, np.zeros_like(lasso.target))
    first = weight = float(lasso.entering_at(coefficients).max())
    step = _LONGEST

    def by_gradient(groups: np.ndarray) -> list[int]:
        # Rounding must not decide which of equal groups is first.
        rank = np.round(lasso.entering_at(coefficients)[groups] / (weight or 1.0), 8)
        ranked: list[int] = groups[np.argsort(-rank, kind="stable")].tolist()
        return ranked

    while len(order) < most and weight > _LEAST * first:
        low = weight * float(np.exp(-step))
        found, wrong = lasso.solve(low, coefficients)
        new = np.flatnonzero((lasso.norms(found) > 0) & ~entered)
        if len(new) > 1 and step > _SHORTEST:
            step /= 2
            continue
        order += by_gradient(new)
        weights += [low] * len(new)
        entered[new] = True
        weight, coefficients, violation = low, found, max(violation, wrong)
        step = step if len(new) else min(2 * step, _LONGEST)
    weights += [0.0] * int((~entered).sum())
    order += by_gradient(np.flatnonzero(~entered))
    return LassoPath(order[:most], weights[:most], violation)


def sparse_sequence(problem: SequenceProblem, max_groups: int | None = None) -> SequencePath:
    """Return the groups in the order in which they enter, with the models of all prefixes."""
    found = lasso_path(problem, max_groups)
    path = sequence(problem, "given", order=found.order)
    return replace(path, notes=tuple(found.notes()))
