from __future__ import annotations

import numpy as np
import pytest

from distfms import DataError
from distfms.data.rows.judgments import AttributeColumns, JudgmentLayout
from distfms.methods.multiselect.baselines import averages, copies
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.model import (
    LinearModel,
    path_models,
    path_objective,
    predict,
    projected_model,
    refit,
    refit_statistics,
)
from distfms.methods.multiselect.objective import Problem, full_objective, holdout_loss
from distfms.methods.multiselect.read import find_columns, trained_columns
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.multiselect_cases import ragged, random_judgments, random_problem, statistics
from tests.reference.statistics import ragged_of


def test_projected_model_at_the_repeats_at_hand_is_least_squares():
    judgments, label, truth = random_judgments(0, m=400, k=2)
    # Little noise, so that the external covariance is positive definite as estimated.
    judgments = truth[:, :, None] + 0.1 * (judgments - truth[:, :, None])
    est = statistics(judgments, label).estimates()
    problem = Problem.from_estimates(est)
    model = projected_model(problem, [2] * 5)
    design = np.column_stack([np.ones(400), judgments.mean(axis=2)])
    expected = np.linalg.lstsq(design, label, rcond=None)[0]
    np.testing.assert_allclose(model.weights, expected[1:], rtol=1e-8)
    assert model.intercept == pytest.approx(expected[0], rel=1e-8)


@pytest.mark.parametrize("psd", ["nearest", "none"])
@pytest.mark.parametrize("algorithm", ["full", "scoring"])
def test_path_models_are_those_computed_one_by_one(algorithm, psd):
    problem = random_problem(3, means=np.arange(6.0), label_mean=-2.0, psd=psd)
    path, steps = select(problem, 40, algorithm), np.array([0, 0, 3, 17, 40])
    models = path_models(problem, path, steps)
    for i, step in enumerate(steps):
        one = projected_model(problem, path.repeats_after(step))
        np.testing.assert_array_equal(models.repeats[i], one.repeats)
        np.testing.assert_allclose(models.weights[i], one.weights, rtol=1e-8, atol=1e-12)
        assert models.intercept[i] == pytest.approx(one.intercept)
        assert models.objective[i] == pytest.approx(full_objective(problem, one.repeats))
    objective = path_objective(problem, path, steps[2:])
    np.testing.assert_allclose(objective, models.objective[2:], rtol=1e-9)
    assert (models.spent[0], models.spent[-1]) == (0.0, one.repeats @ problem.costs)


def test_refit_is_least_squares_on_means_of_the_first_judgments():
    judgments, label, _ = random_judgments(2, m=50, k=4)
    judgments[3, 1, 2:] = np.nan
    judgments[8, 0, :] = np.nan
    judgments[9, 4, :] = np.nan
    repeats = [1, 3, 0, 4, 0]
    statistics = refit_statistics(ragged(judgments), label, repeats)
    assert statistics.n_samples == 48
    model = refit(statistics, "abcde", repeats)
    keep = np.setdiff1d(np.arange(50), [3, 8])
    means = [judgments[keep, a, : repeats[a]].mean(axis=1) for a in (0, 1, 3)]
    design = np.column_stack([np.ones(48), *means])
    expected = np.linalg.lstsq(design, label[keep], rcond=None)[0]
    np.testing.assert_allclose(model.weights, np.insert(expected[1:], [2, 3], 0), rtol=1e-8)
    assert model.intercept == pytest.approx(expected[0], rel=1e-8)


def test_refit_without_enough_judgments():
    judgments, label, _ = random_judgments(5, m=10)
    repeats = [5, 0, 0, 0, 0]
    with pytest.raises(DataError, match="No object holds as many"):
        refit(refit_statistics(ragged(judgments), label, repeats), "abcde", repeats)


def test_refit_of_dependent_averages_takes_the_smallest_weights():
    values = np.random.default_rng(0).standard_normal(20)
    both = ragged(np.stack([values, values], axis=1)[:, :, None])
    model = refit(refit_statistics(both, 2 * values + 1, [1, 1]), "ab", [1, 1])
    np.testing.assert_allclose(model.weights, [1.0, 1.0])
    assert model.intercept == pytest.approx(1.0)


def test_prediction_averages_the_first_judgments():
    model = LinearModel(
        ("a", "b", "c"), np.array([2, 0, 1]), np.array([10.0, 0.0, 1.0]), 5.0,
        np.array([0.5, 9.0, 100.0]),
    )  # fmt: skip
    judgments = [
        ragged_of([[1, 2, 30], [4], []]),
        ragged_of([[], [], []]),
        ragged_of([[7, 8], [], [9]]),
    ]
    np.testing.assert_allclose(predict(model, judgments), [5 + 15 + 7, 5 + 40 + 100, 5 + 5 + 9])
    with pytest.raises(DataError, match="'a' is infinite"):
        predict(model, [ragged_of([[np.inf]] * 3), *judgments[1:]])
    empty = LinearModel(("a",), np.array([0]), np.zeros(1), 6.0, np.zeros(1))
    assert predict(empty, [ragged_of([[1], [2]])]).tolist() == [6.0, 6.0]


# --- columns of other data ----------------------------------------------------------------------

FIXED = AttributeColumns("a", ("a__1", "a__2"), "numbers")
PLAIN = AttributeColumns("a", ("a",), "list")


@pytest.mark.parametrize(
    ("attribute", "available", "new", "expected"),
    [
        (FIXED, ["a__1", "a__2"], ["a__2", "a__1", "b"], ["a__2", "a__1"]),
        (FIXED, ["a__1", "a__2"], ["a", "a__1"], ["a__1"]),
        (FIXED, ["a__1", "a__2"], ["a"], ["a"]),
        (FIXED, ["a__1", "a__2"], ["a__1", "a__2", "a__3"], ["a__1", "a__2", "a__3"]),
        (FIXED, ["a", "a__1", "a__2", "a__3"], ["a", "a__1", "a__3", "a__4"], ["a__1", "a__4"]),
        (PLAIN, ["a"], ["a", "a__1"], ["a"]),
        (PLAIN, ["a"], ["a__1", "a__2"], ["a__1", "a__2"]),
        (PLAIN, ["a", "a__1"], ["a__1", "a"], ["a"]),
        (PLAIN, ["a", "a__1"], ["a__1", "a__2"], ["a__2"]),
    ],
)
def test_columns_of_other_data(attribute, available, new, expected):
    trained = trained_columns(JudgmentLayout((attribute,)), [*available, "y", "b__1"])
    assert find_columns(trained, ["a"], new) == expected
    assert trained["columns"] == {"a": list(attribute.columns)}


def test_what_is_lacking_is_named_with_what_was_left_out():
    trained = trained_columns(JudgmentLayout((FIXED,)), ["a", "a__1", "a__2"])
    with pytest.raises(DataError, match=r"no judgments of 'a', 'c', .* \(a was left out in tr"):
        find_columns(trained, ["a", "b", "c"], ["a", "b"])
    # Names that end like numbered columns are names where a column is called so.
    assert find_columns({}, ["x__1", "x"], ["x__1", "x__2"]) == ["x__1", "x__2"]
    assert find_columns({}, [], ["a"]) == []


# --- units of the judgments, and constants ------------------------------------------------------

NAMES = tuple("abcde")


def learn(judgments, label, psd, model):
    """Repeats, held-out loss and predictions of a model learned from the first 20 objects."""
    train, rest = (ragged(part) for part in (judgments[:20], judgments[20:]))
    estimates = JudgmentStatistics.from_block(train, label[:20]).estimates()
    problem = Problem.from_estimates(estimates, names=NAMES, psd=psd)
    # Where a refit needs them there are as many judgments as are bought.
    repeats = np.minimum(select(problem, 12).final_repeats, 3)
    if model == "refit":
        found = refit(refit_statistics(train, label[:20], repeats), NAMES, repeats)
    else:
        found = projected_model(problem, repeats)
    held_out = JudgmentStatistics.from_block(rest, label[20:]).estimates()
    loss = holdout_loss(held_out, found.weights, found.intercept, repeats)
    return repeats, loss, predict(found, rest), found.weights


@pytest.mark.parametrize("factor", [1e-6, 1e5, 1e9])
@pytest.mark.parametrize("model", ["projected", "refit"])
@pytest.mark.parametrize("psd", ["nearest", "none"])
def test_units_of_an_attribute_do_not_matter(psd, model, factor):
    judgments, label, _ = random_judgments(8, m=60, k=3)
    external = (
        JudgmentStatistics.from_block(ragged(judgments[:20]), label[:20]).estimates().external
    )
    assert np.linalg.eigvalsh(external)[0] < 0
    repeats, loss, values, weights = learn(judgments, label, psd, model)
    assert np.count_nonzero(repeats) > 2
    units = np.ones(5)
    units[np.flatnonzero(repeats)[1]] = factor
    other = learn(judgments * units[:, None], label, psd, model)
    np.testing.assert_array_equal(other[0], repeats)
    np.testing.assert_allclose(other[1], loss, rtol=1e-8)
    np.testing.assert_allclose(other[2], values, rtol=1e-8)
    np.testing.assert_allclose(other[3] * units, weights, rtol=1e-7)


def test_a_refit_of_small_and_large_numbers_is_least_squares():
    rng = np.random.default_rng(3)
    columns = np.stack([rng.normal(5e4, 2e4, 300), rng.uniform(0, 1, 300), np.full(300, 0.1)])
    label = 2e-5 * columns[0] + 3.0 * columns[1]
    statistics = refit_statistics(ragged(columns.T[:, :, None]), label, [1, 1, 1])
    found = refit(statistics, "abc", [1, 1, 1])
    np.testing.assert_allclose(found.weights, [2e-5, 3.0, 0.0], rtol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1 / 3, -1e7 / 3])
def test_constants_with_a_variance_from_rounding_are_never_bought(value):
    judgments, label, _ = random_judgments(4, m=60, k=2)
    judgments[:, 2] = value
    parts = [
        (ragged(judgments[rows]), label[rows])
        for rows in (slice(0, 7), slice(7, 20), slice(20, 60))
    ]
    statistics = JudgmentStatistics.empty(5)
    for part in parts:
        statistics = statistics.merge(JudgmentStatistics.from_block(*part))
    estimates = statistics.estimates()
    problem = Problem.from_estimates(estimates)
    assert problem.candidates.tolist() == [True, True, False, True, True]
    for path in (
        select(problem, 40),
        select(problem, 40, "scoring"),
        averages(problem, estimates, 40, 2),
        copies(problem, estimates, 40, 2),
    ):
        assert path.final_repeats[2] == 0
