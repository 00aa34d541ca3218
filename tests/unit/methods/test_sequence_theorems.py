"""What the theorems promise of a sequence: γ, its factors, and what brute force says of them."""

import itertools
import math

import numpy as np
import pytest

from distfms.methods.sequence.options import parse_rule
from distfms.solve.costs import GroupCosts, SharedCost
from tests.reference.guarantee import gamma_of, guarantee
from tests.reference.sequence import (
    correlated,
    explained,
    make_problem,
    paper_gamma,
    search,
    standardised,
    whitened_rows,
)

COSTS = [1.0, 2.0, 1.0, 3.0]


def case(seed, sizes, costs=COSTS, ridge=1e-2):
    X, Y, groups = correlated(np.random.default_rng(seed), 80, sizes)
    return make_problem(X, Y, groups, costs, ridge), standardised(X), standardised(Y), groups


def of(problem, name):
    return guarantee(problem, search(problem, name), parse_rule(name))


@pytest.mark.parametrize("ridge", [0.0, 1e-5, 0.3])
def test_gamma_is_the_papers(ridge):
    """Of single columns, and of groups that are white."""
    problem, X, *_ = case(0, [1] * 4, ridge=ridge)
    for criterion in ("fr", "omp"):
        assert gamma_of(problem, criterion) == pytest.approx(paper_gamma(X, ridge))
    assert of(problem, "fr")["smallest_eigenvalue"] == pytest.approx(
        np.linalg.eigvalsh(X.T @ X / len(X))[0]
    )
    _, X, Y, groups = case(1, [2, 3, 1, 2])
    white = standardised(whitened_rows(X, groups))
    problem = make_problem(white, Y, groups, COSTS, ridge)
    for criterion in ("fr", "omp"):
        assert gamma_of(problem, criterion) == pytest.approx(paper_gamma(white, ridge))
    # Without a ridge whitening changes nothing.
    raw = make_problem(X, Y, groups, COSTS, 0.0)
    assert gamma_of(raw, "omp") == gamma_of(raw) == pytest.approx(paper_gamma(white, 0.0))


def test_factors_are_those_of_the_theorems():
    problem, *_ = case(0, [1] * 4)
    found, path = of(problem, "fr"), search(problem, "fr")
    gamma = found["gamma"]
    assert found["theorem"] == "3.2"
    for step, spent in zip(found["steps"], path.spent, strict=True):
        assert step["spent"] == spent
        assert step["of_same_cost"] == pytest.approx(1 - math.exp(-gamma))
        assert step["of_all_groups"] == pytest.approx(1 - math.exp(-gamma * spent / 7.0))
    found = of(problem, "fr-doubling")
    factor = 1 - math.exp(-(gamma**2) / (1 + gamma))
    assert found["theorem"] == "4.3"
    assert found["steps"][0]["of_quarter_cost"] is None  # B > c_min
    assert found["steps"][-1]["of_quarter_cost"] == pytest.approx(factor)


@pytest.mark.parametrize("shared", [(), (SharedCost("kit", (0, 1, 3), 4.0),)])
@pytest.mark.parametrize("rule", ["fr", "omp"])
def test_theorem_3_2_holds_by_brute_force(rule, shared):
    for seed, ridge in itertools.product(range(6), (0.0, 1e-2, 1.0)):
        costs = GroupCosts(np.array(COSTS), shared)
        problem, X, Y, groups = case(seed, [2, 1, 3, 1], costs, ridge)
        sets = itertools.chain.from_iterable(itertools.combinations(range(4), k) for k in range(5))
        table = {
            frozenset(s): explained(X, Y, [c for g in s for c in groups[g]], ridge) if s else 0.0
            for s in sets
        }
        path, found = search(problem, rule), of(problem, rule)
        assert 0 < found["gamma"] <= 1
        assert found["shared_by"] == (3 if shared else 1)
        for step, share in zip(found["steps"], path.curve_value[1:], strict=True):
            best = max(
                own for s, own in table.items() if costs.total(list(s)) <= step["spent"] + 1e-9
            )
            assert share / 2 > step["of_same_cost"] * best
            assert share / 2 > step["of_all_groups"] * table[frozenset(range(4))]


def test_dependent_columns_leave_no_guarantee_between_groups_but_within():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    X, Y = np.column_stack((x, 2 * x[:, 0])), x @ [[1.0], [2.0]]
    apart = make_problem(X, Y, [[0], [1], [2]])
    assert gamma_of(apart) == 0.0
    assert of(apart, "fr")["steps"][-1]["of_same_cost"] == 0.0
    together = make_problem(X, Y, [[0, 2], [1]])
    alone = make_problem(X[:, :2], Y, [[0], [1]])
    assert gamma_of(together) == pytest.approx(gamma_of(alone))


def test_there_is_none_where_no_theorem_applies():
    problem, *_ = case(0, [1] * 4)
    for name in ("omp-single", "omp-no-whiten", "fr-blind", "random"):
        assert of(problem, name) == {}
    even, *_ = case(0, [1] * 4, costs=[2.0] * 4)
    assert of(even, "fr-blind") == of(even, "fr")
    shared = (SharedCost("kit", (0, 1), 1.0),)
    tight = case(0, [1] * 4, costs=GroupCosts(np.ones(4), shared))[0]
    derived = case(0, [1] * 4, costs=GroupCosts(np.ones(4), shared, {0: (1,)}))[0]
    assert of(tight, "fr")["steps"][-1]["of_same_cost"] > 0
    assert of(tight, "fr-blind") == of(tight, "fr-doubling") == of(derived, "fr") == {}
    steep, *_ = case(0, [1] * 4, costs=[1.0, 5, 20, 80])
    assert of(steep, "fr-doubling") == {}  # not doubling capable
    free, *_ = case(0, [1] * 4, costs=[0.0, 5, 20, 80])
    assert of(free, "fr")["steps"][0]["of_same_cost"] == 0.0
