"""The steps of a search taken so far, what a next one may cost, and the path they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.problem import SequenceOutline
from distfms.methods.sequence.residual import Pivot


@dataclass(frozen=True)
class Cap:
    """What a step may choose from.

    Attributes
    ----------
    cost : float
        Groups that cost at most this.
    only : int or None
        This group, whatever it costs.
    """

    cost: float = np.inf
    only: int | None = None

    def allows(self, costs: np.ndarray, first: int = 0) -> np.ndarray:
        """Which groups from `first` on, of these costs, are allowed; bool."""
        if self.only is not None:
            return np.arange(first, first + len(costs)) == self.only
        return costs <= self.cost


@dataclass
class Trail:
    """Steps taken so far.

    Attributes
    ----------
    outline : SequenceOutline
    order : list of int
        Groups taken.
    cost : list of float
        What each cost.
    pivots : list of Pivot
    notes : list of str
    open : numpy.ndarray of bool
        Groups not taken.
    n_candidates : int
        Candidates evaluated so far, see `SequencePath`.
    """

    outline: SequenceOutline
    order: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    pivots: list[Pivot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_candidates: int = 0

    def __post_init__(self) -> None:
        self.open = np.ones(len(self.outline.groups), dtype=bool)

    def add(self, group: int, cost: float, pivot: Pivot) -> None:
        """Take a step."""
        self.open[group] = False
        self.order.append(group)
        self.cost.append(cost)
        self.pivots.append(pivot)

    def cap(self, costs: np.ndarray, doubling: bool) -> Cap:
        """Find what the doubling rule lets the next step choose (lines 1, 3 of Alg. 2).

        Called once for each step that chooses, whose candidates it counts.
        """
        self.n_candidates += int(self.open.sum())
        if not doubling:
            return Cap()
        cheapest = float(costs[self.open].min())
        if not self.order:
            return Cap(cheapest)
        spent = sum(self.cost)
        cap = Cap(spent * (1.0 + 1e-12))
        if cap.allows(costs)[self.open].any():
            return cap
        only = int(np.flatnonzero(self.open & (costs <= cheapest))[0])
        self.notes.append(
            f"not doubling capable at step {len(self.order) + 1}: no group left costs at most "
            f"the {spent:.6g} spent so far; continued with the cheapest, "
            f"{self.outline.groups.names[only]!r} at {cheapest:.6g}"
        )
        return Cap(only=only)

    def path(self, criterion: str, cost_aware: bool, doubling: bool) -> SequencePath:
        """Make the result of the search."""
        outline = self.outline
        support, upper, response = assemble_factor(self.pivots, outline.n_targets)
        return SequencePath(
            criterion=criterion,
            cost_aware=cost_aware,
            doubling=doubling,
            ridge=outline.ridge,
            order=np.array(self.order, dtype=np.intp),
            groups=tuple(outline.groups.names[g] for g in self.order),
            columns=outline.columns_of(self.order),
            cost=np.array(self.cost, dtype=np.float64),
            spent=np.cumsum(np.array(self.cost, dtype=np.float64)),
            gain=np.array([p.gain for p in self.pivots], dtype=np.float64),
            ranks=np.cumsum([len(p.columns) for p in self.pivots], dtype=np.intp),
            doubling_capable=not self.notes,
            notes=(*self.notes, *_notes(outline)),
            scaling=outline.scaling,
            support=support,
            upper=upper,
            response=response,
            n_candidates=self.n_candidates,
        )


def _notes(outline: SequenceOutline) -> list[str]:
    """Say what of the problem itself a reader of the result should know."""
    notes = []
    if outline.scaling.dropped:
        notes.append(f"constant columns left out: {', '.join(outline.scaling.dropped)}")
    if outline.dropped_groups:
        notes.append(f"groups of constant columns left out: {', '.join(outline.dropped_groups)}")
    return notes


def assemble_factor(
    pivots: Sequence[Pivot], n_targets: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole Cholesky factor from the pivots of all steps.

    Returns
    -------
    support : numpy.ndarray of int, shape (r,)
    upper : numpy.ndarray of shape (r, r)
    response : numpy.ndarray of shape (r, P)
    """
    rank = sum(len(p.columns) for p in pivots)
    upper = np.zeros((rank, rank))
    start = 0
    for pivot in pivots:
        end = start + len(pivot.columns)
        upper[:start, start:end] = pivot.border
        upper[start:end, start:end] = pivot.upper
        start = end
    support = np.concatenate([np.empty(0, dtype=np.intp), *(p.columns for p in pivots)])
    response = np.concatenate([np.empty((0, n_targets)), *(p.response for p in pivots)])
    return support.astype(np.intp), upper, response
