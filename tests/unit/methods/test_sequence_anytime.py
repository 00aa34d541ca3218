from functools import partial

import numpy as np
import pytest

from distfms.errors import DataError, SpecError
from distfms.methods.sequence import anytime
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession
from distfms.methods.sequence.greedy import sequence
from tests.reference.sequence import correlated, make_problem

SIZES = [2, 1, 3]


@pytest.fixture
def case():
    X, Y, groups = correlated(np.random.default_rng(4), 200, SIZES)
    path = sequence(make_problem(X, Y, groups, costs=[1, 2, 4]))
    return X, groups, path, AnytimePredictor.from_path(path)


def predicted(predictor, X, number):
    values = dict(zip(predictor.feature_names, X.T, strict=True))
    found = predictor.predict(number, values, len(X))
    return found[:, 0] if found.shape[1] == 1 else found


def values_of(case, name, rows=slice(None)):
    X, groups, *_ = case
    return X[rows][:, groups[int(name[1:])]]


def test_a_group_ahead_of_its_turn_counts_when_the_gap_is_closed(case):
    X, _, path, predictor = case
    first, second, third = predictor.groups
    session = AnytimeSession(predictor, n_samples=200)
    np.testing.assert_allclose(session.prediction, predicted(predictor, X, 0))
    assert session.next_group() == first
    session.deliver(third, values_of(case, third))
    assert (session.n_groups, session.spent) == (0, 0.0)
    session.deliver(first, values_of(case, first))
    np.testing.assert_allclose(session.prediction, predicted(predictor, X, 1))
    session.deliver(second, values_of(case, second))
    assert (session.n_groups, session.spent) == (3, path.spent[2])
    assert session.next_group() is None
    np.testing.assert_allclose(session.prediction, predicted(predictor, X, 3))


def test_deliveries_are_checked(case):
    *_, predictor = case
    session = AnytimeSession(predictor, n_samples=200)
    name = predictor.groups[0]
    fine = values_of(case, name)
    for group, values, message in (
        ("zz", [1.0], "'zz' is not a group"),
        (name, np.zeros((199, 1)), "needs values of shape"),
        ("g2", np.zeros((3, 200)), "needs values of shape"),  # the wrong way round
        (name, np.full_like(fine, np.inf), "infinite"),
    ):
        with pytest.raises((SpecError, DataError), match=message):
            session.deliver(group, values)
    session.deliver(name, fine)
    with pytest.raises(SpecError, match="already delivered"):
        session.deliver(name, fine)


def test_run_computes_until_the_deadline_the_budget_or_a_gap(case, monkeypatch):
    X, _, path, predictor = case
    first, second = predictor.groups[:2]
    now = [0.0]
    computed = []
    monkeypatch.setattr(anytime.time, "monotonic", lambda: now[0])

    def computing(name):
        now[0] += 2.0
        computed.append(name)
        return values_of(case, name)

    compute = {name: partial(computing, name) for name in predictor.groups}
    late = AnytimeSession(predictor, 200, deadline_s=3.0)
    np.testing.assert_allclose(late.run(compute), predicted(predictor, X, 1))
    late.run(compute)
    assert computed == [first, second]  # the second ended too late; then nothing is begun

    session = AnytimeSession(predictor, 200)
    np.testing.assert_allclose(
        session.run(compute, budget=path.spent[0] + 0.5), predicted(predictor, X, 1)
    )
    del compute[second]
    assert session.run(compute) is session.prediction
    assert session.n_groups == 1
    session.deliver(second, values_of(case, second))
    np.testing.assert_allclose(session.run(compute), predicted(predictor, X, 3))
