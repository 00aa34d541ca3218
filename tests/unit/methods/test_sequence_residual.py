import numpy as np
import pytest

from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.residual import CRITERIA, ResidualGram, make_criterion
from tests.reference.sequence import correlated, make_problem, standardised, value

SIZES = [2, 1, 3, 2, 3, 1, 2]


def problem(seed=0, ridge=1e-3, **options):
    X, Y, groups = correlated(np.random.default_rng(seed), 200, SIZES, **options)
    return make_problem(X, Y, groups, ridge=ridge)


def state_of(p, **options):
    return ResidualGram(p.gram, p.target, p.groups.columns, ridge=p.ridge, **options)


def test_pivots_add_up_to_the_factor_of_the_whole():
    p = problem()
    path = sequence(p, "fr")
    C = p.gram + p.ridge * np.eye(len(p.gram))
    S = path.support
    np.testing.assert_allclose(path.upper.T @ path.upper, C[np.ix_(S, S)], atol=1e-12)
    assert (np.tril(path.upper, -1) == 0).all()


def test_store_of_rows_grows_past_its_first_size():
    X, Y, groups = correlated(np.random.default_rng(0), 400, [3] * 50)
    p = make_problem(X, Y, groups)
    path = sequence(p, "fr")
    assert path.ranks[-1] == 150
    full = 0.5 * p.target[:, 0] @ np.linalg.solve(p.gram, p.target[:, 0])
    assert 0.5 * path.curve_value[-1] == pytest.approx(full, rel=1e-9)


def test_singular_blocks_among_regular_ones_of_one_size():
    rng = np.random.default_rng(1)
    X, Y, _ = correlated(rng, 100, [2, 2, 2, 2])
    X[:, 1] = -3 * X[:, 0]  # a group of rank one from the start
    X[:, 3] = X[:, 0] + 2 * X[:, 4]  # one that becomes it when 0 and 2 are in
    p = make_problem(X, Y, [[0, 1], [2, 3], [4, 5], [6, 7]])
    state = state_of(p, blocks=True)
    for group in (0, 2):
        gains = state.group_gains()
        for g in range(4):
            other = state_of(p)
            for done in (0, 2)[: (0, 2).index(group)]:
                other.select(done)
            if gains[g] > 0:
                assert gains[g] == pytest.approx(other.select(g).gain, rel=1e-9)
        state.select(group)
    assert len(state.select(1).columns) == 1
    assert state.rank == 4


def test_gains_and_selection_agree_on_what_is_dependent():
    """A column within the tolerance of dependence counts in neither, whatever the route."""
    X, Y, groups = correlated(np.random.default_rng(2), 100, [2, 2, 1])
    X[:, 1] = X[:, 0] + 0.02 * X[:, 0].std() * np.random.default_rng(3).standard_normal(100)
    p = make_problem(X, Y, groups)
    state = state_of(p, blocks=True, rtol=1e-2)
    gains = state.group_gains()
    pivot = state.select(0)
    assert pivot.columns.tolist() == [0]
    assert gains[0] == pytest.approx(pivot.gain, rel=1e-9)
    assert gains[0] == pytest.approx(0.5 * p.target[0, 0] ** 2)


# --- criteria


@pytest.mark.parametrize("rule", CRITERIA)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("copies", [False, True])
def test_values_are_those_of_the_rows(rule, ridge, copies):
    X, Y, groups = correlated(np.random.default_rng(1), 120, [2, 3, 1, 3, 2, 2], n_targets=2)
    if copies:
        X[:, 4], X[:, 12] = X[:, 3], -2 * X[:, 11]
    problem = make_problem(X, Y, groups, ridge=ridge)
    state = ResidualGram(problem.gram, problem.target, groups, ridge=ridge, blocks=True)
    values = make_criterion(rule, state)
    Z, T = standardised(X), standardised(Y)
    done: list[int] = []
    for group in (3, 2, None):
        columns = [c for g in done for c in groups[g]]
        found = values()
        if rule == "fr":
            assert (found[done] == 0).all()
        for g in set(range(6)) - set(done):
            expected = value(rule, Z, T, columns, groups[g], ridge)
            assert found[g] == pytest.approx(expected, rel=1e-7, abs=1e-12)
        if group is not None:
            state.select(group)
            done.append(group)
