import numpy as np
import pytest

from distfms.methods.sequence.evaluate import (
    add_validation,
    best_model,
    plateau,
    stopping_cost,
    timeliness,
    values_of,
)
from distfms.stats.folds import FoldAnswers

COST = np.array([0.0, 1.0, 3.0, 7.0])
VALUE = np.array([0.0, 0.5, 0.7, 0.8])


@pytest.mark.parametrize(
    ("options", "area", "end"),
    [
        ({}, 0.25 + 2 * 0.6 + 4 * 0.75, 7),
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


# --- sets for budgets beside prefixes ---


def entry(n_groups, budget, explained, **more):
    shares = {"explained_variance": explained}
    train = {"explained_variance": 2 * explained}
    return {"n_groups": n_groups, "budget": budget, "train": train, "validation": shares | more}


@pytest.mark.parametrize(
    ("explained", "error", "value"),
    [
        (0.40, 0.02, 0.38),
        (0.40, 0.12, None),  # the better one may be so by chance
        (0.30, 0.00, None),  # as good as the prefix of the same budget
        (0.25, 0.00, None),
    ],
)
def test_sets_count_for_what_they_surely_gain_on_the_prefix_of_their_budget(
    explained, error, value
):
    prefixes = [entry(0, 0.0, 0.0), entry(1, 1.0, 0.3), entry(2, 3.0, 0.5)]
    own = entry(1, 2.0, explained, error_of_gain=error)
    metrics = {"curves": [{"points": prefixes}], "budgets": [{"budget": 2.0, "set": own}]}
    found = values_of(metrics)
    np.testing.assert_allclose(found[:3], [0.0, 0.3, 0.5])
    if value is None:
        assert found[3] < found[:3].min()
    else:
        assert found[3] == pytest.approx(value)
    bought = [best_model(np.array([1.0, 3.0]), np.array([2.0]), found, b) for b in (1.0, 2.0, 3.0)]
    assert bought == [1, 1 if value is None else 3, 2]


def test_the_error_of_a_gain_is_that_of_differences_on_the_same_folds():
    share = "explained_variance"
    grid = np.array([0.0, 1.0, 3.0])
    prefix = np.array([[0.0, 0.1, 0.5, 0.5], [0.0, 0.5, 0.6, 0.6], [0.0, 0.3, 0.7, 0.7]])
    of_set = np.array([0.15, 0.60, 0.33])
    answers = (
        tuple({share: own} for own in prefix),
        tuple({share: np.array([0.0, own])} for own in of_set),
    )
    validated = FoldAnswers((0, 1, 2), (10, 10, 10), (1.0, 1.0, 1.0), answers)
    budgets = [{"budget": 2.0, "set": {}}]
    add_validation(budgets, validated, share, grid)
    gain = of_set - prefix[:, 1]
    results = budgets[0]["set"]["validation"]
    assert results[share] == pytest.approx(of_set.mean())
    assert results["error_of_gain"] == pytest.approx(gain.std(ddof=1) / np.sqrt(3))
