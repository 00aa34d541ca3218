from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import lars_path_gram

from distfms.methods.multiselect.baselines import (
    K,
    copies,
    lasso,
    lasso_supports,
    single_attribute,
    supports_of,
)
from distfms.solve.buying import Problem, full_objective
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_judgments, random_problem, statistics


def learned(judgments, label, costs=1.0):
    """The problem and the estimates of some objects."""
    estimates = statistics(judgments, label).estimates()
    return Problem.from_estimates(estimates, costs=costs), estimates


@pytest.mark.parametrize("seed", range(4))
def test_copies_is_forward_selection_on_single_judgments_in_fixed_order(seed):
    """Column a·k + c is judgment c of attribute a; judgments are exchangeable."""
    k = K
    judgments, label, _ = random_judgments(seed, k=k)
    problem, estimates = learned(judgments, label)
    single = np.kron(estimates.external, np.ones((k, k))) + np.diag(np.repeat(estimates.v, k))
    b = np.repeat(estimates.b, k)

    def explained(columns):
        return float(b[columns] @ np.linalg.solve(single[np.ix_(columns, columns)], b[columns]))

    chosen = []
    path = copies(problem, estimates, 7)
    for objective in path.objective:
        free = [c for c in range(b.size) if c not in chosen and (c % k == 0 or c - 1 in chosen)]
        chosen.append(max(free, key=lambda c: explained([*chosen, c])))
        assert objective == pytest.approx(explained(chosen), rel=1e-10)
    assert path.attributes.tolist() == [column // k for column in chosen]
    whole = copies(problem, estimates, 1000)
    assert whole.final_repeats.tolist() == [k] * 5
    assert whole.status == "no_positive_gain"
    # All copies of all objects are what was averaged.
    residual = literal.residual_variance(judgments.mean(axis=2), label)
    assert whole.label_variance - whole.objective[-1] == pytest.approx(residual, rel=1e-9)


def test_single_attribute_spends_everything_on_one():
    problem = random_problem(2, d=3, costs=[1.0, 4.0, 1.0], names=("x", "guess", "z"))
    path = single_attribute(problem, "guess", 11)
    assert path.final_repeats.tolist() == [0, 2, 0]
    assert path.status == "unaffordable"
    assert single_attribute(problem, "guess", 12).status == "budget_spent"
    assert single_attribute(problem, "x", 3).final_repeats.tolist() == [3, 0, 0]
    assert single_attribute(problem, "guess", 3).n_steps == 0
    for step in (1, 2):
        expected = full_objective(problem, path.repeats_after(step))
        assert path.objective[step - 1] == pytest.approx(expected)


@pytest.mark.parametrize("n_rows", [60, 9])  # fewer rows than columns: a singular matrix
@pytest.mark.parametrize("seed", range(4))
def test_supports_of_the_lasso_are_those_of_scikit_learn(seed, n_rows):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 12)) @ (np.eye(12) + 0.5 * rng.normal(size=(12, 12)))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    gram = rows.T @ rows / n_rows
    target = rows.T @ rng.normal(size=n_rows) / n_rows
    _, _, weights = lars_path_gram(target, gram, n_samples=1, method="lasso", alpha_min=1e-3)
    used = (np.abs(weights) > 1e-12).T
    expected = [set(np.flatnonzero(a | b)) for a, b in pairwise(used)]
    found = map(set, lasso_supports(gram, 1e-9 * target, 12))  # whatever the label's unit
    assert len(expected) >= 8
    assert all(support in found for support in expected[:8])  # in this order
    # Columns that are equal but for their sign share one place.
    twice = np.block([[gram, -gram], [-gram, gram]])
    found = ({a % 12 for a in s} for s in lasso_supports(twice, np.append(target, -target), 24))
    assert all(support in found for support in expected[:8])
    assert max(map(len, lasso_supports(gram, target, 3))) == 3
    assert list(lasso_supports(gram, np.zeros(12), 3)) == []


def test_the_lasso_buys_nothing_where_no_support_can_be_paid():
    judgments, label, _ = random_judgments(0)
    problem, estimates = learned(judgments, label, 2.0)
    assert lasso(problem, supports_of(problem, estimates), 1.0).n_steps == 0
