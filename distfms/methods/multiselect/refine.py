"""Backward and swap refinement of a selection.

The greedy pass never gives anything back. Here judgments are, one attribute at a time, and the
freed budget is spent anew; an exchange is kept when it explains more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import SpecError
from distfms.methods.multiselect.greedy import (
    Algorithm,
    SearchState,
    make_state,
    objective_of,
    spend,
)
from distfms.methods.multiselect.objective import Problem, check_repeats
from distfms.methods.multiselect.path import BUDGET_TOLERANCE, check_choice

#: Relative improvement below which an exchange is not worth the name.
MIN_IMPROVEMENT = 1e-9


@dataclass(frozen=True, eq=False)
class Refinement:
    """Result of a refinement.

    Attributes
    ----------
    repeats : ndarray of int, shape (d,)
    objective : float
        Of `repeats`, by the literal formula; at least `initial_objective`.
    initial_objective : float
        Of the repeats it started from.
    spent : float
        Cost of `repeats`, at most the budget.
    n_exchanges : int
        Exchanges that were kept.
    status : {"local_optimum", "max_exchanges"}
        Whether no further exchange improves.
    """

    repeats: np.ndarray
    objective: float
    initial_objective: float
    spent: float
    n_exchanges: int
    status: str


def refine(
    problem: Problem,
    repeats: ArrayLike,
    budget: float,
    algorithm: Algorithm = "full",
    *,
    max_exchanges: int = 100,
) -> Refinement:
    """Improve a selection by exchanging judgments.

    An exchange gives back one judgment, or all judgments, of one attribute and spends what is
    then left of the budget greedily, by gain per cost and by gain. The best exchange is kept, and
    the next looked for, until none improves the objective.

    Parameters
    ----------
    problem : Problem
    repeats : array_like of int, shape (d,)
        For example ``select(...).final_repeats``.
    budget : float
        At least the cost of `repeats`.
    algorithm : {"full", "scoring"}, default="full"
        Whose objective to improve.
    max_exchanges : int, default=100

    Returns
    -------
    Refinement

    Raises
    ------
    SpecError
        `repeats` cost more than the budget, or are no repeat vector.

    Notes
    -----
    Looking for one exchange costs O(Σ r[a]·d·|S|) for Full.
    """
    check_choice("algorithm", algorithm, ("full", "scoring"))
    start = check_repeats(repeats, problem.n_attributes)
    spent = float(start @ problem.costs)
    if not spent <= budget * (1.0 + BUDGET_TOLERANCE):
        raise SpecError(f"The selection costs {spent:g}, more than the budget {budget:g}.")
    initial = objective_of(problem, algorithm, start)
    state: SearchState = make_state(problem, algorithm, start)
    spend(state, budget, spent=spent)
    n_exchanges, status = 0, "max_exchanges"
    while n_exchanges < max_exchanges:
        better = _best_exchange(problem, state, budget)
        if better is None:
            status = "local_optimum"
            break
        state, n_exchanges = better, n_exchanges + 1
    final = objective_of(problem, algorithm, state.repeats)
    # The states' objectives are updated ones; the promise is about the literal formula.
    result, final = (state.repeats, final) if final >= initial else (start, initial)
    cost = float(result @ problem.costs)
    return Refinement(result.copy(), final, initial, cost, n_exchanges, status)


def _best_exchange(problem: Problem, state: SearchState, budget: float) -> SearchState | None:
    """State after the exchange that explains most, or None if none explains more than now."""
    best: SearchState | None = None
    bar = state.objective * (1.0 + MIN_IMPROVEMENT)
    criteria = ["gain_per_cost"]
    if (problem.costs != problem.costs[0]).any():
        criteria.append("gain")
    for attribute in np.flatnonzero(state.repeats > 0):
        held = int(state.repeats[attribute])
        for count in sorted({1, held}):
            for criterion in criteria:
                trial = _exchange(problem, state, budget, int(attribute), count, criterion)
                if trial.objective > bar:
                    best, bar = trial, trial.objective
    return best


def _exchange(
    problem: Problem,
    state: SearchState,
    budget: float,
    attribute: int,
    count: int,
    criterion: str,
) -> SearchState:
    """Give back judgments of one attribute and spend what is left."""
    trial = state.copy()
    trial.drop(attribute, count)
    spent = float(trial.repeats @ problem.costs)
    spend(trial, budget, spent=spent, criterion=criterion)
    return trial
