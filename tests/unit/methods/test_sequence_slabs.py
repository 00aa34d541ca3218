from __future__ import annotations

import numpy as np
import pytest

from distfms.engine.local import SerialPool
from distfms.methods.frame import slabs
from distfms.methods.frame.slabs import slab_starts
from distfms.methods.sequence.greedy import GroupSlab, sequence, slabs_of
from distfms.methods.sequence.residual import CRITERIA
from distfms.stats.comoments import CoMoments
from tests.reference.distributed_cases import awkward_sequence_problem, require_same_sequence
from tests.reference.sequence import correlated, make_problem


def in_slabs(monkeypatch, problem, criterion="fr", **options):
    """Path in slabs of 8 columns, the same in this process and in a pool."""
    with monkeypatch.context() as patch, SerialPool() as pool:
        patch.setattr(slabs, "SLAB_COLUMNS", 8)
        expected = sequence(problem, criterion, **options)
        given = slabs_of(problem)
        assert len(given) > 2
        path = sequence(problem.outline, criterion, pool=pool, slabs=given, **options)
    require_same_sequence(path, expected)
    return path


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("cost_aware", [True, False])
@pytest.mark.parametrize("scattered", [True, False])
def test_slabs_take_the_steps_of_a_single_one(monkeypatch, criterion, ridge, cost_aware, scattered):
    for seed in range(2):
        problem = awkward_sequence_problem(seed, ridge=ridge, scattered=scattered)
        path = in_slabs(monkeypatch, problem, criterion, cost_aware=cost_aware)
        whole = sequence(problem, criterion, cost_aware=cost_aware)
        assert path.order.tolist() == whole.order.tolist()
        np.testing.assert_allclose(path.gain, whole.gain, rtol=1e-9, atol=1e-13)


def test_given_random_and_short_sequences(monkeypatch):
    problem = awkward_sequence_problem(0)
    assert in_slabs(monkeypatch, problem, "given", order=[9, 2, 0]).order.tolist() == [9, 2, 0]
    in_slabs(monkeypatch, problem, "random", seed=3)
    assert len(in_slabs(monkeypatch, problem, max_groups=3)) == 3


def test_slabs_are_whole_groups(monkeypatch):
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 8)
    assert slab_starts([3, 3, 3, 21, 1, 7, 2]) == [0, 2, 3, 4, 6, 7]
    assert slab_starts([1] * 20) == [0, 8, 16, 20]
    assert slab_starts([30]) == [0, 1]


@pytest.mark.parametrize("n_constant", [0, 3])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_standardised_rows_are_rows_of_the_problem(n_constant, share):
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
        found = GroupSlab.from_comoments(block, outline, first, last)
        expected = GroupSlab.of(problem, first, last)
        np.testing.assert_array_equal(found.columns, expected.columns)
        assert found.gram.shape == expected.gram.shape == (len(found.columns), d - n_constant)
        np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found.target, expected.target, rtol=1e-10, atol=1e-13)
        assert (found.gram[np.arange(len(found.columns)), found.columns] == 1.0).all()
        assert np.shares_memory(found.gram, block.comoment)
        first = last
    assert first == len(outline.groups)
