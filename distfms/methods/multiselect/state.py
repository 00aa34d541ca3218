"""The state of the search: what the next judgment of every attribute would bring.

Both objectives offer the same steps (gains of all candidates, buy, drop, copy), so that the greedy
pass, the refinement and the baselines are written once.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

from distfms.methods.multiselect.blocks import (
    TILE_COLUMNS,
    CandidateBlock,
    CandidateStatistics,
)
from distfms.methods.multiselect.objective import Problem, full_objective, scoring_objective
from distfms.methods.multiselect.support import Entry


class GreedyState(Protocol):
    """What the greedy pass needs: gains, and a way to take one."""

    @property
    def objective(self) -> float:
        """Explained part of the label's variance."""

    def gains(self) -> np.ndarray:
        """Gain of one more judgment, shape (d,); −inf where it cannot be bought."""

    def buy(self, attribute: int) -> None:
        """Add a judgment of one attribute."""


class SearchState(GreedyState, Protocol):
    """A greedy state that can also give back what was bought."""

    @property
    def repeats(self) -> np.ndarray:
        """Judgments chosen so far, int of shape (d,)."""

    def drop(self, attribute: int, count: int = 1) -> None:
        """Give back `count` judgments of one attribute."""

    def copy(self) -> Self:
        """Return an independent copy."""


class ScoringState:
    """State of the Scoring objective: a sum of one term per attribute.

    Parameters
    ----------
    problem : Problem
    repeats : ndarray of int, shape (d,), optional
        Where to start; default: nothing judged.

    Notes
    -----
    ``buy`` costs O(1), ``gains`` O(d).
    """

    def __init__(self, problem: Problem, repeats: np.ndarray | None = None) -> None:
        self._problem = problem
        d = problem.n_attributes
        self.repeats = np.zeros(d, np.int64) if repeats is None else repeats.copy()
        self.objective = scoring_objective(problem, self.repeats)
        self._gains = np.array([self._gain(a) for a in range(d)])

    def _variance(self, a: int, count: int) -> float:
        problem = self._problem
        return float(problem.external_variance[a] + problem.ridge + problem.v[a] / count)

    def _gain(self, a: int) -> float:
        """Exact difference of two terms, without cancellation."""
        problem, r = self._problem, int(self.repeats[a])
        if not problem.candidates[a]:
            return -np.inf
        score = float(problem.b[a]) ** 2 / self._variance(a, r + 1)
        if r == 0:
            return score
        return score * float(problem.v[a]) / (r * (r + 1) * self._variance(a, r))

    def gains(self) -> np.ndarray:
        """Gain of one more judgment, shape (d,); −inf for constant attributes."""
        return self._gains

    def _set(self, attribute: int, count: int) -> None:
        self.repeats[attribute] = count
        self._gains[attribute] = self._gain(attribute)

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        for _ in range(count):
            self.objective += float(self._gains[attribute])
            self._set(attribute, int(self.repeats[attribute]) + 1)

    def drop(self, attribute: int, count: int = 1) -> None:
        """Give back `count` judgments of one attribute."""
        self._set(attribute, int(self.repeats[attribute]) - count)
        self.objective = scoring_objective(self._problem, self.repeats)

    def copy(self) -> ScoringState:
        """Return an independent copy."""
        other = object.__new__(ScoringState)
        other._problem = self._problem
        other.repeats, other._gains = self.repeats.copy(), self._gains.copy()
        other.objective = self.objective
        return other


class FullState(CandidateBlock):
    """State of the Full objective: one block of all attributes.

    Parameters
    ----------
    problem : Problem
    repeats : ndarray of int, shape (d,), optional
        Where to start; default: nothing judged.
    tile_columns : int
        Columns of a tile; see :class:`CandidateBlock`, which has the formulas and the costs.
    """

    def __init__(
        self,
        problem: Problem,
        repeats: np.ndarray | None = None,
        *,
        tile_columns: int = TILE_COLUMNS,
    ) -> None:
        super().__init__(CandidateStatistics.of(problem), tile_columns=tile_columns)
        d = problem.n_attributes
        self.repeats = np.zeros(d, np.int64)
        if repeats is not None:
            self.repeats[:] = repeats
            bought = np.flatnonzero((self.repeats > 0) & problem.candidates)
            self._begin_with(problem, bought)

    def _begin_with(self, problem: Problem, bought: np.ndarray) -> None:
        """Enter attributes that have judgments from the start."""
        for n, a in enumerate(bought.tolist()):
            row = problem.external[a, bought[:n]]
            external, b, v = problem.external[a, a], problem.b[a], problem.v[a]
            self._open_slot(Entry(a, row, np.zeros(n), float(external), float(b), float(v)))
            self._mark(a, True)
        self._support.repeats[:] = self.repeats[bought]
        self.refactor()

    @property
    def weights(self) -> np.ndarray:
        """Weights of the predictor, shape (d,); 0 for attributes that are not judged."""
        weights = np.zeros(self.repeats.size)
        weights[self._support.slots] = self._support.w
        return weights

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        self.repeats[attribute] += count
        self.take(attribute, self.entry(attribute), count)

    def drop(self, attribute: int, count: int = 1) -> None:
        """Give back `count` judgments of one attribute."""
        self.repeats[attribute] -= count
        at = self._support.slot(attribute)
        if self.repeats[attribute] > 0:
            self._repeat(attribute, -count)
        elif self._support.ridge > 0 or (at is not None and self._support.v[at] > 0):
            self._remove(attribute)
        elif at is not None:
            self._support.repeats[at] = 0
            self._mark(attribute, False)
            self.refactor()


def make_state(
    problem: Problem, algorithm: str, repeats: np.ndarray | None = None
) -> ScoringState | FullState:
    """State of the named objective.

    Parameters
    ----------
    problem : Problem
    algorithm : {"full", "scoring"}
    repeats : ndarray of int, shape (d,), optional

    Returns
    -------
    ScoringState or FullState
    """
    return FullState(problem, repeats) if algorithm == "full" else ScoringState(problem, repeats)


def objective_of(problem: Problem, algorithm: str, repeats: np.ndarray) -> float:
    """Objective of the named algorithm, computed afresh by its literal formula.

    Parameters
    ----------
    problem : Problem
    algorithm : {"full", "scoring"}
    repeats : ndarray of int, shape (d,)

    Returns
    -------
    float
    """
    compute = full_objective if algorithm == "full" else scoring_objective
    return compute(problem, repeats)
