"""What one more judgment of each attribute of a slab would bring; the formulas are in `greedy`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from distfms.methods.multiselect.objective import RANK_TOLERANCE, Problem
from distfms.methods.slabs import Loadable, loaded, slab_starts

#: Numerators below this share of their Cauchy-Schwarz bound are rounding.
NOISE_TOLERANCE = 1e-13


class Purse(NamedTuple):
    """What is left to buy from, and how purchases compare."""

    spent: float
    limit: float
    per_cost: bool

    def scores(self, gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Gains (per cost); −inf where there is none, or it cannot be afforded."""
        usable = (gains > 0) & (self.spent + costs <= self.limit)
        return np.where(usable, gains / costs if self.per_cost else gains, -np.inf)

    def best(self, gains: np.ndarray, costs: np.ndarray) -> int | None:
        """Purchase of the largest score, the first of equals; None if there is none."""
        scores = self.scores(gains, costs)
        best = int(np.argmax(scores))
        return best if scores[best] > 0 else None


class AttributeSlab(NamedTuple):
    """The attributes from `start` on that a slab's state is made from.

    Attributes
    ----------
    start : int
    problem : Problem
        Of these n attributes, without a matrix.
    external : ndarray of shape (n, d), or what loads it
        Their rows of the external covariance Σ.
    """

    start: int
    problem: Problem
    external: np.ndarray | Loadable[np.ndarray]

    @classmethod
    def of(
        cls, problem: Problem, start: int, stop: int, external: np.ndarray | Loadable[np.ndarray]
    ) -> Self:
        """Cut a run of attributes out of a problem, which need not have its matrix."""
        own = problem.take(np.arange(start, stop), external=np.zeros((0, 0)))
        return cls(start, own, external)


def slabs_of(problem: Problem) -> list[AttributeSlab]:
    """Slabs of a problem in memory; their matrices are views."""
    starts = slab_starts([1] * problem.n_attributes)
    # Σ is symmetric; in the transpose the column of an attribute that is bought lies together.
    matrix = problem.external.T
    return [AttributeSlab.of(problem, *pair, matrix[slice(*pair)]) for pair in pairwise(starts)]


class Update(NamedTuple):
    """P ← P + κ q qᵀ, told to all slabs, with qᵀb and the attribute that is new in S, if any."""

    kappa: float
    product: float
    q: np.ndarray
    entered: int | None


class Afresh(NamedTuple):
    """S, P and w, told to all slabs to start anew from."""

    support: np.ndarray
    inverse: np.ndarray
    w: np.ndarray


class Question(NamedTuple):
    """One message to all slabs: what has changed, and which method answers with what arguments."""

    changes: list[Update | Afresh]
    method: str
    arguments: tuple[Any, ...]


class Offer(NamedTuple):
    """A candidate of a slab; `row` has Σ[a, S] and Σ[a, a]."""

    attribute: int
    gain: float
    row: np.ndarray


class FullSlab:
    """num and den of a run of n attributes; a step costs O(n·|S|), memory O(n·|S|) besides Σ."""

    def __init__(self, slab: AttributeSlab) -> None:
        own, at = slab.problem, np.arange(slab.problem.n_attributes)
        self.start, self.b, self.costs, self.candidates = (
            slab.start,
            own.b,
            own.costs,
            own.candidates,
        )
        self.external = loaded(slab.external)
        self.diagonal = self.external[at, slab.start + at] + own.v + own.ridge
        self.begin(Afresh(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros(0)))

    def begin(self, given: Afresh) -> None:
        """Compute everything afresh."""
        self.n = given.support.size
        self.rows = np.ascontiguousarray(self.external[:, given.support].T)  # Σ[S, ·]
        projected = given.inverse @ self.rows
        self.num = self.b - given.w @ self.rows
        self.den = self.diagonal - np.einsum("ij,ij->j", projected, self.rows)
        self.free = self.candidates.copy()
        self.free[self._own(given.support)] = False

    def follow(self, change: Update) -> None:
        """Take one update."""
        if change.entered is not None:
            if self.n == len(self.rows):
                room = np.empty((max(16, self.n), self.num.size))
                self.rows = np.concatenate([self.rows, room])
            self.rows[self.n] = self.external[:, change.entered]
            self.n += 1
            self.free[self._own(np.array([change.entered]))] = False
        t = change.q @ self.rows[: self.n]
        self.num -= (change.kappa * change.product) * t
        self.den -= change.kappa * t**2

    def gains(self, objective: float) -> np.ndarray:
        """Gains of all own attributes, shape (n,).

        −inf for attributes in S and for constant ones, 0 for those that depend linearly on S.
        """
        squares, least = self.num**2, RANK_TOLERANCE * self.diagonal
        noise = (NOISE_TOLERANCE**2 * max(objective, 0.0)) * self.diagonal
        gains = np.where(self.free, 0.0, -np.inf)
        usable = self.free & (self.den > least) & (squares > noise)
        return np.divide(squares, self.den, out=gains, where=usable)

    def offers(self, objective: float, purse: Purse) -> list[Offer]:
        """Offer what may be the best purchase of all, or else one that gains but is too dear."""
        gains = self.gains(objective)
        best = purse.best(gains, self.costs)
        if best is None and (gains > 0).any():
            best = int(np.argmax(gains > 0))
        return [] if best is None else [self._offer(best, float(gains[best]))]

    def offer_of(self, attribute: int) -> list[Offer]:
        """Offer an attribute if it is in the slab, whatever it gains."""
        return [self._offer(own, np.nan) for own in self._own(np.array([attribute])).tolist()]

    def among(self, attributes: np.ndarray) -> np.ndarray:
        """Own rows of Σ[attributes, attributes], which ascend."""
        return self.external[np.ix_(self._own(attributes), attributes)]

    def _offer(self, own: int, gain: float) -> Offer:
        attribute = self.start + own
        row = np.append(self.rows[: self.n, own], self.external[own, attribute])
        return Offer(attribute, gain, row)

    def _own(self, attributes: np.ndarray) -> np.ndarray:
        """Positions of those of some attributes that lie in the slab."""
        own = attributes - self.start
        return own[(own >= 0) & (own < self.b.size)]


def answer(slab: FullSlab, question: Question) -> tuple[FullSlab, Any]:
    """Take what has changed and answer, on the slab's actor."""
    for change in question.changes:
        if isinstance(change, Afresh):
            slab.begin(change)
        else:
            slab.follow(change)
    return slab, getattr(slab, question.method)(*question.arguments)
