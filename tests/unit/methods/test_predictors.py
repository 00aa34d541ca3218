"""What models of pairs make of rows: limits, and the weights of rows with gaps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from distfms.methods.attribute_efficient import from_pairs, predictors
from distfms.methods.attribute_efficient.from_pairs import learned_from
from distfms.methods.attribute_efficient.normal import normal_model
from distfms.methods.attribute_efficient.pairs import Pairs
from distfms.methods.attribute_efficient.predictors import (
    ByPattern,
    CutLinear,
    Gaps,
    limits_between,
)
from tests.reference import attribute_efficient as literal

N = 300
D = 6
FOLD = np.arange(N) % 5


def rows_of(seed, n=N, d=D, share=0.5):
    """Rows (d, n) of correlated attributes with gaps, and a target of all that they have."""
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n, d)) @ (np.eye(d) + 0.5) * np.geomspace(0.1, 10.0, d) + 5.0
    y = whole @ (rng.normal(size=d) / whole.std(axis=0)) + 0.3 * rng.normal(size=n)
    return np.where(rng.random((n, d)) < share, whole, np.nan).T, y


def unlimited(d):
    return np.tile([[-np.inf], [np.inf]], d + 1)


def model_of(rows, y, limits=None, units="deviations"):
    """A predictor of rows with gaps, and of those without."""
    d = len(rows)
    limits = unlimited(d) if limits is None else limits
    learned = learned_from(Pairs.of(np.vstack([rows, y]), FOLD), "ridge", units, takes_gaps=True)
    whole = CutLinear(learned.weights[None], np.array([learned.intercept]), np.zeros(d), limits)
    return ByPattern(whole, learned.gaps)


@pytest.mark.parametrize("units", ["deviations", "raw"])
def test_rows_with_gaps_are_predicted_as_by_a_solve_for_each(units):
    rows, y = rows_of(0)
    rows[:, 4] = np.nan
    rows[:, 5] = 1.0
    limits = limits_between(np.nanmin(rows, axis=1), np.nanmax(rows, axis=1), False)
    limits = np.hstack([limits, [[y.min()], [y.max()]]])
    model = model_of(rows, y, limits, units)
    others = rows_of(1)[0] * 2.0  # beyond what was observed too
    expected = literal.predict_gaps(rows.T, y, FOLD, others.T, units == "deviations")
    results = model(others)[0]
    np.testing.assert_allclose(results, expected, rtol=1e-9)
    assert model(rows[:, 4:5])[0] == pytest.approx(y.mean())
    stored = ByPattern(model.whole, Gaps.from_arrays(model.gaps.to_arrays()))
    np.testing.assert_array_equal(stored(others)[0], results)


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.1, 1.0), held=st.sampled_from([8, 2**22]))
def test_a_row_is_predicted_alike_among_any_others(seed, share, held):
    """Bit by bit; also where rows come in other portions."""
    rng = np.random.default_rng(seed)
    rows, _ = rows_of(seed, 40, share=share)
    own = rng.permutation(40)[: rng.integers(1, 40)]
    with pytest.MonkeyPatch.context() as patch:
        results = MODEL(rows)[0]
        patch.setattr(predictors, "_HELD", held)
        np.testing.assert_array_equal(MODEL(rows[:, own].copy())[0], results[own])
        np.testing.assert_array_equal(MODEL(rows[:, own[:1]])[0], results[own[:1]])


MODEL = model_of(*rows_of(3))


def test_rows_of_many_attributes_with_gaps(monkeypatch):
    rows, y = rows_of(2)
    monkeypatch.setattr(from_pairs, "MOST_DECOMPOSED", 2)  # in Krylov spaces, of A as it is
    found = model_of(rows, y)
    assert np.linalg.eigvalsh(found.gaps.gram)[0] > 0
    partly = np.isnan(rows).any(axis=0)
    assert np.mean((found(rows)[0] - y)[partly] ** 2) < 0.6 * y.var()


def normal_of(rows, y):
    gaps = normal_model(rows, y)
    weights = np.zeros((1, len(rows)))
    weights[0, gaps.columns] = gaps.weights(np.ones((1, len(gaps.columns)), dtype=bool))
    intercept = gaps.mean[-1:] - weights[:, gaps.columns] @ gaps.mean[:-1]
    return ByPattern(CutLinear(weights, intercept, gaps.mean[:-1], unlimited(len(rows))), gaps)


def test_a_normal_model_is_that_of_the_literal_steps():
    rows, y = rows_of(3)
    others = np.hstack([rows_of(4)[0], rows_of(5, share=1.0)[0]])
    expected = literal.predict_normal(rows.T, y, others.T)
    np.testing.assert_allclose(normal_of(rows, y)(others)[0], expected, rtol=1e-8)


def test_labels_are_predicted_by_what_is_expected_of_a_discriminant_analysis():
    """Of scores that are normal given the label, with and without gaps; other labels swap signs."""
    rows, score = rows_of(6)
    y = np.where(score > np.quantile(score, 0.7), 1.0, -1.0)
    model = normal_of(rows, y)
    others = np.hstack([rows_of(7)[0], rows_of(8, share=1.0)[0]])
    results = model(others)[0]
    linear = ByPattern(model.whole, replace(model.gaps, label_variance=0.0))
    for row, own, score in zip(others.T, results, linear(others)[0], strict=True):
        seen = ~np.isnan(row)
        w = model.gaps.weights(seen[None])[0]
        explained = w @ (model.gaps.cross * model.gaps.scale) / y.var()
        place = (np.array([-1.0, 1.0]) - y.mean()) * explained + y.mean()
        spread = np.sqrt(explained * (1.0 - explained) * y.var()) or 1.0
        chances = norm.pdf(score, place, spread) * [np.mean(y < 0), np.mean(y > 0)]
        assert own == pytest.approx((chances[1] - chances[0]) / chances.sum(), abs=1e-6)
    np.testing.assert_allclose(normal_of(rows, -y)(others)[0], -results, rtol=1e-7)


@given(
    seed=st.integers(0, 2**32 - 1), exponents=st.lists(st.integers(-9, 9), min_size=D, max_size=D)
)
@settings(max_examples=20)
def test_units_do_not_matter_to_a_normal_model(seed, exponents):
    rows, y = rows_of(seed, 60)
    units = 8.0 ** np.array(exponents)[:, None]
    found = normal_of(rows * units, y)(rows[:, :9] * units)
    np.testing.assert_array_equal(found, normal_of(rows, y)(rows[:, :9]))


def test_there_is_no_normal_model_of_what_does_not_vary():
    assert normal_model(np.ones((2, 9)), np.arange(9.0)) is None
    assert normal_model(np.arange(18.0).reshape(2, 9), np.ones(9)) is None
