"""Greedy sequencing on the Gram matrix, with costs, and the doubling rule of Algorithm 2.

With C = XᵀX/n + λI and b = XᵀY/n of standardised columns, groups S explain
F(S) = ½ b_Sᵀ C_S⁻¹ b_S, and with L the Cholesky factor of C_S the next group g adds

    F(S ∪ g) − F(S) = ½ b̃_gᵀ C̃_gg⁻¹ b̃_g,   b̃ = b − C_{·S} C_S⁻¹ b_S,
    C̃_gg = C_gg − (L⁻¹C_{S,g})ᵀ (L⁻¹C_{S,g}),

so that ``fr`` costs what ``omp`` does, whose value is ½ b̃_gᵀ (X_gᵀX_g/n)⁺ b̃_g. Slabs of groups
keep L⁻¹C_{S,·}, b̃ and C̃_gg of their columns (:class:`ResidualGram`) and answer with the values of
their groups. Appending a group is told to all in O(|g|·|S|) numbers, its `Pivot`.

Greedy search by gain per cost can waste a budget on cheap groups before a dear one that it pays
for, and search by gain alone on a dear one. The better of both explains at least ½(1 − 1/e) of
what the best set does where F is submodular [2]_. Few groups are also searched with each of them
first, which mends most of what greedy search misses. Then groups are exchanged or added while that
explains more (`best_set`).

References
----------
.. [1] Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
   Prediction".
.. [2] Leskovec, Krause, Guestrin, Faloutsos, VanBriesen, Glance, "Cost-effective Outbreak
   Detection in Networks", KDD 2007, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations, pairwise
from typing import Any

import numpy as np

from distfms.methods.frame.slabs import Loadable, OneProcess, Pool, slab_starts
from distfms.methods.sequence.problem import FeatureGroups, SequenceOutline, SequenceProblem, within
from distfms.methods.sequence.residual import Pivot, ResidualGram, SequencePath
from distfms.stats.comoments import CoMoments

BY_STATISTICS = ("fr", "random", "gain")
"""Rules that need no gradient of a model: groups are in order before one is fitted."""

TIE_RTOL = 1e-12
"""Scores this close are a tie, which the lowest index wins: rounding must not decide."""

#: Rows of a slab that are standardised at a time: what they take besides it is little.
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GroupSlab:
    """Standardised statistics of a run of groups ``[first, last)``.

    `columns` (n,) are those of these groups, ascending; `gram` (n, D) and `target` (n, P) their
    rows of XᵀX/n, without the ridge, and of XᵀY/n; `groups` are all groups.
    """

    first: int
    last: int
    columns: np.ndarray
    gram: np.ndarray
    target: np.ndarray
    groups: FeatureGroups
    ridge: float

    def load(self) -> GroupSlab:
        """Return the slab itself, which is in memory."""
        return self

    @property
    def n_bytes(self) -> int:
        """Size of the matrix."""
        return self.gram.nbytes

    @classmethod
    def of(cls, problem: SequenceProblem, first: int, last: int) -> GroupSlab:
        """Cut a run of groups out of a problem; views where their columns are a run too."""
        columns, own = _columns(problem.groups, first, last)
        gram, target = problem.gram[own], problem.target[own]
        return cls(first, last, columns, gram, target, problem.groups, problem.ridge)

    @classmethod
    def from_comoments(
        cls, rows: CoMoments, outline: SequenceOutline, first: int, last: int
    ) -> GroupSlab:
        """Standardise rows of co-moments, in their memory, which are lost.

        `rows` are of data whose columns are the features, then the targets, and hold the rows of
        the groups' columns, and no others but constant ones and targets.
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
        return cls(first, last, columns, gram, target, outline.groups, outline.ridge)


def slabs_of(problem: SequenceProblem) -> list[GroupSlab]:
    """Slabs of a problem in memory."""
    starts = slab_starts(len(group) for group in problem.groups.columns)
    return [GroupSlab.of(problem, first, last) for first, last in pairwise(starts)]


def load_state(slab: Loadable[GroupSlab], criterion: str) -> ResidualGram:
    """Return what is kept of a slab. A step costs O(n·|S|·|g|) for its n columns."""
    own = slab.load()
    members = own.groups.columns[own.first : own.last]
    return ResidualGram(
        # The Gram matrix is symmetric; rows of contiguous memory are read faster.
        own.gram if len(own.columns) == own.gram.shape[1] else own.gram.T,
        own.target,
        [np.searchsorted(own.columns, group).tolist() for group in members],
        criterion,
        columns=own.columns.tolist(),
        first=own.first,
        ridge=own.ridge,
    )


def follow(
    state: ResidualGram, message: tuple[Pivot | None, int | None]
) -> tuple[ResidualGram, Any]:
    """Take the last step; answer with the pivot of a group, or with the values of all own."""
    last, group = message
    if last is not None:
        state.append(last)
    return state, state.values() if group is None else state.pivot(group)


@dataclass(eq=False)
class Trail:
    """Steps taken so far, what they cost, and the choice of the next."""

    outline: SequenceOutline
    cost_aware: bool = True
    doubling: bool = False
    budget: float = np.inf
    order: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_candidates: int = 0
    #: A group that was chosen, after what it requires.
    due: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open = np.ones(len(self.outline.groups), dtype=bool)

    def take(self, group: int) -> None:
        """Take a step."""
        self.cost.append(float(self.outline.costs.marginal(self.order)[group]))
        self.order.append(group)
        self.open[group] = False
        self.due = [other for other in self.due if other != group]

    def affordable(self, costs: np.ndarray) -> np.ndarray:
        """Return which groups are left that the budget pays for."""
        return self.open & within(costs, self.budget - sum(self.cost), self.budget)

    def choose(self, values: Callable[[], np.ndarray], smallest: float) -> int | None:
        """Find the group of the greatest value (per cost) among those that may be next.

        Values below `smallest` cannot be told from 0. What the group requires comes before it. None
        where no group can be paid for.
        """
        if not self.due and (group := self._choose(values, smallest)) is not None:
            required = self.outline.costs.requires.get(group, ())
            self.due = [*(other for other in required if self.open[other]), group]
        return self.due[0] if self.due else None

    def _choose(self, values: Callable[[], np.ndarray], smallest: float) -> int | None:
        costs = self.outline.costs.marginal(self.order)
        left = self.affordable(costs)
        if not left.any():
            return None
        allowed = self._allowed(costs, left)
        if not allowed.any():
            return self._beyond_cap(costs, left)
        self.n_candidates += int(left.sum())
        score = values()
        score = np.where(score > smallest, score, 0.0)
        if self.cost_aware:
            score = score / np.where(costs > 0, costs, 1.0)  # free groups meet only such
        score = np.where(allowed, score, -1.0)
        return int(np.argmax(score >= score.max() * (1.0 - TIE_RTOL)))

    def _allowed(self, costs: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Find what may be next: what is free, else what the doubling rule allows.

        The rule is in lines 1 and 3 of Algorithm 2; what comes free counts as done before them.
        """
        cheapest, spent = float(costs[left].min()), sum(self.cost)
        cap = np.inf
        if self.doubling:
            cap = spent * (1.0 + 1e-12) if spent else cheapest
        return left & (costs <= (0.0 if cheapest == 0 else cap))

    def _beyond_cap(self, costs: np.ndarray, left: np.ndarray) -> int:
        """Return the cheapest group, as doubling allows none."""
        cheapest = float(costs[left].min())
        group = int(np.flatnonzero(left & (costs <= cheapest))[0])
        self.notes.append(
            f"Not doubling capable at step {len(self.order) + 1}: no group left costs at most "
            f"the {sum(self.cost):.6g} spent so far; continued with the cheapest, "
            f"{self.outline.groups.names[group]!r} at {cheapest:.6g}."
        )
        return group


def sequence(
    problem: SequenceOutline,
    criterion: str = "fr",
    *,
    cost_aware: bool = True,
    doubling: bool = False,
    order: Sequence[int] | None = None,
    gains: Sequence[float] | None = None,
    start: Sequence[int] = (),
    seed: int = 0,
    max_groups: int | None = None,
    budget: float = np.inf,
    pool: Pool | None = None,
    slabs: Sequence[Loadable[GroupSlab]] | None = None,
) -> SequencePath:
    """Put the groups of a problem in order, one at a time.

    Parameters
    ----------
    problem : SequenceProblem, or SequenceOutline
        An outline where the slabs have the matrices.
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten", "given", "gain", "random"}
        What a step maximises, see `residual.CRITERIA`; ``given`` follows `order`, ``gain``
        maximises `gains`, ``random`` follows a permutation drawn from `seed`.
    cost_aware : bool
        Divide by the cost of the group (given the shared costs paid so far).
    doubling : bool
        Algorithm 2: the first group is among those of least cost, every later one among those
        that cost at most what was spent so far. When there is none the cheapest left is next and
        `notes` says so.
    order : sequence of int, optional
        Different group indices for ``given``; may leave groups out.
    gains : sequence of float of length G, optional
        What each group is worth, for ``gain``.
    start : sequence of int
        Groups that come first, whatever the rule.
    seed : int
    max_groups : int, optional
        Stop after so many groups. Default: all.
    budget : float, optional
        What all groups together may cost; those that no longer fit are passed over.
    pool, slabs : optional
        Where the slabs are, and runs of groups that cover each once, in order; by default in this
        process, as `slabs_of` cuts them. The sequence is the same to the bit.

    Notes
    -----
    A value below the rounding of F counts as 0; ties go to the lowest index, so redundant groups
    come last, in their order. Cost O(D² r) for the factor of rank r, whatever the number of rows.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, Algorithms 1 and 2.
    """
    fixed = order
    if criterion == "random":
        fixed = np.random.default_rng(seed).permutation(len(problem.groups)).tolist()
    if slabs is None:
        assert isinstance(problem, SequenceProblem)
        slabs = slabs_of(problem)
    # Where values are known, nobody asks for them; this rule prepares nothing.
    rule = criterion if fixed is None and gains is None else "omp-no-whiten"
    pool = OneProcess() if pool is None else pool
    pool.start(partial(load_state, criterion=rule), slabs)
    trail, pivots, last = Trail(problem, cost_aware, doubling, budget), list[Pivot](), None

    def values() -> np.ndarray:
        nonlocal last
        if gains is not None:
            return np.array(gains)
        found, last = np.concatenate(pool.step(follow, (last, None))), None
        return found

    def following() -> int | None:
        if len(trail.order) < len(start):
            return start[len(trail.order)]
        if fixed is None:
            return trail.choose(values, smallest)
        left = trail.affordable(problem.costs.marginal(trail.order))
        return next((group for group in fixed if left[group]), None)

    smallest = float(np.finfo(np.float64).eps) * problem.n_targets
    n_steps = len(problem.groups) if max_groups is None else max_groups
    while len(pivots) < n_steps and (group := following()) is not None:
        answers = pool.step(follow, (last, group))
        pivot = next(answer for answer in answers if answer is not None)
        last = pivot
        trail.take(group)
        pivots.append(pivot)
    support, upper, response = assemble_factor(pivots, problem.n_targets)
    return SequencePath(
        outline=problem.outline,
        order=np.array(trail.order, dtype=np.intp),
        cost=np.array(trail.cost, dtype=np.float64),
        notes=tuple(trail.notes),
        n_candidates=trail.n_candidates,
        gain=np.array([p.gain for p in pivots], dtype=np.float64),
        ranks=np.cumsum([len(p.columns) for p in pivots], dtype=np.intp),
        support=support,
        upper=upper,
        response=response,
    )


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


# --- the set of groups that a budget is best spent on --------------------------------------------

#: Share of F by which an exchange has to raise it.
_EXCHANGE_RTOL = 1e-6
#: Groups of which searches begin with each, and of which two are exchanged for one.
_FEW = 24


def best_set(
    problem: SequenceOutline, budget: float, max_groups: int | None = None, **where: Any
) -> SequencePath:
    """Find a set of groups that explains much for at most `budget`, as a path that ends with it.

    `max_groups` bounds their number; `where` has the pool and the slabs of an outline, in which
    nothing is exchanged.
    """
    few = isinstance(problem, SequenceProblem) and len(problem.groups) <= _FEW
    firsts = np.flatnonzero(within(problem.costs.alone, budget, budget)).tolist() if few else []
    found = [
        sequence(
            problem, cost_aware=aware, budget=budget, start=start, max_groups=max_groups, **where
        )
        for start in ((), *((group,) for group in firsts))
        for aware in (True, False)
    ]
    best = max(found, key=lambda path: float(path.curve_value[-1]))
    if not isinstance(problem, SequenceProblem):
        return best
    most = len(problem.groups) if max_groups is None else max_groups
    while order := _exchange(problem, best, budget, most):
        after = sequence(problem, "given", order=order)
        if not after.gain.sum() > best.gain.sum():
            break
        best = after
    return best


def _exchange(
    problem: SequenceProblem, path: SequencePath, budget: float, most: int
) -> list[int] | None:
    """Return the set after the best exchange, the new group last; None where none gains.

    With V = C_S⁻¹ and A = V C_S·, the rows of the factor that belong to g, were it the last of
    S, are U_g A_g, and those of L⁻¹b are U_g w_g, with V_gg⁻¹ = U_gᵀU_g.
    """
    from scipy.linalg import solve_triangular

    order, rank = path.order.tolist(), len(path.response)
    state = ResidualGram(
        problem.gram, problem.target, problem.groups.columns, "fr", ridge=problem.ridge
    )
    for group in order:
        pivot = state.pivot(group)
        assert pivot is not None
        state.append(pivot)
    root = solve_triangular(path.upper, np.eye(rank)) if rank else np.zeros((0, 0))
    onto, weights = root @ state.factor_rows, root @ path.response
    best, found = _EXCHANGE_RTOL * float(path.gain.sum()), None
    ends = [0, *path.ranks.tolist()]
    rows = [list(range(*pair)) for pair in pairwise(ends)]
    n_out = range(3 if len(order) <= _FEW else 2)
    for places in chain.from_iterable(combinations(range(len(order)), n) for n in n_out):
        own = list(chain.from_iterable(rows[place] for place in places))
        upper = np.linalg.cholesky(np.linalg.inv(root[own] @ root[own].T)).T
        new, response = upper @ onto[own], upper @ weights[own]
        rest = [group for place, group in enumerate(order) if place not in places]
        allowed = within(problem.costs.marginal(rest), budget - problem.costs.total(rest), budget)
        allowed[order] = False
        if len(rest) >= most or not allowed.any():
            continue
        gains = np.where(allowed, state.values_without(new, response), -np.inf)
        gain = float(gains.max()) - 0.5 * float(np.sum(response**2))
        if gain > best:
            best, found = gain, [*rest, int(gains.argmax())]
    return found
