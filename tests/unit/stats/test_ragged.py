import numpy as np
import pytest

from tests.reference.statistics import ragged_of

LISTS = [[1.0, 4.0], [], [7.0], [2.0, 2.0, 5.0], []]


def as_lists(ragged):
    pairs = zip(ragged.offsets[:-1], ragged.offsets[1:], strict=True)
    return [ragged.values[a:b].tolist() for a, b in pairs]


def test_rows_are_a_view_and_mean_what_they_say():
    ragged = ragged_of(LISTS)
    part = ragged.rows(2, 5)
    assert as_lists(part) == LISTS[2:]
    assert part.values is ragged.values
    np.testing.assert_array_equal(part.content(), [7.0, 2.0, 2.0, 5.0])
    np.testing.assert_array_equal(part.means(), [7.0, 3.0, np.nan])


@pytest.mark.parametrize(
    "lists",
    [
        LISTS,
        [[], [], []],
        [],
        [[1.0, 2.0, 4.0]] * 3 + [[5.0, 5.0, 5.0]],  # the equal-length path
        [[3.0]] * 4,
        [[0.0, 0.0], [1e8, 1e8 + 1], [1e8 + 1, 1e8, 1e8 + 2]],
        [[], [1.0] * 9 + [2.0], [3.0], [], [float(v) for v in range(30)], [1.0, 5.0]],
        [[1.0] * 8 + [2.0], [float(v) for v in range(9)], [3.0] * 10],  # long ones only
    ],
)
@pytest.mark.parametrize("before", [[], [[9.0] * 12, [8.0]]])
def test_means_and_squares(lists, before):
    """Also of a view that begins later."""
    n = len(before)
    means, squares = ragged_of([*before, *lists]).rows(n, n + len(lists)).means_and_squares()
    expected = [np.mean(row) if row else np.nan for row in lists]
    np.testing.assert_allclose(means, np.array(expected, dtype=float), rtol=1e-15)
    centred = [float(((np.array(row) - np.mean(row)) ** 2).sum()) if row else 0.0 for row in lists]
    np.testing.assert_allclose(squares, np.array(centred, dtype=float), rtol=1e-12)


def test_rows_of_equal_values_have_no_spread_at_all():
    values = np.array([0.1, 1 / 3, 1e8 + 0.1, -7e-9])
    for k in (2, 3, 5, 11):
        for extra in ([], [[]]):
            lists = [*np.repeat(values[:, None], k, axis=1), *extra]
            means, squares = ragged_of(lists).means_and_squares()
            assert not squares.any()
            np.testing.assert_array_equal(means[:4], values)
