from __future__ import annotations

import numpy as np
import pytest

from distfms.engine.local import SerialPool
from distfms.methods.frame import slabs
from distfms.methods.multiselect.greedy import FullState, select, slabs_of
from distfms.methods.multiselect.objective import Problem, Purse
from tests.reference.distributed_cases import awkward_problem, require_same
from tests.reference.multiselect_cases import random_problem


@pytest.fixture
def small_slabs(monkeypatch):
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 8)


def on_pool(problem, budget, criterion):
    with SerialPool() as pool:
        given = slabs_of(problem)
        assert len(given) > 1
        return select(problem, budget, "full", criterion, pool=pool, slabs=given)


@pytest.mark.parametrize("criterion", ["gain_per_cost", "gain", "best"])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("psd", ["none", "nearest"])
@pytest.mark.parametrize("seed", range(2))
def test_slabs_in_a_pool_take_the_steps_of_one_process(small_slabs, seed, psd, ridge, criterion):
    problem = awkward_problem(seed, ridge=ridge, psd=psd)
    expected = select(problem, 150.0, "full", criterion)
    assert expected.repeats.max() > 2
    require_same(on_pool(problem, 150.0, criterion), expected)


@pytest.mark.parametrize("psd", ["none", "nearest"])
def test_slabs_do_not_change_the_choice(monkeypatch, psd):
    problem = awkward_problem(1, psd=psd)
    whole = select(problem, 150.0, criterion="best")
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 8)
    cut = select(problem, 150.0, criterion="best")
    assert cut.attributes.tolist() == whole.attributes.tolist()
    np.testing.assert_allclose(cut.objective, whole.objective, rtol=1e-12)


def indefinite_problem(seed, d=30, m=25, **options):
    """Fewer objects than attributes, and noise taken off the diagonal."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, 5)) @ rng.standard_normal((5, d))
    means = truth + rng.standard_normal((m, d))
    means -= means.mean(axis=0)
    label = truth @ rng.standard_normal(d)
    label -= label.mean()
    v = np.full(d, 2.0)
    external = means.T @ means / m - np.diag(v / 2)
    return Problem.build(
        means.T @ label / m, v, external, label_variance=float(label @ label) / m, **options
    )


@pytest.mark.parametrize("seed", range(2))
def test_without_psd_every_selection_stays_positive_definite(small_slabs, seed):
    problem = indefinite_problem(seed, psd="none")
    assert np.linalg.eigvalsh(problem.external)[0] < -0.1
    path = select(problem, 300)
    for step in (1, 10, path.n_steps // 2, path.n_steps):
        repeats = path.repeats_after(step)
        support = np.flatnonzero(repeats)
        matrix = problem.external[np.ix_(support, support)] + np.diag(
            problem.v[support] / repeats[support]
        )
        assert np.linalg.eigvalsh(matrix)[0] > 0
        expected = problem.b[support] @ np.linalg.solve(matrix, problem.b[support])
        assert path.objective[step - 1] == pytest.approx(expected, rel=1e-6)
    assert (np.diff(path.objective) > 0).all()
    require_same(on_pool(problem, 300, "gain"), select(problem, 300, "full", "gain"))


def test_what_is_sent_does_not_grow_with_the_number_of_attributes(small_slabs):
    problem = random_problem(1, d=64)
    state = FullState(problem)
    for bought in range(20):
        offered = state._ask("offers", state.objective, Purse(0.0, 100.0, False))
        assert all(len(offers) <= 1 for offers in offered)
        state.buy(int(np.argmin(state.repeats)))
        assert sum(change.q.size for change in state._changes) == bought + 1
