from __future__ import annotations

import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.multiselect.baselines import refine, scoring_optimum
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.objective import Problem, full_objective, scoring_objective
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_problem


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("costs", [[3.0, 2.0, 5.0], [0.5, 1.5, 0.75], [1 / 3, 1.0, 0.5]])
def test_dynamic_programme_finds_the_brute_force_optimum(seed, costs):
    problem = random_problem(seed, d=3, costs=costs)
    budget = 11 * min(costs)
    best = literal.brute_force(lambda r: scoring_objective(problem, r), costs, budget)
    optimum = scoring_optimum(problem, budget)
    assert scoring_objective(problem, optimum) == pytest.approx(best, rel=1e-12)
    assert optimum @ problem.costs <= budget * (1 + 1e-9)


def test_greedy_meets_the_optimum_with_equal_costs_and_may_miss_it_otherwise():
    equal = random_problem(0, d=8, costs=0.1)
    assert scoring_objective(equal, scoring_optimum(equal, 3.0)) == pytest.approx(
        select(equal, 3.0, "scoring").objective[-1], rel=1e-12
    )
    # One dear attribute fills the budget; the cheap one goes first and leaves no room for it.
    problem = Problem.build([1.0, 0.6], [0.0, 0.0], np.eye(2), label_variance=2.0, costs=[4, 1])
    greedy = select(problem, 4.0, "scoring")
    optimum = scoring_optimum(problem, 4.0)
    assert optimum.tolist() == [1, 0]
    assert scoring_objective(problem, optimum) > greedy.objective[-1]


def test_optimum_ignores_what_explains_nothing():
    problem = Problem.build(
        [1.0, 0.0, 1.0], [0.0, 1.0, 0.0], np.diag([1.0, 1.0, 0.0]), label_variance=2.0
    )
    assert scoring_optimum(problem, 9).tolist() == [1, 0, 0]


def test_costs_that_are_no_fractions_and_tables_that_are_too_large():
    with pytest.raises(SpecError, match="no fraction"):
        scoring_optimum(random_problem(0, d=2, costs=[1.0, np.pi]), 5)
    with pytest.raises(SpecError, match="cells"):
        scoring_optimum(random_problem(0, d=2, costs=[0.0001, 1.0]), 1e6)


@pytest.mark.parametrize("algorithm", ["full", "scoring"])
@pytest.mark.parametrize("seed", range(6))
def test_refinement_never_lowers_the_objective_nor_exceeds_the_budget(algorithm, seed):
    costs = np.random.default_rng(seed).integers(1, 6, 6).astype(float)
    problem = random_problem(seed, costs=costs)
    objective = full_objective if algorithm == "full" else scoring_objective
    for start in (select(problem, 12, algorithm).final_repeats, np.array([1, 0, 0, 1, 0, 0])):
        refined = refine(problem, start, 12, algorithm)
        assert objective(problem, refined) >= objective(problem, start)
        assert refined @ costs <= 12
        assert refine(problem, refined, 12, algorithm).tolist() == refined.tolist()
        if algorithm == "scoring":
            optimum = scoring_objective(problem, scoring_optimum(problem, 12))
            assert objective(problem, refined) <= optimum * (1 + 1e-12)


def test_refinement_undoes_a_choice_that_two_later_ones_made_useless():
    """x2 = x0 + x1 and a little noise goes first; together x0 and x1 explain all."""
    mixing = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    external = mixing @ mixing.T + np.diag([0, 0, 0.3])
    b = mixing @ [1.0, 1.0]
    problem = Problem.build(b, np.zeros(3), external, label_variance=2.0)
    start = select(problem, 2).final_repeats
    assert start[2] == 1
    assert refine(problem, start, 2).tolist() == [1, 1, 0]


def test_refinement_finds_the_optimum_the_dynamic_programme_finds():
    problem = Problem.build([1.0, 0.6], [0.0, 0.0], np.eye(2), label_variance=2.0, costs=[4, 1])
    start = select(problem, 4.0, "scoring").final_repeats
    assert start.tolist() == [0, 1]
    assert refine(problem, start, 4.0, "scoring").tolist() == [1, 0]


def test_refinement_gives_back_all_judgments_of_an_attribute_at_once():
    """Giving back one of the three pays for nothing else; all three pay for the dear one."""
    problem = Problem.build([1.0, 0.8], [0.0, 0.9], np.eye(2), label_variance=2.0, costs=[3, 1])
    assert refine(problem, [0, 3], 3.0).tolist() == [1, 0]
