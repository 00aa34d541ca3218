"""Forward selection in shards, of mapped files and of single columns."""

import numpy as np
import pytest

from distfms.engine.local import SerialPool
from distfms.methods.sequence.greedy import sequence
from distfms.solve import shards
from distfms.solve.cholesky import CRITERIA
from distfms.solve.forward import ForwardProblem, forward
from distfms.solve.shards import block_edges, shard_edges
from tests.reference.distributed_cases import awkward_sequence_problem, require_same_sequence


def in_shards(monkeypatch, problem, criterion="fr", **options):
    """Path with blocks of 8 columns, the same in this process and in pools of any size."""
    with monkeypatch.context() as patch:
        patch.setattr(shards, "BLOCK_COLUMNS", 8)
        expected = sequence(problem, criterion, **options)
        for most in (2, 3, 16):
            patch.setattr(shards, "MOST_SHARDS", most)
            cut = problem.forward.shard.cut()
            assert len(cut) == most or len(cut) > 3
            with SerialPool() as pool:
                path = sequence(problem, criterion, pool=pool, shards=cut, **options)
            require_same_sequence(path, expected)
    return path


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    ("ridge", "cost_aware", "scattered"), [(0.0, True, True), (1e-3, False, False)]
)
def test_shards_take_the_steps_of_a_single_one(
    monkeypatch, criterion, ridge, cost_aware, scattered
):
    problem = awkward_sequence_problem(0, ridge=ridge, scattered=scattered)
    path = in_shards(monkeypatch, problem, criterion, cost_aware=cost_aware)
    whole = sequence(problem, criterion, cost_aware=cost_aware)
    assert path.order.tolist() == whole.order.tolist()
    np.testing.assert_allclose(path.gain, whole.gain, rtol=1e-9, atol=1e-13)


def test_blocks_are_whole_items_and_shards_whole_blocks(monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_COLUMNS", 8)
    assert block_edges([3, 3, 3, 21, 1, 7, 2]) == [0, 2, 3, 4, 6, 7]
    assert block_edges([1] * 20) == [0, 8, 16, 20]
    assert block_edges([30]) == [0, 1]
    monkeypatch.setattr(shards, "MOST_SHARDS", 4)
    assert shard_edges(3) == [0, 1, 2, 3]
    assert shard_edges(10) == [0, 2, 5, 7, 10]


def test_single_columns_end_where_none_adds_anything():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 6))
    rows[:, 4] = rows[:, 0] + rows[:, 2]
    target = 3.0 * rows[:, 4] + rows[:, 1]
    gram = rows.T @ rows / 50
    problem = ForwardProblem.of_columns(gram, rows.T @ target / 50, float(target @ target / 50))
    path = forward(problem, while_gaining=True)
    assert sorted(path.order.tolist()) == [1, 4]
    assert 2 * path.value == pytest.approx(problem.variance)
    every = forward(problem)
    assert every.ranks[-1] == 5
    assert len(every.order) == 6
