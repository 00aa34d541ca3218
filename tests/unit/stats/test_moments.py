from __future__ import annotations

import numpy as np
import pytest

from distfms.errors import DataError
from distfms.stats import CoMoments, Moments
from distfms.stats.base import from_bytes, to_bytes


def test_against_numpy_with_gaps_and_weights() -> None:
    block = np.array([[1.0, np.nan, 5.0, 9.0], [np.nan] * 4, [2.0, 2.0, 2.0, 2.0]])
    weight = np.array([1.0, 1.0, 3.0, 0.0])
    got = Moments.from_block(block, weight)
    assert got.n_observed.tolist() == [2, 0, 3]
    assert got.n_missing.tolist() == [1, 3, 0]
    assert got.weight.tolist() == [4.0, 0.0, 5.0]
    assert got.mean.tolist() == [4.0, 0.0, 2.0]
    assert got.variance.tolist() == [3.0, 0.0, 0.0]
    assert got.minimum.tolist() == [1.0, np.inf, 2.0]
    assert got.maximum.tolist() == [5.0, -np.inf, 2.0]
    assert got.constant_columns().tolist() == [False, True, True]


def test_agrees_with_comoments() -> None:
    rng = np.random.default_rng(0)
    block, weight = rng.normal(1e8, 1.0, (3, 500)), rng.random(500)
    block[rng.random(block.shape) < 0.1] = np.nan
    got, want = Moments.from_block(block, weight), CoMoments.from_block(block, weight)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-15)
    np.testing.assert_allclose(got.m2, np.diag(want.comoment), rtol=1e-7)


def test_round_trip_and_errors() -> None:
    arrays = Moments.from_block(np.array([[1.0, 2.0]])).to_arrays()
    back = Moments.from_arrays(from_bytes(to_bytes(arrays)))
    assert to_bytes(back.to_arrays()) == to_bytes(arrays)
    assert Moments.from_block(np.empty((2, 0))).n_observed.tolist() == [0, 0]
    with pytest.raises(DataError, match="column 1"):
        Moments.from_block(np.array([[1.0], [np.inf]]))
    with pytest.raises(ValueError, match="columns"):
        Moments.empty(1).merge(Moments.empty(2))
