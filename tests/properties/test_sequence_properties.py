"""What holds for every sequence, whatever the data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.methods.sequence.evaluate import oracle_curve, timeliness
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.sparse import lasso_of, lasso_path
from distfms.solve.cholesky import CRITERIA
from distfms.solve.costs import GroupCosts, SharedCost
from tests.reference.sequence import (
    correlated,
    explained,
    lasso_violation,
    make_problem,
    standardised,
)

FEW = settings(max_examples=25, deadline=None)


@st.composite
def cases(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    noise = draw(st.sampled_from([None, 1e-2, 1e-4]))
    X, Y, groups = correlated(
        rng, 60, sizes, n_targets=draw(st.sampled_from([1, 1, 2])), near_duplicates=noise
    )
    ridge = draw(st.sampled_from([0.0, 1e-5, 1e-2]))
    costs = rng.uniform(0.2, 5.0, len(sizes))
    shared = ()
    if draw(st.booleans()):
        members = tuple(np.flatnonzero(rng.random(len(sizes)) < 0.5).tolist())
        shared = (SharedCost("kit", members, 2.0),) if members else ()
    problem = make_problem(X, Y, groups, GroupCosts(costs, shared), ridge)
    return problem, standardised(X), standardised(Y), groups


@FEW
@given(cases(), st.sampled_from(CRITERIA), st.booleans())
def test_paths_are_whole_monotone_and_end_at_the_same_place(case, rule, doubling):
    problem, X, Y, groups = case
    path = sequence(problem, rule, doubling=doubling)
    assert sorted(path.order.tolist()) == list(range(len(groups)))
    assert (path.gain >= 0).all()
    assert path.curve_value[-1] <= 1 + 1e-12
    everything = explained(X, Y, range(X.shape[1]), problem.ridge)
    assert path.curve_value[-1] * Y.shape[1] / 2 == pytest.approx(everything, rel=1e-6, abs=1e-9)
    assert path.spent[-1] == pytest.approx(
        problem.costs.own.sum() + sum(s.cost for s in problem.costs.shared)
    )


@FEW
@given(cases())
def test_the_oracle_is_at_least_as_timely(case):
    path = sequence(case[0])
    cost, oracle = oracle_curve(path.curve_cost, path.curve_value)
    assert oracle[-1] == pytest.approx(path.curve_value[-1])
    mine = timeliness(path.curve_cost, path.curve_value)
    assert timeliness(cost, oracle) >= mine - 1e-9
    assert 0 <= mine <= 1


@FEW
@given(cases(), st.integers(0, 10**6))
def test_units_of_columns_and_costs_do_not_matter(case, seed):
    problem, X, Y, groups = case
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 3, X.shape[1])
    costs = GroupCosts(
        4.0 * problem.costs.own,
        tuple(SharedCost(s.name, s.groups, 4.0 * s.cost) for s in problem.costs.shared),
    )
    path = sequence(problem)
    moved = sequence(make_problem(X * scale + scale, -8 * Y + 1, groups, costs, problem.ridge))
    np.testing.assert_allclose(moved.curve_value[-1], path.curve_value[-1], rtol=1e-5)
    np.testing.assert_allclose(
        moved.gain[0] / moved.cost[0], path.gain[0] / path.cost[0] / 4, rtol=1e-5
    )


@FEW
@given(cases(), st.floats(1e-4, 1.5), st.floats(1e-3, 1e3))
def test_group_lasso_is_optimal_and_counts_only_ratios_of_costs(case, share, factor):
    problem, X, Y, groups = case
    lasso = lasso_of(problem)
    nothing = np.zeros_like(lasso.target)
    first = lasso.entering_at(nothing).max()
    w, _ = lasso.solve(share * first, nothing)
    alone = problem.costs.alone.tolist()
    assert lasso_violation(X, Y, groups, alone, 2 * len(X) * share * first, w) <= 1e-8
    assert w.any() == (share < 1)
    dearer = replace(lasso, costs=lasso.costs * factor)
    again, _ = dearer.solve(share * first / factor, nothing)
    np.testing.assert_allclose(X @ again, X @ w, atol=1e-3)


@FEW
@given(cases())
def test_group_lasso_puts_every_group_in_order(case):
    problem = case[0]
    found = lasso_path(problem)
    assert sorted(found.order) == list(range(len(problem.groups)))
    assert found.violation <= 1e-8
    assert (np.diff(found.weights) <= 0).all()
    assert lasso_path(problem, 1).order == found.order[:1]
