"""The baseline `sparse`: the group lasso's solutions, and the order in which groups enter."""

import numpy as np
import pytest

from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.sparse import KKT, lasso_of, lasso_path, sparse_sequence
from tests.reference.sequence import correlated, lasso_violation, make_problem, search, standardised

COSTS = [3.0, 1.0, 2.0, 0.5]


def case(seed, sizes=(2, 1, 3, 1), costs=COSTS, n=60, **more):
    rng = np.random.default_rng(seed)
    X, Y, groups = correlated(rng, n, list(sizes), **more)
    problem = make_problem(X, Y, groups, costs, ridge=1e-3)
    return problem, standardised(X), standardised(Y), groups


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("share", [0.7, 0.2, 0.03])
def test_solutions_are_those_of_the_paper_s_objective(share, n_targets):
    problem, X, Y, groups = case(1, n_targets=n_targets)
    lasso = lasso_of(problem)
    first = lasso.entering_at(np.zeros_like(lasso.target)).max()
    w, violation = lasso.solve(share * first, np.zeros_like(lasso.target))
    penalty = 2 * len(X) * share * first
    assert max(violation, lasso_violation(X, Y, groups, COSTS, penalty, w)) <= KKT


def test_the_path_is_a_sequence_refitted_like_others():
    problem, *_ = case(3)
    path = search(problem, "sparse")
    again = sequence(problem, "given", order=lasso_path(problem).order)
    np.testing.assert_array_equal(path.curve_value, again.curve_value)
    np.testing.assert_array_equal(path.curve_cost, again.curve_cost)
    short = search(problem, "sparse", max_groups=2)
    assert short.groups == path.groups[:2]


def test_groups_that_never_enter_come_last_with_a_note():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((80, 2))
    # A copy at a higher price is never worth it.
    problem = make_problem(
        np.column_stack((x[:, 0], x[:, 1], x[:, 0])), x @ [[2.0], [1.0]], [[0], [1], [2]], [1, 1, 2]
    )
    path = sparse_sequence(problem)
    assert path.groups[-1] == "g2"
    assert "1 of 3 groups did not enter" in path.notes[0]


def test_a_solution_that_is_cut_short_says_so(monkeypatch):
    monkeypatch.setattr("distfms.solve.group_lasso._MOST_ROUNDS", 1)
    found = lasso_path(case(1)[0])
    assert found.violation > KKT
    assert "did not converge" in found.notes()[-1]
