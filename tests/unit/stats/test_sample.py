from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distfms.stats.sample import RowSample
from tests.reference.statistics import arrays_of


def rows(hashes):
    n = len(hashes)
    return np.array(hashes, np.uint64), np.arange(n), np.arange(2.0 * n).reshape(2, n)


def contents(sample):
    return {name: array.tolist() for name, array in arrays_of(sample).items()}


@given(
    hashes=st.lists(st.integers(0, 30), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    size=st.integers(1, 12),
)
def test_the_same_rows_whatever_the_parts(hashes, cuts, size):
    keys, numbers, values = rows(hashes)
    whole = RowSample.from_rows(size, keys, numbers, values)
    merged = RowSample.empty(size, 2)
    bounds = [0, *sorted(min(cut, len(hashes)) for cut in cuts), len(hashes)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    for part in parts[::-1]:
        own = RowSample.from_rows(size, keys[part], numbers[part], values[:, part])
        merged = own.merge(merged)
    assert contents(merged) == contents(whole)
    expected = sorted(zip(hashes, range(len(hashes)), strict=True))[:size]
    assert whole.row_ids.tolist() == [number for _, number in expected]
    backwards = RowSample.from_rows(size, keys[::-1], numbers[::-1], values[:, ::-1])
    assert contents(backwards) == contents(whole)
    first = RowSample.from_rows(1, keys, numbers, values)
    assert contents(whole.first(1)) == contents(first)
