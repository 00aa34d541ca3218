"""Greedy feature multi-selection: one judgment at a time, the one that explains most.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013,
   Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.objective import Problem
from distfms.methods.multiselect.state import GreedyState, make_state

Algorithm = Literal["full", "scoring"]
Criterion = Literal["gain_per_cost", "gain", "best"]
Status = Literal["budget_spent", "no_positive_gain", "unaffordable"]

#: Share of the budget by which sums of costs may miss it through rounding.
BUDGET_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class SelectionPath:
    """What was bought, in order.

    Attributes
    ----------
    algorithm : str
        ``"full"``, ``"scoring"``, or the name of a baseline.
    criterion : str
        What the steps maximised: ``"gain_per_cost"`` or ``"gain"`` (never ``"best"``).
    status : {"budget_spent", "no_positive_gain", "unaffordable"}
        Why it ended: nothing left; no further judgment of any attribute has a positive gain; or
        some budget is left, but less than what any attribute with a positive gain costs.
    budget : float
    names : tuple of str, length d
    costs : ndarray of shape (d,)
        Cost of one judgment.
    attributes : ndarray of int, shape (n_steps,)
        Attribute bought in each step.
    counts : ndarray of int, shape (n_steps,)
        Judgments bought in each step: 1, but for baselines that buy several at once.
    objective : ndarray of shape (n_steps,)
        What the algorithm maximises, after each step. Comparable among paths of one algorithm
        only.
    label_variance : float
        Loss of the empty selection.
    n_candidates : int
        Candidates evaluated: gains of attributes computed and compared. Every step compares all
        attributes that are not constant, and so does the look that ends the search; for criterion
        ``"best"`` those of both searches. 0 for a path that no search has made.
    """

    algorithm: str
    criterion: str
    status: Status
    budget: float
    names: tuple[str, ...]
    costs: np.ndarray
    attributes: np.ndarray
    counts: np.ndarray
    objective: np.ndarray
    label_variance: float
    n_candidates: int = 0

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.attributes.size

    @property
    def cost(self) -> np.ndarray:
        """Cost of each step, shape (n_steps,)."""
        return self.costs[self.attributes] * self.counts

    @property
    def spent(self) -> np.ndarray:
        """Total cost after each step, shape (n_steps,)."""
        return np.cumsum(self.cost)

    @property
    def projected_loss(self) -> np.ndarray:
        """Label variance minus objective after each step, shape (n_steps,)."""
        return self.label_variance - self.objective

    @property
    def repeats(self) -> np.ndarray:
        """Judgments that the attribute of each step has after it, int of shape (n_steps,)."""
        held = np.zeros(len(self.names), dtype=np.int64)
        after = np.empty(self.n_steps, dtype=np.int64)
        for step, (attribute, count) in enumerate(zip(self.attributes, self.counts, strict=True)):
            held[attribute] += count
            after[step] = held[attribute]
        return after

    @property
    def final_repeats(self) -> np.ndarray:
        """Repeat vector at the end of the path, int of shape (d,)."""
        return self.repeats_after(self.n_steps)

    def repeats_after(self, n_steps: int) -> np.ndarray:
        """Repeat vector after the first steps.

        Parameters
        ----------
        n_steps : int
            0 to `n_steps` of the path.

        Returns
        -------
        ndarray of int, shape (d,)
        """
        attributes, counts = self.attributes[:n_steps], self.counts[:n_steps]
        held = np.bincount(attributes, weights=counts, minlength=len(self.names))
        return held.astype(np.int64)

    def steps_at(self, budget: float) -> int:
        """Count the steps that a smaller budget pays for.

        Parameters
        ----------
        budget : float

        Returns
        -------
        int
        """
        return int(self.steps_at_each(np.array([budget]))[0])

    def steps_at_each(self, budgets: np.ndarray) -> np.ndarray:
        """Count the steps that each of some budgets pays for.

        Parameters
        ----------
        budgets : ndarray of shape (n,)

        Returns
        -------
        ndarray of int, shape (n,)
        """
        return np.searchsorted(self.spent, budgets * (1.0 + BUDGET_TOLERANCE), side="right")

    def repeats_at(self, budget: float) -> np.ndarray:
        """Repeat vector for a smaller budget: the steps it pays for, taken in order.

        With equal costs this is exactly what a search with that budget returns. With unequal
        costs such a search goes the same way up to the first step it cannot pay for; it would
        then look for a cheaper one, while this stops there. So the vector never exceeds the
        budget but may leave up to one step's cost unspent.

        Parameters
        ----------
        budget : float
            At most the path's own budget; more gives the end of the path.

        Returns
        -------
        ndarray of int, shape (d,)
        """
        return self.repeats_after(self.steps_at(budget))


def select(
    problem: Problem,
    budget: float,
    algorithm: Algorithm = "full",
    criterion: Criterion = "gain_per_cost",
) -> SelectionPath:
    """Decide how many judgments of each attribute to buy.

    Starts with none and buys, while the budget lasts and something has a positive gain, the
    judgment with the largest gain (per unit of cost) among those still affordable. Ties go to the
    lowest attribute index. Constant attributes are never bought.

    Parameters
    ----------
    problem : Problem
    budget : float
        Total cost of the judgments of one object.
    algorithm : {"full", "scoring"}, default="full"
        Which objective; Scoring takes the attributes for uncorrelated.
    criterion : {"gain_per_cost", "gain", "best"}, default="gain_per_cost"
        What a step maximises. ``"best"`` runs both if costs differ and returns the path whose end
        has the larger objective (``gain_per_cost`` if they are equal).

    Returns
    -------
    SelectionPath

    Raises
    ------
    SpecError
        The budget is not a positive finite number, or a name is unknown.
    DataError
        The budget is below the cheapest attribute.

    Notes
    -----
    A step costs O(d·|S|) for Full, with S the attributes bought so far, and O(d) for Scoring.
    With equal costs, Scoring is optimal for its objective (Theorem 3.2 of [1]_).

    References
    ----------
    .. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.
    """
    check_choice("algorithm", algorithm, ("full", "scoring"))
    check_choice("criterion", criterion, ("gain_per_cost", "gain", "best"))
    check_budget(budget, problem)
    if criterion != "best":
        return _select(problem, budget, algorithm, criterion)
    path = _select(problem, budget, algorithm, "gain_per_cost")
    if (problem.costs == problem.costs[0]).all():
        return path
    other = _select(problem, budget, algorithm, "gain")
    better = other if _end(other) > _end(path) else path
    return replace(better, n_candidates=path.n_candidates + other.n_candidates)


def _end(path: SelectionPath) -> float:
    return float(path.objective[-1]) if path.n_steps else 0.0


def _select(problem: Problem, budget: float, algorithm: str, criterion: str) -> SelectionPath:
    state = make_state(problem, algorithm)
    attributes, objective, status = spend(state, problem.costs, budget, criterion=criterion)
    return SelectionPath(
        algorithm=algorithm,
        criterion=criterion,
        status=status,
        budget=float(budget),
        names=problem.names,
        costs=problem.costs,
        attributes=np.array(attributes, dtype=np.int64),
        counts=np.ones(len(attributes), dtype=np.int64),
        objective=np.array(objective, dtype=float),
        label_variance=problem.label_variance,
        n_candidates=int(problem.candidates.sum()) * (len(attributes) + 1),
    )


def spend(
    state: GreedyState,
    costs: np.ndarray,
    budget: float,
    *,
    spent: float = 0.0,
    criterion: str = "gain_per_cost",
) -> tuple[list[int], list[float], Status]:
    """Buy greedily from where the state stands until the budget or the gains are used up.

    Parameters
    ----------
    state : GreedyState
        Changed in place.
    costs : ndarray of shape (d,)
        Cost of the next step with each attribute.
    budget, spent : float
        Total, and the part of it that is gone.
    criterion : {"gain_per_cost", "gain"}

    Returns
    -------
    attributes : list of int
        Attribute of each step.
    objective : list of float
        Objective after each step.
    status : str
        As in :class:`SelectionPath`.
    """
    attributes: list[int] = []
    objective: list[float] = []
    limit = budget * (1.0 + BUDGET_TOLERANCE)
    per_cost = criterion == "gain_per_cost" and bool((costs != costs[0]).any())
    while True:
        gains = state.gains()
        positive = gains > 0
        usable = positive & (spent + costs <= limit)
        if not usable.any():
            left = budget - spent > BUDGET_TOLERANCE * budget
            if not positive.any():
                return attributes, objective, "no_positive_gain"
            return attributes, objective, "unaffordable" if left else "budget_spent"
        score = gains / costs if per_cost else gains
        best = int(np.argmax(np.where(usable, score, -np.inf)))
        state.buy(best)
        spent += float(costs[best])
        attributes.append(best)
        objective.append(state.objective)


def check_choice(what: str, value: str, known: Sequence[str]) -> None:
    """Raise a SpecError unless `value` is one of the known names.

    Parameters
    ----------
    what : str
        What the value is, for the message.
    value : str
    known : sequence of str

    Raises
    ------
    SpecError
    """
    if value not in known:
        raise SpecError(f"{what} is {value!r}; known are {', '.join(known)}.")


def check_budget(budget: float, problem: Problem) -> None:
    """Check that a budget is a number that buys at least one judgment.

    Parameters
    ----------
    budget : float
    problem : Problem

    Raises
    ------
    SpecError
        It is not a positive finite number.
    DataError
        It is below the cheapest attribute.
    """
    if not (np.isfinite(budget) and budget > 0):
        raise SpecError(f"The budget is {budget}; it must be a positive finite number.")
    eligible = np.flatnonzero(problem.candidates)
    if eligible.size == 0:
        return
    cheapest = eligible[np.argmin(problem.costs[eligible])]
    if problem.costs[cheapest] > budget * (1.0 + BUDGET_TOLERANCE):
        raise DataError(
            f"The budget {budget:g} buys nothing: a judgment of the cheapest attribute, "
            f"{problem.names[cheapest]!r}, costs {problem.costs[cheapest]:g}. Raise the budget or "
            f"lower the cost."
        )
