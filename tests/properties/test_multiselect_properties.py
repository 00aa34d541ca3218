import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.solve.buying import full_objective, scoring_objective
from distfms.solve.purchases import select
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import build_problem


@st.composite
def problems(draw, costs=(1.0,)):
    """Small integer-valued factors: duplicates, constants and dependencies come up often."""
    d = draw(st.integers(1, 6))
    rank = draw(st.integers(1, 4))
    entries = st.lists(st.integers(-2, 2), min_size=d * rank, max_size=d * rank)
    factors = np.array(draw(entries), dtype=float).reshape(d, rank)
    external = factors @ factors.T
    v = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=d, max_size=d)))
    weights = np.array(draw(st.lists(st.integers(-2, 2), min_size=d, max_size=d)))
    b = external @ weights
    return build_problem(
        b,
        v,
        external,
        label_variance=float(weights @ b) + 1.0,
        ridge=draw(st.sampled_from([0.0, 0.0, 0.25])),
        costs=[draw(st.sampled_from(costs)) for _ in range(d)],
    )


@settings(max_examples=150, deadline=None)
@given(problem=problems())
def test_every_step_of_full_is_a_best_step_of_the_literal_form(problem):
    def objective(r):
        return literal.full_objective(
            problem.b, problem.v, problem.external, r, problem.ridge
        ) if problem.candidates.any() else 0.0  # fmt: skip

    path = select(problem, 8)
    tolerance = 1e-9 * max(problem.label_variance, 1.0)
    repeats = np.zeros(problem.n_attributes, dtype=int)
    for attribute, reached in zip(path.attributes, path.objective, strict=True):
        units = np.eye(problem.n_attributes, dtype=int)[problem.candidates]
        best = max(objective(repeats + unit) for unit in units)
        repeats[attribute] += 1
        assert abs(reached - best) <= tolerance
    if path.status == "no_positive_gain" and problem.candidates.any():
        units = np.eye(problem.n_attributes, dtype=int)[problem.candidates]
        gains = [objective(repeats + unit) - objective(repeats) for unit in units]
        assert max(gains) <= tolerance
    assert path.n_steps <= 8


@settings(max_examples=100, deadline=None)
@given(problem=problems(), budget=st.integers(1, 5))
def test_scoring_is_optimal_with_equal_costs(problem, budget):
    if not problem.candidates.any():
        return
    path = select(problem, budget, "scoring")
    reached = path.objective[-1] if path.n_steps else 0.0
    costs = np.ones(problem.n_attributes)
    best = literal.brute_force(lambda r: scoring_objective(problem, r), costs, budget)
    np.testing.assert_allclose(reached, best, rtol=1e-10)
    assert np.all(np.diff(path.objective, 2, prepend=0.0) <= 1e-9 * problem.label_variance)


@settings(max_examples=80, deadline=None)
@given(
    problem=problems(costs=(0.5, 1.0, 2.0, 3.5)),
    budget=st.sampled_from([3.5, 5.0, 10.25]),
    algorithm=st.sampled_from(["full", "scoring"]),
    criterion=st.sampled_from(["gain_per_cost", "gain", "best"]),
)
def test_budgets_hold(problem, budget, algorithm, criterion):
    path = select(problem, budget, algorithm, criterion)
    objective = full_objective if algorithm == "full" else scoring_objective
    repeats = path.final_repeats
    assert repeats @ problem.costs <= budget
    assert not repeats[~problem.candidates].any()
    end = path.objective[-1] if path.n_steps else 0.0
    np.testing.assert_allclose(end, objective(problem, repeats), rtol=1e-9, atol=1e-12)
