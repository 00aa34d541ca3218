"""What one more judgment of each attribute of a slab would bring; the formulas are in `greedy`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

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


@dataclass(frozen=True, eq=False)
class AttributeSlab:
    """The attributes ``[start, start + n)`` of `d`, from which a slab's state is made.

    Attributes
    ----------
    start : int
    external : ndarray of shape (n, d), or what loads it
        Their rows of the external covariance Σ.
    b, v, costs : ndarray of shape (n,)
    candidates : ndarray of bool, shape (n,)
        Which may be bought: those that are not constant.
    ridge, label_variance : float
    psd : {"nearest", "none"}
    """

    start: int
    external: np.ndarray | Loadable[np.ndarray]
    b: np.ndarray
    v: np.ndarray
    costs: np.ndarray
    candidates: np.ndarray
    ridge: float
    label_variance: float
    psd: str

    @classmethod
    def of(
        cls, problem: Problem, start: int, stop: int, external: np.ndarray | Loadable[np.ndarray]
    ) -> AttributeSlab:
        """Cut a run of attributes out of a problem, which need not have its matrix."""
        own = slice(start, stop)
        return cls(
            start=start,
            external=external,
            b=problem.b[own],
            v=problem.v[own],
            costs=problem.costs[own],
            candidates=problem.candidates[own],
            ridge=problem.ridge,
            label_variance=problem.label_variance,
            psd=problem.psd,
        )


def slabs_of(problem: Problem) -> list[AttributeSlab]:
    """Slabs of a problem in memory; views, no copies."""
    starts = slab_starts([1] * problem.n_attributes)
    # Σ is symmetric; in the transpose the column of an attribute that is bought lies together.
    matrix = problem.external.T
    return [AttributeSlab.of(problem, *pair, matrix[slice(*pair)]) for pair in pairwise(starts)]


class Bought(NamedTuple):
    """One update P ← P + κ q qᵀ, told to all slabs.

    Attributes
    ----------
    attribute : int
    held : bool
        Whether the attribute has judgments now.
    enters : bool
        Whether it is new in S: the last entry of q is its own.
    kappa, product : float
        κ and qᵀb.
    q : ndarray of shape (|S|,)
    """

    attribute: int
    held: bool
    enters: bool
    kappa: float
    product: float
    q: np.ndarray


class Afresh(NamedTuple):
    """S, P and w, told to all slabs to start anew from."""

    support: np.ndarray
    inverse: np.ndarray
    w: np.ndarray


class Question(NamedTuple):
    """One message to all slabs: what has changed, and which method answers with what arguments."""

    changes: list[Bought | Afresh]
    method: str
    arguments: tuple[Any, ...]


class Offer(NamedTuple):
    """A candidate of a slab.

    Attributes
    ----------
    attribute : int
    gain : float
        NaN if only the driver can tell, as the attribute depends linearly on S.
    num : float
    row : ndarray of shape (|S| + 1,)
        Σ[a, S] and Σ[a, a].
    """

    attribute: int
    gain: float
    num: float
    row: np.ndarray


class FullSlab:
    """num and den of a run of attributes, see the module.

    A step costs O(n·|S|) for n attributes. Memory O(n·|S|) besides Σ.
    """

    def __init__(self, slab: AttributeSlab) -> None:
        self.slab = replace(slab, external=loaded(slab.external))
        own = np.arange(slab.b.size)
        self.diagonal = self.external[own, slab.start + own] + slab.v + slab.ridge
        self.begin(Afresh(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros(0)))

    @property
    def external(self) -> np.ndarray:
        """Own rows of Σ."""
        return loaded(self.slab.external)

    def begin(self, given: Afresh) -> None:
        """Compute everything afresh."""
        self.n = given.support.size
        self.rows = np.ascontiguousarray(self.external[:, given.support].T)  # Σ[S, ·]
        projected = given.inverse @ self.rows
        self.num = self.slab.b - given.w @ self.rows
        self.den = self.diagonal - np.einsum("ij,ij->j", projected, self.rows)
        self.free = self.slab.candidates.copy()
        self.free[self._own(given.support)] = False

    def follow(self, change: Bought) -> None:
        """Take one update."""
        if change.enters:
            if self.n == len(self.rows):
                room = np.empty((max(16, self.n), self.num.size))
                self.rows = np.concatenate([self.rows, room])
            self.rows[self.n] = self.external[:, change.attribute]
            self.n += 1
        own = change.attribute - self.slab.start
        if 0 <= own < self.num.size:
            self.free[own] = self.slab.candidates[own] and not change.held
        t = change.q @ self.rows[: self.n]
        self.num -= (change.kappa * change.product) * t
        self.den -= change.kappa * t**2

    def gains(self, objective: float) -> tuple[np.ndarray, list[Offer]]:
        """Gains of all own attributes.

        Returns
        -------
        gains : ndarray of shape (n,)
            −inf for attributes in S and for constant ones, 0 for those that depend linearly on S.
        unsure : list of Offer
            Dependent attributes that may gain something nevertheless, where Σ is semi-definite.
            A numerator that the tolerated share of unexplained variance can account for is no
            inconsistency of b with Σ.
        """
        squares, least = self.num**2, RANK_TOLERANCE * self.diagonal
        noise = (NOISE_TOLERANCE**2 * max(objective, 0.0)) * self.diagonal
        independent = self.den > least
        gains = np.where(self.free, 0.0, -np.inf)
        np.divide(squares, self.den, out=gains, where=self.free & independent & (squares > noise))
        unsure = self.free & ~independent
        if self.slab.psd == "none" or not unsure.any():
            return gains, []
        unsure &= squares > least * max(self.slab.label_variance, objective)
        return gains, [self._offer(own, np.nan) for own in np.flatnonzero(unsure).tolist()]

    def offers(self, objective: float, purse: Purse) -> list[Offer]:
        """Describe what may be the best purchase of all, or one that gains but is too dear."""
        gains, offers = self.gains(objective)
        best = purse.best(gains, self.slab.costs)
        if best is None and (gains > 0).any():
            best = int(np.argmax(gains > 0))
        return offers if best is None else [*offers, self._offer(best, float(gains[best]))]

    def offer_of(self, attribute: int) -> list[Offer]:
        """Describe an attribute if it is in the slab."""
        return [self._offer(own, np.nan) for own in self._own(np.array([attribute])).tolist()]

    def among(self, attributes: np.ndarray) -> np.ndarray:
        """Own rows of Σ[attributes, attributes], which ascend."""
        return self.external[np.ix_(self._own(attributes), attributes)]

    def _offer(self, own: int, gain: float) -> Offer:
        attribute = self.slab.start + own
        row = np.append(self.rows[: self.n, own], self.external[own, attribute])
        return Offer(attribute, gain, float(self.num[own]), row)

    def _own(self, attributes: np.ndarray) -> np.ndarray:
        """Positions of those of some attributes that lie in the slab."""
        own = attributes - self.slab.start
        return own[(own >= 0) & (own < self.slab.b.size)]


def answer(slab: FullSlab, question: Question) -> tuple[FullSlab, Any]:
    """Take what has changed and answer, on the slab's actor."""
    for change in question.changes:
        if isinstance(change, Afresh):
            slab.begin(change)
        else:
            slab.follow(change)
    return slab, getattr(slab, question.method)(*question.arguments)
