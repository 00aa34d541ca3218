"""What a search for judgments found, and what budgets it can be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.objective import Problem

Status = Literal["budget_spent", "no_positive_gain", "unaffordable"]

#: Fields of a path that its problem does not have.
_STORED: tuple[str, ...] = (
    *("algorithm", "criterion", "status", "budget", "attributes", "counts", "objective"),
    *("label_variance", "n_candidates", "refined"),
)

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
    refined : ndarray of int, shape (d,), or None
        What is bought in the end, where exchanges have improved on the end of the path.
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
    refined: np.ndarray | None = None

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the path as named arrays, without what its problem has."""
        own = {name: getattr(self, name) for name in _STORED}
        return {name: np.asarray(value) for name, value in own.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], problem: Problem) -> SelectionPath:
        """Inverse of :meth:`to_arrays`."""
        own: dict[str, Any] = {n: a if a.ndim else a.item() for n, a in arrays.items()}
        return cls(names=problem.names, costs=problem.costs, **own)

    def on(self, attributes: np.ndarray) -> SelectionPath:
        """Return the path as one on some of the attributes, those it has bought among them."""
        return replace(
            self,
            names=tuple(self.names[a] for a in attributes.tolist()),
            costs=self.costs[attributes],
            attributes=np.searchsorted(attributes, self.attributes),
            refined=None if self.refined is None else self.refined[attributes],
        )

    @property
    def selected(self) -> np.ndarray:
        """Repeat vector that is bought in the end, int of shape (d,)."""
        return self.final_repeats if self.refined is None else self.refined

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
        after = np.empty(self.n_steps, dtype=np.int64)
        for attribute in np.unique(self.attributes):
            own = self.attributes == attribute
            after[own] = np.cumsum(self.counts[own])
        return after

    @property
    def final_repeats(self) -> np.ndarray:
        """Repeat vector at the end of the path, int of shape (d,)."""
        return self.repeats_after(self.n_steps)

    def repeats_after(self, n_steps: int) -> np.ndarray:
        """Repeat vector after the first steps, int of shape (d,)."""
        attributes, counts = self.attributes[:n_steps], self.counts[:n_steps]
        held = np.bincount(attributes, weights=counts, minlength=len(self.names))
        return held.astype(np.int64)

    def steps_at(self, budget: float) -> int:
        """Count the steps that a smaller budget pays for."""
        return int(self.steps_at_each(np.array([budget]))[0])

    def steps_at_each(self, budgets: np.ndarray) -> np.ndarray:
        """Count the steps that each of some budgets pays for, int of shape (n,)."""
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
