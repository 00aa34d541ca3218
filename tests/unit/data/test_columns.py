import numpy as np
import pyarrow as pa
import pytest

from distfms.data.rows.columns import as_floats, fill_numbers, probably_finite


@pytest.mark.parametrize("order", [None, np.array([1, 0])])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e200])
def test_what_is_not_finite_is_reported(order, value):
    """Squares count too: the quick check errs on the safe side only."""
    column = pa.chunked_array([[1.0, value]], pa.float64())
    assert not fill_numbers(column, np.empty(2), order)
    assert probably_finite(np.array([1e150, -1e150]))


def test_float64_is_not_copied():
    array = pa.array([1.0, 2.0])
    assert np.shares_memory(as_floats(array), array.to_numpy())
    assert as_floats(pa.array([True, None])).tolist()[0] == 1.0


def test_values_before_an_offset_and_under_a_null_are_left_out():
    array = pa.array([9.0, 1.0, None, 3.0])[1:]
    np.testing.assert_array_equal(as_floats(array), [1.0, np.nan, 3.0])
    assert as_floats(pa.array([], pa.int8())).tolist() == []
