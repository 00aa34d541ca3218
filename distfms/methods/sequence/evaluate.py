"""Numbers of the evaluation of sequences: timeliness, curves, what a budget buys, where to stop."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from distfms.methods.frame.choose import best, fewest
from distfms.methods.frame.curves import points_of
from distfms.methods.sequence.choice import Candidate, chosen_on_other_folds
from distfms.methods.sequence.judged import LOSS_OF
from distfms.methods.sequence.problem import Path
from distfms.solve.costs import GroupCosts, longest_affordable, within
from distfms.stats.base import explained_by_fold, over_folds
from distfms.stats.folds import Answer, FoldAnswers

PLATEAU_START = 0.95
"""A plateau begins once this share of the final objective is there ..."""

PLATEAU_COST = 0.20
"""... and the next per cent of it needs more than this share of all cost."""


def timeliness(
    cost: np.ndarray, value: np.ndarray, *, stop: float | None = None, final: float | None = None
) -> float:
    """Area under value against cost over the whole area, stop × final value.

    Parameters
    ----------
    cost, value : ndarray of shape (K + 1,)
        Cost of the prefixes, ascending, usually from 0, and what they explain.
    stop : float, optional
        Cost at which the curve is cut. Beyond the last cost the curve stays where it is. Default:
        the last cost.
    final : float, optional
        Value that the whole area is measured with. Default: the last value.

    Returns
    -------
    float
        In [0, 1] for a curve that never exceeds `final`; 0 when `stop` is not above the first
        cost or `final` is not positive.
    """
    first = float(cost[0])
    if stop is None:
        stop = float(cost[-1])
    if final is None:
        final = float(value[-1])
    if stop <= first or final <= 0:
        return 0.0
    inside = cost < stop
    at_stop = np.interp(stop, cost, value)
    cut_cost = np.append(cost[inside], stop)
    cut_value = np.append(value[inside], at_stop)
    area = float(np.trapezoid(cut_value, cut_cost))
    return area / ((stop - first) * final)


def stopping_prefix(value: np.ndarray, alpha: float) -> int:
    """Return the first prefix with a share α of the final value."""
    # The last gains are rounding.
    return int(np.argmax(value >= alpha * value[-1] - 1e-12 * abs(value[-1])))


def stopping_cost(cost: np.ndarray, value: np.ndarray, alpha: float) -> float:
    """α-stopping cost: that of the first prefix with α of the final value."""
    return float(cost[stopping_prefix(value, alpha)])


def plateau(cost: np.ndarray, value: np.ndarray) -> float:
    """α at which a curve reaches its final plateau, 1 if it has none.

    The least α of 0.95, 0.96, …, 0.99 such that going from α to α + 0.01 of the final value
    needs more than 20% of all cost.
    """
    total = float(cost[-1]) - float(cost[0])
    for percent in range(round(100 * PLATEAU_START), 100):
        at_share = stopping_cost(cost, value, percent / 100)
        after = stopping_cost(cost, value, (percent + 1) / 100)
        if after - at_share > PLATEAU_COST * total:
            return percent / 100
    return 1.0


def oracle_curve(cost: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Approximate upper bound: costs and values with the steps in descending gain per cost.

    Gains and costs of the steps are taken to stay what they were. Equal ratios keep their order.
    """
    step_cost, gain = np.diff(cost), np.diff(value)
    # What is free comes first, in the order in which it was found.
    per_cost = np.divide(gain, step_cost, out=np.full(len(gain), np.inf), where=step_cost > 0)
    order = np.argsort(-per_cost, kind="stable")
    return (
        float(cost[0]) + np.concatenate(([0.0], np.cumsum(step_cost[order]))),
        float(value[0]) + np.concatenate(([0.0], np.cumsum(gain[order]))),
    )


RANKED = 5
"""Places of a ranking that count."""

NATURAL = ("accuracy", f"ndcg@{RANKED}")
"""Measures of classes and of rankings, which regressions are judged by too."""

MAX_POINTS = 200
"""Most points of a curve in ``metrics.json``."""


def thinned(n: int, limit: int) -> np.ndarray:
    """Positions of at most `limit` of n items, evenly, the first and the last among them."""
    if n <= limit:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, limit).round().astype(np.intp))


def kept_prefixes(path: Path) -> np.ndarray:
    """Return the prefixes whose scores are kept: those with models of their own, thinned."""
    return path.fitted[thinned(len(path.fitted), MAX_POINTS)]


@dataclass(frozen=True, eq=False)
class SequenceCurve:
    """How well the prefixes of a rule's sequence do that have models of their own, M of them.

    `n_groups` and `cost` (M,) are their numbers of groups and their costs. `scores` has their
    measures by rows, ``train``, ``validation`` and ``test``, the `share` that they explain among
    them.
    """

    groups: tuple[str, ...]
    n_groups: np.ndarray
    cost: np.ndarray
    scores: Mapping[str, Mapping[str, np.ndarray]]
    share: str = "explained_variance"

    @property
    def value(self) -> np.ndarray:
        """Shares explained of the training rows, (M,)."""
        return self.scores["train"][self.share]

    def points(self) -> list[dict[str, Any]]:
        """Return the entries of ``metrics.json``, thinned."""
        kept = thinned(len(self.cost), MAX_POINTS)
        sizes = {"budget": self.cost[kept], "n_groups": self.n_groups[kept]}
        return points_of(sizes, taken(self.scores, kept))


def taken(
    scores: Mapping[str, Mapping[str, np.ndarray]], places: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Return measures by rows at some places only."""
    at_places = {}
    for rows, measures in scores.items():
        at_places[rows] = {name: values[places] for name, values in measures.items()}
    return at_places


def compared(curves: Mapping[str, SequenceCurve], oracles: Mapping[str, str]) -> dict[str, Any]:
    """Compare the sequences of rules: ``curves``, ``timeliness``, ``alpha``, ``baselines``."""
    chosen = next(iter(curves.values()))
    reference = curves.get("omp", chosen)
    for name, rule in oracles.items():
        curve = curves[rule]
        cost, value = oracle_curve(curve.cost, curve.value)
        scores = {"train": {curve.share: value}}
        oracle = SequenceCurve((), curve.n_groups, cost, scores, curve.share)
        curves = {**curves, name: oracle}
    share = plateau(reference.cost, reference.value)
    cut = stopping_cost(reference.cost, reference.value, share)
    drawn = {name: curve.points() for name, curve in curves.items()}
    return {
        "curves": [{"name": name, "points": points} for name, points in drawn.items()],
        "timeliness": _timeliness(curves, share, cut),
        "alpha": {
            "alpha": share,
            "stopping_cost": stopping_cost(chosen.cost, chosen.value, share),
            "cut": cut,
        },
        "baselines": {
            name: {"groups": list(curves[name].groups) or None, **drawn[name][-1]}
            for name in list(drawn)[1:]
        },
    }


def _timeliness(
    curves: Mapping[str, SequenceCurve], alpha: float, cut: float
) -> dict[str, dict[str, float | None]]:
    """Timeliness of every rule, on a scale that all share."""
    end = max(float(curve.cost[-1]) for curve in curves.values())
    final = max(float(curve.value[-1]) for curve in curves.values())
    shares = {name: curve.scores.get("test", {}).get(curve.share) for name, curve in curves.items()}
    tests = {name: values for name, values in shares.items() if values is not None}
    best = max((float(values[-1]) for values in tests.values()), default=0.0)
    area = partial(timeliness, final=final)
    return {
        name: {
            "timeliness": area(curve.cost, curve.value, stop=end),
            "alpha": alpha,
            "stopping_cost": stopping_cost(curve.cost, curve.value, alpha),
            "alpha_timeliness": area(curve.cost, curve.value, stop=cut),
            "test_alpha_timeliness": timeliness(curve.cost, tests[name], stop=cut, final=best)
            if name in tests
            else None,
        }
        for name, curve in curves.items()
    }


# --- what a budget buys --------------------------------------------------------------------------

#: Name in ``metrics.json`` of the standard error of what a set gains on the prefix of its budget.
ERROR = "error_of_gain"


def budget_ladder(costs: GroupCosts) -> tuple[float, ...]:
    """Return budgets that double from the least price of a group on, below the cost of all.

    Each is the greatest price of a single group before the next, where there is one.
    """
    prices, total = costs.alone[costs.alone > 0], costs.total(range(len(costs.own)))
    if not len(prices):
        return ()
    budgets, low = [], float(prices.min())
    while low < total:
        between = prices[(prices >= low) & (prices < min(2 * low, total))]
        budgets.append(float(between.max()) if len(between) else low)
        low *= 2
    return tuple(budgets)


def best_model(spent: np.ndarray, of_sets: np.ndarray, values: np.ndarray, budget: float) -> int:
    """Return the number of the model that a budget buys: of prefixes 0..K, then of sets.

    That is the longest prefix, or a set of greater value; `spent` (K,) and `of_sets` are costs.
    """
    sets = np.flatnonzero(within(of_sets, budget, budget)) + len(spent) + 1
    models = [longest_affordable(spent, budget), *sets.tolist()]
    return max(models, key=lambda model: float(values[model]))


def advised(content: Mapping[str, Any]) -> int:
    """Return from the JSON of a model, or its metrics, which model predictions use by default."""
    return int(content["stop"]["model"])


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
    budgets = metrics["budgets"]
    chosen = metrics["curves"][0]
    n_prefixes = chosen["points"][-1]["n_groups"] + 1
    n_models = n_prefixes + len(budgets)
    points = [point_of(metrics, model) for model in range(n_models)]
    share = next(name for name in points[0]["train"] if name not in NATURAL)
    for rows in ("validation", "train"):
        scores = [point.get(rows, {}) for point in points]
        values = np.array([score.get(share) for score in scores], dtype=float)
        if np.isfinite(values).all():
            break
    errors = [score.get(ERROR, 0.0) for score in scores]
    values = values - np.array(errors)
    costs = [point["budget"] for point in points[:n_prefixes]]
    least = values.min() - 1.0
    for model, entry in enumerate(budgets, start=n_prefixes):
        prefix = longest_affordable(costs, entry["budget"]) - 1
        if values[model] <= values[prefix]:
            values[model] = least
    return values


def add_validation(
    budgets: Sequence[dict[str, Any]], validated: FoldAnswers, share: str, grid: np.ndarray
) -> None:
    """Add to the set of each budget what it explains in cross-validation.

    Its answers are the last ones, those of the sequence the first, at the costs of `grid`.
    """
    of_prefixes = validated.values(0, share)
    first_set = len(validated.answers) - len(budgets)
    for item, entry in enumerate(budgets, start=first_set):
        of_set = validated.values(item, share)[-1]
        prefix = of_prefixes[longest_affordable(grid, entry["budget"]) - 1]
        gain = over_folds(of_set - prefix, validated.weight)
        mean = over_folds(of_set, validated.weight).mean
        measures = dict(entry["set"].get("validation", {}))
        measures[share] = float(mean)
        measures[ERROR] = float(gain.standard_error)
        entry["set"] = {**entry["set"], "validation": measures}


def choose_models(
    path: Path, metrics: Mapping[str, Any], budget: float | None, stop: Mapping[str, Any]
) -> dict[str, Any]:
    """Enter the best model of each budget, and return where to stop with the model there."""
    sets = [entry["set"] for entry in metrics["budgets"]]
    costs = np.array([point["budget"] for point in sets])
    model_for = partial(best_model, path.spent, costs, values_of(metrics))
    for entry in metrics["budgets"]:
        entry["model"] = model_for(entry["budget"])
    if budget is None:
        return {**stop, "model": stop["n_groups"]}
    model = model_for(budget)
    if model <= len(path):
        model = path.fitted_within(model)
        n_groups = model
        cost = float(path.curve_cost[model])
    else:
        point = sets[model - len(path) - 1]
        n_groups = point["n_groups"]
        cost = point["budget"]
    return {**stop, "rule": "budget", "model": model, "n_groups": n_groups, "spent": cost}


def loss_of(answer: Answer, share: str, n_targets: int) -> np.ndarray:
    """Return the losses of prefixes (M,) on a fold.

    Several targets have no common unit: theirs are the shares that are not explained.
    """
    if n_targets > 1:
        return 1.0 - answer[share]
    return answer[LOSS_OF[share]]


def where_to_stop(
    path: Path,
    budgets: np.ndarray,
    alpha: float,
    candidate: Candidate | None,
    weights: Sequence[float],
    is_tuned: bool,
) -> dict[str, Any]:
    """Find the prefix that predictions use by default, and the best one.

    All of a sequence whose length `tune` chose. Else with the losses of `candidate` on folds, at
    these budgets, the smallest within one standard error of the best; without, the first with the
    share α of what all groups explain on the training rows.
    """
    if candidate is None:
        n_groups, best_n_groups = (stopping_prefix(path.curve_value, a) for a in (alpha, 1.0))
        rule = "training_plateau"
    else:
        # Folds were asked what a cost affords, to which what is free after it belongs.
        n_groups, best_n_groups = (
            path.fitted_within(path.affordable(budgets[rule(candidate.losses, weights)]))
            for rule in (fewest, best)
        )
        rule = "one_standard_error"
    if is_tuned:
        n_groups, rule = len(path), "tuned"
    return {
        "rule": rule,
        "n_groups": n_groups,
        "spent": float(path.curve_cost[n_groups]),
        "best_n_groups": best_n_groups,
        "best_spent": float(path.curve_cost[best_n_groups]),
    }


def honest_at_stop(candidates: Sequence[Candidate], validated: FoldAnswers) -> np.ndarray:
    """Return what is explained of each fold by what all the other folds choose, (n_folds,).

    That is over all candidates and all their prefixes: what a fold chose does not report of it.
    """
    choices = chosen_on_other_folds(candidates, validated.weight)
    losses, whole = np.empty((2, len(choices)))
    for fold, (number, prefix) in enumerate(choices):
        losses[fold] = candidates[number].losses[prefix, fold]
        whole[fold] = candidates[number].losses[0, fold]
    return explained_by_fold(losses, whole, validated.weight)


def at_stop(
    validated: FoldAnswers, share: str, rule: int, spent: float, grid: np.ndarray
) -> np.ndarray:
    """Return what the model where predictions stop explains of each fold, (n_folds,).

    It is what the rule of this number affords: the first one at one of the costs of `grid`, others,
    of sets, at the last.
    """
    place = longest_affordable(grid, spent) if rule == 0 else 0
    values: np.ndarray = validated.values(rule, share)[place - 1]
    return values


def steps_of(selection: Mapping[str, Any], model: int) -> Sequence[Mapping[str, Any]]:
    """Return the steps of ``selection.json`` behind a model."""
    steps: list[Mapping[str, Any]] = selection["sequence"]
    sets = (entry["sequence"] for entry in selection.get("budgets", ()))
    return [steps[:model], *sets][max(model - len(steps), 0)]
