import numpy as np
import pytest

from distfms.errors import DataError
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import FeatureGroups, problem_from_comoments
from distfms.solve.costs import GroupCosts
from distfms.stats.comoments import CoMoments
from tests.reference.sequence import comoments, correlated, make_problem

SIZES = [2, 1, 3, 2]


@pytest.fixture
def data():
    X, Y, groups = correlated(np.random.default_rng(7), 300, SIZES, n_targets=2)
    return X, Y, groups


def test_constant_columns_and_groups_are_left_out_and_named(data):
    X, Y, _ = data
    X = np.column_stack((X[:, 0], np.full(300, 1e8), X[:, 1], np.zeros(300), X[:, 2]))
    path = sequence(make_problem(X, Y, [[0, 1], [3], [2, 4]], costs=[1, 2, 4]))
    assert sorted(path.groups) == ["g0", "g2"]
    assert path.columns[path.groups.index("g0")] == ("x0",)
    assert path.spent[-1] == 5
    notes = path.outline.notes()
    assert "x1, x3" in notes[0]
    assert "g1" in notes[1]
    assert path.notes == ()
    assert path.prefix_models().coefficients.shape == (3, 5, 2)
    path.held_out(comoments(X, Y))


def test_affordable_prefix():
    X, Y, groups = correlated(np.random.default_rng(0), 50, [1, 1, 1])
    path = sequence(make_problem(X, Y, groups, GroupCosts(np.array([0.1, 0.2, 0.3]))))
    assert [path.affordable(b) for b in (0.0, path.cost[0] - 1e-6, 5)] == [0, 0, 3]
    assert path.affordable(0.6) == 3  # 0.1 + 0.2 + 0.3 is 0.6000000000000001


def test_what_cannot_be_a_problem_is_refused(data):
    X, Y, groups = data
    posed = {
        "feature_names": [f"x{i}" for i in range(8)], "target_names": ["a", "b"],
        "groups": FeatureGroups(("a", "b", "c", "d"), tuple(map(tuple, groups))),
        "costs": GroupCosts(np.ones(4)),
    }  # fmt: skip
    for statistics, message in (
        (CoMoments.empty(10), "no training rows"),
        (comoments(X, np.column_stack((Y[:, 0], np.ones(300)))), "'b' is constant"),
        (comoments(np.ones_like(X), Y), "Every feature column is constant"),
    ):
        with pytest.raises(DataError, match=message):
            problem_from_comoments(statistics, **posed)
    with pytest.raises(DataError, match="no held-out rows"):
        sequence(make_problem(*data)).held_out(CoMoments.empty(10))
