import numpy as np
import pytest

from distfms.errors import DataError, NumericalError
from distfms.stats.base import merge_tree
from distfms.stats.codec import decode, encode
from distfms.stats.comoments import CoMoments
from tests.reference import statistics as literal
from tests.reference.statistics import arrays_of


def gaps(rng, block, share):
    block = block.copy()
    block[rng.random(block.shape) < share] = np.nan
    return block


def assert_matches(got, block, weight=None):
    want = literal.comoments(block, weight)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(got.comoment, want.comoment, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(got.comoment, got.comoment.T)
    np.testing.assert_allclose(got.observed_weight, np.diag(want.pair_weight), rtol=1e-13)
    if np.isnan(block).any():
        np.testing.assert_allclose(got.pair_weight, want.pair_weight, rtol=1e-13)
        np.testing.assert_allclose(got.cross, want.cross, rtol=1e-12, atol=1e-11)
    else:
        assert got.pair_weight is None
        assert got.cross is None


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_against_the_literal_form(share, weighted, offset):
    rng = np.random.default_rng(1)
    block = gaps(rng, rng.normal(offset, 1.0, (4, 60)), share)
    weight = rng.random(60) if weighted else None
    got = CoMoments.from_block(block, weight)
    assert_matches(got, block, weight)
    assert got.n_samples == 60
    assert got.weight == pytest.approx(60 if weight is None else weight.sum())


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize("d", [3, 40])
def test_same_bits_wherever_the_block_lies(offset, d):
    """A slice of a larger buffer, any alignment, scratch or not: the same bits."""
    rng = np.random.default_rng(4)
    block = rng.normal(offset, 1.0, (d, 1001))
    want = encode(CoMoments.from_block(block))
    for shift in range(9):
        buffer = np.full((d, 1001 + 16), np.inf)
        buffer[:, shift : shift + 1001] = block
        view = buffer[:, shift : shift + 1001]
        assert encode(CoMoments.from_block(view)) == want
        np.testing.assert_array_equal(view, block)
        assert encode(CoMoments.from_block(view, overwrite=True)) == want


def test_constant_columns_relative_to_scale():
    rng = np.random.default_rng(8)
    block = rng.normal(0.0, 1.0, (5, 5000))
    block[1] = 1e8
    block[2] += 1e8
    block[3] = 0.0
    block[4] = 0.1
    weight = rng.random(5000)
    halves = CoMoments.from_block(block[:, :1999]).merge(CoMoments.from_block(block[:, 1999:]))
    for got in (CoMoments.from_block(block), CoMoments.from_block(block, weight), halves):
        assert got.constant_columns().tolist() == [False, True, False, True, True]


def test_take_is_the_block_of_the_columns():
    rng = np.random.default_rng(14)
    block = gaps(rng, rng.random((4, 40)), 0.2)
    got = arrays_of(CoMoments.from_block(block).take([3, 1]))
    want = arrays_of(CoMoments.from_block(block[[3, 1]]))
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-13)
    mask = CoMoments.from_block(block).take(np.array([False, True, False, True]))
    np.testing.assert_array_equal(mask.mean, np.array(got["mean"])[::-1])


@pytest.mark.parametrize(
    ("values", "weight", "message"),
    [
        ([1.0, np.inf, np.nan], None, "column 1 holds 1 infinite"),
        ([1.0, -np.inf, np.nan], None, "column 1 holds 1 infinite"),
        ([1.7e308, 1.7e308, 0.0], None, "column 1 holds values too large to be summed"),
        ([1e200, -1e200, 0.0], None, r"Column 1 .* holds values too large to be squared"),
        *(([0.0] * 3, [1.0, bad, 1.0], "weight of row 1") for bad in (-1.0, np.nan, np.inf)),
    ],
)
def test_bad_values_and_weights_are_refused_by_place(values, weight, message):
    block = np.array([[0.0, 1.0, 2.0], values])
    with pytest.raises(DataError, match=message):
        CoMoments.from_block(block, None if weight is None else np.array(weight))


def test_no_rows_have_no_covariance():
    with pytest.raises(NumericalError, match="no rows"):
        CoMoments.empty(2).covariance(pairwise=False)


ROWS = [slice(0, 2), slice(2, 3), slice(3, 7)]


def with_gaps(share, offset):
    rng = np.random.default_rng(0)
    block = gaps(rng, rng.normal(offset, 1.0, (7, 90)), share)
    block[4] = rng.normal(offset, 1.0, 90)  # a complete column among the others
    block[2, 60:] = 3.0  # complete in the last rows
    return block, rng.random(90)


def assert_rows_of(part, whole, rows):
    assert (part.n_samples, part.rows, part.n_columns) == (whole.n_samples, rows, 7)
    np.testing.assert_allclose(part.mean, whole.mean, rtol=1e-15)
    np.testing.assert_allclose(part.observed_weight, whole.observed_weight, rtol=1e-14)
    for name in ("comoment", "pair_weight", "cross"):
        if getattr(whole, name) is not None:
            expected = getattr(whole, name)[rows]
            np.testing.assert_allclose(getattr(part, name), expected, rtol=1e-12, atol=1e-11)
    if part.cross_columns is not None:
        np.testing.assert_allclose(part.cross_columns, whole.cross.T[rows], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(part.variance(), whole.variance()[rows], rtol=1e-12)
    np.testing.assert_array_equal(part.constant_columns(), whole.constant_columns()[rows])
    covariance = whole.covariance(pairwise=True)[rows]
    np.testing.assert_allclose(part.covariance(pairwise=True), covariance, atol=1e-11)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("offset", [0.0, 40.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_some_rows_of_the_matrix(rows, share, offset, weighted):
    block, weight = with_gaps(share, offset)
    runs = [slice(0, 30), slice(30, 60), slice(60, 90)]

    def merged(own):
        parts = [
            CoMoments.from_block(block[:, r], weight[r] if weighted else None, rows=own)
            for r in runs
        ]
        return [merge_tree(parts), parts[0].scaled(0.5)]

    for part, whole in zip(merged(rows), merged(None), strict=True):
        assert_rows_of(part, whole, rows)
        assert encode(decode(encode(part))) == encode(part)


# --- each column by itself ----------------------------------------------------------------------
