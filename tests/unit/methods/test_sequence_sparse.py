import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import GroupCosts, SharedCost
from distfms.methods.sequence.sparse import TOLERANCE, sparse_order, sparse_path
from tests.reference.sequence import correlated, group_lasso, make_problem, standardised

SIZES = [2, 1, 3, 2, 2]
COSTS = [1.0, 2.0, 0.5, 3.0, 1.0]


def case(seed=0, n_targets=1, costs=None, n=400):
    X, Y, groups = correlated(np.random.default_rng(seed), n, SIZES, n_targets=n_targets)
    costs = GroupCosts(np.array(COSTS)) if costs is None else costs
    return X, Y, groups, make_problem(X, Y, groups, costs)


def norms(problem, weights):
    return np.array([np.linalg.norm(weights[list(g)]) for g in problem.groups.columns])


def excess(problem, penalty, weights):
    """By how much the first-order conditions fail, as a share of each group's penalty."""
    residual = problem.target - problem.gram @ weights
    worst = 0.0
    for group, cost in zip(problem.groups.columns, problem.costs.alone, strict=True):
        own, kappa = list(group), penalty * cost
        norm = np.linalg.norm(weights[own])
        if norm:
            off = np.linalg.norm(residual[own] - kappa * weights[own] / norm)
        else:
            off = max(np.linalg.norm(residual[own]) - kappa, 0.0)
        worst = max(worst, off / kappa)
    return worst


@pytest.mark.parametrize("n_targets", [1, 3])
def test_weights_are_those_of_proximal_gradients_on_the_rows(n_targets):
    X, Y, groups, problem = case(0, n_targets)
    Z, y = standardised(X), standardised(Y)
    top = next(penalty for penalty, _ in sparse_path(problem))
    n_zero = []
    for penalty, weights in sparse_path(problem, top * np.array([0.8, 0.3, 0.05, 0.001])):
        expected = group_lasso(Z, y, groups, penalty * problem.costs.alone)
        np.testing.assert_allclose(weights, expected, atol=1e-8)
        n_zero.append(int((norms(problem, weights) == 0).sum()))
    assert 0 < n_zero[1] < 5


@pytest.mark.parametrize("n_free", [0, 1, 4])
def test_columns_that_are_combinations_of_few_others_have_an_order(n_free):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 14))
    Y = X[:, :1] + 0.5 * rng.normal(size=(100, 1))
    costs = np.array([0.0] * n_free + [1e-6, 1.0, 1e6, 1.0, 1e-6] * 3)[:14]
    problem = make_problem(X, Y, [[c] for c in range(14)], GroupCosts(costs))
    order = sparse_order(problem)
    assert sorted(order) == list(range(14))
    assert sorted(order[:n_free]) == list(range(n_free))
    if n_free == 4:  # which explain all others
        assert not any(weights[n_free:].any() for _, weights in sparse_path(problem))


def test_weights_are_those_of_celer_on_the_rows():
    celer = pytest.importorskip("celer")
    X, Y, groups, problem = case()
    top = next(penalty for penalty, _ in sparse_path(problem))
    penalties = top * np.array([0.8, 0.3, 0.05])
    _, rows, _ = celer.celer_path(
        np.asfortranarray(standardised(X)), standardised(Y)[:, 0], pb="grouplasso", groups=groups,
        weights=problem.costs.own, alphas=penalties, tol=1e-15, max_iter=100,
    )  # fmt: skip
    found = np.stack([weights[:, 0] for _, weights in sparse_path(problem, penalties)])
    np.testing.assert_allclose(found, rows.T, atol=1e-9)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 2), st.sampled_from([0.0, 1e-6, 1e-2]))
def test_solutions_are_optimal_all_along_the_path(seed, n_targets, noise):
    """Also with groups that repeat each other, and with fewer rows than columns."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([6, 30, 300]))
    X, Y, groups = correlated(rng, n, [2, 1, 3, 2], n_targets=n_targets, near_duplicates=noise)
    problem = make_problem(X, Y, groups, rng.uniform(0.1, 10, 4))
    for penalty, weights in sparse_path(problem):
        # Rounding of Gram and target is what is left of conditions at the end of the path.
        assert excess(problem, penalty, weights) < 10 * TOLERANCE


def test_at_the_first_penalty_nothing_has_entered_and_at_the_next_something():
    *_, problem = case(4)
    (first, none), (second, some), *_ = sparse_path(problem)
    assert second < first
    assert not none.any()
    assert (norms(problem, some) > 0).sum() == 1


def test_columns_of_groups_may_be_anywhere():
    X, Y, groups, problem = case(5)
    shuffled = np.random.default_rng(0).permutation(10)
    place = np.argsort(shuffled)
    moved = make_problem(X[:, shuffled], Y, [sorted(place[g].tolist()) for g in groups], COSTS)
    assert sparse_order(moved) == sparse_order(problem)
    penalties = [0.2, 0.01]
    for (_, a), (_, b) in zip(
        sparse_path(problem, penalties), sparse_path(moved, penalties), strict=True
    ):
        np.testing.assert_allclose(b[place], a, atol=1e-9)


def test_order_is_that_of_entry():
    *_, problem = case(1)
    order = sparse_order(problem)
    assert sorted(order) == list(range(5))
    entered = np.array([norms(problem, weights) > 0 for _, weights in sparse_path(problem)])
    assert (np.diff(entered.argmax(axis=0)[order]) >= 0).all()
    evaluated = sequence(problem, "given", order=order)
    assert evaluated.curve_value[-1] == pytest.approx(sequence(problem).curve_value[-1])


def test_groups_entering_together_go_by_norm_per_cost():
    *_, problem = case(2)
    path = list(sparse_path(problem))
    entry = np.array([norms(problem, w) > 0 for _, w in path]).argmax(axis=0)
    order = sparse_order(problem)
    together = 0
    for at in np.unique(entry):
        own = [g for g in order if entry[g] == at]
        strength = (norms(problem, path[at][1]) / problem.costs.own)[own]
        assert strength.tolist() == sorted(strength, reverse=True)
        together += len(own) - 1
    assert together


def test_a_group_that_never_enters_comes_last():
    X, Y, groups, _ = case(6)
    rest = X - X.mean(axis=0)
    outside = np.random.default_rng(1).standard_normal(len(X))
    for known in (np.ones((len(X), 1)), rest, Y - Y.mean(axis=0)):
        outside -= known @ np.linalg.lstsq(known, outside, rcond=None)[0]
    problem = make_problem(
        np.column_stack((outside, X)), Y, [[0], *[[c + 1 for c in g] for g in groups]]
    )
    assert sparse_order(problem)[-1] == 0


def test_a_dear_group_enters_later():
    *_, cheap = case(2, costs=GroupCosts(np.ones(5)))
    first = sparse_order(cheap)[0]
    shared = (SharedCost("kit", (first,), 50.0),)
    *_, dear = case(2, costs=GroupCosts(np.ones(5), shared))
    assert sparse_order(dear)[0] != first


def test_what_costs_nothing_has_no_penalty():
    costs = np.array([0.0, 2.0, 0.5, 0.0, 1.0])
    X, Y, groups, problem = case(3, costs=GroupCosts(costs))
    Z, y = standardised(X), standardised(Y)
    own = [c for g in np.flatnonzero(costs) for c in groups[g]]
    free = [c for g in np.flatnonzero(costs == 0) for c in groups[g]]
    project = np.eye(len(Z)) - Z[:, free] @ np.linalg.pinv(Z[:, free])
    edges = np.cumsum([0, *(len(groups[g]) for g in np.flatnonzero(costs))])
    inside = [list(range(a, b)) for a, b in itertools.pairwise(edges.tolist())]
    for penalty, weights in sparse_path(problem, [0.1, 0.01]):
        kappa = penalty * costs[costs > 0]
        expected = group_lasso(project @ Z[:, own], project @ y, inside, kappa)
        np.testing.assert_allclose(weights[own], expected, atol=1e-8)
        residual = problem.target - problem.gram @ weights
        np.testing.assert_allclose(residual[free], 0, atol=1e-12)
    assert set(sparse_order(problem)[:2]) == {0, 3}


def test_without_any_cost_all_groups_are_penalised_alike():
    *_, problem = case(3, costs=GroupCosts(np.zeros(5)))
    *_, same = case(3, costs=GroupCosts(np.ones(5)))
    assert sparse_order(problem) == sparse_order(same)


def test_a_group_that_is_there_twice_shares_its_weights():
    X, Y, groups, problem = case(7)
    X = np.column_stack((X, X[:, groups[0]]))
    twice = make_problem(X, Y, [*groups, [10, 11]], [*COSTS, COSTS[0]])
    for (_, weights), (_, once) in zip(sparse_path(twice), sparse_path(problem), strict=True):
        both = weights[:10].copy()
        both[groups[0]] += weights[10:]
        np.testing.assert_allclose(both, once, atol=1e-7)
