import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.residual import CRITERIA, ResidualGram, make_criterion
from tests.reference.sequence import correlated, make_problem, standardised, value


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
        for g in set(range(6)) - set(done):
            expected = value(rule, Z, T, columns, groups[g], ridge)
            assert found[g] == pytest.approx(expected, rel=1e-7, abs=1e-12)
        if group is not None:
            state.select(group)
            done.append(group)


def test_unknown_rules_are_refused():
    X, Y, groups = correlated(np.random.default_rng(1), 30, [1, 1])
    problem = make_problem(X, Y, groups)
    with pytest.raises(SpecError, match="'lars' is none of omp, fr"):
        make_criterion("lars", ResidualGram(problem.gram, problem.target, groups))
