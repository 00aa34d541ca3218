"""Greedy sequencing on the Gram matrix, with costs, and the doubling rule of Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.blocks import TILE_COLUMNS, GroupBlock, GroupStatistics
from distfms.methods.sequence.criteria import CRITERIA
from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.problem import SequenceOutline, SequenceProblem
from distfms.methods.sequence.trail import Trail

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
    tile_columns: int = TILE_COLUMNS,
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
    tile_columns : int
        Columns computed together; decides about the last bits only.

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
    fixed = fixed_order(len(problem.groups), criterion, order, seed)
    if fixed is not None and doubling:
        raise SpecError(f"doubling chooses among groups; criterion {criterion!r} has no choice.")
    block = GroupBlock(
        GroupStatistics.of(problem),
        # Of a fixed order nobody asks for values; this rule prepares nothing.
        "omp-no-whiten" if fixed is not None else criterion,
        rtol=rtol,
        tile_columns=tile_columns,
    )
    trail = Trail(problem.outline)
    n_steps = len(problem.groups) if fixed is None else len(fixed)
    for step in range(n_steps if max_groups is None else min(max_groups, n_steps)):
        costs = problem.costs.marginal(trail.order)
        if fixed is not None:
            group = fixed[step]
        else:
            allowed = trail.open & trail.cap(costs, doubling).allows(costs)
            group = best_group(
                block.values(), costs if cost_aware else None, allowed, value_floor(trail.outline)
            )
        trail.add(group, float(costs[group]), block.select(group))
    return trail.path(criterion, cost_aware, doubling)


def value_floor(problem: SequenceOutline) -> float:
    """Value, in units of F, that cannot be told from 0 for a problem of this label variance."""
    return float(np.finfo(np.float64).eps) * problem.label_variance


def best_group(
    values: np.ndarray, costs: np.ndarray | None, allowed: np.ndarray, smallest: float
) -> int:
    """Index of the greatest value (per cost) among the allowed; the lowest index wins a tie."""
    score = scores(values, costs, allowed, smallest)
    return int(np.argmax(is_best(score, score.max())))


def scores(
    values: np.ndarray, costs: np.ndarray | None, allowed: np.ndarray, smallest: float
) -> np.ndarray:
    """Values (per cost), at least 0; −1 for the groups that are not allowed."""
    score = np.where(values > smallest, values, 0.0)
    if costs is not None:
        score = score / costs
    return np.where(allowed, score, -1.0)


def is_best(score: np.ndarray, best: float) -> np.ndarray:
    """Tell which scores cannot be told from the best of all."""
    return score >= best * (1.0 - TIE_RTOL)


def fixed_order(
    n_groups: int, criterion: str, order: Sequence[int] | None, seed: int
) -> list[int] | None:
    """Order that leaves no choice, or None when the rule decides."""
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
