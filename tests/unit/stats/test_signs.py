"""Signs of trouble in columns, from rows at equal steps."""

import numpy as np
import pytest

from distfms.stats.base import merge_tree
from distfms.stats.codec import decode, encode
from distfms.stats.signs import FAR, ColumnSigns, sample_of
from tests.reference.statistics import arrays_of


def signs_of(values, place=0.0, with_gaps=None):
    has_gaps = bool(np.isnan(values).any()) if with_gaps is None else with_gaps
    sample = sample_of(values, np.arange(values.shape[1]), has_gaps)
    numbers = np.ones(len(values), dtype=bool)
    return ColumnSigns.of(values, sample, len(values) - 1, numbers, place, values.sum(axis=1))


def columns(rng, n=500, d=5):
    """Features, some with rare large values, and a target of the first of them."""
    X = rng.normal(size=(d, n))
    X[1] = np.exp(3 * X[1])
    X[2] = rng.random(n) < 0.004
    return np.vstack([X, X[0] + 0.5 * rng.normal(size=n)])


# --- gaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["target", "feature", "own"])
def test_gaps_that_depend_on_something_are_found(by):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = columns(rng)
        told = values[{"target": -1, "feature": 4, "own": 3}[by]]
        if by == "own":  # another column tells it
            values[4] += told
        values[3, rng.random(500) < 1 / (1 + np.exp(1 - 1.5 * told / told.std()))] = np.nan
        (found,) = signs_of(values).dependent_gaps(np.arange(6))
        assert found[:2] == (3, 5 if by == "target" else 4)
        assert 0.2 < found[2] < 1.5


def test_random_gaps_are_not_reported():
    """Not even where single large values make up the variance of other columns."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = columns(rng)
        for row in values[:-1]:
            row[rng.random(500) < rng.choice([0.02, 0.1, 0.5])] = np.nan
        assert signs_of(values).dependent_gaps(np.arange(6)) == []


def test_columns_of_one_source_are_not_compared():
    rng = np.random.default_rng(0)
    values = columns(rng)
    values[3, values[4] > 0.5] = np.nan
    assert signs_of(values).dependent_gaps(np.array([0, 1, 2, 3, 3, 5])) == []
    assert signs_of(values).dependent_gaps(np.array([0, 1, 2, 3, -1, 5])) == []


# --- values far off -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.3e104, -1e150, 3e6])
@pytest.mark.parametrize("n", [300, 20_001])
def test_a_value_far_from_the_others_is_found(value, n):
    """Also among rows that are not looked at one by one, and by the deviation of the others."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, n))
    values[2, 17] = value
    ((column, (found, away, place)),) = signs_of(values, 5.0).far_values().items()
    others = np.delete(values[2], 17)
    assert (column, found, place) == (2, value, 5.0)
    assert away == pytest.approx(abs(value - others.mean()) / others.std(), rel=0.15)
    values[3, ::7] = np.nan  # the sums do not tell
    values[3, 16] = value
    assert set(signs_of(values).far_values()) == {2, 3}


def test_what_is_not_far_from_the_others():
    rng = np.random.default_rng(0)
    values = np.zeros((5, 5000))
    values[0, 3] = 1  # others are constant
    values[1] = 1e8 + rng.normal(size=5000)
    values[2] = np.exp(4 * rng.normal(size=5000))
    values[3] = 1e8
    values[4] = rng.normal(size=5000)
    values[4, 7] = 0.5 * FAR
    assert signs_of(values).far_values() == {}
    # A column that is nearly constant in one partition and varies in others.
    site = np.vstack([1e-9 * rng.normal(size=(1, 500)), rng.normal(size=(1, 500))])
    site[0, 9] = 3.0
    assert signs_of(site).far_values()
    assert not signs_of(site).merge(signs_of(rng.normal(size=(2, 500)))).far_values()


# --- columns that tell the row --------------------------------------------------------------------


def test_columns_that_follow_the_rows():
    rng = np.random.default_rng(0)
    values = np.vstack(
        [
            np.cumsum(rng.random(3000)),
            -np.cumsum(rng.random(3000)),
            np.sort(rng.integers(0, 500, 3000)),  # with ties
            rng.normal(size=3000),
            rng.permutation(3000),
            np.arange(3000) // 2,
            np.zeros(3000),
        ]
    )
    values[0, ::3] = np.nan
    parts = [signs_of(values[:, i : i + 300], with_gaps=True) for i in range(0, 3000, 300)]
    found = merge_tree(parts)
    assert found.ordered.tolist() == [1, -1, 0, 0, 0, 0, 0]
    assert found.differ.tolist() == [False, False, False, False, True, False, False]
    assert signs_of(values[:, :6]).ordered.tolist() == [0] * 7  # too few to tell


def test_signs_merge():
    rng = np.random.default_rng(0)
    parts = []
    for place, n in enumerate((40, 1, 0, 300)):
        values = columns(rng, max(n, 1))[:, :n]
        values[0, ::5] = np.nan
        parts.append(signs_of(values, float(place)))
    a, b, c, d = parts
    one = a.merge(b).merge(c).merge(d)
    other = a.merge(b.merge(c.merge(d)))
    empty = ColumnSigns.empty(6)
    for name, array in arrays_of(one).items():
        np.testing.assert_allclose(array, arrays_of(other)[name], rtol=1e-12)
        np.testing.assert_allclose(arrays_of(d.merge(a))[name], arrays_of(a.merge(d))[name])
    for identity in (a.merge(empty), empty.merge(a), decode(encode(a))):
        assert encode(identity) == encode(a)
