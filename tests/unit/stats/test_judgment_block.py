from __future__ import annotations

import numpy as np
import pytest

from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError
from distfms.stats.base import from_bytes, merge_tree, to_bytes
from distfms.stats.judgment_block import AttributeEstimates, JudgmentBlockStatistics
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged


@pytest.fixture(autouse=True)
def _one_blas_thread():
    """Bits are promised for one BLAS thread, which the engine sees to."""
    with single_threaded_blas():
        yield


D = 7
BLOCKS = [slice(0, 3), slice(3, 6), slice(6, 7)]


def objects(seed, n=60, missing=0.0, weighted=False):
    """Judgments with means far from 0, one to three of each attribute, some of none."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + 1e4
    attributes = []
    for a in range(D):
        counts = rng.integers(1, 4, n) * (rng.random(n) >= missing)
        values = np.repeat(truth[:, a], counts) + rng.normal(size=counts.sum())
        attributes.append(Ragged(values, np.concatenate(([0], np.cumsum(counts)))))
    label = truth @ rng.normal(size=D) + 1e6
    weight = rng.choice([0.0, 0.5, 2.0], n) if weighted else None
    return attributes, label, weight


def parts(seeds, **options):
    return [objects(seed, **options) for seed in seeds]


def block_of(data, attributes):
    blocks = [JudgmentBlockStatistics.from_block(j, y, attributes, w) for j, y, w in data]
    return merge_tree(blocks)


@pytest.mark.parametrize("options", [{}, {"missing": 0.3}, {"weighted": True},
                                     {"missing": 0.3, "weighted": True}])  # fmt: skip
def test_blocks_estimate_what_the_whole_does(options):
    data = parts(range(5), **options)
    whole = merge_tree([JudgmentStatistics.from_block(*each) for each in data])
    known = np.where(np.arange(D) == 4, 0.25, np.nan)
    expected = whole.estimates(known)
    for attributes in BLOCKS:
        block = block_of(data, attributes)
        own = block.estimates(known[attributes])
        for name in ("b", "v", "noise", "sigma", "means", "n_missing", "mean_judgments"):
            np.testing.assert_allclose(
                getattr(own, name), getattr(expected, name)[attributes], rtol=1e-9, err_msg=name
            )
        np.testing.assert_array_equal(own.n_judgments, whole.n_judgments[attributes])
        assert own.label_variance == pytest.approx(expected.label_variance, rel=1e-12)
        assert own.label_mean == pytest.approx(expected.label_mean, rel=1e-14)
        assert own.n_objects == expected.n_objects
        scale = np.abs(expected.external).max()
        rows = block.external(own.noise)
        assert rows.shape == (attributes.stop - attributes.start, D)
        np.testing.assert_allclose(rows, expected.external[attributes], atol=1e-10 * scale)


def test_external_takes_no_further_memory():
    block = block_of(parts([0, 1]), slice(2, 5))
    rows = block.external(block.estimates().noise)
    assert np.shares_memory(rows, block.means.comoment)


def test_merging_nothing_changes_nothing():
    block = block_of(parts([3], missing=0.2), slice(2, 6))
    nothing = JudgmentBlockStatistics.empty(D, slice(2, 6))
    for merged in (block.merge(nothing), nothing.merge(block)):
        for name, array in block.to_arrays().items():
            np.testing.assert_array_equal(merged.to_arrays()[name], array, err_msg=name)
    both = nothing.merge(nothing)
    assert both.label_comoment == 0.0
    with pytest.raises(DataError, match="no object"):
        both.estimates()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_survives_storage(missing):
    block = block_of(parts([1, 2], missing=missing), slice(0, 4))
    again = JudgmentBlockStatistics.from_arrays(from_bytes(to_bytes(block.to_arrays())))
    assert to_bytes(again.to_arrays()) == to_bytes(block.to_arrays())
    estimates = block.estimates()
    stored = AttributeEstimates.from_arrays(from_bytes(to_bytes(estimates.to_arrays())))
    assert stored.n_objects == estimates.n_objects
    assert type(stored.label_mean) is float
    np.testing.assert_array_equal(stored.v, estimates.v)


def test_estimates_of_runs_are_put_together():
    data = parts([0, 4])
    joined = AttributeEstimates.concatenate([block_of(data, s).estimates() for s in BLOCKS])
    expected = merge_tree([JudgmentStatistics.from_block(*each) for each in data]).estimates()
    np.testing.assert_allclose(joined.v, expected.v, rtol=1e-12)
    assert joined.b.shape == (D,)
    assert joined.label_variance == pytest.approx(expected.label_variance)


def test_attribute_without_repeats_is_named():
    once = Ragged(np.arange(4.0), np.arange(5))
    block = JudgmentBlockStatistics.from_block([once] * 3, np.arange(4.0), slice(1, 3))
    with pytest.raises(DataError, match=r"Attributes b, c: no object has two judgments"):
        block.estimates(names=("b", "c"))
    assert block.estimates(np.array([1.0, 2.0])).v.tolist() == [1.0, 2.0]
