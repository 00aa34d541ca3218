"""Forward selection of groups of columns on the Gram matrix, with costs.

With G = XᵀX/n, C = G + λI and b = XᵀY/n of centred columns, groups S explain
F(S) = ½ b_Sᵀ C_S⁻¹ b_S, and with L the Cholesky factor of C_S the next group g adds

    F(S ∪ g) − F(S) = ½ b̃_gᵀ C̃_gg⁻¹ b̃_g,   b̃ = b − C_{·S} C_S⁻¹ b_S,
    C̃_gg = C_gg − (L⁻¹C_{S,g})ᵀ (L⁻¹C_{S,g}),

so that ``fr`` costs what ``omp`` does, whose value is ½ b̃_gᵀ G_gg⁺ b̃_g. G is an array or a mapped
file, of which a step reads the rows of the group that it appends.

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
.. [3] Shalev-Shwartz, Srebro, Zhang, "Trading Accuracy for Sparsity", SIAM J. Optimization 20
   (2010): the same with groups of one column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations, pairwise
from typing import Any, NamedTuple

import numpy as np

from distfms.solve.cholesky import ForwardState, Pivot, Shard
from distfms.solve.costs import GroupCosts, within
from distfms.solve.shards import Loadable, OneProcess, Pool

#: Multiplications that take as long as the calls of one greedy step on small arrays: 0.13 ms of
#: 6 · 10⁹ a second (measured on 30 to 1,000 columns).
CALLS = 8e5
#: Scores this close are a tie, which the lowest index wins: rounding must not decide.
TIE_RTOL = 1e-12
#: Rounding of what was spent so far, as a share of it.
_SPENT_RTOL = 1e-12
#: Share of F by which an exchange has to raise it.
_EXCHANGE_RTOL = 1e-6
#: Groups of which searches begin with each, and of which two are exchanged for one.
_FEW = 24
#: The criterion that prepares nothing, where nobody asks for values.
_NO_VALUES = "omp-no-whiten"


@dataclass(frozen=True, eq=False)
class ForwardProblem:
    """Squared loss on groups of columns that have costs.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        G, without the ridge.
    target : ndarray of shape (d, P)
        b.
    groups : sequence of sequence of int
        A partition of the columns; ties go to the lowest number.
    costs : GroupCosts
    ridge : float
        λ.
    variance : float
        YᵀY/n summed over targets: values within its rounding count as 0.
    """

    gram: np.ndarray
    target: np.ndarray
    groups: Sequence[Sequence[int]]
    costs: GroupCosts
    ridge: float = 0.0
    variance: float = 1.0

    @classmethod
    def of_columns(cls, gram: np.ndarray, target: np.ndarray, variance: float) -> ForwardProblem:
        """Return the problem of single columns that cost 1 each; `target` is (d,)."""
        groups = [(column,) for column in range(len(gram))]
        costs = GroupCosts.ones(len(gram))
        return cls(gram, target[:, np.newaxis], groups, costs, variance=variance)

    @property
    def shard(self) -> Shard:
        """All groups as one shard."""
        return Shard.whole(self.gram, self.target, self.groups, self.ridge)


@dataclass(frozen=True, eq=False)
class ForwardPath:
    """What a search leaves.

    Attributes
    ----------
    order : ndarray of int, shape (K,)
        Groups.
    cost : ndarray of shape (K,)
        Of each step, given what was paid before.
    gain : ndarray of shape (K,)
        Growth of F.
    ranks : ndarray of int, shape (K,)
        Linearly independent columns of each prefix.
    support : ndarray of int, shape (r,)
        Columns that entered, in order.
    upper : ndarray of shape (r, r)
        Upper Cholesky factor U of C at the support; its corners are those of the prefixes.
    response : ndarray of shape (r, P)
        U⁻ᵀb at the support.
    n_candidates : int
        Values of groups computed by the steps that chose.
    overspent : tuple of Overspent
        Steps that the doubling rule does not allow.
    """

    order: np.ndarray
    cost: np.ndarray
    gain: np.ndarray
    ranks: np.ndarray
    support: np.ndarray
    upper: np.ndarray
    response: np.ndarray
    n_candidates: int = 0
    overspent: tuple[Overspent, ...] = ()

    @property
    def value(self) -> float:
        """F of all its groups."""
        return float(self.gain.sum())


class Overspent(NamedTuple):
    """A step at which no group left costs at most what was spent: the cheapest was next."""

    step: int
    group: int
    cost: float
    spent: float


def follow(
    state: ForwardState, message: tuple[Pivot | None, int | None]
) -> tuple[ForwardState, Any]:
    """Take the last step; answer with the pivot of a group, or with the values of all groups."""
    last, group = message
    if last is not None:
        state.append(last)
    answer = state.values() if group is None else state.pivot(group)
    return state, answer


def load_state(shard: Loadable[Shard], criterion: str) -> ForwardState:
    """Return the state of a shard; a step costs O(n·|S|·|g|) for its n columns."""
    return ForwardState(shard.load(), criterion)


@dataclass(eq=False)
class Trail:
    """Steps taken so far, what they cost, and the choice of the next."""

    costs: GroupCosts
    cost_aware: bool = True
    doubling: bool = False
    budget: float = np.inf
    order: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    overspent: list[Overspent] = field(default_factory=list)
    n_candidates: int = 0
    #: A group that was chosen, after what it requires.
    due: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_open = np.ones(len(self.costs.own), dtype=bool)

    def take(self, group: int) -> None:
        """Take a step."""
        self.cost.append(float(self.costs.marginal(self.order)[group]))
        self.order.append(group)
        self.is_open[group] = False
        self.due = [required for required in self.due if required != group]

    def affordable(self) -> np.ndarray:
        """Return which groups are left that the budget pays for."""
        costs = self.costs.marginal(self.order)
        return self.is_open & within(costs, self.budget - sum(self.cost), self.budget)

    def first_affordable(self, order: Sequence[int]) -> int | None:
        """Return the first group of an order that is left and that the budget pays for."""
        is_affordable = self.affordable()
        return next((group for group in order if is_affordable[group]), None)

    def choose(self, values: Callable[[], np.ndarray], smallest: float) -> int | None:
        """Find the group of the greatest value (per cost) among those that may be next.

        Values of `smallest` or less cannot be told from 0. What the group requires comes before it.
        None where no group can be paid for.
        """
        if not self.due:
            group = self._choose(values, smallest)
            if group is None:
                return None
            required = self.costs.requires.get(group, ())
            self.due = [*(needed for needed in required if self.is_open[needed]), group]
        return self.due[0]

    def _choose(self, values: Callable[[], np.ndarray], smallest: float) -> int | None:
        costs = self.costs.marginal(self.order)
        is_affordable = self.affordable()
        if not is_affordable.any():
            return None
        is_allowed = self._allowed(costs, is_affordable)
        if not is_allowed.any():
            return self._overspend(costs, is_affordable)
        self.n_candidates += int(is_affordable.sum())
        score = values()
        score = np.where(score > smallest, score, 0.0)
        if self.cost_aware:
            score = score / np.where(costs > 0, costs, 1.0)  # free groups meet only such
        score = np.where(is_allowed, score, -1.0)
        return int(np.argmax(score >= score.max() * (1.0 - TIE_RTOL)))

    def _allowed(self, costs: np.ndarray, is_affordable: np.ndarray) -> np.ndarray:
        """Find what may be next: what is free, else what the doubling rule allows.

        The rule is in lines 1 and 3 of Algorithm 2; what comes free counts as done before them.
        """
        cheapest = float(costs[is_affordable].min())
        spent = sum(self.cost)
        cap = np.inf
        if cheapest == 0:
            cap = 0.0
        elif self.doubling:
            cap = spent * (1.0 + _SPENT_RTOL) if spent else cheapest
        return is_affordable & (costs <= cap)

    def _overspend(self, costs: np.ndarray, is_affordable: np.ndarray) -> int:
        """Return the cheapest group, as doubling allows none."""
        cheapest = float(costs[is_affordable].min())
        group = int(np.argmax(is_affordable & (costs <= cheapest)))
        self.overspent.append(Overspent(len(self.order) + 1, group, cheapest, sum(self.cost)))
        return group


def forward(
    problem: ForwardProblem,
    criterion: str = "fr",
    *,
    cost_aware: bool = True,
    doubling: bool = False,
    order: Sequence[int] | None = None,
    gains: Sequence[float] | None = None,
    start: Sequence[int] = (),
    max_groups: int | None = None,
    budget: float = np.inf,
    while_gaining: bool = False,
    pool: Pool | None = None,
    shards: Sequence[Loadable[Shard]] | None = None,
) -> ForwardPath:
    """Put the groups of a problem in order, one at a time.

    Parameters
    ----------
    problem : ForwardProblem
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten"}
        What a step maximises, see `cholesky.CRITERIA`.
    cost_aware : bool
        Divide by the cost of the group (given the shared costs paid so far).
    doubling : bool
        Algorithm 2: the first group is among those of least cost, every later one among those
        that cost at most what was spent so far. When there is none the cheapest left is next.
    order : sequence of int, optional
        Different groups to take in turn, whatever the criterion; may leave groups out.
    gains : sequence of float of length G, optional
        What each group is worth, in place of the criterion.
    start : sequence of int
        Groups that come first, whatever the rule.
    max_groups : int, optional
        Stop after so many groups. Default: all.
    budget : float, optional
        What all groups together may cost; those that no longer fit are passed over.
    while_gaining : bool
        Stop where no group adds anything.
    pool, shards : optional
        Where the shards are, and runs of groups that cover each once, in order; by default all in
        this process. The path is the same to the bit.

    Notes
    -----
    A value below the rounding of F counts as 0; ties go to the lowest index, so redundant groups
    come last, in their order. Cost O(d² r) for the factor of rank r, whatever the number of rows.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, Algorithms 1 and 2.
    """
    has_values = order is None and gains is None
    pool = OneProcess() if pool is None else pool
    build = partial(load_state, criterion=criterion if has_values else _NO_VALUES)
    pool.start(build, [problem.shard] if shards is None else shards)
    search = _Search(problem, pool, Trail(problem.costs, cost_aware, doubling, budget), gains)
    n_steps = len(problem.groups) if max_groups is None else max_groups
    while len(search.pivots) < n_steps:
        n_taken = len(search.pivots)
        group: int | None
        if n_taken < len(start):
            group = start[n_taken]
        elif order is not None:
            group = search.trail.first_affordable(order)
        else:
            group = search.next_group()
        if group is None or (while_gaining and not search.gains(group)):
            break
        search.take(group)
    return search.path()


@dataclass(eq=False)
class _Search:
    """A search under way: what was taken, and the last step, which the states do not know yet."""

    problem: ForwardProblem
    pool: Pool
    trail: Trail
    fixed_gains: Sequence[float] | None
    pivots: list[Pivot] = field(default_factory=list)
    last: Pivot | None = None
    pending: Pivot | None = None

    @property
    def smallest(self) -> float:
        """Rounding of F."""
        return float(np.finfo(np.float64).eps) * self.problem.variance

    def next_group(self) -> int | None:
        """Return what comes next by the rule."""
        return self.trail.choose(self._values, self.smallest)

    def gains(self, group: int) -> bool:
        """Return whether appending a group explains more than rounding."""
        self.pending = self._pivot(group)
        return self.pending.gain > self.smallest

    def take(self, group: int) -> None:
        """Append a group."""
        pivot = self._pivot(group) if self.pending is None else self.pending
        self.pending = None
        self.last = pivot
        self.trail.take(group)
        self.pivots.append(pivot.without_gram())

    def path(self) -> ForwardPath:
        """Return the groups that were taken."""
        upper, response = _assembled(self.pivots, self.problem.target.shape[1])
        columns = [pivot.columns for pivot in self.pivots]
        support = np.concatenate([np.empty(0, dtype=np.intp), *columns])
        return ForwardPath(
            order=np.array(self.trail.order, dtype=np.intp),
            cost=np.array(self.trail.cost, dtype=np.float64),
            gain=np.array([pivot.gain for pivot in self.pivots], dtype=np.float64),
            ranks=np.cumsum([len(entered) for entered in columns], dtype=np.intp),
            support=support.astype(np.intp),
            upper=upper,
            response=response,
            n_candidates=self.trail.n_candidates,
            overspent=tuple(self.trail.overspent),
        )

    def _values(self) -> np.ndarray:
        if self.fixed_gains is not None:
            return np.array(self.fixed_gains)
        return np.concatenate(self._ask(None))

    def _pivot(self, group: int) -> Pivot:
        answers = self._ask(group)
        return next(answer for answer in answers if answer is not None)

    def _ask(self, group: int | None) -> list[Any]:
        answers = self.pool.step(follow, (self.last, group))
        self.last = None
        return answers


def _assembled(pivots: Sequence[Pivot], n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the whole Cholesky factor and response, from the pivots of all steps."""
    rank = sum(len(pivot.columns) for pivot in pivots)
    upper = np.zeros((rank, rank))
    start = 0
    for pivot in pivots:
        end = start + len(pivot.columns)
        upper[:start, start:end] = pivot.border
        upper[start:end, start:end] = pivot.upper
        start = end
    responses = [pivot.response for pivot in pivots]
    return upper, np.concatenate([np.empty((0, n_targets)), *responses])


# --- the set of groups that a budget is best spent on --------------------------------------------


def best_set(
    problem: ForwardProblem, budget: float, max_groups: int | None = None, **places: Any
) -> ForwardPath:
    """Find a set of groups that explains much for at most `budget`, as a path that ends with it.

    `max_groups` bounds their number; `places` has the pool and the shards, if there are any.
    """
    starts: list[tuple[int, ...]] = [()]
    if len(problem.groups) <= _FEW:
        is_affordable = within(problem.costs.alone, budget, budget)
        starts += [(group,) for group in np.flatnonzero(is_affordable).tolist()]
    search = partial(forward, problem, budget=budget, max_groups=max_groups, **places)
    paths = []
    for start in starts:
        paths.append(search(start=start, cost_aware=True))
        paths.append(search(start=start, cost_aware=False))
    best = max(paths, key=lambda path: path.value)
    most = len(problem.groups) if max_groups is None else max_groups
    while order := _exchange(problem, best, budget, most):
        after = forward(problem, order=order)
        if not after.value > best.value:
            break
        best = after
    return best


def _exchange(
    problem: ForwardProblem, path: ForwardPath, budget: float, most: int
) -> list[int] | None:
    """Return the set after the best exchange, the new group last; None where none gains.

    With V = C_S⁻¹ and A = V C_S·, the rows of the factor that belong to g, were it the last of
    S, are U_g A_g, and those of L⁻¹b are U_g w_g, with V_gg⁻¹ = U_gᵀU_g.
    """
    from scipy.linalg import solve_triangular

    order = path.order.tolist()
    rank = len(path.response)
    state = ForwardState(problem.shard, "fr")
    for group in order:
        pivot = state.pivot(group)
        assert pivot is not None
        state.append(pivot)
    root = solve_triangular(path.upper, np.eye(rank)) if rank else np.zeros((0, 0))
    onto = root @ state.factor_rows
    weights = root @ path.response
    rows_of = [list(range(*pair)) for pair in pairwise([0, *path.ranks.tolist()])]
    best_gain = _EXCHANGE_RTOL * path.value
    best_order = None
    for places in _exchanged(len(order)):
        rows = list(chain.from_iterable(rows_of[place] for place in places))
        kept = [group for place, group in enumerate(order) if place not in places]
        unspent = budget - problem.costs.total(kept)
        is_allowed = within(problem.costs.marginal(kept), unspent, budget)
        is_allowed[order] = False
        if len(kept) >= most or not is_allowed.any():
            continue
        upper = np.linalg.cholesky(np.linalg.inv(root[rows] @ root[rows].T)).T
        response = upper @ weights[rows]
        values = state.values_without(upper @ onto[rows], response)
        gains = np.where(is_allowed, values, -np.inf)
        gain = float(gains.max()) - 0.5 * float(np.sum(response**2))
        if gain > best_gain:
            best_gain = gain
            best_order = [*kept, int(gains.argmax())]
    return best_order


def _exchanged(n_groups: int) -> list[tuple[int, ...]]:
    """Return the places of none, of each and, of few groups, of every two."""
    most = 2 if n_groups <= _FEW else 1
    return [places for n in range(most + 1) for places in combinations(range(n_groups), n)]
