import numpy as np
import pytest

from distfms.methods.sequence.evaluate import oracle_curve, plateau, stopping_cost, timeliness

COST = np.array([0.0, 1.0, 3.0, 7.0])
VALUE = np.array([0.0, 0.5, 0.7, 0.8])


@pytest.mark.parametrize(
    ("options", "area", "end"),
    [
        ({}, 0.25 + 2 * 0.6 + 4 * 0.75, 7),
        ({"steps": True}, 2 * 0.5 + 4 * 0.7, 7),
        ({"steps": True, "stop": 2.0}, 1 * 0.5, 2),
        ({"stop": 2.0}, 0.25 + 1 * 0.55, 2),  # between two points: value 0.6
        ({"stop": 3.0}, 0.25 + 1.2, 3),
        ({"stop": 10.0}, 0.25 + 1.2 + 3.0 + 3 * 0.8, 10),  # stays where it ends
        ({"stop": 0.0}, 0.0, 1),
        ({"final": 1.6}, (0.25 + 2 * 0.6 + 4 * 0.75) / 2, 7),
    ],
)
def test_areas_by_hand(options, area, end):
    assert timeliness(COST, VALUE, **options) == pytest.approx(area / (end * 0.8))
    assert timeliness(COST, np.zeros(4), **{**options, "final": None}) == 0.0


@pytest.mark.parametrize(
    ("alpha", "cost"), [(0.0, 0.0), (0.5, 1.0), (0.625, 1.0), (0.63, 3.0), (1.0, 7.0)]
)
def test_stopping_cost_is_that_of_the_first_prefix_there(alpha, cost):
    assert stopping_cost(COST, VALUE, alpha) == cost
    rounding = np.array([0.0, 0.5, 0.8, 0.8 + 1e-16])
    assert stopping_cost(COST, rounding, 1.0) == 3.0


STEEP = np.array([0.0, 0.6, 0.972, 0.981, 0.99, 1.0])


@pytest.mark.parametrize(
    ("cost", "value", "alpha"),
    [
        ([0.0, 1.0, 2.0, 2.5, 3.0, 10.0], STEEP, 0.99),
        ([0.0, 1.0, 2.0, 6.0, 6.5, 7.0], STEEP, 0.97),
        (np.linspace(0, 1, 101), np.linspace(0, 1, 101), 1.0),  # bought evenly
        ([0.0, 50.0, *range(51, 61)], [0.0, 0.9, *np.linspace(0.91, 1.0, 10)], 1.0),  # below 95 %
    ],
)
def test_plateau_where_the_next_percent_is_dear(cost, value, alpha):
    assert plateau(np.array(cost), np.array(value)) == alpha


def test_oracle_reorders_by_gain_per_cost_and_keeps_the_order_of_ties():
    cost, value = oracle_curve(np.array([0.0, 4, 5, 7]), np.array([0.0, 0.4, 0.7, 0.8]))
    np.testing.assert_allclose(cost, [0, 1, 5, 7])
    np.testing.assert_allclose(value, [0, 0.3, 0.7, 0.8])
    _, value = oracle_curve(np.array([0.0, 1, 3, 4]), np.array([0.0, 0.1, 0.3, 0.9]))
    np.testing.assert_allclose(value, [0, 0.6, 0.7, 0.9])
