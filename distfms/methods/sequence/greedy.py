"""Greedy sequencing on the Gram matrix, with costs, and the doubling rule of Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.criteria import CRITERIA, Criterion, make_criterion
from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.problem import SequenceProblem
from distfms.methods.sequence.residual import Pivot, ResidualGram

Choice = Callable[[np.ndarray], int]
"""Next group, given what each would cost now."""

TIE_RTOL = 1e-12
"""Scores this close are a tie, which the lowest index wins: rounding must not decide."""


def sequence(
    problem: SequenceProblem,
    criterion: str = "fr",
    *,
    cost_aware: bool = True,
    doubling: bool = False,
    order: Sequence[int] | None = None,
    seed: int = 0,
    max_groups: int | None = None,
    rtol: float | None = None,
) -> SequencePath:
    """Put the groups of a problem in order, one at a time.

    Parameters
    ----------
    problem : SequenceProblem
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten", "given", "random"}
        What a step maximises, see `make_criterion`; ``given`` follows `order`, ``random`` a
        permutation drawn from `seed`.
    cost_aware : bool
        Divide by the cost of the group (given the shared costs paid so far).
    doubling : bool
        Algorithm 2: the first group is among those of least cost, every later one among those
        that cost at most what was spent so far. When there is none the cheapest left is next and
        `notes` says so.
    order : sequence of int, optional
        Group indices for ``given``; may leave groups out.
    seed : int
        For ``random``.
    max_groups : int, optional
        Stop after so many groups. Default: all.
    rtol : float, optional
        Share of a column's variance below which its residual counts as linear dependence.

    Returns
    -------
    SequencePath

    Raises
    ------
    SpecError
        If the criterion is unknown or `order` is missing, not allowed, or not made of
        different groups.

    Notes
    -----
    A value below the rounding of F counts as 0; ties go to the lowest index, so redundant groups
    come last, in their order. Cost O(D² r) for the factor of rank r, whatever the number of rows.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Algorithms 1 and 2.
    """
    fixed = _fixed_order(problem, criterion, order, seed)
    if fixed is not None and doubling:
        raise SpecError(f"doubling chooses among groups; criterion {criterion!r} has no choice.")
    state = ResidualGram(
        problem.gram,
        problem.target,
        problem.groups.columns,
        ridge=problem.ridge,
        rtol=rtol,
        blocks=criterion == "fr",
    )
    trail = _Trail(problem)
    if fixed is not None:
        n_steps, choose = len(fixed), _following(fixed, trail)
    else:
        values = make_criterion(criterion, state)
        n_steps, choose = len(problem.groups), _greedily(values, trail, cost_aware, doubling)
    for _ in range(n_steps if max_groups is None else min(max_groups, n_steps)):
        costs = problem.costs.marginal(trail.order)
        group = choose(costs)
        trail.add(group, float(costs[group]), state.select(group))
    return trail.path(criterion, cost_aware, doubling)


def _following(fixed: Sequence[int], trail: _Trail) -> Choice:
    """Take the groups as they come in a fixed order."""

    def choose(costs: np.ndarray) -> int:
        return fixed[len(trail.order)]

    return choose


def _greedily(values: Criterion, trail: _Trail, cost_aware: bool, doubling: bool) -> Choice:
    """Take the best open group, per cost if `cost_aware`, within the cap if `doubling`."""
    smallest = value_floor(trail.problem)

    def choose(costs: np.ndarray) -> int:
        allowed = trail.open & _within_cap(costs, trail, doubling)
        return best_group(values(), costs if cost_aware else None, allowed, smallest)

    return choose


def value_floor(problem: SequenceProblem) -> float:
    """Value, in units of F, that cannot be told from 0 for a problem of this label variance."""
    return float(np.finfo(np.float64).eps) * problem.label_variance


def best_group(
    values: np.ndarray, costs: np.ndarray | None, allowed: np.ndarray, smallest: float
) -> int:
    """Index of the greatest value (per cost) among the allowed; the lowest index wins a tie."""
    score = np.where(values > smallest, values, 0.0)
    if costs is not None:
        score = score / costs
    score = np.where(allowed, score, -1.0)
    best = score.max()
    return int(np.argmax(score >= best * (1.0 - TIE_RTOL)))


def _within_cap(costs: np.ndarray, trail: _Trail, doubling: bool) -> np.ndarray:
    """Find the groups that the doubling rule lets a step choose from (lines 1, 3 of Alg. 2)."""
    if not doubling:
        return np.ones(len(costs), dtype=bool)
    cheapest = costs[trail.open].min()
    if not trail.order:
        return costs <= cheapest
    spent = sum(trail.cost)
    allowed = costs <= spent * (1.0 + 1e-12)
    if not allowed[trail.open].any():
        allowed = np.zeros(len(costs), dtype=bool)
        allowed[np.flatnonzero(trail.open & (costs <= cheapest))[0]] = True
        name = trail.problem.groups.names[int(np.argmax(allowed))]
        trail.notes.append(
            f"not doubling capable at step {len(trail.order) + 1}: no group left costs at most "
            f"the {spent:.6g} spent so far; continued with the cheapest, {name!r} at "
            f"{cheapest:.6g}"
        )
    return allowed


def _fixed_order(
    problem: SequenceProblem, criterion: str, order: Sequence[int] | None, seed: int
) -> list[int] | None:
    """Order that leaves no choice, or None when the rule decides."""
    n_groups = len(problem.groups)
    if (order is not None) != (criterion == "given"):
        raise SpecError("An order is needed for the criterion 'given', and for no other.")
    if criterion == "random":
        return np.random.default_rng(seed).permutation(n_groups).tolist()
    if order is None:
        if criterion not in CRITERIA:
            known = ", ".join((*CRITERIA, "given", "random"))
            raise SpecError(f"criterion {criterion!r} is none of {known}.")
        return None
    fixed = [int(group) for group in order]
    if len(set(fixed)) < len(fixed) or not set(fixed) <= set(range(n_groups)):
        raise SpecError(f"The order must be made of different groups of 0..{n_groups - 1}.")
    return fixed


@dataclass
class _Trail:
    """Steps taken so far."""

    problem: SequenceProblem
    order: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    pivots: list[Pivot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open = np.ones(len(self.problem.groups), dtype=bool)

    def add(self, group: int, cost: float, pivot: Pivot) -> None:
        self.open[group] = False
        self.order.append(group)
        self.cost.append(cost)
        self.pivots.append(pivot)

    def path(self, criterion: str, cost_aware: bool, doubling: bool) -> SequencePath:
        problem, scaling = self.problem, self.problem.scaling
        capable = not self.notes
        names = [scaling.feature_names[i] for i in scaling.kept]
        support, upper, response = assemble_factor(self.pivots, problem.n_targets)
        return SequencePath(
            criterion=criterion,
            cost_aware=cost_aware,
            doubling=doubling,
            ridge=problem.ridge,
            order=np.array(self.order, dtype=np.intp),
            groups=tuple(problem.groups.names[g] for g in self.order),
            columns=tuple(tuple(names[c] for c in problem.groups.columns[g]) for g in self.order),
            cost=np.array(self.cost, dtype=np.float64),
            spent=np.cumsum(np.array(self.cost, dtype=np.float64)),
            gain=np.array([p.gain for p in self.pivots], dtype=np.float64),
            ranks=np.cumsum([len(p.columns) for p in self.pivots], dtype=np.intp),
            doubling_capable=capable,
            notes=(*self.notes, *_notes(problem)),
            scaling=scaling,
            support=support,
            upper=upper,
            response=response,
        )


def _notes(problem: SequenceProblem) -> list[str]:
    """Say what of the problem itself a reader of the result should know."""
    notes = []
    if problem.scaling.dropped:
        notes.append(f"constant columns left out: {', '.join(problem.scaling.dropped)}")
    if problem.dropped_groups:
        notes.append(f"groups of constant columns left out: {', '.join(problem.dropped_groups)}")
    return notes


def assemble_factor(
    pivots: Sequence[Pivot], n_targets: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole Cholesky factor from the pivots of all steps.

    Returns
    -------
    support : numpy.ndarray of int, shape (r,)
    upper : numpy.ndarray of shape (r, r)
    response : numpy.ndarray of shape (r, P)
    """
    rank = sum(len(p.columns) for p in pivots)
    upper = np.zeros((rank, rank))
    start = 0
    for pivot in pivots:
        end = start + len(pivot.columns)
        upper[:start, start:end] = pivot.border
        upper[start:end, start:end] = pivot.upper
        start = end
    support = np.concatenate([np.empty(0, dtype=np.intp), *(p.columns for p in pivots)])
    response = np.concatenate([np.empty((0, n_targets)), *(p.response for p in pivots)])
    return support.astype(np.intp), upper, response
