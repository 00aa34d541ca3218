"""Means over folds: their formulas, and what is left out."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from distfms.stats.base import over_folds

numbers = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(numbers, st.floats(0.1, 10)), min_size=2, max_size=9))
def test_literal_formulas(folds):
    x, w = map(np.array, zip(*folds, strict=True))
    s = w / w.sum()
    k = len(x)
    m = sum(s * x)
    error = np.sqrt(k / (k - 1) * sum(s**2 * (x - m) ** 2))
    found = over_folds(x, w)
    assert found.mean == pytest.approx(m, rel=1e-9, abs=1e-9)
    assert found.standard_error == pytest.approx(error, rel=1e-6, abs=1e-9)
    half_width = scipy.stats.t.ppf(0.95, k - 1) * error
    assert found.half_width(0.9) == pytest.approx(half_width, rel=1e-6, abs=1e-9)
    assert found.n_known == k


def test_what_is_missing_is_left_out():
    values = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, np.nan], [np.nan] * 3])
    found = over_folds(values, [1.0, 5.0, 3.0])
    weights = [1.0, 3.0]
    alone = over_folds(np.array([1.0, 3.0]), weights)
    assert found.mean.tolist()[:2] == [alone.mean, 2.0]
    assert found.standard_error[0] == alone.standard_error
    assert found.half_width(0.9)[0] == alone.half_width(0.9)
    assert np.isnan(found.mean[2])
    assert np.isnan(found.standard_error[1:]).all()
    assert np.isnan(found.half_width(0.9)[1:]).all()
    assert found.n_known.tolist() == [2, 1, 0]
    assert over_folds(np.array([1.0, 9.0, 3.0]), [1.0, 0.0, 3.0]).mean == alone.mean
