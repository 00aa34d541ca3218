"""The state of the search: what the next judgment of every attribute would bring.

Both objectives offer the same steps (gains of all candidates, buy, drop, copy), so that the greedy
pass, the refinement and the baselines are written once.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import scipy.linalg

from distfms.methods.multiselect.objective import (
    RANK_TOLERANCE,
    Problem,
    covariance_of_averages,
    full_objective,
    scoring_objective,
    symmetric_pinv,
)

#: Updates after which everything is computed afresh, to bound the drift of rank-one updates.
REFACTOR_EVERY = 512

#: Updates that the inverse waits for before it takes them in one matrix product.
BLOCK = 32

#: Numerators below this share of their Cauchy-Schwarz bound are rounding.
NOISE_TOLERANCE = 1e-13


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


class FullState:
    """State of the Full objective, kept by rank-one updates.

    With M the covariance of the averages of the selected attributes S, P = M⁻¹, w = P b_S and
    T = P Σ[S, :]:

    - one more judgment of a ∈ S takes δ = v[a]/(r(r+1)) from M[a, a] and gains
      δ w[a]² / (1 − δ P[a, a]);
    - a new attribute a gains num[a]² / den[a], with num = b[a] − Σ[a,S] w and
      den = Σ[a,a] + v[a] + ρ − Σ[a,S] P Σ[S,a].

    Every change is P ← P + κ q qᵀ, and with t = Σ[:,S] q

        T ← T + κ q tᵀ,   w ← w + κ (qᵀb) q,   num ← num − κ (qᵀb) t,   den ← den − κ t².

    These hold for the columns of selected attributes too, so that one given back has its num and
    den. w, num, den and the diagonal of P follow at once; P and T themselves wait until BLOCK
    updates have come together and then take them in one matrix product each, which is what keeps
    a repeat near O(d).

    M becomes singular only through attributes without internal variance that depend linearly on
    others (with ridge 0); then P = M⁺, for which the gains above stay exact, and a dependent
    attribute gains what the pseudo-inverse gives (nothing, if b is consistent with Σ).

    Parameters
    ----------
    problem : Problem
    repeats : ndarray of int, shape (d,), optional
        Where to start; default: nothing judged.

    Notes
    -----
    ``gains`` costs O(d). ``buy`` costs O(d·|S|) for a new attribute, O(d·BLOCK) for a repeat plus
    its share of a matrix product with 2·d·|S| operations. Every REFACTOR_EVERY updates
    everything is computed afresh, O(d·|S|²). Memory O(d·|S|).
    """

    def __init__(self, problem: Problem, repeats: np.ndarray | None = None) -> None:
        self._problem = problem
        d = problem.n_attributes
        self.repeats = np.zeros(d, np.int64) if repeats is None else repeats.copy()
        self.objective = 0.0
        self._external_diagonal = np.diagonal(problem.external) + problem.ridge
        self._diagonal = self._external_diagonal + problem.v
        self._slots = np.flatnonzero((self.repeats > 0) & problem.candidates)
        self._allocate(max(self._slots.size, 16))
        self.refactor()

    def _allocate(self, room: int) -> None:
        """Arrays for `room` attributes."""
        d = self._problem.n_attributes
        self._inverse, self._inverse_diagonal = np.zeros((room, room)), np.zeros(room)
        self._rows, self._projected = np.zeros((room, d)), np.zeros((room, d))
        self._q, self._t, self._kappa = (
            np.zeros((BLOCK, room)),
            np.zeros((BLOCK, d)),
            np.zeros(BLOCK),
        )
        self._n_waiting = 0

    @property
    def weights(self) -> np.ndarray:
        """Weights of the predictor, shape (d,); 0 for attributes that are not judged."""
        weights = np.zeros(self._problem.n_attributes)
        weights[self._slots] = self._w
        return weights

    def refactor(self) -> None:
        """Compute everything afresh from the repeats."""
        problem = self._problem
        self._slots = self._slots[self.repeats[self._slots] > 0]
        slots, n = self._slots, self._slots.size
        inverse = _inverse(covariance_of_averages(problem, self.repeats, slots))
        self._inverse[:n, :n] = inverse
        self._inverse_diagonal[:n] = np.diagonal(inverse)
        self._rows[:n] = problem.external[slots]
        self._projected[:n] = inverse @ self._rows[:n]
        self._w = inverse @ problem.b[slots]
        self._num = problem.b - self._w @ self._rows[:n]
        self._den = self._diagonal - np.einsum("ij,ij->j", self._projected[:n], self._rows[:n])
        self.objective = float(self._w @ problem.b[slots])
        self._n_waiting = self._n_updates = 0

    def _flush(self) -> None:
        """Let P and T take the updates that wait."""
        m, n = self._n_waiting, self._slots.size
        if m:
            scaled = self._kappa[:m, None] * self._q[:m, :n]
            self._inverse[:n, :n] += scaled.T @ self._q[:m, :n]
            self._projected[:n] += scaled.T @ self._t[:m]
            self._n_waiting = 0

    def _inverse_column(self, at: int) -> np.ndarray:
        m, n = self._n_waiting, self._slots.size
        return self._inverse[:n, at] + (self._kappa[:m] * self._q[:m, at]) @ self._q[:m, :n]

    def _projected_row(self, at: int) -> np.ndarray:
        m = self._n_waiting
        return self._projected[at] + (self._kappa[:m] * self._q[:m, at]) @ self._t[:m]

    def _projected_column(self, attribute: int) -> np.ndarray:
        m, n = self._n_waiting, self._slots.size
        scaled = self._kappa[:m] * self._t[:m, attribute]
        return self._projected[:n, attribute] + scaled @ self._q[:m, :n]

    def _update(self, kappa: float, q: np.ndarray, t: np.ndarray) -> None:
        """P ← P + κ q qᵀ and all that follows from it; t = Σ[:,S] q."""
        m, n = self._n_waiting, self._slots.size
        self._q[m, :n], self._t[m], self._kappa[m] = q, t, kappa
        self._n_waiting = m + 1
        product = float(q @ self._problem.b[self._slots])
        self._inverse_diagonal[:n] += kappa * q**2
        self._w = self._w + (kappa * product) * q
        self._num -= (kappa * product) * t
        self._den -= kappa * t**2
        self.objective += kappa * product**2
        self._n_updates += 1
        if self._n_updates >= REFACTOR_EVERY:
            self.refactor()
        elif self._n_waiting == BLOCK:
            self._flush()

    def gains(self) -> np.ndarray:
        """Gain of one more judgment, shape (d,); −inf for constant attributes."""
        problem, allowed = self._problem, self._problem.candidates
        squares = self._num**2
        independent = allowed & (self._den > RANK_TOLERANCE * self._diagonal)
        noise = (NOISE_TOLERANCE**2 * max(self.objective, 0.0)) * self._diagonal
        gains = np.where(allowed, 0.0, -np.inf)
        np.divide(squares, self._den, out=gains, where=independent & (squares > noise))
        dependent = allowed & ~independent & (self.repeats == 0)
        if dependent.any():
            self._fill_dependent(gains, np.flatnonzero(dependent))
        judged = self.repeats[self._slots] > 0
        slots, w = self._slots[judged], self._w[judged]
        r = self.repeats[slots]
        delta = problem.v[slots] / (r * (r + 1.0))
        diagonal = self._inverse_diagonal[: judged.size][judged]
        gains[slots] = delta * w**2 / (1.0 - delta * diagonal)
        return gains

    def _fill_dependent(self, gains: np.ndarray, attributes: np.ndarray) -> None:
        """Gains of linearly dependent attributes by the pseudo-inverse.

        With p = PΣ[S,a] and e = num[a] the explained part becomes uᵀPu, u = b + p e/(1 + pᵀp).
        A numerator that the tolerated share of unexplained variance can account for is no
        inconsistency of b with Σ and gains nothing.
        """
        scale = max(self._problem.label_variance, self.objective)
        bound = RANK_TOLERANCE * self._diagonal[attributes] * scale
        attributes = attributes[self._num[attributes] ** 2 > bound]
        if attributes.size:
            self._flush()
            n = self._slots.size
            p = self._projected[:n, attributes]
            shift = self._num[attributes] / (1.0 + np.sum(p**2, axis=0))
            curvature = np.sum(p * (self._inverse[:n, :n] @ p), axis=0)
            gains[attributes] = 2.0 * shift * (self._w @ p) + shift**2 * curvature

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        if self.repeats[attribute] > 0:
            self._repeat(attribute, count)
        else:
            self._append(attribute, count)

    def drop(self, attribute: int, count: int = 1) -> None:
        """Give back `count` judgments of one attribute."""
        if count < self.repeats[attribute]:
            self._repeat(attribute, -count)
        elif self._problem.v[attribute] + self._problem.ridge > 0:
            self._remove(attribute)
        else:
            self.repeats[attribute] = 0
            self.refactor()

    def _slot(self, attribute: int) -> int | None:
        found = np.flatnonzero(self._slots == attribute)
        return int(found[0]) if found.size else None

    def _repeat(self, attribute: int, count: int) -> None:
        """Take δ = v/r − v/(r + count) from the attribute's diagonal element of M."""
        r = int(self.repeats[attribute])
        self.repeats[attribute] = r + count
        delta = float(self._problem.v[attribute]) * count / (r * (r + count))
        at = self._slot(attribute)
        if delta != 0.0 and at is not None:
            column = self._inverse_column(at)
            self._update(delta / (1.0 - delta * column[at]), column, self._projected_row(at))

    def _append(self, attribute: int, count: int) -> None:
        """Border P with a new attribute."""
        problem = self._problem
        at = self._open_slot(attribute)
        self.repeats[attribute] = count
        p = self._projected_column(attribute)
        p[at] = 0.0
        n = self._slots.size
        row = problem.external[attribute]
        # Afresh, not from the kept arrays, so that their drift does not enter P.
        own = float(self._external_diagonal[attribute] + problem.v[attribute] / count)
        schur = own - float(row[self._slots] @ p)
        if schur <= RANK_TOLERANCE * own:
            self.refactor()
            return
        t = p @ self._rows[:n] - row
        p[at] = -1.0
        self._update(1.0 / schur, p, t)

    def _open_slot(self, attribute: int) -> int:
        """Zero row and column of P for an attribute; its former ones, if it was here before."""
        at = self._slot(attribute)
        if at is not None:
            return at
        n = self._slots.size
        if n == self._rows.shape[0]:
            self._grow(min(2 * n, self._problem.n_attributes))
        self._slots = np.append(self._slots, attribute)
        self._w = np.append(self._w, 0.0)
        self._inverse[n, : n + 1] = self._inverse[: n + 1, n] = self._inverse_diagonal[n] = 0.0
        self._projected[n] = 0.0
        self._q[:, n] = 0.0
        self._rows[n] = self._problem.external[attribute]
        return n

    def _remove(self, attribute: int) -> None:
        """Make an attribute's row and column of P zero; its slot stays until a refactor."""
        at = self._slot(attribute)
        self.repeats[attribute] = 0
        if at is None:
            return
        column = self._inverse_column(at)
        self._update(-1.0 / column[at], column, self._projected_row(at))

    def _grow(self, room: int) -> None:
        """Make room for more attributes; doubling keeps growing linear."""
        self._flush()
        old = self.__dict__.copy()
        self._allocate(room)
        for name in ("_inverse", "_inverse_diagonal", "_rows", "_projected"):
            target = getattr(self, name)
            target[tuple(slice(0, s) for s in old[name].shape)] = old[name]

    def copy(self) -> FullState:
        """Return an independent copy."""
        other = object.__new__(FullState)
        other.__dict__.update(self.__dict__)
        for name, value in self.__dict__.items():
            if isinstance(value, np.ndarray):
                setattr(other, name, value.copy())
        return other


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
