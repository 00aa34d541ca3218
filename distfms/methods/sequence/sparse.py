"""The baseline ``sparse``: groups in the order in which they enter the cost-weighted group lasso.

As λ falls, see `solve.group_lasso`; their models are those of other rules: refitted without the
penalty. Groups without a cost have no penalty and come first (Hu et al., Section 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import SequenceProblem
from distfms.solve.group_lasso import GroupLasso

KKT = 1e-8
"""Largest violation of the optimality conditions, in units of b, without a note."""

#: Least λ, as a share of that at which the first group enters.
_LEAST = 1e-6
#: Longest step in log λ.
_LONGEST = 0.5
#: The shortest: groups that enter within it enter together.
_SHORTEST = 1e-7
#: Decimals to which gradients of groups are compared: rounding must not decide which is first.
_DECIMALS = 8


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
    lasso = lasso_of(problem)
    n_groups = len(lasso.costs)
    most = n_groups if most is None else min(most, n_groups)
    descent = _Descent(lasso)
    while len(descent.order) < most and descent.weight > _LEAST * descent.first:
        descent.step()
    descent.add_rest()
    return LassoPath(descent.order[:most], descent.weights[:most], descent.violation)


def lasso_of(problem: SequenceProblem) -> GroupLasso:
    """Return the minimisation of a problem, without its ridge."""
    groups = problem.groups.columns
    return GroupLasso.of(problem.gram, problem.target, groups, problem.costs.alone)


@dataclass(eq=False)
class _Descent:
    """A path of the lasso under way: λ (`weight`), its solution, and the groups that entered."""

    lasso: GroupLasso
    log_step: float = _LONGEST
    order: list[int] = field(init=False)
    weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.has_entered = self.lasso.costs == 0
        self.order = np.flatnonzero(self.has_entered).tolist()
        self.weights = [np.inf] * len(self.order)
        nothing = np.zeros_like(self.lasso.target)
        self.coefficients, self.violation = self.lasso.solve(np.inf, nothing)
        self.first = float(self.lasso.entering_at(self.coefficients).max())
        self.weight = self.first

    def step(self) -> None:
        """Lower λ, unless several groups enter by it: then the next step is half as long."""
        lower = self.weight * float(np.exp(-self.log_step))
        solution, violation = self.lasso.solve(lower, self.coefficients)
        is_new = (self.lasso.norms(solution) > 0) & ~self.has_entered
        new = np.flatnonzero(is_new)
        if len(new) > 1 and self.log_step > _SHORTEST:
            self.log_step /= 2
            return
        self._enter(new, lower)
        self.weight = lower
        self.coefficients = solution
        self.violation = max(self.violation, violation)
        if not len(new):
            self.log_step = min(2 * self.log_step, _LONGEST)

    def add_rest(self) -> None:
        """Let what did not enter come last."""
        self._enter(np.flatnonzero(~self.has_entered), 0.0)

    def _enter(self, groups: np.ndarray, weight: float) -> None:
        gradients = self.lasso.entering_at(self.coefficients)[groups]
        rank = np.round(gradients / (self.weight or 1.0), _DECIMALS)
        self.order += groups[np.argsort(-rank, kind="stable")].tolist()
        self.weights += [weight] * len(groups)
        self.has_entered[groups] = True


def sparse_sequence(problem: SequenceProblem, max_groups: int | None = None) -> SequencePath:
    """Return the groups in the order in which they enter, with the models of all prefixes."""
    lasso = lasso_path(problem, max_groups)
    path = sequence(problem, "given", order=lasso.order)
    return replace(path, notes=tuple(lasso.notes()))
