"""Greedy feature multi-selection: one judgment at a time, the one that explains most.

With r judgments of each attribute, S those that have any, M = Σ[S, S] + Diag(v/r) + ρI, P = M⁻¹
and w = P b_S, Full explains bᵀw of the label's variance. What one more judgment adds:

- of a ∈ S: δ w[a]² / (1 − δ P[a, a]), as it takes δ = v[a]/(r(r + 1)) from M[a, a];
- of a ∉ S: num[a]² / den[a], with num = b[a] − Σ[a, S] w and
  den = Σ[a, a] + v[a] + ρ − Σ[a, S] P Σ[S, a].

Every purchase is P ← P + κ q qᵀ, and with t = Σ[:, S] q

    w ← w + κ (qᵀb) q,   num ← num − κ (qᵀb) t,   den ← den − κ t².

So one product q·Σ[S, :] a step is all that concerns the attributes not bought. Slabs of them keep
num and den (:class:`FullSlab`), the driver keeps P and w (:class:`FullState`). Scoring takes Σ for
diagonal: a sum of one term for each attribute (:class:`ScoringState`).

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013,
   Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, Self

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsymv, dsyr

from distfms.linalg import symmetric_pinv
from distfms.methods.multiselect.objective import (
    BUDGET_TOLERANCE,
    RANK_TOLERANCE,
    Problem,
    SelectionPath,
    Status,
    full_objective,
    scoring_objective,
)
from distfms.methods.multiselect.slab import (
    Afresh,
    AttributeSlab,
    Bought,
    FullSlab,
    Offer,
    Purse,
    Question,
    answer,
    slabs_of,
)
from distfms.methods.slabs import OneProcess, Pool, copied

Algorithm = Literal["full", "scoring"]
Criterion = Literal["gain_per_cost", "gain", "best"]

#: Updates after which everything is computed afresh, to bound their drift.
REFRESH_EVERY = 512

#: Selected attributes by which the room for them grows.
ROOM = 64


class GreedyState(Protocol):
    """What the greedy pass needs: a way to find the best purchase, and to make it."""

    costs: np.ndarray

    @property
    def objective(self) -> float:
        """Explained part of the label's variance."""

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""

    def buy(self, attribute: int) -> None:
        """Add a judgment of one attribute."""


class FullState:
    """Selected attributes S in slots, with P and w; slabs of all attributes follow in a pool.

    M becomes singular only through attributes without internal variance that depend linearly on
    others (with ridge 0). Where Σ is positive semi-definite, then P = M⁺, for which the gains of
    the module stay exact, and a dependent attribute gains what the pseudo-inverse gives (nothing,
    if b is consistent with Σ). Where Σ was left as estimated (``psd="none"``), a candidate that
    would make M singular or indefinite gains nothing, so that M stays positive definite.

    Parameters
    ----------
    problem : Problem
        Needs no matrix where `slabs` have it.
    repeats : ndarray of int, shape (d,), optional
        Where to start; default: nothing judged.
    pool : Pool, optional
        Where the slabs are; default: in this process.
    slabs : sequence of AttributeSlab, optional
        As `slabs_of` cuts them.
    """

    def __init__(
        self,
        problem: Problem,
        repeats: np.ndarray | None = None,
        *,
        pool: Pool | None = None,
        slabs: Sequence[AttributeSlab] | None = None,
    ) -> None:
        self.problem, self.costs = problem, problem.costs
        self._pool: Any = OneProcess() if pool is None else pool
        self._pool.start(FullSlab, slabs_of(problem) if slabs is None else slabs)
        self.objective, self._w = 0.0, np.zeros(0)
        self._changes: list[Bought | Afresh] = []
        self.repeats = np.zeros(problem.n_attributes, np.int64)
        if repeats is not None:
            self.repeats[:] = repeats
        self._slots = np.flatnonzero((self.repeats > 0) & problem.candidates)
        self._inverse = np.zeros((self._slots.size, self._slots.size))
        self._covariance = self._inverse
        if self._slots.size:
            self._covariance = np.concatenate(self._ask("among", self._slots))
        self._refresh()

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""
        self._offers = [o for found in self._ask("offers", self.objective, purse) for o in found]
        held, again = self._repeat_gains()
        offered = np.array([offer.attribute for offer in self._offers], dtype=np.int64)
        attributes = np.concatenate([held, offered])
        gains = np.concatenate([again, [self._gain(offer) for offer in self._offers]])
        scores = purse.scores(gains, self.costs[attributes])
        most = scores.max(initial=-np.inf)
        best = int(attributes[scores == most].min()) if most > 0 else None
        return best, bool((gains > 0).any())

    def gains(self) -> np.ndarray:
        """Gain of one more judgment, shape (d,); −inf for constant attributes."""
        answers = self._ask("gains", self.objective)
        gains = np.concatenate([gains for gains, _ in answers])
        for offer in (offer for _, unsure in answers for offer in unsure):
            gains[offer.attribute] = self._gain(offer)
        held, repeat_gains = self._repeat_gains()
        gains[held] = repeat_gains
        return gains

    @property
    def weights(self) -> np.ndarray:
        """Weights of the predictor, shape (d,); 0 for attributes that are not judged."""
        weights = np.zeros(self.repeats.size)
        weights[self._slots] = self._w
        return weights

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        self.repeats[attribute] += count
        if self.repeats[attribute] > count:
            self._count(attribute, count)
            return
        row = self._row(attribute)
        own = row[-1] + self.problem.ridge + float(self.problem.v[attribute]) / count
        at = self._slot(attribute)
        q = self._times(row[:-1])
        schur = own - float(row[:-1] @ q)
        if at is None:
            q = np.append(q, -1.0)
            self._open(attribute, row)
        else:
            q[at] = -1.0
        if schur <= RANK_TOLERANCE * own:
            self._refresh()
        else:
            self._update(attribute, 1.0 / schur, q, enters=at is None)

    def drop(self, attribute: int, count: int = 1) -> None:
        """Take `count` judgments of one attribute back."""
        self.repeats[attribute] -= count
        at = self._slot(attribute)
        if at is None:
            return
        if self.repeats[attribute] > 0:
            self._count(attribute, -count)
        elif self.problem.ridge > 0 or self.problem.v[attribute] > 0:
            q = self._column(at)
            self._update(attribute, -1.0 / q[at], q)
            at = self._slot(attribute)
            if at is not None:  # else everything was computed afresh
                self._inverse[at] = self._inverse[:, at] = self._w[at] = 0.0
        else:
            self._refresh()

    def copy(self) -> Self:
        """Return an independent copy; of a state in this process."""
        other: Self = copied(self)
        other._pool = self._pool.copy()
        return other

    def _column(self, at: int) -> np.ndarray:
        """Column of P, of which the lower triangle is kept."""
        n = self._slots.size
        return np.concatenate([self._inverse[at, :at], self._inverse[at:n, at]])

    def _times(self, x: np.ndarray) -> np.ndarray:
        """Return P x."""
        return dsymv(1.0, self._inverse, self._padded(x), lower=1)[: x.size]

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """Return a vector on the slots with zeros for those there is room for."""
        padded = np.zeros(len(self._inverse))
        padded[: x.size] = x
        return padded

    def _slot(self, attribute: int) -> int | None:
        found = np.flatnonzero(self._slots == attribute)
        return int(found[0]) if found.size else None

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        changes, self._changes = self._changes, []
        return self._pool.step(answer, Question(changes, method, arguments))

    def _row(self, attribute: int) -> np.ndarray:
        """Σ[a, S] and Σ[a, a], from the slab's offer if it has made one."""
        made = [offer for offer in self._offers if offer.attribute == attribute]
        if not made:
            made = [o for found in self._ask("offer_of", attribute) for o in found]
        return made[0].row

    def _repeat_gains(self) -> tuple[np.ndarray, np.ndarray]:
        """Attributes that have judgments, and the gain of another one of each.

        It is 0 where it would make M singular, which happens only where Σ is indefinite.
        """
        r, v = self.repeats[self._slots], self.problem.v[self._slots]
        delta = v / (np.maximum(r, 1) * (r + 1.0))
        pivot = 1.0 - delta * np.diagonal(self._inverse)[: r.size]
        gains = np.zeros(r.size)
        np.divide(delta * self._w**2, pivot, out=gains, where=pivot > RANK_TOLERANCE)
        return self._slots[r > 0], gains[r > 0]

    def _gain(self, offer: Offer) -> float:
        """Gain of an offer; by the pseudo-inverse if its attribute depends linearly on S.

        With p = PΣ[S, a], e = num[a] and attributes in units of their standard deviation the
        explained part becomes uᵀPu, u = b + p e/(1 + pᵀp).
        """
        if not np.isnan(offer.gain):
            return offer.gain
        p, v, ridge = self._times(offer.row[:-1]), self.problem.v, self.problem.ridge
        n = self._slots.size
        # Only attributes without v are in p, so that their repeats do not matter.
        units = np.diagonal(self._covariance)[:n] + v[self._slots] + ridge
        change = units * p
        diagonal = float(offer.row[-1]) + float(v[offer.attribute]) + ridge
        shift = offer.num / (diagonal + float(change @ p))
        gain = 2.0 * float(self._w @ change) + shift * float(change @ self._times(change))
        return shift * gain

    def _count(self, attribute: int, count: int) -> None:
        """Take δ = v/r − v/(r + count) from the attribute's diagonal element of M."""
        at = self._slot(attribute)
        if at is None:
            return
        after = int(self.repeats[attribute])
        delta = float(self.problem.v[attribute]) * count / (after * (after - count))
        if delta != 0.0:
            q = self._column(at)
            self._update(attribute, delta / (1.0 - delta * q[at]), q)

    def _open(self, attribute: int, row: np.ndarray) -> None:
        """Give a new attribute a slot with zero row and column of P."""
        n = self._slots.size
        if n == len(self._inverse):
            self._reserve(n + ROOM)
        self._covariance[n, : n + 1] = self._covariance[: n + 1, n] = row
        self._slots, self._w = np.append(self._slots, attribute), np.append(self._w, 0.0)

    def _update(self, attribute: int, kappa: float, q: np.ndarray, *, enters: bool = False) -> None:
        """P ← P + κ q qᵀ and all that follows from it."""
        product = float(q @ self.problem.b[self._slots])
        p = self._inverse
        self._inverse = dsyr(kappa, self._padded(q), lower=1, a=p, overwrite_a=1)
        self._w = self._w + (kappa * product) * q
        self.objective += kappa * product**2
        held = bool(self.repeats[attribute] > 0)
        self._changes.append(Bought(attribute, held, enters, kappa, product, q))
        self._offers = []
        self._n_updates += 1
        if self._n_updates >= REFRESH_EVERY:
            self._refresh()

    def _reserve(self, room: int) -> None:
        """Make room for slots, with zeros in P."""
        for name in ("_inverse", "_covariance"):
            old = getattr(self, name)
            grown = np.zeros((room, room), order="F")
            grown[: len(old), : len(old)] = old
            setattr(self, name, grown)

    def _refresh(self) -> None:
        """Compute everything afresh from the repeats, without slots of what was given back."""
        kept = np.flatnonzero(self.repeats[self._slots] > 0)
        self._slots = self._slots[kept]
        self._covariance = self._covariance[np.ix_(kept, kept)]
        r, b = self.repeats[self._slots], self.problem.b[self._slots]
        matrix = self._covariance.copy()
        matrix[np.diag_indices_from(matrix)] += self.problem.v[self._slots] / r + self.problem.ridge
        inverse = self._inverse = _inverse(matrix)
        self._reserve(kept.size + ROOM)
        self._w = inverse @ b
        self.objective = float(self._w @ b)
        self._changes = [Afresh(self._slots, inverse, self._w)]
        self._offers, self._n_updates = [], 0


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, pseudo-inverse of a singular one."""
    if matrix.shape[0] == 0:
        return matrix
    factor, info = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    pivots = np.diagonal(factor) ** 2
    if info == 0 and (pivots > RANK_TOLERANCE * np.diagonal(matrix)).all():
        inverse, info = scipy.linalg.lapack.dpotri(factor, lower=1)
        if info == 0:
            return np.tril(inverse) + np.tril(inverse, -1).T
    return symmetric_pinv(matrix)


class ScoringState:
    """State of the Scoring objective: a sum of one term per attribute.

    It starts from `repeats`, by default from nothing. ``buy`` costs O(1), ``gains`` O(d).
    """

    def __init__(self, problem: Problem, repeats: np.ndarray | None = None) -> None:
        self._problem, self.costs = problem, problem.costs
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

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""
        return purse.best(self._gains, self.costs), bool((self._gains > 0).any())

    def _set(self, attribute: int, count: int) -> None:
        self.repeats[attribute] = count
        self._gains[attribute] = self._gain(attribute)

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        for _ in range(count):
            self.objective += float(self._gains[attribute])
            self._set(attribute, int(self.repeats[attribute]) + 1)

    def drop(self, attribute: int, count: int = 1) -> None:
        """Take `count` judgments of one attribute back."""
        self._set(attribute, int(self.repeats[attribute]) - count)
        self.objective = scoring_objective(self._problem, self.repeats)

    def copy(self) -> Self:
        """Return an independent copy."""
        other: Self = copied(self)
        return other


#: A greedy state that can also give back what was bought.
SearchState = FullState | ScoringState


def make_state(problem: Problem, algorithm: str, repeats: np.ndarray) -> SearchState:
    """State of the named objective, ``"full"`` or ``"scoring"``."""
    return FullState(problem, repeats) if algorithm == "full" else ScoringState(problem, repeats)


def objective_of(problem: Problem, algorithm: str, repeats: np.ndarray) -> float:
    """Objective of the named algorithm, computed afresh by its literal formula."""
    compute = full_objective if algorithm == "full" else scoring_objective
    return compute(problem, repeats)


def select(
    problem: Problem,
    budget: float,
    algorithm: Algorithm = "full",
    criterion: Criterion = "gain_per_cost",
    *,
    pool: Pool | None = None,
    slabs: Sequence[AttributeSlab] | None = None,
) -> SelectionPath:
    """Decide how many judgments of each attribute to buy.

    Starts with none and buys, while the budget lasts and something has a positive gain, the
    judgment with the largest gain (per unit of cost) among those still affordable. Ties go to the
    lowest attribute index. Constant attributes are never bought.

    Parameters
    ----------
    problem : Problem
    budget : float
        Total cost of the judgments of one object, as `check_budget` lets it pass.
    algorithm : {"full", "scoring"}, default="full"
        Which objective; Scoring takes the attributes for uncorrelated.
    criterion : {"gain_per_cost", "gain", "best"}, default="gain_per_cost"
        What a step maximises. ``"best"`` runs both if costs differ and returns the path whose end
        has the larger objective (``gain_per_cost`` if they are equal).
    pool, slabs : optional
        As for :class:`FullState`. The path is the same to the bit wherever the slabs are.

    Returns
    -------
    SelectionPath

    Notes
    -----
    A step costs O(d·|S|) for Full, with S the attributes bought so far, and O(d) for Scoring.
    With equal costs, Scoring is optimal for its objective (Theorem 3.2 of the paper).
    """
    criteria: list[str] = [criterion]
    if criterion == "best":
        equal = (problem.costs == problem.costs[0]).all()
        criteria = ["gain_per_cost"] if equal else ["gain_per_cost", "gain"]
    paths = []
    for each in criteria:
        state: GreedyState = ScoringState(problem)
        if algorithm == "full":
            state = FullState(problem, pool=pool, slabs=slabs)
        found = greedy_path(problem, state, budget, algorithm, each)
        n_candidates = int(problem.candidates.sum()) * (found.n_steps + 1)
        paths.append(replace(found, n_candidates=n_candidates))
    better = max(paths, key=lambda path: float(path.objective[-1]) if path.n_steps else 0.0)
    return replace(better, n_candidates=sum(path.n_candidates for path in paths))


def greedy_path(
    problem: Problem,
    state: GreedyState,
    budget: float,
    algorithm: str,
    criterion: str = "gain_per_cost",
) -> SelectionPath:
    """Spend the budget on a state that starts empty."""
    attributes, objective, status = spend(state, budget, criterion=criterion)
    return SelectionPath(
        algorithm=algorithm,
        criterion=criterion,
        status=status,
        budget=float(budget),
        names=problem.names,
        costs=state.costs,
        attributes=np.array(attributes, dtype=np.int64),
        counts=np.ones(len(attributes), dtype=np.int64),
        objective=np.array(objective, dtype=float),
        label_variance=problem.label_variance,
    )


def spend(
    state: GreedyState,
    budget: float,
    *,
    spent: float = 0.0,
    criterion: str = "gain_per_cost",
) -> tuple[list[int], list[float], Status]:
    """Buy greedily from where the state stands until the budget or the gains are used up.

    Return the attribute of each step, the objective after each, and the status of
    :class:`SelectionPath`; `spent` is the part of the budget that is gone.
    """
    attributes: list[int] = []
    objective: list[float] = []
    costs, limit = state.costs, budget * (1.0 + BUDGET_TOLERANCE)
    per_cost = criterion == "gain_per_cost" and bool((costs != costs[0]).any())
    while True:
        best, any_gain = state.best(Purse(spent, limit, per_cost))
        if best is None:
            if not any_gain:
                return attributes, objective, "no_positive_gain"
            left = budget - spent > BUDGET_TOLERANCE * budget
            return attributes, objective, "unaffordable" if left else "budget_spent"
        state.buy(best)
        spent += float(costs[best])
        attributes.append(best)
        objective.append(state.objective)
