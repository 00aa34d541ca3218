"""Stopping row by row along one sequence: a row takes the next groups where that pays.

A stage is a prefix of the sequence that has a model. What the models without a row's fold say of it
at all stages tells which rows need more: rows are put into bins by how sure a model is of the
class, and backward induction finds for each bin of each stage whether going on is worth its cost at
a price (loss per unit of cost). A row's decision depends on the row and the model alone; before the
first group, where nothing tells rows apart, it is one for all rows. See Trapeznikov, Saligrama,
"Supervised Sequential Classification Under Budget Constraints".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from distfms.solve.costs import longest_affordable
from distfms.stats.base import FoldMeans, over_folds
from distfms.stats.classification import shares_of

#: Bins of a stage: most of them, fewest rows of one, and rows of rarer classes that allow another.
_MOST_BINS, _LEAST_ROWS, _EVENTS_A_BIN = 32, 50, 50
#: Share of the rows above the last edge, which are those that a model is least sure of.
_LEAST_SURE = 0.01
#: Prices that are tried beside 0; the least makes all groups together cost this share of the loss.
_N_PRICES, _LEAST_PRICE = 48, 1e-3
#: Share of the loss without any group by which a policy may be worse and counts as as good.
_AS_GOOD = 0.005


def state_of(shares: np.ndarray) -> np.ndarray:
    """Return what bins are of, from probabilities of classes (n, r): of the second of two classes.

    Of more classes, the entropy.
    """
    if shares.shape[1] == 2:
        return shares[:, 1]
    logs = np.log(np.maximum(shares, np.finfo(float).tiny))
    return np.asarray(-(shares * logs).sum(axis=1))


def edges_of(states: np.ndarray, n_bins: int, of_two: bool) -> np.ndarray:
    """Return edges between at most so many bins, finer where a model is unsure, without small bins.

    They are the 1 − g quantiles of the entropy for g geometric from 1 to 0.01; for the probability
    of one of two classes, those of the smaller probability, on both sides of ½.
    """
    n_levels = n_bins // 2 + 1 if of_two else n_bins
    least = min(1.0, max(_LEAST_SURE, _LEAST_ROWS / len(states)))
    levels = 1.0 - np.geomspace(1.0, least, n_levels)[1:]
    if of_two:
        lower = np.quantile(np.minimum(states, 1.0 - states), levels)
        quantiles = np.concatenate((lower, 1.0 - lower))
    else:
        quantiles = np.quantile(states, levels)
    ordered = np.sort(states)
    edges = list[float]()
    start = 0
    for edge in np.unique(quantiles).tolist():
        end = int(np.searchsorted(ordered, edge))
        if min(end - start, len(ordered) - end) >= _LEAST_ROWS:
            edges.append(edge)
            start = end
    return np.array(edges)


# --- rows whose outcome is known ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StagedRows:
    """What models that did not learn from n rows say of them at M stages.

    Attributes
    ----------
    states, losses, right : numpy.ndarray of shape (M, n)
        See `state_of`; the loss; whether the class is predicted.
    weight, fold, label : numpy.ndarray of shape (n,)
        Folds and classes are numbers.
    """

    states: np.ndarray
    losses: np.ndarray
    right: np.ndarray
    weight: np.ndarray
    fold: np.ndarray
    label: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[StagedRows]) -> StagedRows:
        """Return the rows of all parts."""
        joined = {}
        for name in vars(parts[0]):
            arrays = [getattr(part, name) for part in parts]
            joined[name] = np.concatenate(arrays, axis=-1)
        return cls(**joined)

    def taken(self, rows: np.ndarray) -> StagedRows:
        """Return some of the rows, those of a stage side by side in memory."""
        taken = {}
        for name, values in vars(self).items():
            taken[name] = np.ascontiguousarray(values[..., rows])
        return StagedRows(**taken)

    @property
    def n_bins(self) -> int:
        """Most bins of a stage that these rows allow."""
        n_of_largest = np.bincount(self.label.astype(np.intp)).max()
        n_bins = (len(self.label) - n_of_largest) // _EVENTS_A_BIN
        return int(np.clip(n_bins, 2, _MOST_BINS))

    def at(self, stage: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Return losses, and whether classes are right, where each row stops (…, n)."""
        places = stage * len(self.weight) + np.arange(len(self.weight))
        return self.losses.take(places), self.right.take(places)


def induced(
    bins: np.ndarray, losses: np.ndarray, weight: np.ndarray, steps: np.ndarray, prices: list[float]
) -> list[list[np.ndarray]]:
    """Return for each price which bins of each stage but the last go on, by backward induction.

    Parameters
    ----------
    bins : ndarray of int, shape (M - 1, n)
    losses : ndarray of shape (M, n)
    weight : ndarray of shape (n,)
    steps : ndarray of shape (M - 1,)
        Cost of going from each stage to the next.
    prices : list of float
        Losses that a unit of cost is worth, in descending order.
    """
    n_steps = len(steps)
    stop_losses = [np.bincount(bins[stage], weight * losses[stage]) for stage in range(n_steps)]
    policies = list[list[np.ndarray]]()
    for price in reversed(prices):
        if policies and not any(goes.any() for goes in policies[-1]):
            # Where no row goes on, none does at a higher price.
            policies.append(policies[-1])
            continue
        decisions = list[np.ndarray]()
        # What the policy earns, not the better of a row's own outcomes: nothing looks ahead.
        value = losses[-1]
        for stage in reversed(range(n_steps)):
            later = price * steps[stage] + value
            of_stage = bins[stage]
            go_losses = np.bincount(of_stage, weight * later)
            goes = go_losses < stop_losses[stage]
            value = np.where(goes.take(of_stage), later, losses[stage])
            decisions.append(goes)
        policies.append(decisions[::-1])
    return policies[::-1]


def last_stage(goes: Sequence[np.ndarray]) -> int:
    """Return the stage after which no row goes on."""
    return next((stage for stage, of_bins in enumerate(goes) if not of_bins.any()), len(goes))


def stops(goes: Sequence[np.ndarray], bins: np.ndarray) -> np.ndarray:
    """Return the stage at which each row stops, (n,)."""
    last = last_stage(goes)
    stages = np.full(bins.shape[1], last, dtype=np.int32)
    for stage in reversed(range(last)):
        if not goes[stage].all():
            stages = np.where(goes[stage].take(bins[stage]), stages, np.int32(stage))
    return stages


def lower_hull(cost: np.ndarray, loss: np.ndarray) -> list[int]:
    """Return the points of the lower hull by ascending cost, up to that of the least loss."""
    hull = list[int]()
    for i in np.lexsort((loss, cost)).tolist():
        if hull and loss[i] >= loss[hull[-1]]:
            continue
        while len(hull) > 1:
            a, b = hull[-2:]
            run = cost[[b, i]] - cost[a]
            rise = loss[[b, i]] - loss[a]
            if rise[0] * run[1] < rise[1] * run[0]:
                break
            hull.pop()
        hull.append(i)
    return hull


# --- policies -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """Decisions at a price, with their mean cost and loss on the rows that they were found on.

    `goes` has for each stage but the last a text of 0 (stop) and 1 by bin. Without a price all rows
    stop at the stage `prefix`.
    """

    price: float | None
    mean_cost: float
    loss: float
    goes: tuple[str, ...]
    prefix: int | None = None

    @property
    def key(self) -> tuple[float | None, int | None]:
        """What tells policies of the same rows apart."""
        return self.price, self.prefix

    @property
    def buys(self) -> bool:
        """Whether any row takes the first group."""
        return "1" in "".join(self.goes[:1])

    @cached_property
    def decisions(self) -> list[np.ndarray]:
        """Which bins go on, by stage."""
        return [np.array(list(bits)) == "1" for bits in self.goes]

    @property
    def last(self) -> int:
        """Stage after which no row goes on."""
        return last_stage(self.decisions)


@dataclass(frozen=True)
class Stopping:
    """How rows stop along one sequence.

    Attributes
    ----------
    stages : tuple of int
        Numbers of groups of the M stages, 0 first.
    spent : tuple of float
        What they cost.
    edges : tuple of tuple of float
        Between the bins of each stage but the last.
    policies : tuple of Policy
        By ascending mean cost: no group for any row, then the lower hull of those with a group.
    default : int
        The cheapest whose loss is within one standard error, paired over folds, of that of the
        recommended prefix, or worse by at most 0.5% of the loss without any group.
    """

    stages: tuple[int, ...]
    spent: tuple[float, ...]
    edges: tuple[tuple[float, ...], ...]
    policies: tuple[Policy, ...]
    default: int = 0

    def bins(self, states: np.ndarray) -> np.ndarray:
        """Return the bins of rows at all stages but the last, (M - 1, n), from states (M, n)."""
        stages = zip(self.edges, states, strict=False)
        bins = [np.searchsorted(edges, of_stage, "right") for edges, of_stage in stages]
        return np.array(bins, dtype=np.intp).reshape(len(self.edges), -1)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Stopping:
        """Return it as JSON has it, of what `asdict` returns."""
        policies = [Policy(**{**p, "goes": tuple(p["goes"])}) for p in content["policies"]]
        return cls(
            tuple(content["stages"]),
            tuple(content["spent"]),
            tuple(map(tuple, content["edges"])),
            tuple(policies),
            content["default"],
        )

    def rule(
        self,
        budget: float | None = None,
        mean_budget: float | None = None,
        confidence: float | None = None,
    ) -> RowRule:
        """Return the rule of a mean budget (by default the default policy), or of a confidence.

        A mean budget is a ceiling, for what rows of the folds spent on average. No row spends more
        than the `budget`.
        """
        last = len(self.stages) - 1
        policy = None
        if confidence is None:
            number = self.default
            if mean_budget is not None:
                costs = [policy.mean_cost for policy in self.policies]
                number = max(longest_affordable(costs, mean_budget) - 1, 0)
            policy = self.policies[number]
            last = policy.last
        if budget is not None:
            last = min(last, longest_affordable(self.spent, budget) - 1)
        return RowRule(self, last, policy, confidence)


@dataclass(frozen=True)
class RowRule:
    """Where each row stops: by a policy or once a class is as probable as `confidence`.

    `last` is the stage after which no row goes on.
    """

    stopping: Stopping
    last: int
    policy: Policy | None
    confidence: float | None

    def goes(self, stage: int, predicted: np.ndarray) -> np.ndarray:
        """Return which rows go on, from the predictions (n, P) of a stage."""
        if stage >= self.last:
            return np.zeros(len(predicted), dtype=bool)
        shares = shares_of(predicted)
        if self.policy is None:
            return np.asarray(shares.max(axis=1) < self.confidence)
        bins = np.searchsorted(self.stopping.edges[stage], state_of(shares), "right")
        return self.policy.decisions[stage][bins]

    def walk(
        self, n_rows: int, predict: Callable[[int, np.ndarray], np.ndarray], n_outputs: int
    ) -> np.ndarray:
        """Return predictions (n_rows, P) where rows stop, with numbers of groups, and costs.

        `predict` takes a number of groups and the numbers of some rows.
        """
        table = np.empty((n_rows, n_outputs + 2))
        rows = np.arange(n_rows)
        for stage in range(self.last + 1):
            if not len(rows):
                break
            n_groups = self.stopping.stages[stage]
            predicted = predict(n_groups, rows)
            table[rows, :n_outputs] = predicted
            table[rows, n_outputs] = n_groups
            table[rows, n_outputs + 1] = self.stopping.spent[stage]
            rows = rows[self.goes(stage, predicted)]
        return table


# --- finding them ---------------------------------------------------------------------------------


def edges_of_stages(rows: StagedRows) -> tuple[tuple[float, ...], ...]:
    """Return the edges between the bins of each stage but the last."""
    n_bins = rows.n_bins
    of_two = bool(rows.label.max(initial=0) < 2)
    edges = [edges_of(states, n_bins, of_two).tolist() for states in rows.states[1:-1]]
    # Before the first group the state of a row tells its fold, and nothing else.
    return (), *map(tuple, edges)


def policies_on(rows: StagedRows, outline: Stopping, prices: list[float]) -> Stopping:
    """Return the policies of all prices that these rows suggest; the outline has none."""
    spent = outline.spent
    edges = edges_of_stages(rows)
    stopping = replace(outline, edges=edges)
    bins = stopping.bins(rows.states)
    policies = list[Policy]()
    decisions = induced(bins, rows.losses, rows.weight, np.diff(spent), prices)
    for price, goes in zip(prices, decisions, strict=True):
        ends = stops(goes, bins)
        cost, loss, _ = means(rows, spent, ends).tolist()
        digits = [np.where(of_stage, "1", "0") for of_stage in goes]
        texts = tuple(map("".join, digits))
        policies.append(Policy(price, cost, loss, texts))
    for prefix in range(1, len(spent)):
        cost, loss, _ = means(rows, spent, prefix).tolist()
        texts = ()
        for stage, of_stage in enumerate(edges):
            digit = "1" if stage < prefix else "0"
            texts = *texts, digit * (len(of_stage) + 1)
        policies.append(Policy(None, cost, loss, texts, prefix))
    return replace(stopping, policies=tuple(policies))


def means(rows: StagedRows, spent: Sequence[float], stage: np.ndarray | int) -> np.ndarray:
    """Return mean cost, loss and accuracy of rows that stop at stages, or all at one."""
    cost = np.broadcast_to(np.array(spent)[stage], rows.weight.shape)
    each = np.array([cost, *rows.at(stage)])
    return np.asarray((each * rows.weight).sum(axis=1) / rows.weight.sum())


def prices_for(rows: StagedRows, spent: Sequence[float]) -> list[float]:
    """Return prices from one at which no row pays for anything down to 0."""
    steps = np.diff(spent)
    if not (steps > 0).any() or not rows.losses.any():
        return [0.0]
    most = 2.0 * rows.losses.max() / steps[steps > 0].min()
    least = _LEAST_PRICE * np.average(rows.losses[0], weights=rows.weight) / spent[-1]
    return [*np.geomspace(most, least, _N_PRICES).tolist(), 0.0]


def on_hull(stopping: Stopping, rows: StagedRows, recommended: int) -> Stopping:
    """Keep the policies of the lower hull, and choose the default one on these rows.

    One that buys nothing is not part of the hull, and always kept: some mean budgets buy nothing.
    """
    nothing = [policy for policy in stopping.policies if not policy.buys][:1]
    most = min((policy.loss for policy in nothing), default=np.inf)
    buying = [policy for policy in stopping.policies if policy.loss < most]
    costs = np.array([policy.mean_cost for policy in buying])
    losses = np.array([policy.loss for policy in buying])
    kept = (*nothing, *(buying[point] for point in lower_hull(costs, losses)))
    bins = stopping.bins(rows.states)
    ends = np.array([stops(policy.decisions, bins) for policy in kept])
    default = first_as_good(rows, rows.at(ends)[0] - rows.losses[recommended])
    return replace(stopping, policies=kept, default=default)


def first_as_good(rows: StagedRows, differences: np.ndarray) -> int:
    """Return the first of L policies that loses no more than a prefix, or the last.

    `differences` (L, n) are the losses of rows less those by the prefix.
    """
    folds = np.unique(rows.fold)
    weights = np.array([np.where(rows.fold == fold, rows.weight, 0.0) for fold in folds])
    totals = weights.sum(axis=1)
    gaps = over_folds(differences @ weights.T / totals, totals)
    slack = _AS_GOOD * np.average(rows.losses[0], weights=rows.weight)
    is_as_good = gaps.mean <= np.fmax(gaps.standard_error, slack)
    return int(is_as_good.argmax()) if is_as_good.any() else len(differences) - 1


@dataclass(frozen=True, eq=False)
class Claim:
    """What stopping is worth: mean cost, loss and accuracy on folds.

    Losses and accuracies are of policies that were found, and chosen, without the fold.

    Attributes
    ----------
    prefixes, policies : FoldMeans of shape (M, 3), (L, 3)
        Of each stage for all rows, and of the policy of each price.
    default : FoldMeans of shape (3,)
        Of the default policy.
    gain : FoldMeans of shape ()
        What its loss is less than that of prefixes, mixed by chance, of the same mean cost.
    """

    prefixes: FoldMeans
    policies: FoldMeans
    default: FoldMeans
    gain: FoldMeans


def find_stopping(rows: StagedRows, outline: Stopping, recommended: int) -> tuple[Stopping, Claim]:
    """Find policies on out-of-fold predictions; what they are worth, folds say that chose none.

    `recommended` is the stage that the default policy is compared with.
    """
    prices = prices_for(rows, outline.spent)
    final = policies_on(rows, outline, prices)
    final = on_hull(final, rows, recommended)
    by_fold = []
    weights = []
    for fold in np.unique(rows.fold):
        held_out = rows.taken(rows.fold == fold)
        train = rows.taken(rows.fold != fold)
        weight = held_out.weight.sum()
        if weight > 0 and train.weight.sum() > 0:
            nested = policies_on(train, outline, prices)
            figures = _on_fold(final, nested, train, held_out, recommended)
            by_fold.append(figures)
            weights.append(weight)
    stacked = [np.stack(figures, axis=-1) for figures in zip(*by_fold, strict=True)]
    return final, Claim(*(over_folds(figures, weights) for figures in stacked))


def _on_fold(
    final: Stopping, nested: Stopping, train: StagedRows, held_out: StagedRows, recommended: int
) -> tuple[np.ndarray, ...]:
    """Return what a `Claim` has the means of over folds, of one; `nested` is found without it."""
    spent = np.array(final.spent)
    without = measured(nested, held_out)
    kept = measured(final, held_out)
    policies = []
    for policy in final.policies:
        key = policy.key
        # Costs are those of the policies that are kept: no outcome decides about them.
        policies.append([kept[key][0], *without[key][1:]])
    chosen = on_hull(nested, train, recommended)
    key = chosen.policies[chosen.default].key
    cost, loss, accuracy = without[key]
    default = np.array([policies[final.default][0], loss, accuracy])
    prefixes = np.array([means(held_out, final.spent, stage) for stage in range(len(spent))])
    # Which prefixes to mix, other rows have said.
    hull = lower_hull(spent, np.average(train.losses, axis=1, weights=train.weight))
    mixed_loss = np.interp(cost, spent[hull], prefixes[hull, 1])
    return prefixes, np.array(policies), default, mixed_loss - loss


def measured(stopping: Stopping, rows: StagedRows) -> dict[Any, np.ndarray]:
    """Return what policies are measured by on rows, by price or prefix."""
    bins = stopping.bins(rows.states)
    measures = {}
    for policy in stopping.policies:
        ends = policy.prefix or stops(policy.decisions, bins)
        measures[policy.key] = means(rows, stopping.spent, ends)
    return measures
