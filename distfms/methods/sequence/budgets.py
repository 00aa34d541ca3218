"""The set of groups that a budget is best spent on, found on the Gram matrix.

Greedy search by gain per cost can waste a budget on cheap groups before a dear one that it pays
for, and search by gain alone on a dear one. The better of both explains at least ½(1 − 1/e) of
what the best set does where F is submodular [1]_. Few groups are also searched with each of them
first, which mends most of what greedy search misses. Then groups are exchanged or added while that
explains more.

References
----------
.. [1] Leskovec, Krause, Guestrin, Faloutsos, VanBriesen, Glance, "Cost-effective Outbreak
   Detection in Networks", KDD 2007, Theorem 2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import Any, cast

import numpy as np

from distfms.methods.contract import FoldAnswers
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import (
    GroupCosts,
    Path,
    SequenceOutline,
    SequencePath,
    SequenceProblem,
    longest_affordable,
    within,
)
from distfms.methods.sequence.residual import ResidualGram
from distfms.stats.fold_means import over_folds

#: Share of F by which an exchange has to raise it.
_EXCHANGE_RTOL = 1e-6
#: Name in ``metrics.json`` of the standard error of what a set gains on the prefix of its budget.
ERROR = "error_of_gain"
#: Groups of which searches begin with each, and of which two are exchanged for one.
_FEW = 24


def budget_ladder(costs: GroupCosts) -> tuple[float, ...]:
    """Return budgets that double from the least price of a group on, below the cost of all.

    Each is the greatest price of a single group before the next, where there is one.
    """
    prices, total = costs.alone[costs.alone > 0], costs.total(range(len(costs.own)))
    if not len(prices):
        return ()
    found, low = [], float(prices.min())
    while low < total:
        own = prices[(prices >= low) & (prices < min(2 * low, total))]
        found.append(float(own.max()) if len(own) else low)
        low *= 2
    return tuple(found)


def best_model(spent: np.ndarray, of_sets: np.ndarray, values: np.ndarray, budget: float) -> int:
    """Return the number of the model that a budget buys: of prefixes 0..K, then of sets.

    That is the longest prefix, or a set of greater value; `spent` (K,) and `of_sets` are costs.
    """
    sets = np.flatnonzero(within(of_sets, budget, budget)) + len(spent) + 1
    models = [longest_affordable(spent, budget), *sets.tolist()]
    return max(models, key=lambda model: float(values[model]))


def advised(content: Mapping[str, Any]) -> int:
    """Return from the JSON of a model, or its metrics, which model predictions use by default."""
    stop = content["stop"]
    return int(stop.get("model", stop["n_groups"]))  # runs before there were budgets have none


def point_of(metrics: Mapping[str, Any], model: int) -> Mapping[str, Any]:
    """Return what ``metrics.json`` says of a model; of a prefix it lacks, the last before it."""
    points: list[Mapping[str, Any]] = metrics["curves"][0]["points"]
    if model > (last := points[-1]["n_groups"]):
        return cast(Mapping[str, Any], metrics["budgets"][model - last - 1]["set"])
    return points[bisect_right(points, model, key=lambda point: int(point["n_groups"])) - 1]


def values_of(metrics: Mapping[str, Any]) -> np.ndarray:
    """Return what all models explain: in cross-validation, or else of the training rows.

    In cross-validation sets count for a standard error of their gain less than they explain, as
    the better of two is so by chance too. One that is no better than the prefix that its budget
    buys has less than all others.
    """
    n_prefixes = metrics["curves"][0]["points"][-1]["n_groups"] + 1
    models = range(n_prefixes + len(metrics["budgets"]))
    points = [point_of(metrics, model) for model in models]
    (share,) = points[0]["train"]
    for rows in ("validation", "train"):
        found = [point.get(rows, {}) for point in points]
        values = np.array([own.get(share) for own in found], dtype=float)
        if np.isfinite(values).all():
            break
    values = values - np.array([own.get(ERROR, 0.0) for own in found])
    costs, least = [point["budget"] for point in points[:n_prefixes]], values.min() - 1.0
    for model, entry in enumerate(metrics["budgets"], start=n_prefixes):
        if values[model] <= values[longest_affordable(costs, entry["budget"]) - 1]:
            values[model] = least
    return values


def add_validation(
    budgets: Sequence[dict[str, Any]], validated: FoldAnswers, share: str, grid: np.ndarray
) -> None:
    """Add to the set of each budget what it explains in cross-validation.

    Its answers are the last ones, those of the sequence the first, at the costs of `grid`.
    """
    scores = [np.stack([answer[share] for answer in own], -1) for own in validated.answers]
    for entry, own in zip(budgets, scores[len(scores) - len(budgets) :], strict=True):
        prefix = scores[0][longest_affordable(grid, entry["budget"]) - 1]
        gain = over_folds(own[-1] - prefix, validated.weight)
        mean = over_folds(own[-1], validated.weight).mean
        found = {share: float(mean), ERROR: float(gain.standard_error)}
        entry["set"] = {**entry["set"], "validation": found}


def choose_models(
    path: Path, metrics: Mapping[str, Any], budget: float | None, stop: Mapping[str, Any]
) -> dict[str, Any]:
    """Enter the best model of each budget, and return where to stop with the model there."""
    sets, values = [entry["set"] for entry in metrics["budgets"]], values_of(metrics)
    spent, costs = path.spent, np.array([point["budget"] for point in sets])
    for entry in metrics["budgets"]:
        entry["model"] = best_model(spent, costs, values, entry["budget"])
    if budget is None:
        return {**stop, "model": stop["n_groups"]}
    model = best_model(spent, costs, values, budget)
    if model <= len(path):
        n_groups = model = path.fitted_within(model)
        cost = float(path.curve_cost[model])
    else:
        own = sets[model - len(path) - 1]
        n_groups, cost = own["n_groups"], own["budget"]
    return {**stop, "rule": "budget", "model": model, "n_groups": n_groups, "spent": cost}


def steps_of(selection: Mapping[str, Any], model: int) -> Sequence[Mapping[str, Any]]:
    """Return the steps of ``selection.json`` behind a model."""
    steps: Sequence[Mapping[str, Any]] = selection["sequence"]
    if model > len(steps):
        return cast(Any, selection["budgets"][model - len(steps) - 1]["sequence"])
    return steps[:model]


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
    if isinstance(problem, SequenceProblem):
        most = len(problem.groups) if max_groups is None else max_groups
        return _exchanged(problem, best, budget, most)
    return best


def _exchanged(
    problem: SequenceProblem, path: SequencePath, budget: float, most: int
) -> SequencePath:
    """Exchange or add single groups while that explains more."""
    while (order := _exchange(problem, path, budget, most)) is not None:
        after = sequence(problem, "given", order=order)
        if not after.gain.sum() > path.gain.sum():
            break
        path = after
    return path


def _left_out(n: int) -> Iterator[tuple[int, ...]]:
    """Return what an exchange takes out of n groups: none, one, or two where they are few."""
    most = 2 if n <= _FEW else 1
    return chain.from_iterable(combinations(range(n), size) for size in range(most + 1))


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
    for places in _left_out(len(order)):
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
