"""What a search for judgments found, and what budgets it can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.objective import Problem

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
