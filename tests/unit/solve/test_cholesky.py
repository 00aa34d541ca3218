import numpy as np
import pytest

from distfms.methods.sequence.greedy import sequence
from distfms.solve import cholesky
from distfms.solve.cholesky import ForwardState, _whiteners
from tests.reference.sequence import correlated, make_problem


def test_store_of_rows_grows_past_its_first_size():
    X, Y, groups = correlated(np.random.default_rng(0), 400, [3] * 50)
    p = make_problem(X, Y, groups)
    path = sequence(p, "fr")
    assert path.ranks[-1] == 150
    full = 0.5 * p.target[:, 0] @ np.linalg.solve(p.gram, p.target[:, 0])
    assert 0.5 * path.curve_value[-1] == pytest.approx(full, rel=1e-9)


def test_a_share_of_what_a_column_has_with_the_ridge_is_left_to_dependent_ones(monkeypatch):
    X, Y, _ = correlated(np.random.default_rng(2), 100, [1])
    p = make_problem(np.column_stack((X, 2 * X)), Y, [[0], [1]], ridge=1.0)
    for rtol, n_columns in ((0.7, 1), (0.8, 0)):  # 3/4 of 2 is left
        monkeypatch.setattr(cholesky, "dependence_rtol", lambda n_columns, rtol=rtol: rtol)
        state = ForwardState(p.forward.shard)
        first = state.pivot(0)
        state.append(first)
        assert len(first.columns) == 1
        assert len(state.pivot(1).columns) == n_columns


def test_directions_that_are_rounding_are_not_whitened():
    block = np.array([[[1.0, 1.0], [1.0, 1.0 + 4e-16]]])
    assert np.abs(_whiteners(block)).max() < 1.0
