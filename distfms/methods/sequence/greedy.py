"""Greedy sequencing on the Gram matrix, with costs, and the doubling rule of Algorithm 2.

With C = XᵀX/n + λI and b = XᵀY/n of standardised columns, groups S explain
F(S) = ½ b_Sᵀ C_S⁻¹ b_S, and with L the Cholesky factor of C_S the next group g adds

    F(S ∪ g) − F(S) = ½ b̃_gᵀ C̃_gg⁻¹ b̃_g,   b̃ = b − C_{·S} C_S⁻¹ b_S,
    C̃_gg = C_gg − (L⁻¹C_{S,g})ᵀ (L⁻¹C_{S,g}),

so that ``fr`` costs what ``omp`` does, whose value is ½ b̃_gᵀ (X_gᵀX_g/n)⁺ b̃_g. Slabs of groups
keep L⁻¹C_{S,·}, b̃ and C̃_gg of their columns (:class:`GroupState`). Appending a group is told to
all in O(|g|·|S|) numbers, its `Pivot`; the driver keeps these (:class:`Trail`).

References
----------
.. [1] Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
   Prediction".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.problem import (
    FeatureGroups,
    GroupCosts,
    SequenceOutline,
    SequencePath,
    SequenceProblem,
)
from distfms.methods.sequence.residual import CRITERIA, Pivot, ResidualGram, make_criterion
from distfms.methods.slabs import Loadable, OneProcess, Pool, slab_starts
from distfms.stats.comoments import CoMoments

TIE_RTOL = 1e-12
"""Scores this close are a tie, which the lowest index wins: rounding must not decide."""

#: Rows of a slab that are standardised at a time: what they take besides it is little.
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GroupSlab:
    """Standardised statistics of a run of groups ``[first, last)``.

    Attributes
    ----------
    first, last : int
    columns : numpy.ndarray of int, shape (n,)
        Columns of these groups, ascending.
    gram : numpy.ndarray of shape (n, D)
        Their rows of XᵀX/n, without the ridge.
    target : numpy.ndarray of shape (n, P)
        Their rows of XᵀY/n.
    groups : FeatureGroups
        All groups.
    costs : GroupCosts
        Of all groups.
    ridge : float
        λ.
    """

    first: int
    last: int
    columns: np.ndarray
    gram: np.ndarray
    target: np.ndarray
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float

    def load(self) -> GroupSlab:
        """Return the slab itself, which is in memory."""
        return self

    @classmethod
    def of(cls, problem: SequenceProblem, first: int, last: int) -> GroupSlab:
        """Cut a run of groups out of a problem; views where their columns are a run too."""
        columns, own = _columns(problem.groups, first, last)
        return cls(
            first,
            last,
            columns,
            problem.gram[own],
            problem.target[own],
            problem.groups,
            problem.costs,
            problem.ridge,
        )

    @classmethod
    def from_comoments(
        cls, rows: CoMoments, outline: SequenceOutline, first: int, last: int
    ) -> GroupSlab:
        """Standardise rows of co-moments, in their memory, which are lost.

        Parameters
        ----------
        rows : CoMoments
            Of data whose columns are the features, then the targets; holds the rows of the
            groups' columns, and no others but constant ones. Missing values count as the
            mean.
        outline : SequenceOutline
            Of all groups.
        first, last : int
            Groups of the slab, at least one.
        """
        scaling, weight, matrix = outline.scaling, rows.weight, rows.comoment
        kept, n_features = scaling.kept, len(scaling.feature_names)
        columns, scale = _columns(outline.groups, first, last)[0], scaling.scale[kept]
        own = kept[columns] - rows.start
        target = matrix[own, n_features:] / weight
        target /= np.outer(scale[columns], scaling.target_scale)
        # Rows only move up and columns to the left, so that nothing is lost that is yet to come.
        for low in range(0, len(columns), _ROWS_AT_ONCE):
            some = slice(low, low + _ROWS_AT_ONCE)
            part = matrix[own[some]][:, kept]
            part /= weight
            part /= np.outer(scale[columns[some]], scale)
            part[np.arange(len(part)), columns[some]] = 1.0
            matrix[low : low + len(part), : len(kept)] = part
        gram = matrix[: len(columns), : len(kept)]
        return cls(first, last, columns, gram, target, outline.groups, outline.costs, outline.ridge)


def slabs_of(problem: SequenceProblem) -> list[GroupSlab]:
    """Slabs of a problem in memory."""
    starts = slab_starts(len(group) for group in problem.groups.columns)
    return [GroupSlab.of(problem, first, last) for first, last in pairwise(starts)]


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


class Turn(NamedTuple):
    """One message to all slabs.

    Attributes
    ----------
    group : int
        Selected last; −1 in the first turn.
    pivot : Pivot or None
        What that means.
    cap : Cap
        What the next step may choose from.
    cost_aware : bool
        Whether scores are values per cost.
    smallest : float
        Value that cannot be told from 0.
    """

    group: int
    pivot: Pivot | None
    cap: Cap
    cost_aware: bool
    smallest: float


class Offer(NamedTuple):
    """A group that may be the best of all, its score, and what appending it means."""

    group: int
    score: float
    pivot: Pivot


class GroupState:
    """What is kept of a slab: a growing block Cholesky and the values of its groups.

    A step costs O(n·|S|·|g|) for n columns. Memory O(n·|S|) besides the statistics.
    """

    def __init__(self, slab: Loadable[GroupSlab], criterion: str, rtol: float | None) -> None:
        self.slab = slab = slab.load()
        whole = len(slab.columns) == slab.gram.shape[1]
        members = slab.groups.columns[slab.first : slab.last]
        self.residual = ResidualGram(
            # The Gram matrix is symmetric; rows of contiguous memory are read faster.
            slab.gram if whole else slab.gram.T,
            slab.target,
            [np.searchsorted(slab.columns, group).tolist() for group in members],
            columns=slab.columns.tolist(),
            ridge=slab.ridge,
            rtol=rtol,
            blocks=criterion == "fr",
        )
        self.values = make_criterion(criterion, self.residual)
        self.open = np.ones(slab.last - slab.first, dtype=bool)
        self.order: list[int] = []

    def append(self, group: int, pivot: Pivot) -> None:
        """Take any group into S."""
        self.order.append(group)
        own = group - self.slab.first
        if 0 <= own < len(self.open):
            self.open[own] = False
            self.residual.close(own)
        self.residual.append(pivot)

    def offers(self, turn: Turn) -> list[Offer]:
        """Return the own groups one of which is the best of all if any own group is."""
        first = self.slab.first
        own = slice(first, self.slab.last)
        if turn.cap.only is not None:
            at = turn.cap.only - first
            inside = 0 <= at < len(self.open)
            return [Offer(turn.cap.only, 0.0, self.residual.pivot(at))] if inside else []
        costs = self.slab.costs.marginal(self.order)[own]
        allowed = self.open & (costs <= turn.cap.cost)
        score = scores(self.values(), costs if turn.cost_aware else None, allowed, turn.smallest)
        return [
            Offer(first + at, float(score[at]), self.residual.pivot(at)) for at in contenders(score)
        ]


def follow(state: GroupState, turn: Turn) -> tuple[GroupState, list[Offer]]:
    """Take the last step and answer with the best groups, on the slab's actor."""
    if turn.pivot is not None:
        state.append(turn.group, turn.pivot)
    return state, state.offers(turn)


def scores(
    values: np.ndarray, costs: np.ndarray | None, allowed: np.ndarray, smallest: float
) -> np.ndarray:
    """Values (per cost), at least 0; −1 for the groups that are not allowed."""
    score = np.where(values > smallest, values, 0.0)
    if costs is not None:
        score = score / np.where(costs > 0, costs, 1.0)  # free groups are compared with such only
    return np.where(allowed, score, -1.0)


def contenders(score: np.ndarray) -> list[int]:
    """Positions one of which is the first whose score cannot be told from the best of all.

    The best of all is not known to a slab; the first is among those, close to the slab's own
    best, that score more than all before them.
    """
    best, found, highest = float(score.max()), [], -1.0
    for at in np.flatnonzero(score >= best * (1.0 - TIE_RTOL)).tolist() if best >= 0 else []:
        if score[at] > highest:
            highest = float(score[at])
            found.append(at)
    return found


def sequence(
    problem: SequenceOutline,
    criterion: str = "fr",
    *,
    cost_aware: bool = True,
    doubling: bool = False,
    order: Sequence[int] | None = None,
    seed: int = 0,
    max_groups: int | None = None,
    rtol: float | None = None,
    pool: Pool | None = None,
    slabs: Sequence[Loadable[GroupSlab]] | None = None,
) -> SequencePath:
    """Put the groups of a problem in order, one at a time.

    Parameters
    ----------
    problem : SequenceProblem, or SequenceOutline
        An outline where the slabs have the matrices.
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten", "given", "random"}
        What a step maximises, see `make_criterion`; ``given`` follows `order`, ``random`` a
        permutation drawn from `seed`.
    cost_aware : bool
        Divide by the cost of the group (given the shared costs paid so far).
    doubling : bool
        Algorithm 2: the first group is among those of least cost, every later one among those
        that cost at most what was spent so far. When there is none the cheapest left is next and
        `notes` says so.
    order : sequence of int, optional
        Group indices for ``given``; may leave groups out.
    seed : int
        For ``random``.
    max_groups : int, optional
        Stop after so many groups. Default: all.
    rtol : float, optional
        Share of a column's variance below which its residual counts as linear dependence.
    pool : Pool, optional
        Where the slabs are; default: in this process. The sequence is the same to the bit.
    slabs : sequence of GroupSlab, or of what loads one, optional
        Runs of groups that cover each once, in order; default: as `slabs_of` cuts them.

    Returns
    -------
    SequencePath

    Raises
    ------
    SpecError
        If the criterion is unknown or `order` is missing, not allowed, or not made of
        different groups.

    Notes
    -----
    A value below the rounding of F counts as 0; ties go to the lowest index, so redundant groups
    come last, in their order. Cost O(D² r) for the factor of rank r, whatever the number of rows.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Algorithms 1 and 2.
    """
    fixed = fixed_order(len(problem.groups), criterion, order, seed)
    if fixed is not None and doubling:
        raise SpecError(f"doubling chooses among groups; criterion {criterion!r} has no choice.")
    if slabs is None:
        assert isinstance(problem, SequenceProblem)
        slabs = slabs_of(problem)
    # Of a fixed order nobody asks for values; this rule prepares nothing.
    rule = "omp-no-whiten" if fixed is not None else criterion
    pool = OneProcess() if pool is None else pool
    pool.start(partial(GroupState, criterion=rule, rtol=rtol), slabs)
    trail = Trail(problem)
    n_steps = len(problem.groups) if fixed is None else len(fixed)
    group, pivot = -1, None
    smallest = float(np.finfo(np.float64).eps) * problem.n_targets
    for step in range(n_steps if max_groups is None else min(max_groups, n_steps)):
        costs = problem.costs.marginal(trail.order)
        cap = Cap(only=fixed[step]) if fixed is not None else trail.cap(costs, doubling)
        answers = pool.step(follow, Turn(group, pivot, cap, cost_aware, smallest))
        offers = [offer for found in answers for offer in found]
        best = max(offer.score for offer in offers)
        # Offers are in the order of groups, so that the lowest index wins a tie.
        chosen = next(offer for offer in offers if offer.score >= best * (1.0 - TIE_RTOL))
        group, pivot = chosen.group, chosen.pivot
        trail.add(group, float(costs[group]), pivot)
    return trail.path()


def fixed_order(
    n_groups: int, criterion: str, order: Sequence[int] | None, seed: int
) -> list[int] | None:
    """Order that leaves no choice, or None when the rule decides."""
    if (order is not None) != (criterion == "given"):
        raise SpecError("An order is needed for the criterion 'given', and for no other.")
    if criterion == "random":
        return np.random.default_rng(seed).permutation(n_groups).tolist()
    if order is None:
        if criterion not in CRITERIA:
            known = ", ".join((*CRITERIA, "given", "random"))
            raise SpecError(f"criterion {criterion!r} is none of {known}.")
        return None
    fixed = [int(group) for group in order]
    if len(set(fixed)) < len(fixed) or not set(fixed) <= set(range(n_groups)):
        raise SpecError(f"The order must be made of different groups of 0..{n_groups - 1}.")
    return fixed


@dataclass(eq=False)
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
        """Find what the next step may choose: what is free, else what the doubling rule allows.

        The rule is in lines 1 and 3 of Algorithm 2; what comes free counts as done before them.
        Called once for each step that chooses, whose candidates it counts.
        """
        n_open = int(self.open.sum())
        self.n_candidates += n_open
        cheapest, spent = float(costs[self.open].min()), sum(self.cost)
        if cheapest == 0:
            return Cap(0.0)
        if not doubling:
            return Cap()
        if not spent:
            return Cap(cheapest)
        cap = Cap(spent * (1.0 + 1e-12))
        if (costs <= cap.cost)[self.open].any():
            return cap
        self.n_candidates -= n_open  # nothing is left to compare
        only = int(np.flatnonzero(self.open & (costs <= cheapest))[0])
        self.notes.append(
            f"not doubling capable at step {len(self.order) + 1}: no group left costs at most "
            f"the {spent:.6g} spent so far; continued with the cheapest, "
            f"{self.outline.groups.names[only]!r} at {cheapest:.6g}"
        )
        return Cap(only=only)

    def path(self) -> SequencePath:
        """Make the result of the search."""
        outline = self.outline
        support, upper, response = assemble_factor(self.pivots, outline.n_targets)
        return SequencePath(
            order=np.array(self.order, dtype=np.intp),
            groups=tuple(outline.groups.names[g] for g in self.order),
            columns=outline.columns_of(self.order),
            cost=np.array(self.cost, dtype=np.float64),
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
    """Return what of the problem itself a reader of the result should know."""
    notes = []
    if outline.scaling.dropped:
        notes.append(f"constant columns left out: {', '.join(outline.scaling.dropped)}")
    if outline.dropped_groups:
        notes.append(f"groups of constant columns left out: {', '.join(outline.dropped_groups)}")
    return notes


def assemble_factor(
    pivots: Sequence[Pivot], n_targets: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole Cholesky factor from the pivots of all steps."""
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


def _columns(groups: FeatureGroups, first: int, last: int) -> tuple[np.ndarray, np.ndarray | slice]:
    """Columns of a run of groups, ascending, and the same as a slice where they are a run too."""
    columns = np.array(sorted(c for group in groups.columns[first:last] for c in group), np.intp)
    if len(columns) and columns[-1] - columns[0] + 1 == len(columns):
        return columns, slice(int(columns[0]), int(columns[-1]) + 1)
    return columns, columns
