import numpy as np
import pytest

from distfms.solve import purchases as greedy_module
from distfms.solve.purchases import FullState, ScoringState, select
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import build_problem, random_problem


def gains_of(state):
    """Gains of all attributes: of those that are not judged, what their slabs compute."""
    if isinstance(state, ScoringState):
        return state.gains
    gains = np.concatenate(state._ask("gains", state.objective))
    gains[state.support] = state._repeat_gains()
    return gains


def literal_full(problem):
    return lambda r: literal.full_objective(
        problem.b, problem.v, problem.external, r, problem.ridge
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("refresh", [7, 1000])
def test_any_sequence_of_purchases_equals_a_fresh_start(seed, refresh, monkeypatch):
    """Refreshed or updated often, and several judgments bought at once, until all have some."""
    monkeypatch.setattr(greedy_module, "REFRESH_EVERY", refresh)
    monkeypatch.setattr(greedy_module, "_FIRST_ROWS", 3)
    monkeypatch.setattr(greedy_module, "SLAB_ATTRIBUTES", 10)
    d = 24
    v = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], d)
    problem = random_problem(seed, d=d, v=v, ridge=0.05 * (seed % 2))
    state = FullState(problem)
    rng = np.random.default_rng(seed)
    for _ in range(100):
        state.buy(int(rng.integers(d)), int(rng.integers(1, 4)))
        fresh = FullState(problem, state.repeats)
        np.testing.assert_allclose(gains_of(state), gains_of(fresh), rtol=1e-6, atol=1e-10)
        weights = [own.w[np.argsort(own.support)] for own in (state, fresh)]
        np.testing.assert_allclose(*weights, rtol=1e-6, atol=1e-9)
        assert state.objective == pytest.approx(fresh.objective, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_dependent_attributes_gain_nothing_whatever_b_says(seed):
    """b need not lie in the range of Σ: with missing judgments it is estimated by pairs."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((6, 3))
    v = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    problem = build_problem(rng.standard_normal(6), v, factors @ factors.T, label_variance=1.0)
    state = FullState(problem)
    for attribute in [3, 1, 0]:
        state.buy(attribute)
    assert gains_of(state)[[2, 4]].tolist() == [0.0, 0.0]
    path = select(problem, 20)
    assert np.count_nonzero(path.final_repeats[:5]) <= 3
    for attribute in (2, 5, 4):  # as the path of a baseline may ask for
        state.buy(attribute)
        assert state.objective == pytest.approx(literal_full(problem)(state.repeats), rel=1e-6)


@pytest.mark.parametrize("algorithm", ["full", "scoring"])
def test_ties_go_to_the_lowest_index_also_between_slabs(algorithm, monkeypatch):
    monkeypatch.setattr(greedy_module, "SLAB_ATTRIBUTES", 8)
    d = 30
    problem = build_problem(np.ones(d), np.ones(d), np.eye(d), label_variance=40.0)
    assert select(problem, d + 2, algorithm).attributes.tolist() == [*range(d), 0, 1]
