from __future__ import annotations

import numpy as np
import pytest

from distfms.methods.multiselect import guarantee as module
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.guarantee import guarantee
from distfms.methods.multiselect.objective import Problem
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_judgments, statistics

COSTS = (1.0, 2.0, 1.0, 1.5, 3.0)


def entry(seed, algorithm, budget, costs=1.0, scale=1.0, m=200):
    judgments, label, _ = random_judgments(seed, m=m)
    units = scale ** np.arange(5)[:, None]
    estimates = statistics(judgments * units, label).estimates()
    problem = Problem.from_estimates(estimates, costs=costs)
    repeats = select(problem, budget, algorithm).final_repeats
    return guarantee(problem, estimates, repeats, budget, 0.05, algorithm), problem, estimates


@pytest.mark.parametrize("costs", [1.0, COSTS])
@pytest.mark.parametrize("budget", [1, 3, 5, 20])
@pytest.mark.parametrize("algorithm", ["full", "scoring"])
@pytest.mark.parametrize("seed", range(3))
def test_the_entry_is_theorem_3_1(seed, algorithm, budget, costs):
    found, problem, estimates = entry(seed, algorithm, budget, costs)
    own = np.flatnonzero(problem.costs <= budget)
    unit = np.sqrt(estimates.external_variance + estimates.v)[own]
    external = estimates.external[np.ix_(own, own)] / np.outer(unit, unit)
    if algorithm == "scoring":
        external = np.diag(np.diag(external))
    exact = literal.theorem_lambda(external, problem.costs[own], budget)
    assert found["lambda_least"] - 1e-12 <= exact <= found["lambda_most"] + 1e-12
    if algorithm == "scoring" or problem.costs[own].sum() <= budget or budget == 1:
        assert found["lambda_most"] == pytest.approx(exact)
    B, d, m = int(budget / problem.costs.min()), own.size, 200
    assert (found["budget"], found["attributes"], found["objects"]) == (B, d, m)
    lam, variance = found["lambda_most"], problem.label_variance
    if lam <= 0:
        assert found["error"] is found["objects_needed"] is None
        return
    error = literal.theorem_error(algorithm, lam, B, d, m, 0.05)
    assert found["error"] == pytest.approx(variance * error)
    needed = literal.theorem_objects(algorithm, lam, B, d, 0.05)
    assert found["objects_needed"] == pytest.approx(needed)


def test_it_does_not_depend_on_the_units_of_the_data():
    found, scaled = (entry(0, "full", 3, scale=scale)[0] for scale in (1.0, 7.0))
    assert found == pytest.approx(scaled)


def test_a_matrix_too_large_is_bounded_from_above_only(monkeypatch):
    whole = entry(1, "full", 20)[0]
    monkeypatch.setattr(module, "MOST_EIGEN", 3)
    found = entry(1, "full", 20)[0]
    assert found["lambda_least"] is None
    assert found["lambda_most"] > whole["lambda_most"]
