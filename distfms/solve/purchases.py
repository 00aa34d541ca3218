"""Greedy feature multi-selection: one judgment at a time, the one that explains most.

With r judgments of each attribute, S those that have any, M = Σ[S, S] + Diag(v/r) + ρI, P = M⁻¹
and w = P b_S, Full explains bᵀw of the label's variance. What one more judgment adds:

- of a ∈ S: δ w[a]² / (1 − δ P[a, a]), as it takes δ = v[a]/(r(r + 1)) from M[a, a];
- of a ∉ S: num[a]² / den[a], with num = b[a] − Σ[a, S] w and
  den = Σ[a, a] + v[a] + ρ − Σ[a, S] P Σ[S, a].

Every purchase is P ← P + κ q qᵀ, and with t = Σ[:, S] q

    w ← w + κ (qᵀb) q,   num ← num − κ (qᵀb) t,   den ← den − κ t².

So t is all that concerns the attributes not bought. Slabs of them keep num, den and Σ[S, :]
(:class:`FullSlab`), the driver keeps P and w (:class:`FullState`).
Scoring takes Σ for diagonal: a sum of one term for each attribute (:class:`ScoringState`).

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013,
   Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from distfms.solve.buying import (
    BUDGET_TOLERANCE,
    RANK_TOLERANCE,
    Problem,
    Purse,
    SelectionPath,
    Status,
    inverse_of,
)
from distfms.solve.same_purchases import SameState
from distfms.solve.shards import Loadable, OneProcess, Pool, loaded
from distfms.stats.base import ratio

Algorithm = Literal["full", "scoring"]
Criterion = Literal["gain_per_cost", "gain", "best"]

#: Attributes of a slab in memory. It decides about last bits, and so depends on nothing.
SLAB_ATTRIBUTES = 256

#: Rows of Σ that a slab has room for at first.
_FIRST_ROWS = 64

#: Updates after which everything is computed afresh, to bound their drift.
REFRESH_EVERY = 4096

#: Numerators below this share of their Cauchy-Schwarz bound are rounding.
NOISE_TOLERANCE = 1e-13


class AttributeSlab(NamedTuple):
    """Attributes from `start` on: their problem without a matrix, and their rows of Σ."""

    start: int
    problem: Problem
    external: np.ndarray | Loadable[np.ndarray]

    @classmethod
    def of(
        cls, problem: Problem, start: int, stop: int, external: np.ndarray | Loadable[np.ndarray]
    ) -> Self:
        """Cut a run of attributes out of a problem, which need not have its matrix."""
        part = problem.take(np.arange(start, stop), external=np.zeros((0, 0)))
        return cls(start, part, external)

    @property
    def n_bytes(self) -> int:
        """Size of a matrix that is in memory."""
        return int(getattr(self.external, "nbytes", 0))


def slabs_of(problem: Problem) -> list[AttributeSlab]:
    """Slabs of a problem in memory; their matrices are views."""
    slabs = []
    for start in range(0, problem.n_attributes, SLAB_ATTRIBUTES):
        stop = min(start + SLAB_ATTRIBUTES, problem.n_attributes)
        slabs.append(AttributeSlab.of(problem, start, stop, problem.external[start:stop]))
    return slabs


class Update(NamedTuple):
    """P ← P + κ q qᵀ, told to all slabs, with qᵀb, and an attribute that is new in S."""

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


class FullSlab:
    """num and den of a run of n attributes, of which those in S count for nothing.

    A purchase costs O(|S|) for each of them, memory is O(|S|) besides Σ.
    """

    def __init__(self, slab: AttributeSlab) -> None:
        self.start = slab.start
        self.problem = slab.problem
        self.external = loaded(slab.external)
        n = self.problem.n_attributes
        rows = np.arange(n)
        variance = self.external[rows, self.start + rows]
        self.diagonal = variance + self.problem.v + self.problem.ridge
        self.begin(Afresh(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros(0)))

    def begin(self, anew: Afresh) -> None:
        """Compute everything afresh."""
        self.support = anew.support
        self.candidates = self.problem.candidates.copy()
        self.candidates[self._inside(anew.support)] = False
        self.rows = np.ascontiguousarray(self.external[:, anew.support].T)  # Σ[S, ·]
        self.num = self.problem.b - anew.w @ self.rows
        projected = anew.inverse @ self.rows
        self.den = self.diagonal - np.einsum("ij,ij->j", projected, self.rows)

    def _inside(self, attributes: np.ndarray) -> np.ndarray:
        """Return where attributes of the slab are in it, in their order."""
        places = attributes - self.start
        return places[(places >= 0) & (places < self.problem.n_attributes)]

    def follow(self, change: Update) -> None:
        """Take one update."""
        if change.entered is not None:
            self._enter(change.entered)
        t = change.q @ self.rows[: self.support.size]
        self.num -= (change.kappa * change.product) * t
        self.den -= change.kappa * t**2

    def _enter(self, attribute: int) -> None:
        """Take an attribute into S."""
        n_bought = self.support.size
        if n_bought == len(self.rows):
            room = np.empty((max(n_bought, _FIRST_ROWS), self.problem.n_attributes))
            self.rows = np.concatenate([self.rows, room])
        self.rows[n_bought] = self.external[:, attribute]
        self.support = np.append(self.support, attribute)
        place = attribute - self.start
        if 0 <= place < self.candidates.size:
            self.candidates[place] = False

    def gains(self, objective: float) -> np.ndarray:
        """Gains of the attributes outside S.

        −inf for constant ones and those in S, 0 for those that depend linearly on S.
        """
        squares = self.num**2
        is_independent = self.den > RANK_TOLERANCE * self.diagonal
        noise = (NOISE_TOLERANCE**2 * max(objective, 0.0)) * self.diagonal
        gains = np.where(self.candidates, 0.0, -np.inf)
        usable = self.candidates & is_independent & (squares > noise)
        return np.divide(squares, self.den, out=gains, where=usable)

    def offers(self, objective: float, purse: Purse) -> list[tuple[int, float]]:
        """Offer what may be the best purchase of all, or else one that gains but is too dear.

        That is an attribute and its gain.
        """
        gains = self.gains(objective)
        best, any_gain = purse.choice(gains, self.problem.costs, 0)
        if best is None and any_gain:
            best = int(np.argmax(gains > 0))
        return [] if best is None else [(self.start + best, float(gains[best]))]

    def row_of(self, attribute: int) -> list[np.ndarray]:
        """Return Σ[a, S] and Σ[a, a] of an attribute if it is in the slab."""
        place = attribute - self.start
        if not 0 <= place < self.candidates.size:
            return []
        return [self.external[place, np.append(self.support, attribute)]]

    def among(self, attributes: np.ndarray) -> np.ndarray:
        """Rows of Σ[attributes, attributes] of the slab; the attributes ascend."""
        return self.external[np.ix_(self._inside(attributes), attributes)]


def answer(slab: FullSlab, question: Question) -> tuple[FullSlab, Any]:
    """Take what has changed and answer, on the slab's actor."""
    for change in question.changes:
        if isinstance(change, Afresh):
            slab.begin(change)
        else:
            slab.follow(change)
    return slab, getattr(slab, question.method)(*question.arguments)


class FullState:
    """P and w of the attributes S that have judgments; slabs of all attributes follow in a pool.

    M stays positive definite: a candidate that depends linearly on S, or would make M indefinite
    where Σ was left as estimated, gains nothing. Along the path of a baseline, which heeds another
    matrix, M may become singular; P is then its pseudo-inverse.

    It starts from `repeats` (default: nothing judged), with the slabs that `slabs_of` cuts, in this
    process unless a pool is given; the problem needs no matrix where the slabs have it.
    """

    w: np.ndarray
    _inverse: np.ndarray

    def __init__(
        self,
        problem: Problem,
        repeats: np.ndarray | None = None,
        *,
        pool: Pool | None = None,
        shards: Sequence[AttributeSlab] | None = None,
    ) -> None:
        self.problem = problem
        self.costs = problem.costs
        self._pool: Any = OneProcess() if pool is None else pool
        self._pool.start(FullSlab, slabs_of(problem) if shards is None else shards)
        n = problem.n_attributes
        self.repeats = np.zeros(n, np.int64) if repeats is None else repeats.copy()
        self.support = np.flatnonzero((self.repeats > 0) & problem.candidates)
        self._changes: list[Update | Afresh] = []
        self._refresh()

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""
        offers = list(chain.from_iterable(self._ask("offers", self.objective, purse)))
        offered = np.array([attribute for attribute, _ in offers], dtype=np.int64)
        attributes = np.concatenate([self.support, offered])
        is_allowed = self.repeats[self.support] < purse.most
        repeat_gains = np.where(is_allowed, self._repeat_gains(), -np.inf)
        gains = np.concatenate([repeat_gains, [gain for _, gain in offers]])
        scores = purse.scores(gains, self.costs[attributes])
        most = scores.max(initial=-np.inf)
        best = int(attributes[scores == most].min()) if most > 0 else None
        return best, bool((gains > 0).any())

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        self.repeats[attribute] += count
        if self.repeats[attribute] > count:
            self._buy_again(attribute, count)
            return
        (row,) = chain.from_iterable(self._ask("row_of", attribute))
        across = row[:-1]
        fixed = row[-1] + float(self.problem.ridge[attribute])
        variance = fixed + float(self.problem.v[attribute]) / count
        q = self._inverse @ across
        schur = variance - float(across @ q)
        self.w = np.append(self.w, 0.0)
        n_bought = self.support.size
        inverse = np.zeros((n_bought + 1, n_bought + 1))
        inverse[:n_bought, :n_bought] = self._inverse
        self._inverse = inverse
        self.support = np.append(self.support, attribute)
        if schur <= RANK_TOLERANCE * variance:
            self._refresh()
        else:
            self._update(1.0 / schur, np.append(q, -1.0), attribute)

    def _buy_again(self, attribute: int, count: int) -> None:
        """Take δ = v/r − v/(r + count) from the attribute's diagonal element of M."""
        after = int(self.repeats[attribute])
        delta = float(self.problem.v[attribute]) * count / (after * (after - count))
        if delta > 0:
            place = int(np.flatnonzero(self.support == attribute)[0])
            q = self._inverse[place].copy()  # which the update overwrites
            self._update(delta / (1.0 - delta * float(q[place])), q)

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        question = Question(self._changes, method, arguments)
        self._changes = []
        return self._pool.step(answer, question)

    def _repeat_gains(self) -> np.ndarray:
        """Gain of another judgment of each attribute in S.

        It is 0 where it would make M singular, which happens only where Σ is indefinite.
        """
        r = self.repeats[self.support]
        delta = self.problem.v[self.support] / (r * (r + 1.0))
        pivot = 1.0 - delta * np.diagonal(self._inverse)
        gains = np.zeros(r.size)
        return np.divide(delta * self.w**2, pivot, out=gains, where=pivot > RANK_TOLERANCE)

    def _update(self, kappa: float, q: np.ndarray, entered: int | None = None) -> None:
        """P ← P + κ q qᵀ and all that follows from it."""
        from scipy.linalg.blas import dger

        product = float(q @ self.problem.b[self.support])
        dger(kappa, q, q, a=self._inverse.T, overwrite_a=1)
        self.w = self.w + (kappa * product) * q
        self.objective += kappa * product**2
        self._changes.append(Update(kappa, product, q, entered))
        self._n_updates += 1
        if self._n_updates >= REFRESH_EVERY:
            self._refresh()

    def _refresh(self) -> None:
        """Compute everything afresh from the repeats."""
        support = np.sort(self.support)
        self.support = support
        self._changes = []
        matrix = np.zeros((0, 0))
        if support.size:
            matrix = np.concatenate(self._ask("among", support))
        noise = self.problem.v[support] / self.repeats[support]
        matrix[np.diag_indices_from(matrix)] += noise + self.problem.ridge[support]
        self._inverse = np.ascontiguousarray(inverse_of(matrix))
        self.w = self._inverse @ self.problem.b[support]
        self.objective = float(self.w @ self.problem.b[support])
        self._changes = [Afresh(support, self._inverse.copy(), self.w)]
        self._n_updates = 0


class ScoringState:
    """State of the Scoring objective, a sum of one term for each attribute; a step costs O(d)."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.costs = problem.costs
        self._candidates = problem.candidates
        self._fixed = problem.external_variance + problem.ridge
        self._squares = problem.b**2
        n = problem.n_attributes
        self.repeats = np.zeros(n, np.int64)
        self.objective = 0.0
        self.gains = self._gains_of(np.arange(n))

    def _gains_of(self, attributes: np.ndarray) -> np.ndarray:
        """Exact differences of two terms of [1]_, equation 1, without cancellation.

        b²/(σ² + ρ + v/(r + 1)) − b²/(σ² + ρ + v/r) = b² s/(σ² + ρ + v/(r + 1)), with s the share
        v/(r(r + 1)(σ² + ρ + v/r)).
        """
        r = self.repeats[attributes]
        v = self._problem.v[attributes]
        fixed = self._fixed[attributes]
        is_judged = r > 0
        variance = fixed + v / np.maximum(r, 1)
        n_ordered = r * (r + 1)
        before = np.where(is_judged, n_ordered * variance, 1.0)
        share = ratio(v, before)
        share[~is_judged] = 1.0
        squares = self._squares[attributes] * share
        after = fixed + v / (r + 1)
        is_candidate = self._candidates[attributes]
        gains = np.full(r.size, -np.inf)
        return np.divide(squares, after, out=gains, where=is_candidate)

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""
        return purse.choice(self.gains, self.costs, self.repeats)

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add a judgment of one attribute."""
        self.objective += float(self.gains[attribute])
        self.repeats[attribute] += 1
        self.gains[[attribute]] = self._gains_of(np.array([attribute]))


#: What the greedy pass needs: `costs`, `repeats`, the `objective`, what is `best`, a way to `buy`.
GreedyState = FullState | SameState | ScoringState


def full_state(problem: Problem) -> FullState | SameState:
    """State of Full's objective, of judgments by independent or by the same raters."""
    return FullState(problem) if problem.noise_covariance is None else SameState(problem)


def select(
    problem: Problem,
    budget: float,
    algorithm: Algorithm = "full",
    criterion: Criterion = "gain_per_cost",
    *,
    pool: Pool | None = None,
    shards: Sequence[AttributeSlab] | None = None,
) -> SelectionPath:
    """Buy, while the budget lasts, the judgment with the largest gain (per unit of cost).

    Ties go to the lowest attribute index; constant attributes are never bought. ``"best"``
    runs both others if costs differ and keeps the path whose end has the larger objective
    (``gain_per_cost`` if they are equal). The path is the same to the bit wherever the slabs are.

    A step costs O(d·|S|) for Full, with S the attributes bought so far, and O(d) for Scoring. With
    equal costs, Scoring is optimal for its objective (Theorem 3.2 of [1]_).
    """
    paths = []
    criteria: list[Criterion] = [criterion]
    if criterion == "best":
        costs_differ = (problem.costs != problem.costs[0]).any()
        criteria = ["gain_per_cost", "gain"] if costs_differ else ["gain_per_cost"]
    for each in criteria:
        if shards is None:
            state = (ScoringState if algorithm == "scoring" else full_state)(problem)
        else:
            state = FullState(problem, pool=pool, shards=shards)
        path = greedy_path(problem, state, budget, algorithm, each)
        n_candidates = int(problem.candidates.sum()) * (path.n_steps + 1)
        paths.append(replace(path, n_candidates=n_candidates))
    better = max(paths, key=lambda path: float(path.objective[-1]) if path.n_steps else 0.0)
    return replace(better, n_candidates=sum(path.n_candidates for path in paths))


def greedy_path(
    problem: Problem,
    state: GreedyState,
    budget: float,
    algorithm: str,
    criterion: str = "gain_per_cost",
    most: float = np.inf,
) -> SelectionPath:
    """Buy until the budget or the gains are used up.

    At most `most` judgments of an attribute.
    """
    attributes: list[int] = []
    objective: list[float] = []
    costs = state.costs
    limit = budget * (1.0 + BUDGET_TOLERANCE)
    spent = 0.0
    per_cost = criterion == "gain_per_cost" and bool((costs != costs[0]).any())
    while True:
        best, any_gain = state.best(Purse(spent, limit, per_cost, most))
        if best is None:
            break
        state.buy(best)
        spent += float(costs[best])
        attributes.append(best)
        objective.append(state.objective)
    status: Status = "no_positive_gain"
    if any_gain:
        is_left = budget - spent > BUDGET_TOLERANCE * budget
        status = "unaffordable" if is_left else "budget_spent"
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
