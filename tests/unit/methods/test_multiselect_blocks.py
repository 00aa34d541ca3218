from __future__ import annotations

import numpy as np
import pytest

from distfms.engine.blas import single_threaded_blas
from distfms.engine.pools import make_pool
from distfms.errors import SpecError
from distfms.methods.multiselect import blocks as blocks_module
from distfms.methods.multiselect.blocks import CandidateBlock, CandidateStatistics
from distfms.methods.multiselect.distributed import (
    LoadedShard,
    Turn,
    follow,
    open_block,
    shard_starts,
)
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.objective import Problem, full_objective
from distfms.methods.multiselect.state import FullState
from tests.reference.distributed_cases import (
    awkward_problem,
    distributed,
    one_process,
    require_same,
    shards_of,
)
from tests.reference.multiselect_cases import random_problem


@pytest.fixture(autouse=True)
def _one_blas_thread():
    """Bits are promised for one BLAS thread, which the engine sees to."""
    with single_threaded_blas():
        yield


@pytest.mark.parametrize("criterion", ["gain_per_cost", "gain", "best"])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("psd", ["none", "nearest"])
@pytest.mark.parametrize("seed", range(3))
def test_shards_take_the_steps_of_one_process_to_the_bit(seed, psd, ridge, criterion):
    problem = awkward_problem(seed, ridge=ridge, psd=psd)
    expected = one_process(problem, 150.0, criterion)
    assert expected.repeats.max() > 2
    for n_shards in (1, 2, 3, 4):
        with make_pool("serial") as pool:
            path = distributed(pool, shards_of(problem, n_shards), problem, 150.0, criterion)
        require_same(path, expected)


@pytest.mark.parametrize("psd", ["none", "nearest"])
def test_tiles_do_not_change_the_choice(psd):
    problem = awkward_problem(1, psd=psd)
    whole = select(problem, 150.0, criterion="best")
    tiled = one_process(problem, 150.0, "best")
    assert tiled.attributes.tolist() == whole.attributes.tolist()
    np.testing.assert_allclose(tiled.objective, whole.objective, rtol=1e-12)


def test_refactoring_and_growth_happen_everywhere_at_once(monkeypatch):
    """More than 16 attributes, so that everyone's store grows, and a refactoring every 7 steps."""
    monkeypatch.setattr(blocks_module, "REFACTOR_EVERY", 7)
    problem = random_problem(3, d=60, rank=50)
    expected = one_process(problem, 120.0, "gain")
    assert np.count_nonzero(expected.final_repeats) > 32
    with make_pool("serial") as pool:
        path = distributed(pool, shards_of(problem, 3), problem, 120.0, "gain")
    require_same(path, expected)
    final = full_objective(problem, path.final_repeats)
    assert path.objective[-1] == pytest.approx(final, rel=1e-10)


def test_ties_between_shards_go_to_the_lowest_index():
    d = 30
    problem = Problem.build(np.ones(d), np.ones(d), np.eye(d), label_variance=40.0, psd="none")
    with make_pool("serial") as pool:
        path = distributed(pool, shards_of(problem, 4), problem, d + 2, "gain")
    assert path.attributes.tolist() == [*range(d), 0, 1]


@pytest.mark.parametrize(
    ("costs", "v", "budget", "status"),
    [(1.0, 0.0, 40.0, "no_positive_gain"), (1.0, 1.0, 9.0, "budget_spent"),
     ([2.0] * 10, 1.0, 9.0, "unaffordable")],
)  # fmt: skip
def test_ends_as_one_process_does(costs, v, budget, status):
    problem = random_problem(0, d=10, v=np.full(10, v), costs=costs, psd="none")
    expected = select(problem, budget)
    with make_pool("serial") as pool:
        path = distributed(pool, shards_of(problem, 2), problem, budget, "gain_per_cost")
    assert path.status == expected.status == status
    assert path.attributes.tolist() == expected.attributes.tolist()


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


@pytest.mark.parametrize("seed", range(5))
def test_without_psd_every_selection_stays_positive_definite(seed):
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
    expected = one_process(problem, 300, "gain")
    with make_pool("serial") as pool:
        require_same(distributed(pool, shards_of(problem, 3), problem, 300, "gain"), expected)


def test_both_choices_of_psd_agree_where_the_estimate_is_positive_definite():
    given = random_problem(5, d=12)
    problems = [
        Problem.build(given.b, given.v, given.external, label_variance=9.0, psd=psd)
        for psd in ("nearest", "none")
    ]
    require_same(*(select(problem, 60) for problem in problems))


def test_a_block_holds_the_gains_of_its_own_attributes():
    problem = awkward_problem(2)
    whole = FullState(problem, tile_columns=8)
    own = CandidateBlock(CandidateStatistics.of(problem, 16, 40), tile_columns=8)
    for attribute in (3, 20, 20, 44, 16, 3, 39, 20):
        entry = whole.entry(attribute)
        whole.buy(attribute)
        own.take(attribute, entry)
        assert own.gains().tobytes() == whole.gains()[16:40].tobytes()
        assert own.objective == whole.objective


def test_offers_do_not_grow_with_the_number_of_attributes():
    problem = random_problem(1, d=64)
    block = open_block(LoadedShard(CandidateStatistics.of(problem)), 16)
    turn = Turn(-1, None, 0.0, 100.0, False)
    for _ in range(20):
        block, offer = follow(block, turn)
        n = block.support.size
        if offer.entry is not None:
            assert offer.entry.row.shape == offer.entry.projection.shape == (n,)
        turn = Turn(offer.attribute, offer.entry, 0.0, 100.0, False)


def test_shards_are_whole_tiles():
    assert shard_starts(45, 4, 8) == [0, 16, 24, 32, 45]
    assert shard_starts(5, 4, 8) == [0, 5]
    assert shard_starts(20_000, 4)[1:-1] == [5120, 10240, 15360]
    with pytest.raises(SpecError, match="at least 1 shard, not 0"):
        shard_starts(5, 0)
