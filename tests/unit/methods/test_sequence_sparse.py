import sys

import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.problem import GroupCosts, SharedCost
from distfms.methods.sequence.procedure import compress, sparse_path
from tests.reference.sequence import correlated, make_problem

SIZES = [2, 1, 3, 2, 2]


def case(seed=0, n_targets=1, costs=None):
    X, Y, groups = correlated(np.random.default_rng(seed), 400, SIZES, n_targets=n_targets)
    costs = GroupCosts(np.array([1.0, 2.0, 0.5, 3.0, 1.0])) if costs is None else costs
    return X, Y, groups, make_problem(X, Y, groups, costs)


@pytest.mark.parametrize(("singular", "rank"), [(False, 10), (True, 9)])
def test_compressed_rows_have_the_gram_and_the_products(singular, rank):
    X, Y, groups, _ = case()
    if singular:
        X[:, 4] = X[:, 0] - X[:, 3]
    problem = make_problem(X, Y, groups)
    R, z = compress(problem.gram, problem.target)
    assert R.shape == (rank, 10)
    np.testing.assert_allclose(R.T @ R, problem.gram, atol=1e-12)
    np.testing.assert_allclose(R.T @ z, problem.target, atol=1e-12)


@pytest.mark.parametrize("n_targets", [1, 2])
def test_solutions_are_optimal(n_targets):
    """First-order conditions of ½‖Y − Xw‖²/n + λ Σ c(g)‖w_g‖ on the statistics."""
    pytest.importorskip("celer")
    *_, groups, problem = case(3, n_targets)
    penalties = sparse_path(problem)[0][[0, 10, 20, 30]]
    _, coefficients, _ = sparse_path(problem, penalties, tol=1e-14)
    for penalty, w in zip(penalties, coefficients, strict=True):
        gradient = problem.target - problem.gram @ w
        for g, cost in zip(groups, problem.costs.own, strict=True):
            norm = np.linalg.norm(w[g])
            if norm == 0:
                assert np.linalg.norm(gradient[g]) <= penalty * cost * (1 + 1e-6)
            else:
                np.testing.assert_allclose(gradient[g], penalty * cost * w[g] / norm, atol=1e-6)


def entries(problem, coefficients):
    """First position at which each group is not 0; the number of penalties for others."""
    active = [coefficients[:, list(g)].any(axis=(1, 2)) for g in problem.groups.columns]
    return np.array([a.argmax() if a.any() else len(a) for a in active])


def test_order_is_that_of_entry_then_of_norm_per_cost():
    pytest.importorskip("celer")
    *_, problem = case(1)
    for penalties in (None, sparse_path(problem)[0][[0, 60]]):
        _, coefficients, order = sparse_path(problem, penalties, tol=1e-12)
        entry = entries(problem, coefficients)
        assert sorted(order.tolist()) == list(range(5))
        assert (np.diff(entry[order]) >= 0).all()
    together = [g for g in order if entry[g] == 1]
    norms = [
        np.linalg.norm(coefficients[1][list(problem.groups.columns[g])]) / problem.costs.own[g]
        for g in together
    ]
    assert len(together) > 1
    assert norms == sorted(norms, reverse=True)


def test_a_dear_group_enters_later():
    pytest.importorskip("celer")
    *_, cheap = case(2, costs=GroupCosts(np.ones(5)))
    first = sparse_path(cheap)[2][0]
    own = np.ones(5)
    shared = (SharedCost("kit", (int(first),), 50.0),)
    *_, dear = case(2, costs=GroupCosts(own, shared))
    assert sparse_path(dear)[2][0] != first


def test_without_celer_it_says_how_to_get_it(monkeypatch):
    *_, problem = case()
    monkeypatch.setitem(sys.modules, "celer", None)
    with pytest.raises(SpecError, match=r"distfms\[sparse\]"):
        sparse_path(problem)
