from __future__ import annotations

import numpy as np
import pytest

from distfms.methods.sequence.slabs import standardised_shard
from distfms.stats.comoments import CoMoments
from tests.reference.sequence import correlated, make_problem


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
        found = standardised_shard(block, outline, first, last)
        assert found.gram.shape == (len(found.columns), d - n_constant)
        rows = found.gram[found.places]
        wanted = problem.gram[found.columns], problem.target[found.columns]
        np.testing.assert_allclose(rows, wanted[0], rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found.target, wanted[1], rtol=1e-10, atol=1e-13)
        assert (rows[np.arange(len(found.columns)), found.columns] == 1.0).all()
        assert np.shares_memory(found.gram, block.comoment)
        first = last
    assert first == len(outline.groups)
