"""Drift against numbers from the rows themselves."""

import numpy as np
import pytest
from scipy.stats import t

from distfms.data.files.partition import Partition
from distfms.retrain.drift import Summaries, drift_of, summarise, worst
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.statistics import ragged_of


def partition(key):
    return Partition(0, "p", "p", (0,), 1, 1, 0, 0, key, "")


def of_rows(blocks):
    """Summaries of blocks (d, n), each in a fold and a held-out part."""
    rows = []
    for key, block in enumerate(blocks):
        cut = block.shape[1] // 3
        parts = (CoMoments.from_block(block[:, :cut]), CoMoments.from_block(block[:, cut:]))
        rows.append(summarise("moments", partition(str(key)), Bundle({"moments": Folded(parts)})))
    return Summaries.of(rows)


def shift_of(before, now):
    return drift_of(before, {"now": now})["now"]


@pytest.fixture
def blocks():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    return [mixing @ rng.normal(size=(4, 50 + 10 * i)) + i for i in range(5)]


def test_pooled_is_that_of_all_rows(blocks):
    pooled = of_rows(blocks).pooled()
    rows = np.concatenate(blocks, axis=1)
    np.testing.assert_allclose(pooled.mean[0], rows.mean(axis=1))
    np.testing.assert_allclose(pooled.variance[0], rows.var(axis=1))
    np.testing.assert_allclose(pooled.covariance[0], np.cov(rows, bias=True)[:, -1])


def test_interval_is_that_of_the_partitions(blocks):
    _, half_width = shift_of(of_rows(blocks[:4]), of_rows(blocks[4:]))
    before = np.concatenate(blocks[:4], axis=1)
    means = np.array([b.mean(axis=1) for b in blocks[:4]]) / before.std(axis=1)
    expected = t.ppf(0.975, 3) * means.std(axis=0, ddof=1) * np.sqrt(1 / 4 + 1)
    np.testing.assert_allclose(half_width[0], expected)
    shift, half_width = shift_of(of_rows(blocks[:1]), of_rows(blocks[1:]))
    assert np.isnan(half_width).all()
    assert np.isfinite(shift[:2]).all()


def test_constant_columns_do_not_drift_but_new_values_of_them_are_unknown(blocks):
    for block in blocks:
        block[1] = 7.0
    before = of_rows(blocks[:4])
    now = of_rows(blocks[4:])
    assert np.isnan(shift_of(before, now)[0][:, 1]).all()
    assert worst(before, {"now": now}, "abcd")[0]["columns"][-1]["name"] == "b"


def test_disagreement_of_raters_is_followed():
    rng = np.random.default_rng(2)
    rows = []
    for key, spread in enumerate((1.0, 1.0, 3.0)):
        judgments = [list(spread * rng.normal(size=3)) for _ in range(400)]
        ragged = ragged_of(judgments)
        whole = JudgmentStatistics.from_block([ragged], rng.normal(size=400))
        bundle = Bundle({"judgments": Folded((whole, JudgmentStatistics.empty(1)))})
        rows.append(summarise("judgments", partition(str(key)), bundle))
    before = Summaries.of(rows[:2])
    now = Summaries.of(rows[2:])
    assert shift_of(before, now)[0][3, 0] == pytest.approx(np.log(3), abs=0.1)
    found, largest = worst(before, {"now": now}, ["warm", "y"])
    assert (found["column"], largest["now"] > 1) == ("warm", True)
