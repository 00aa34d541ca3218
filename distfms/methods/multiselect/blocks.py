"""Candidates in blocks: what one more judgment of each attribute of a run of columns would bring.

One process searches with a single block of all attributes; for many attributes actors hold a
block each and follow the same purchases. Within a block everything is computed in tiles of a
fixed number of columns that begin at multiples of it. Blocks that begin at multiples of it too
therefore do the very operations that one process does, and come to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from distfms.methods.multiselect.objective import RANK_TOLERANCE, Problem
from distfms.methods.multiselect.support import BLOCK, REFACTOR_EVERY, Entry, Support

#: Columns of a tile. Blocks of a search must begin at multiples of it.
TILE_COLUMNS = 1024

#: Numerators below this share of their Cauchy-Schwarz bound are rounding.
NOISE_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False)
class CandidateStatistics:
    """Estimates of the attributes ``[start, start + n)`` of `d`, their candidates for purchase.

    Attributes
    ----------
    start : int
        First attribute.
    external : ndarray of shape (n, d)
        Their rows of the external covariance Σ.
    b, v : ndarray of shape (n,)
        Covariance with the label and internal variance.
    candidates : ndarray of bool, shape (n,)
        Which may be bought: those that are not constant.
    costs : ndarray of shape (n,)
    ridge : float
    label_variance : float
    psd : {"nearest", "none"}
        Whether Σ is positive semi-definite; see :class:`Problem`.
    """

    start: int
    external: np.ndarray
    b: np.ndarray
    v: np.ndarray
    candidates: np.ndarray
    costs: np.ndarray
    ridge: float
    label_variance: float
    psd: str

    @classmethod
    def of(cls, problem: Problem, start: int = 0, stop: int | None = None) -> CandidateStatistics:
        """Cut a run of attributes out of a problem; views, no copies.

        Parameters
        ----------
        problem : Problem
        start, stop : int
            By default all attributes.
        """
        own = slice(start, problem.n_attributes if stop is None else stop)
        return cls(
            start,
            # Σ is symmetric; in the transpose the column of an attribute that is bought lies
            # together, which halves the time of a purchase.
            problem.external.T[own],
            problem.b[own],
            problem.v[own],
            problem.candidates[own],
            problem.costs[own],
            problem.ridge,
            problem.label_variance,
            problem.psd,
        )

    @property
    def n_attributes(self) -> int:
        """Number of all attributes d."""
        return self.external.shape[1]

    @property
    def n_own(self) -> int:
        """Number of attributes of the block."""
        return self.b.size


class CandidateBlock:
    """State of the Full objective for a run of attributes, kept by rank-one updates.

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
    others (with ridge 0). Where Σ is positive semi-definite, then P = M⁺, for which the gains
    above stay exact, and a dependent attribute gains what the pseudo-inverse gives (nothing, if b
    is consistent with Σ). Where Σ was left as estimated (``psd="none"``), a candidate that would
    make M singular or indefinite gains nothing, so that M stays positive definite.

    Parameters
    ----------
    statistics : CandidateStatistics
        Kept, not copied.
    tile_columns : int
        Columns of a tile.

    Notes
    -----
    ``gains`` costs O(n) for the n own columns. ``buy`` costs O(n·|S|) for a new attribute,
    O(n·BLOCK) for a repeat plus its share of a matrix product with 2·n·|S| operations. Every
    REFACTOR_EVERY updates everything is computed afresh, O(n·|S|²). Memory O(n·|S| + |S|²) beside
    the statistics.
    """

    def __init__(
        self, statistics: CandidateStatistics, *, tile_columns: int = TILE_COLUMNS
    ) -> None:
        self._statistics = statistics
        self._tile_columns = tile_columns
        self.reset()

    def reset(self) -> None:
        """Go back to nothing bought."""
        statistics = self._statistics
        self._support = Support(statistics.n_attributes, statistics.ridge)
        self._held = np.zeros(statistics.n_own, dtype=bool)
        edges = range(0, statistics.n_own, self._tile_columns)
        self._tiles = [
            _Tile(statistics, low, min(low + self._tile_columns, statistics.n_own)) for low in edges
        ]

    @property
    def start(self) -> int:
        """First own attribute."""
        return self._statistics.start

    @property
    def costs(self) -> np.ndarray:
        """Cost of a judgment of each own attribute, shape (n,)."""
        return self._statistics.costs

    @property
    def n_candidates(self) -> int:
        """Own attributes that can be bought at all: those that are not constant."""
        return int(self._statistics.candidates.sum())

    @property
    def objective(self) -> float:
        """Explained part of the label's variance."""
        return self._support.objective

    @property
    def support(self) -> Support:
        """The attributes bought so far, own or not."""
        return self._support

    def gains(self) -> np.ndarray:
        """Gain of one more judgment of each own attribute, shape (n,); −inf for constant ones."""
        gains = np.concatenate(
            [tile.gains(self._support, self._held[tile.own]) for tile in self._tiles]
            or [np.zeros(0)]
        )
        at = self._support.slots - self.start
        own = (self._support.repeats > 0) & (at >= 0) & (at < self._held.size)
        gains[at[own]] = self._support.repeat_gains()[own]
        return gains

    def entry(self, attribute: int) -> Entry | None:
        """Describe an own attribute to those who hold other columns.

        Returns
        -------
        Entry or None
            None if it is held already, so that everybody knows it.
        """
        at = attribute - self.start
        if self._held[at]:
            return None
        statistics, tile = self._statistics, self._tiles[at // self._tile_columns]
        local = at - tile.low
        return Entry(
            attribute,
            tile.rows[: self._support.size, local].copy(),
            tile.projected_column(self._support, local),
            float(statistics.external[at, attribute]),
            float(statistics.b[at]),
            float(statistics.v[at]),
        )

    def take(self, attribute: int, entry: Entry | None, count: int = 1) -> None:
        """Follow the purchase of `count` judgments of any attribute.

        Parameters
        ----------
        attribute : int
        entry : Entry or None
            From the block that owns the attribute, in the state before the purchase.
        count : int
        """
        if entry is None:
            self._repeat(attribute, count)
        else:
            self._append(entry, count)

    def refactor(self) -> None:
        """Compute everything afresh from the repeats."""
        kept = self._support.refactor()
        for tile in self._tiles:
            tile.refactor(self._support, kept)

    def _mark(self, attribute: int, held: bool) -> None:
        if 0 <= attribute - self.start < self._held.size:
            self._held[attribute - self.start] = held

    def _repeat(self, attribute: int, count: int) -> None:
        """Take δ = v/r − v/(r + count) from the attribute's diagonal element of M."""
        support = self._support
        at = support.slot(attribute)
        if at is None:
            return
        r = int(support.repeats[at])
        support.repeats[at] = r + count
        delta = float(support.v[at]) * count / (r * (r + count))
        if delta != 0.0:
            column = support.column(at)
            rows = [tile.projected_row(support, at) for tile in self._tiles]
            self._update(delta / (1.0 - delta * column[at]), column, rows)

    def _append(self, entry: Entry, count: int) -> None:
        """Border P with a new attribute."""
        support, attribute = self._support, entry.attribute
        # Afresh, not from the kept arrays, so that their drift does not enter P.
        own = entry.external + support.ridge + entry.v / count
        at, p = support.slot(attribute), entry.projection.copy()
        if at is None:
            schur = own - float(entry.row @ p)
            at, p = support.size, np.append(p, 0.0)
            self._open_slot(entry)
        else:
            p[at] = 0.0
            schur = own - float(entry.row @ p)
        support.repeats[at] = count
        self._mark(attribute, True)
        if schur <= RANK_TOLERANCE * own:
            self.refactor()
            return
        changes = [p @ tile.rows[: support.size] - tile.rows[at] for tile in self._tiles]
        p[at] = -1.0
        self._update(1.0 / schur, p, changes)

    def _remove(self, attribute: int) -> None:
        """Make an attribute's row and column of P zero; its slot stays until a refactor."""
        support = self._support
        self._mark(attribute, False)
        at = support.slot(attribute)
        if at is None:
            return
        support.repeats[at] = 0
        column = support.column(at)
        rows = [tile.projected_row(support, at) for tile in self._tiles]
        self._update(-1.0 / column[at], column, rows)

    def _open_slot(self, entry: Entry) -> None:
        """Give a new attribute a slot; doubling keeps growing linear."""
        support = self._support
        if support.size == support.room:
            self._flush()
            support.reserve(min(2 * support.room, support.n_attributes))
            for tile in self._tiles:
                tile.reserve(support.room)
        for tile in self._tiles:
            tile.open_slot(support.size, self._statistics, entry.attribute)
        support.open_slot(entry)

    def _update(self, kappa: float, q: np.ndarray, changes: list[np.ndarray]) -> None:
        """P ← P + κ q qᵀ and all that follows from it; `changes` are t = Σ[:,S] q by tile."""
        support = self._support
        product = float(q @ support.b)
        for tile, t in zip(self._tiles, changes, strict=True):
            tile.update(support.n_waiting, kappa, product, t)
        support.update(kappa, q)
        if support.n_updates >= REFACTOR_EVERY:
            self.refactor()
        elif support.n_waiting == BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._support.n_waiting:
            scaled = self._support.flush()
            for tile in self._tiles:
                tile.flush(scaled)

    def copy(self) -> Self:
        """Return an independent copy."""
        other = _copied(self)
        other._support = _copied(self._support)
        other._tiles = [_copied(tile) for tile in self._tiles]
        return other


class _Tile:
    """num, den, Σ[S, ·] and T of a few own columns."""

    def __init__(self, statistics: CandidateStatistics, low: int, high: int) -> None:
        self.low, self.own = low, slice(low, high)
        self._first = statistics.start + low
        self._b = statistics.b[self.own]
        self._allowed = statistics.candidates[self.own]
        diagonal = np.diagonal(statistics.external, self._first - low)[self.own]
        self._diagonal = diagonal + statistics.ridge + statistics.v[self.own]
        self._definite, self._label_variance = statistics.psd != "none", statistics.label_variance
        self._num, self._den = self._b.copy(), self._diagonal.copy()
        self.rows = self._projected = np.zeros((0, high - low))
        self.reserve(16)

    def reserve(self, room: int) -> None:
        """Make room for `room` slots; no update may be waiting."""
        for name in ("rows", "_projected"):
            old = getattr(self, name)
            grown = np.zeros((room, old.shape[1]))
            grown[: old.shape[0]] = old
            setattr(self, name, grown)
        self._t = np.zeros((BLOCK, self._b.size))

    def open_slot(self, at: int, statistics: CandidateStatistics, attribute: int) -> None:
        """Fetch Σ[a, ·] of the attribute of a new slot."""
        self.rows[at] = statistics.external[self.own, attribute]
        self._projected[at] = 0.0

    def projected_row(self, support: Support, at: int) -> np.ndarray:
        """Row of T."""
        m = support.n_waiting
        return self._projected[at] + (support.kappa[:m] * support.q[:m, at]) @ self._t[:m]

    def projected_column(self, support: Support, local: int) -> np.ndarray:
        """Column of T, shape (n_slots,)."""
        m, n = support.n_waiting, support.size
        scaled = support.kappa[:m] * self._t[:m, local]
        return self._projected[:n, local] + scaled @ support.q[:m, :n]

    def update(self, m: int, kappa: float, product: float, t: np.ndarray) -> None:
        """Follow P ← P + κ q qᵀ with t = Σ[·,S] q."""
        self._t[m] = t
        self._num -= (kappa * product) * t
        self._den -= kappa * t**2

    def flush(self, scaled: np.ndarray) -> None:
        """Let T take the updates that wait."""
        m, n = scaled.shape
        self._projected[:n] += scaled.T @ self._t[:m]

    def refactor(self, support: Support, kept: np.ndarray) -> None:
        """Compute everything afresh for the slots that remain."""
        n = kept.size
        if n and kept[-1] != n - 1:
            self.rows[:n] = self.rows[kept]
        self._projected[:n] = support.inverse[:n, :n] @ self.rows[:n]
        self._num = self._b - support.w @ self.rows[:n]
        self._den = self._diagonal - np.einsum("ij,ij->j", self._projected[:n], self.rows[:n])

    def gains(self, support: Support, held: np.ndarray) -> np.ndarray:
        """Gain of buying each attribute, as if for the first time; −inf for constant ones."""
        squares = self._num**2
        independent = self._allowed & (self._den > RANK_TOLERANCE * self._diagonal)
        noise = (NOISE_TOLERANCE**2 * max(support.objective, 0.0)) * self._diagonal
        gains = np.where(self._allowed, 0.0, -np.inf)
        np.divide(squares, self._den, out=gains, where=independent & (squares > noise))
        dependent = self._allowed & ~independent & ~held
        if self._definite and dependent.any():
            self._fill_dependent(gains, np.flatnonzero(dependent), support)
        return gains

    def _fill_dependent(self, gains: np.ndarray, attributes: np.ndarray, support: Support) -> None:
        """Gains of linearly dependent attributes by the pseudo-inverse.

        With p = PΣ[S,a], e = num[a] and attributes in units of their standard deviation the
        explained part becomes uᵀPu, u = b + p e/(1 + pᵀp).
        A numerator that the tolerated share of unexplained variance can account for is no
        inconsistency of b with Σ and gains nothing.
        """
        scale = max(self._label_variance, support.objective)
        bound = RANK_TOLERANCE * self._diagonal[attributes] * scale
        m, n = support.n_waiting, support.size
        q, kappa = support.q[:m, :n], support.kappa[:m]
        # Only attributes without v are in p, so that their repeats do not matter.
        units = np.diagonal(support.covariance)[:n] + support.v + support.ridge
        for a in attributes[self._num[attributes] ** 2 > bound].tolist():
            p = self.projected_column(support, a)
            change = units * p
            inverse_change = support.inverse[:n, :n] @ change + (kappa * (q @ change)) @ q
            shift = float(self._num[a]) / (float(self._diagonal[a]) + float(change @ p))
            gain = 2.0 * float(support.w @ change) + shift * float(change @ inverse_change)
            gains[a] = shift * gain


def _copied(value: Any) -> Any:
    """Copy an object and the arrays that are its attributes."""
    other = object.__new__(type(value))
    for name, content in value.__dict__.items():
        setattr(other, name, content.copy() if isinstance(content, np.ndarray) else content)
    return other
