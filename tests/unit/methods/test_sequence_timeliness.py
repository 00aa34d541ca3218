import numpy as np
import pytest

from distfms.methods.sequence.timeliness import oracle_curve, plateau, stopping_cost, timeliness

COST = np.array([0.0, 1.0, 3.0, 7.0])
VALUE = np.array([0.0, 0.5, 0.7, 0.8])


def test_area_of_a_curve_by_hand():
    area = 0.25 + 2 * 0.6 + 4 * 0.75
    assert timeliness(COST, VALUE) == pytest.approx(area / (7 * 0.8))


def test_steps_stay_until_the_next_point():
    area = 1 * 0.0 + 2 * 0.5 + 4 * 0.7
    assert timeliness(COST, VALUE, steps=True) == pytest.approx(area / (7 * 0.8))
    area = 1 * 0.0 + 1 * 0.5
    assert timeliness(COST, VALUE, stop=2.0, steps=True) == pytest.approx(area / (2 * 0.8))


def test_cut_between_points_interpolates_there():
    area = 0.25 + 1 * 0.55  # value 0.6 at cost 2
    assert timeliness(COST, VALUE, stop=2.0) == pytest.approx(area / (2 * 0.8))


def test_cut_at_a_point_counts_it_once():
    assert timeliness(COST, VALUE, stop=3.0) == pytest.approx((0.25 + 1.2) / (3 * 0.8))


def test_beyond_its_end_a_curve_stays_where_it_is():
    area = 0.25 + 1.2 + 3.0 + 3 * 0.8
    assert timeliness(COST, VALUE, stop=10.0) == pytest.approx(area / (10 * 0.8))


def test_a_straight_line_has_one_half_and_an_early_riser_more():
    line = np.linspace(0, 1, 11)
    assert timeliness(line, line) == pytest.approx(0.5)
    assert timeliness(line, np.sqrt(line)) > 0.6


def test_nothing_to_measure_is_zero():
    assert timeliness(COST, VALUE, stop=0.0) == 0.0
    assert timeliness(COST, np.zeros(4)) == 0.0


def test_final_value_of_another_curve():
    assert timeliness(COST, VALUE, final=1.6) == pytest.approx(timeliness(COST, VALUE) / 2)


@pytest.mark.parametrize(
    ("alpha", "cost"), [(0.0, 0.0), (0.5, 1.0), (0.625, 1.0), (0.63, 3.0), (1.0, 7.0)]
)
def test_stopping_cost_is_that_of_the_first_prefix_there(alpha, cost):
    assert stopping_cost(COST, VALUE, alpha) == cost


def test_stopping_cost_is_not_put_off_by_gains_of_rounding_size():
    value = np.array([0.0, 0.5, 0.8, 0.8 + 1e-16])
    assert stopping_cost(COST, value, 1.0) == 3.0


def test_alpha_must_be_a_share():
    with pytest.raises(ValueError, match="not in"):
        stopping_cost(COST, VALUE, 1.1)


def test_plateau_where_the_next_percent_is_dear():
    value = np.array([0.0, 0.6, 0.972, 0.981, 0.99, 1.0])
    cost = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 10.0])
    assert plateau(cost, value) == 0.99
    cost = np.array([0.0, 1.0, 2.0, 6.0, 6.5, 7.0])
    assert plateau(cost, value) == 0.97


def test_no_plateau_where_value_is_bought_evenly():
    line = np.linspace(0, 1, 101)
    assert plateau(line, line) == 1.0


def test_a_steep_end_below_95_percent_is_no_plateau():
    value = np.array([0.0, 0.9, *np.linspace(0.91, 1.0, 10)])
    cost = np.array([0.0, 50.0, *np.linspace(51, 60, 10)])
    assert plateau(cost, value) == 1.0


def test_oracle_reorders_by_gain_per_cost():
    cost, value = oracle_curve(np.array([0.0, 4, 5, 7]), np.array([0.0, 0.4, 0.7, 0.8]))
    np.testing.assert_allclose(cost, [0, 1, 5, 7])
    np.testing.assert_allclose(value, [0, 0.3, 0.7, 0.8])


def test_oracle_keeps_the_order_of_ties():
    _, value = oracle_curve(np.array([0.0, 1, 3, 4]), np.array([0.0, 0.1, 0.3, 0.9]))
    np.testing.assert_allclose(value, [0, 0.6, 0.7, 0.9])
