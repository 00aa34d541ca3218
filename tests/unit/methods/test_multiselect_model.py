import numpy as np
import pytest

from distfms import DataError
from distfms.data.rows.judgments import AttributeColumns, JudgmentLayout
from distfms.methods.frame.judge import squared_errors_on_averages
from distfms.methods.multiselect.model import (
    LinearModel,
    predict,
    projected_model,
    refit,
    refit_statistics,
)
from distfms.methods.multiselect.predictor import find_columns, trained_columns
from distfms.solve.buying import Problem
from distfms.solve.purchases import select
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.multiselect_cases import ragged, random_judgments
from tests.reference.statistics import ragged_of


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
    loss = squared_errors_on_averages(held_out, found.weights, found.intercept, repeats)
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
