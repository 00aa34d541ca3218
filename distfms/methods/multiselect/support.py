"""The attributes bought so far: the inverse of the covariance of their averages.

Whoever holds candidates keeps a copy of this, and follows every purchase by the same operations
on the same numbers; so a purchase is told in O(|S|) numbers, an :class:`Entry`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from distfms.linalg import symmetric_pinv
from distfms.methods.multiselect.objective import RANK_TOLERANCE

#: Updates after which everything is computed afresh, to bound the drift of rank-one updates.
REFACTOR_EVERY = 512

#: Updates that the inverse waits for before it takes them in one matrix product.
BLOCK = 32


@dataclass(frozen=True, eq=False)
class Entry:
    """What everybody has to know of an attribute that enters S.

    Attributes
    ----------
    attribute : int
    row : ndarray of shape (n,)
        Σ[a, S], in the order of the slots.
    projection : ndarray of shape (n,)
        P Σ[S, a].
    external : float
        Σ[a, a].
    b, v : float
    """

    attribute: int
    row: np.ndarray
    projection: np.ndarray
    external: float
    b: float
    v: float


class Support:
    """Selected attributes S in slots, with P = M⁻¹, w = P b_S and the explained part bᵀw.

    Parameters
    ----------
    n_attributes : int
        d.
    ridge : float

    Attributes
    ----------
    slots : ndarray of int, shape (n,)
        Attribute in each slot.
    repeats : ndarray of int, shape (n,)
        Its judgments; 0 for one given back, whose slot stays until a refactoring.
    w : ndarray of shape (n,)
    objective : float
    n_waiting : int
        Updates κ q qᵀ that P has not taken yet.
    """

    def __init__(self, n_attributes: int, ridge: float) -> None:
        self.n_attributes = n_attributes
        self.ridge = ridge
        self.slots, self.repeats = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.b, self.v, self.w = np.zeros(0), np.zeros(0), np.zeros(0)
        self.objective = 0.0
        self.n_waiting = self.n_updates = 0
        self.reserve(16)

    @property
    def size(self) -> int:
        """Number of slots n."""
        return self.slots.size

    @property
    def room(self) -> int:
        """Number of slots there is room for."""
        return self.inverse.shape[0]

    def reserve(self, room: int) -> None:
        """Make room for `room` slots; no update may be waiting."""
        old = self.__dict__.copy()
        self.inverse, self.covariance = np.zeros((room, room)), np.zeros((room, room))
        self.inverse_diagonal = np.zeros(room)
        self.q, self.kappa = np.zeros((BLOCK, room)), np.zeros(BLOCK)
        for name in ("inverse", "covariance", "inverse_diagonal"):
            if name in old:
                target = getattr(self, name)
                target[tuple(slice(0, s) for s in old[name].shape)] = old[name]

    def slot(self, attribute: int) -> int | None:
        """Find the slot of an attribute, if it has one."""
        found = np.flatnonzero(self.slots == attribute)
        return int(found[0]) if found.size else None

    def open_slot(self, entry: Entry) -> None:
        """Add a slot with zero row and column of P; there must be room."""
        n = self.size
        self.slots = np.append(self.slots, entry.attribute)
        self.repeats = np.append(self.repeats, 0)
        self.b, self.v = np.append(self.b, entry.b), np.append(self.v, entry.v)
        self.w = np.append(self.w, 0.0)
        self.inverse[n, : n + 1] = self.inverse[: n + 1, n] = self.inverse_diagonal[n] = 0.0
        self.covariance[n, :n] = self.covariance[:n, n] = entry.row
        self.covariance[n, n] = entry.external
        self.q[:, n] = 0.0

    def matrix(self) -> np.ndarray:
        """Covariance M_r of the averages, with the ridge, shape (n, n); repeats must be > 0."""
        n = self.size
        matrix = self.covariance[:n, :n].copy()
        matrix[np.diag_indices_from(matrix)] += self.v / self.repeats + self.ridge
        return matrix

    def refactor(self) -> np.ndarray:
        """Compute everything afresh, without the empty slots.

        Returns
        -------
        ndarray of int
            The former slots that remain.
        """
        kept = np.flatnonzero(self.repeats > 0)
        n = kept.size
        if n < self.size:
            self.covariance[:n, :n] = self.covariance[np.ix_(kept, kept)]
            for name in ("slots", "repeats", "b", "v"):
                setattr(self, name, getattr(self, name)[kept])
        self.inverse[:n, :n] = inverse = _inverse(self.matrix())
        self.inverse_diagonal[:n] = np.diagonal(inverse)
        self.w = inverse @ self.b
        self.objective = float(self.w @ self.b)
        self.n_waiting = self.n_updates = 0
        return kept

    def column(self, at: int) -> np.ndarray:
        """Give a column of P, shape (n,)."""
        m, n = self.n_waiting, self.size
        return self.inverse[:n, at] + (self.kappa[:m] * self.q[:m, at]) @ self.q[:m, :n]

    def update(self, kappa: float, q: np.ndarray) -> None:
        """P ← P + κ q qᵀ; only w and the diagonal of P follow at once."""
        m, n = self.n_waiting, self.size
        self.q[m, :n], self.kappa[m] = q, kappa
        product = float(q @ self.b)
        self.inverse_diagonal[:n] += kappa * q**2
        self.w = self.w + (kappa * product) * q
        self.objective += kappa * product**2
        self.n_waiting = m + 1
        self.n_updates += 1

    def flush(self) -> np.ndarray:
        """Let P take the updates that wait; returns κ q of each, shape (m, n)."""
        m, n = self.n_waiting, self.size
        scaled = self.kappa[:m, None] * self.q[:m, :n]
        self.inverse[:n, :n] += scaled.T @ self.q[:m, :n]
        self.n_waiting = 0
        return scaled

    def repeat_gains(self) -> np.ndarray:
        """Gain of one more judgment for each slot, shape (n,); 0 where it would make M singular.

        That happens only where Σ has not been made positive semi-definite.
        """
        r = np.maximum(self.repeats, 1)
        delta = self.v / (r * (r + 1.0))
        pivot = 1.0 - delta * self.inverse_diagonal[: self.size]
        gains = np.zeros(self.size)
        return np.divide(delta * self.w**2, pivot, out=gains, where=pivot > RANK_TOLERANCE)


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
