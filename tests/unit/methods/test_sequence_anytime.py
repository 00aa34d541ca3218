import json
from dataclasses import replace

import numpy as np
import pytest

from distfms.errors import DataError, SpecError
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.models import LinearModels
from tests.reference.sequence import comoments, correlated, make_problem

SIZES = [2, 1, 3]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def case():
    X, Y, groups = correlated(np.random.default_rng(4), 200, SIZES)
    path = sequence(make_problem(X, Y, groups, costs=[1, 2, 4]))
    return X, groups, path, AnytimePredictor.from_path(path)


def values_of(case, name, rows=slice(None)):
    X, groups, *_ = case
    return X[rows][:, groups[int(name[1:])]]


def test_budget_decides_the_prefix(case):
    X, _, path, predictor = case
    models = path.prefix_models()
    coefficients, intercept = models.coefficients, models.intercept
    for step, cost in enumerate(path.curve_cost):
        for budget in (cost, cost + 0.5):
            expected = X @ coefficients[step, :, 0] + intercept[step, 0]
            np.testing.assert_allclose(predictor.predict(X, budget), expected)
    np.testing.assert_array_equal(predictor.predict(X), predictor.predict(X, 7.0))


def test_errors_of_a_prefix_on_other_rows_need_their_moments_alone(case):
    *_, predictor = case
    X, Y, _ = correlated(np.random.default_rng(5), 90, SIZES)
    X, Y = X + 0.5, Y - 2.0
    for n_groups in range(4):
        found = predictor.errors_on(comoments(X, Y), predictor.feature_names, n_groups)
        away = predictor.predict_by(n_groups, X) - Y[:, 0]
        assert found["mse"] == pytest.approx(np.mean(away**2))
        assert found["r2"] == pytest.approx(1 - np.mean(away**2) / Y.var())


def test_missing_values_are_the_training_mean(case):
    X, _, path, predictor = case
    holes, filled = X.copy(), X.copy()
    holes[3, 2], filled[3, 2] = np.nan, path.scaling.mean[2]
    np.testing.assert_allclose(predictor.predict(holes), predictor.predict(filled))


def test_bad_data_are_refused(case):
    X, *_, predictor = case
    infinite = X.copy()
    infinite[0, 4] = np.inf
    for rows, message in (
        (infinite, "Infinite values in x4"),
        (X[:, :5], "knows 6 features"),
        ({"x0": X[:, 0]}, "lack the columns"),
    ):
        with pytest.raises(DataError, match=message):
            predictor.predict(rows)


def test_stored_and_loaded_it_predicts_the_same(case):
    X, *_, predictor = case
    names = json.loads(json.dumps(predictor.to_dict()))
    again = AnytimePredictor.from_arrays(predictor.to_arrays(), names)
    np.testing.assert_array_equal(again.predict(X, 3.0), predictor.predict(X, 3.0))
    assert again.groups == predictor.groups
    assert all(a.dtype == np.float64 for a in predictor.to_arrays().values())


def test_a_group_ahead_of_its_turn_counts_when_the_gap_is_closed(case):
    X, _, path, predictor = case
    first, second, third = predictor.groups
    session = predictor.start(n_samples=200)
    np.testing.assert_allclose(session.prediction, predictor.predict(X, 0.0))
    assert session.next_group == first
    session.deliver(third, values_of(case, third))
    assert (session.n_groups, session.spent) == (0, 0.0)
    session.deliver(first, values_of(case, first))
    np.testing.assert_allclose(session.prediction, predictor.predict(X, path.spent[0]))
    session.deliver(second, values_of(case, second))
    assert (session.n_groups, session.spent) == (3, path.spent[2])
    assert session.next_group is None
    np.testing.assert_allclose(session.prediction, predictor.predict(X))


def test_one_row_may_come_flat(case):
    X, *_, predictor = case
    session = predictor.start()
    for name in predictor.groups:
        session.deliver(name, values_of(case, name, slice(5, 6)).ravel())
    np.testing.assert_allclose(session.prediction, predictor.predict(X[5:6]))


def test_deliveries_are_checked(case):
    *_, predictor = case
    session = predictor.start(n_samples=200)
    name = predictor.groups[0]
    fine = values_of(case, name)
    for group, values, message in (
        ("zz", [1.0], "'zz' is not a group"),
        (name, np.zeros((199, 1)), "needs values of shape"),
        ("g2", np.zeros((3, 200)), "needs values of shape"),  # the wrong way round
        (name, np.full_like(fine, np.inf), "Infinite"),
    ):
        with pytest.raises((SpecError, DataError), match=message):
            session.deliver(group, values)
    session.deliver(name, fine)
    with pytest.raises(SpecError, match="already delivered"):
        session.deliver(name, fine)


def test_run_computes_in_order_until_the_deadline(case):
    X, _, path, predictor = case
    clock, computed = Clock(), []

    def computing(name):
        def compute():
            computed.append(name)
            clock.now += 2.0
            return values_of(case, name)

        return compute

    compute = {name: computing(name) for name in predictor.groups}
    session = predictor.start(n_samples=200, deadline_s=3.0, clock=clock)
    prediction = session.run(compute)
    assert computed == list(predictor.groups[:2])  # the second ended too late and does not count
    np.testing.assert_allclose(prediction, predictor.predict(X, path.spent[0]))
    assert session.expired
    assert not session.deliver(predictor.groups[1], values_of(case, predictor.groups[1]))
    session.run(compute)
    assert len(computed) == 2  # nothing is begun once the deadline is over


def test_run_keeps_to_the_budget_and_stops_at_a_gap(case):
    X, _, path, predictor = case
    compute = {name: lambda name=name: values_of(case, name) for name in predictor.groups}
    session = predictor.start(n_samples=200)
    session.run(compute, budget=path.spent[0] + 0.5)
    assert session.n_groups == 1
    del compute[predictor.groups[1]]
    session.run(compute)
    assert session.n_groups == 1
    session.deliver(predictor.groups[1], values_of(case, predictor.groups[1]))
    np.testing.assert_allclose(session.run(compute), predictor.predict(X))


@pytest.mark.parametrize(("family", "n_targets"), [("logistic", 1), ("softmax", 3), ("poisson", 1)])
def test_families_answer_with_the_mean(family, n_targets):
    rng = np.random.default_rng(0)
    X, Y, groups = correlated(rng, 60, SIZES, n_targets=n_targets)
    path = sequence(make_problem(X, Y, groups))
    coefficients = 1e-3 * rng.standard_normal((4, 6, n_targets))
    intercept = rng.standard_normal((4, n_targets))
    models = LinearModels(coefficients, intercept, path.scaling.mean)
    predictor = replace(AnytimePredictor.from_path(path, family), models=models)
    score = X @ coefficients[3] + intercept[3]
    mean = {
        "logistic": 1 / (1 + np.exp(-score[:, 0])),
        "softmax": np.exp(score) / np.exp(score).sum(axis=1, keepdims=True),
        "poisson": np.exp(score[:, 0]),
    }[family]
    np.testing.assert_allclose(predictor.predict(X), mean)
    session = predictor.start(n_samples=60)
    session.run({name: lambda g=int(name[1:]): X[:, groups[g]] for name in predictor.groups})
    np.testing.assert_allclose(session.prediction, mean)
