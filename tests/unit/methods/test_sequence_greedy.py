import itertools

import numpy as np
import pytest

from distfms.methods.sequence.evaluate import budget_ladder
from distfms.methods.sequence.greedy import best_set, sequence
from distfms.solve.cholesky import CRITERIA
from distfms.solve.costs import GroupCosts, SharedCost
from tests.reference.sequence import (
    correlated,
    explained,
    literal_sequence,
    make_problem,
    standardised,
)

SIZES = [2, 1, 3, 2, 4, 1]


def problem_and_rows(seed, *, ridge=0.0, costs=None, sizes=SIZES, n=150, **options):
    rng = np.random.default_rng(seed)
    X, Y, groups = correlated(rng, n, sizes, **options)
    if costs is None:
        costs = GroupCosts(rng.uniform(0.5, 6.0, len(sizes)))
    problem = make_problem(X, Y, groups, costs, ridge)
    return problem, standardised(X), standardised(Y), groups


@pytest.mark.parametrize("rule", CRITERIA)
@pytest.mark.parametrize(("ridge", "n_targets"), [(0.0, 1), (1e-5, 3), (0.3, 1)])
@pytest.mark.parametrize("cost_aware", [True, False])
def test_same_sequence_as_refitting_on_the_rows(rule, ridge, n_targets, cost_aware):
    for seed in range(3):
        problem, X, Y, groups = problem_and_rows(seed, ridge=ridge, n_targets=n_targets)
        literal = literal_sequence(
            rule, X, Y, groups, lambda s, g, c=problem.costs: c.own[g], ridge,
            cost_aware=cost_aware,
        )  # fmt: skip
        path = sequence(problem, rule, cost_aware=cost_aware)
        assert path.order.tolist() == literal.order
        np.testing.assert_allclose(path.gain, literal.gains, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(path.spent, np.cumsum(literal.costs))


@pytest.mark.parametrize("cost_aware", [True, False])
def test_known_gains_are_taken_per_cost_as_shared_costs_fall_due(cost_aware):
    shared = (SharedCost("needle", (1, 3, 4), 5.0),)
    costs = GroupCosts(np.array([2.0, 1.0, 3.0, 1.5, 0.5, 0.0]), shared)
    problem, *_ = problem_and_rows(4, costs=costs)
    gains = [6.0, 9.0, 1.0, 4.0, 2.0, 0.0]
    order = [5]  # what is free comes first
    while len(order) < len(gains):
        prices = costs.marginal(order) if cost_aware else np.ones(len(gains))
        excluded = [g for g in range(len(gains)) if g not in order]
        order.append(max(excluded, key=lambda g: gains[g] / prices[g]))
    path = sequence(problem, "gain", gains=gains, cost_aware=cost_aware)
    assert path.order.tolist() == order
    # What the groups explain is what they explain in this order.
    given = sequence(problem, "given", order=order)
    np.testing.assert_array_equal(path.curve_value, given.curve_value)


def test_no_whiten_overrates_copies_and_omp_does_not():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2000, 3))
    y = x @ [0.8, 1.0, 1.0] + 0.1 * rng.standard_normal(2000)
    X = np.column_stack((x[:, 0], x[:, 0], x[:, 0], x[:, 0], x[:, 1:]))
    problem = make_problem(X, y[:, None], [[0, 1, 2, 3], [4, 5]])
    assert sequence(problem, "omp").order.tolist() == [1, 0]
    assert sequence(problem, "omp-no-whiten").order.tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(6))
def test_rules_break_ties_by_the_lowest_index(seed):
    """Rounding decides neither among copies in other units, nor among what copies leave."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((50, 2))
    copies = x[:, :1] * rng.uniform(0.1, 9.0, 5) + rng.uniform(0.1, 9.0, 5)
    X = np.column_stack((x[:, 1], copies))
    problem = make_problem(X, 5 * x[:, :1] + x[:, 1:], [[c] for c in range(6)])
    for rule in CRITERIA:
        assert sequence(problem, rule).order.tolist() == [1, 0, 2, 3, 4, 5]


@pytest.mark.parametrize("rule", ["fr", "omp"])
def test_doubling_is_algorithm_2(rule):
    capable = set()
    for seed in range(8):
        costs = np.random.default_rng(seed).choice([1.0, 1.0, 2.0, 3.5, 8.0], len(SIZES))
        problem, X, Y, groups = problem_and_rows(seed, ridge=1e-5, costs=GroupCosts(costs))
        literal = literal_sequence(
            rule, X, Y, groups, lambda s, g, c=problem.costs: c.own[g], 1e-5, doubling=True
        )
        path = sequence(problem, rule, doubling=True)
        assert path.order.tolist() == literal.order
        within = path.cost[1:] <= path.spent[:-1] * (1 + 1e-12)
        assert (not path.notes) == within.all()
        assert len(path.notes) == np.count_nonzero(~within)
        capable.add(not path.notes)
    assert capable == {True, False}  # the seeds show both


# --- a budget -----------------------------------------------------------------------------------


def test_a_budget_pays_for_costs_that_add_up_to_it_but_for_rounding():
    problem, *_ = problem_and_rows(0, costs=GroupCosts(np.array([0.1, 0.1, 0.1, 9, 9, 9])))
    assert len(sequence(problem, budget=0.3)) == 3


@pytest.mark.parametrize(
    ("kind", "n_targets"), [("regular", 1), ("near duplicates", 2), ("singular", 1)]
)
def test_sets_of_all_budgets_against_all_sets(kind, n_targets):
    rng = np.random.default_rng(n_targets)
    near = 0.01 if kind == "near duplicates" else None
    X, Y, groups = correlated(
        rng, 150, [2, 1, 3, 1, 2, 1, 2], n_targets=n_targets, near_duplicates=near
    )
    if kind == "singular":
        X[:, groups[-1]] = X[:, groups[0]]
    shared = (SharedCost("a", (0, 2, 5), 3.0), SharedCost("b", (4, 5), 1.5))
    costs = GroupCosts(rng.choice([1.0, 1.5, 2.0, 5.0, 9.0], 7), shared)
    problem = make_problem(X, Y, groups, costs)
    values = _values_of_all_sets(standardised(X), standardised(Y), groups)
    for budget in sorted({costs.total(own) for own in values})[::3]:
        path = best_set(problem, budget)
        own = frozenset(path.order.tolist())
        value = path.gain.sum()
        greedy = [sequence(problem, cost_aware=a, budget=budget) for a in (True, False)]
        assert path.curve_cost[-1] == pytest.approx(costs.total(own))
        assert costs.total(own) <= budget + 1e-9
        assert value == pytest.approx(values[own], rel=1e-6)
        assert value >= max(one.gain.sum() for one in greedy)
        affordable = {s for s in values if costs.total(s) <= budget}
        best = max(values[s] for s in affordable)
        assert value >= 0.99 * best


def test_of_many_groups_single_ones_are_exchanged_while_that_gains():
    sizes = [1] * 30
    X, Y, groups = correlated(np.random.default_rng(3), 100, sizes)
    problem = make_problem(X, Y, groups, np.random.default_rng(4).uniform(1, 9, 30))
    budget = 0.3 * problem.costs.own.sum()
    path = best_set(problem, budget)
    greedy = [sequence(problem, cost_aware=a, budget=budget).gain.sum() for a in (True, False)]
    assert path.gain.sum() > max(greedy) * (1 + 1e-4)
    own = path.order.tolist()
    cost = problem.costs.own
    for place, inside in enumerate(own):
        for other in set(range(30)) - set(own):
            if path.spent[-1] - cost[inside] + cost[other] <= budget:
                after = sequence(problem, "given", order=[*own[:place], *own[place + 1 :], other])
                assert after.gain.sum() <= path.gain.sum() * (1 + 1e-5)


def _values_of_all_sets(X, Y, groups):
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(len(groups)), k) for k in range(len(groups) + 1)
    )
    columns = {frozenset(s): [c for g in s for c in groups[g]] for s in subsets}
    return {s: explained(X, Y, own, 0.0) if own else 0.0 for s, own in columns.items()}


def test_a_set_of_few_groups_and_a_given_order_keep_to_their_limits():
    problem, *_ = problem_and_rows(0, costs=GroupCosts(np.array([10.0, 0.5, 1, 1, 1, 1])))
    assert len(best_set(problem, 100.0, max_groups=2)) == 2
    assert sequence(problem, "given", order=[0, 1], budget=5.0).order.tolist() == [1]
    assert len(best_set(problem, 0.2)) == 0


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ([1, 1, 11.41, 14.51, 22.78], [1, 2, 4, 14.51, 22.78, 32]),
        ([3, 3], [3]),
        ([0, 0], []),
        ([0, 5], []),
    ],
)
def test_the_ladder_of_budgets_has_the_prices_of_groups(prices, expected):
    assert budget_ladder(GroupCosts(np.array(prices, dtype=float))) == tuple(expected)
