import numpy as np
import pytest

from distfms.methods.sequence import residual
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.residual import CRITERIA, ResidualGram, _whiteners
from tests.reference.sequence import correlated, make_problem, standardised, value


def state_of(p, criterion="omp-no-whiten"):
    return ResidualGram(p.gram, p.target, p.groups.columns, criterion, ridge=p.ridge)


def select(state, group):
    pivot = state.pivot(group)
    state.append(pivot)
    return pivot


def test_store_of_rows_grows_past_its_first_size():
    X, Y, groups = correlated(np.random.default_rng(0), 400, [3] * 50)
    p = make_problem(X, Y, groups)
    path = sequence(p, "fr")
    assert path.ranks[-1] == 150
    full = 0.5 * p.target[:, 0] @ np.linalg.solve(p.gram, p.target[:, 0])
    assert 0.5 * path.curve_value[-1] == pytest.approx(full, rel=1e-9)


def test_gains_and_selection_agree_on_what_is_dependent(monkeypatch):
    """A column within the tolerance of dependence counts in neither, whatever the route."""
    X, Y, groups = correlated(np.random.default_rng(2), 100, [2, 2, 1])
    X[:, 1] = X[:, 0] + 0.02 * X[:, 0].std() * np.random.default_rng(3).standard_normal(100)
    p = make_problem(X, Y, groups)
    monkeypatch.setattr(residual, "dependence_rtol", lambda n_columns: 1e-2)
    state = state_of(p, "fr")
    gains = state.values()
    pivot = select(state, 0)
    assert pivot.columns.tolist() == [0]
    assert gains[0] == pytest.approx(pivot.gain, rel=1e-9)
    assert gains[0] == pytest.approx(0.5 * p.target[0, 0] ** 2)


def test_a_share_of_what_a_column_has_with_the_ridge_is_left_to_dependent_ones(monkeypatch):
    X, Y, _ = correlated(np.random.default_rng(2), 100, [1])
    p = make_problem(np.column_stack((X, 2 * X)), Y, [[0], [1]], ridge=1.0)
    for rtol, n_columns in ((0.7, 1), (0.8, 0)):  # 3/4 of 2 is left
        monkeypatch.setattr(residual, "dependence_rtol", lambda n_columns, rtol=rtol: rtol)
        state = state_of(p)
        assert len(select(state, 0).columns) == 1
        assert len(state.pivot(1).columns) == n_columns


def test_directions_that_are_rounding_are_not_whitened():
    block = np.array([[[1.0, 1.0], [1.0, 1.0 + 4e-16]]])
    assert np.abs(_whiteners(block)).max() < 1.0


# --- criteria


@pytest.mark.parametrize("rule", CRITERIA)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("copies", [False, True])
def test_values_are_those_of_the_rows(rule, ridge, copies):
    X, Y, groups = correlated(np.random.default_rng(1), 120, [2, 3, 1, 3, 2, 2], n_targets=2)
    if copies:
        X[:, 4], X[:, 12] = X[:, 3], -2 * X[:, 11]
    problem = make_problem(X, Y, groups, ridge=ridge)
    state = state_of(problem, rule)
    Z, T = standardised(X), standardised(Y)
    done: list[int] = []
    for group in (3, 2, None):
        columns = [c for g in done for c in groups[g]]
        found = state.values()
        if rule == "fr":
            assert (found[done] == 0).all()
        for g in set(range(6)) - set(done):
            expected = value(rule, Z, T, columns, groups[g], ridge)
            assert found[g] == pytest.approx(expected, rel=1e-7, abs=1e-12)
        if group is not None:
            select(state, group)
            done.append(group)
