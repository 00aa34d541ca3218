from __future__ import annotations

import itertools

import numpy as np
import pytest

from distfms.engine.blas import single_threaded_blas
from distfms.engine.pools import make_pool
from distfms.errors import SpecError
from distfms.methods.sequence.blocks import (
    GroupBlock,
    GroupStatistics,
    block_starts,
    tile_starts,
)
from distfms.methods.sequence.costs import GroupCosts, SharedCost
from distfms.methods.sequence.criteria import CRITERIA
from distfms.methods.sequence.distributed import BlockState, Turn, best_offers
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.groups import FeatureGroups
from distfms.methods.sequence.trail import Cap
from distfms.stats.comoments import CoMoments
from tests.reference.distributed_cases import (
    awkward_sequence_problem,
    distributed_sequence,
    group_shards_of,
    require_same_sequence,
)
from tests.reference.sequence import correlated, make_problem


@pytest.fixture(autouse=True)
def _one_blas_thread():
    """Bits are promised for one BLAS thread, which the engine sees to."""
    with single_threaded_blas():
        yield


TILE = 8


def check_all_shards(problem, criterion, **options):
    expected = sequence(problem, criterion, tile_columns=TILE, **options)
    for n_shards in (1, 2, 3, 4):
        with make_pool("serial") as pool:
            shards = group_shards_of(problem, n_shards)
            path = distributed_sequence(pool, shards, problem, criterion, **options)
        require_same_sequence(path, expected)
    return expected


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("cost_aware", [True, False])
def test_shards_take_the_steps_of_one_process_to_the_bit(criterion, ridge, cost_aware):
    for seed in range(2):
        problem = awkward_sequence_problem(seed, ridge=ridge)
        path = check_all_shards(problem, criterion, cost_aware=cost_aware)
        whole = sequence(problem, criterion, cost_aware=cost_aware)
        assert path.order.tolist() == whole.order.tolist()
        np.testing.assert_allclose(path.gain, whole.gain, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("criterion", ["fr", "omp"])
def test_doubling_shared_costs_and_several_targets(criterion):
    shared = (SharedCost("kit", (0, 5, 11), 6.0), SharedCost("visit", (5, 6), 2.0))
    capable = set()
    for seed in range(4):
        problem = awkward_sequence_problem(seed, shared=shared, n_targets=2)
        path = check_all_shards(problem, criterion, doubling=True)
        capable.add(path.doubling_capable)
    assert False in capable  # groups beyond the cap are named by index, not by cost


def test_given_random_and_short_sequences():
    problem = awkward_sequence_problem(0)
    check_all_shards(problem, "given", order=[9, 2, 0])
    check_all_shards(problem, "random", seed=3)
    check_all_shards(problem, "fr", max_groups=3)
    with make_pool("serial") as pool:
        shards = group_shards_of(problem, 2)
        with pytest.raises(SpecError, match="'best' is none of"):
            distributed_sequence(pool, shards, problem, "best")
        with pytest.raises(SpecError, match="has no choice"):
            distributed_sequence(pool, shards, problem, "random", doubling=True)


def test_groups_of_scattered_columns():
    problem = awkward_sequence_problem(1, scattered=True)
    check_all_shards(problem, "fr")


class ScoresOnly:
    """A block that knows its values and nothing else."""

    def __init__(self, values):
        self.first, self.last = 0, len(values)
        self.costs = GroupCosts(np.ones(len(values)))
        self.values = lambda: np.array(values)
        self.pivot = lambda group: None


@pytest.mark.parametrize(
    ("values", "offered"),
    [
        ([1.0, 0.5], [0]),
        ([1.0, 1.0, 1.0], [0]),
        # Ties by rounding: a better one elsewhere may exclude the lower of them.
        ([1.0 - 8e-13, 0.3, 1.0, 1.0 - 4e-13], [0, 2]),
        ([0.0, 0.0], [0]),
    ],
)
def test_offers_are_all_that_may_be_first_of_the_best(values, offered):
    state = BlockState(ScoresOnly(values), np.ones(len(values), dtype=bool), [])
    offers = best_offers(state, Turn(-1, None, Cap(), True, 1e-16))
    assert [offer.group for offer in offers] == offered
    assert best_offers(state, Turn(-1, None, Cap(only=99), True, 1e-16)) == []


def test_a_block_has_the_values_of_its_own_groups():
    problem = awkward_sequence_problem(2)
    first, middle, last = block_starts(problem.groups, 2, TILE)
    assert first == 0
    whole = GroupBlock(GroupStatistics.of(problem), "fr", tile_columns=TILE)
    own = GroupBlock(GroupStatistics.of(problem, middle, last), "fr", tile_columns=TILE)
    for group in (0, last - 1, middle, 3):
        own.take(group, whole.select(group))
        assert own.values().tobytes() == whole.values()[middle:last].tobytes()


def test_tiles_and_blocks_are_whole_groups():
    groups = FeatureGroups(
        tuple("abcdefg"), tuple(tuple(range(a, b)) for a, b in
                                itertools.pairwise([0, 3, 6, 9, 30, 31, 38, 40]))
    )  # fmt: skip
    assert tile_starts(groups, 8) == [0, 2, 3, 4, 6, 7]
    assert tile_starts(groups, 8, 3, 6) == [3, 4, 6]
    assert tile_starts(groups, 100) == [0, 7]
    for n in range(1, 9):
        starts = block_starts(groups, n, 8)
        assert starts[0] == 0
        assert starts[-1] == 7
        assert len(starts) <= n + 1
        assert set(starts) <= set(tile_starts(groups, 8))


@pytest.mark.parametrize("n_constant", [0, 3])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_standardised_blocks_are_rows_of_the_problem(n_constant, share):
    rng = np.random.default_rng(2)
    X, Y, groups = correlated(rng, 200, [3, 1, 4, 2, 2], n_targets=2)
    X = 5.0 + 3.0 * X
    X[:, [1, 3, 11][:n_constant]] = 7.0
    X[rng.random(X.shape) < share] = np.nan
    problem = make_problem(X, Y, groups, ridge=0.1)
    outline, d = problem.outline, X.shape[1]
    data = np.ascontiguousarray(np.column_stack((X, Y)).T)
    before = np.cumsum([0, *map(len, groups)])
    # The group whose one column may be constant is in the first block.
    first = 0
    for low, high in ((0, 2), (2, 5)):
        columns = slice(int(before[low]), int(before[high]))
        block = CoMoments.from_block(data, rows=columns)
        names = {f"g{g}" for g in range(low, high)} & set(outline.groups.names)
        last = first + len(names)
        found = GroupStatistics.from_comoments(block, outline, first, last)
        expected = GroupStatistics.of(problem, first, last)
        np.testing.assert_array_equal(found.columns, expected.columns)
        assert found.gram.shape == expected.gram.shape == (len(found.columns), d - n_constant)
        np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found.target, expected.target, rtol=1e-10, atol=1e-13)
        assert (found.gram[np.arange(len(found.columns)), found.columns] == 1.0).all()
        assert np.shares_memory(found.gram, block.comoment)
        first = last
    assert first == len(outline.groups)
