from __future__ import annotations

import itertools

import numpy as np
import pytest

from distfms.errors import DataError
from distfms.stats import ComomentBlock, CoMoments, assemble, merge_tree
from distfms.stats.base import from_bytes, to_bytes

CUTS = (0, 2, 3, 7)
SLICES = [slice(a, b) for a, b in itertools.pairwise(CUTS)]


def make(share: float, offset: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    block = rng.normal(offset, 1.0, (7, 90))
    gaps = rng.random(block.shape) < share
    gaps[4] = False  # a complete column among the others
    block[gaps] = np.nan
    return block, rng.random(90)


def assert_same(got: CoMoments, want: CoMoments) -> None:
    assert got.to_arrays().keys() == want.to_arrays().keys()
    for name in ("n_samples", "weight", "weight_sq", "mean"):
        np.testing.assert_array_equal(got.to_arrays()[name], want.to_arrays()[name])
    for name, array in want.to_arrays().items():
        np.testing.assert_allclose(got.to_arrays()[name], array, rtol=1e-12, atol=1e-11)
    np.testing.assert_array_equal(got.comoment, got.comoment.T)


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("offset", [0.0, 40.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_assembled_blocks_are_the_comoments(share: float, offset: float, weighted: bool) -> None:
    block, weight = make(share, offset)
    w = weight if weighted else None
    parts = [ComomentBlock.from_block(block, columns, w) for columns in SLICES]
    assert_same(assemble(parts[::-1]), CoMoments.from_block(block, w))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_merged_blocks_are_the_merged_comoments(share: float) -> None:
    block, weight = make(share, 40.0)
    block[2, 60:] = 3.0  # complete in the last part of the rows
    runs = [slice(0, 30), slice(30, 60), slice(60, 90)]
    whole = merge_tree([CoMoments.from_block(block[:, r], weight[r]) for r in runs])
    merged = [
        merge_tree([ComomentBlock.from_block(block[:, r], c, weight[r]) for r in runs])
        for c in SLICES
    ]
    got = assemble(merged)
    np.testing.assert_allclose(got.mean, whole.mean, rtol=1e-15)
    for name, array in whole.to_arrays().items():
        np.testing.assert_allclose(got.to_arrays()[name], array, rtol=1e-12, atol=1e-11)


def test_overwriting_and_empty_parts_change_nothing() -> None:
    block, weight = make(0.2, 5.0)
    columns = slice(2, 7)
    part = ComomentBlock.from_block(block, columns, weight)
    scratch = ComomentBlock.from_block(block.copy(), columns, weight, overwrite=True)
    assert to_bytes(scratch.to_arrays()) == to_bytes(part.to_arrays())
    empty = ComomentBlock.from_block(block[:, :0], columns)
    for same in (part.merge(empty), empty.merge(part)):
        assert to_bytes(same.to_arrays()) == to_bytes(part.to_arrays())
    back = ComomentBlock.from_arrays(from_bytes(to_bytes(part.to_arrays())))
    assert to_bytes(back.to_arrays()) == to_bytes(part.to_arrays())
    assert (back.start, back.stop, back.columns) == (2, 7, columns)


def test_misuse_is_refused() -> None:
    block, _ = make(0.0, 0.0)
    parts = [ComomentBlock.from_block(block, columns) for columns in SLICES]
    with pytest.raises(ValueError, match="do not cover 7 columns"):
        assemble(parts[1:])
    with pytest.raises(ValueError, match="do not cover 7 columns"):
        assemble([*parts, parts[0]])
    with pytest.raises(ValueError, match="no blocks"):
        assemble([])
    other = ComomentBlock.from_block(block[:, :50], SLICES[2])
    with pytest.raises(ValueError, match="same rows"):
        assemble([*parts[:2], other])
    with pytest.raises(ValueError, match="other columns"):
        parts[0].merge(parts[1])
    with pytest.raises(ValueError, match="run of columns"):
        ComomentBlock.from_block(block, slice(0, 7, 2))
    block[5, 0], block[6, 0] = 1e200, np.inf
    with pytest.raises(DataError, match="column 6 holds 1 infinite"):
        ComomentBlock.from_block(block, slice(0, 2))
    with pytest.raises(DataError, match=r"Column 5 .* holds values too large"):
        ComomentBlock.from_block(block[:6], slice(4, 6))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_columns_of_a_block_are_those_of_the_whole(share: float) -> None:
    block, weight = make(share, 40.0)
    block[2] = 3.0
    block[5, :] = np.nan
    whole = CoMoments.from_block(block, weight)
    for columns in SLICES:
        part = ComomentBlock.from_block(block, columns, weight)
        np.testing.assert_allclose(part.variance(), whole.variance()[columns], rtol=1e-12)
        constant = whole.constant_columns()[columns]
        np.testing.assert_array_equal(part.constant_columns(), constant)


def test_imputed_blocks_are_the_comoments_of_the_filled_data() -> None:
    block, weight = make(0.3, 1.0)
    mean = CoMoments.from_block(block, weight).mean
    filled = np.where(np.isnan(block), mean[:, None], block)
    parts = [ComomentBlock.from_block(block, columns, weight).imputed() for columns in SLICES]
    assert all(len(part.to_arrays()) == 7 for part in parts)
    found, expected = assemble(parts), CoMoments.from_block(filled, weight)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(found.comoment, expected.comoment, rtol=1e-11, atol=1e-11)
    assert (found.weight, found.pair_weight) == (expected.weight, None)


def test_known_sums_change_nothing() -> None:
    block, _ = make(0.0, 1.0)
    own = slice(2, 5)
    given = ComomentBlock.from_block(block, own, sums=block.sum(axis=1))
    expected = ComomentBlock.from_block(block, own)
    np.testing.assert_array_equal(given.comoment, expected.comoment)
    np.testing.assert_array_equal(given.mean, expected.mean)
