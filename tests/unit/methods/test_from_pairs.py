"""Regression from pairs of attributes: draws, moments and the solve, against literal formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.methods.attribute_efficient import from_pairs
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    Spectrum,
    full_candidates,
    lasso_candidates,
    solve,
)
from distfms.methods.attribute_efficient.pairs import Pairs
from distfms.stats.comoments import CoMoments
from tests.reference import attribute_efficient as literal

N = 400
D = 9
K = 4
KEYS = np.arange(N, dtype=np.uint64)


def rows_of(seed=0, n=N, d=D):
    """Correlated attributes of unlike scale and offset, and a noisy linear target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3) * np.geomspace(0.1, 10.0, d) + 50.0
    return X, X @ (rng.normal(size=d) / X.std(axis=0)) + rng.normal(size=n)


X, Y = rows_of()
FOLD = (KEYS % np.uint64(5)).astype(int)


ALIKE = Draws(K, 3)


def observed_of(draws=ALIKE, X=X):
    return draws.observe(X.T.copy(), KEYS[: len(X)])


def pairs_of(observed, y=Y, fold=FOLD):
    return Pairs.of(np.vstack([observed, y]), fold)


def solved(pairs, *candidates, **units):
    return solve(FoldPairs([*pairs.folds.values()]), *candidates, **units)


CANDIDATES = [from_pairs.ridge_candidates, lasso_candidates, full_candidates]


@given(
    seed=st.integers(0, 2**32 - 1),
    exponents=st.lists(st.integers(-18, 18), min_size=D, max_size=D),
    candidates=st.sampled_from(CANDIDATES),
)
@settings(max_examples=30)
def test_units_of_attributes_change_nothing_but_their_weights(seed, exponents, candidates):
    """Bit by bit for powers of two, and to rounding for others; of what hardly varies too."""
    X, y = rows_of(seed, 60, D)
    X[:, 3] = np.arange(60) == 7  # constant without its fold
    observed = X.T if candidates is full_candidates else observed_of(X=X)

    def found(units):
        return solved(pairs_of(observed * units[:, None], y, FOLD[:60]), candidates)

    expected = found(np.ones(D))
    units = 8.0 ** np.array(exponents)
    np.testing.assert_array_equal(found(units).weights * units, expected.weights)
    assert found(units).intercept == expected.intercept
    units = 10.0 ** np.array(exponents)
    effects = np.abs(expected.weights) * X.std(axis=0)
    change = (found(units).weights * units - expected.weights) * X.std(axis=0)
    assert np.abs(change).max() <= 1e-6 * effects.max()


def test_many_attributes_are_solved_in_a_krylov_space(monkeypatch):
    pairs = pairs_of(observed_of())
    exact = solved(pairs)
    monkeypatch.setattr(from_pairs, "MOST_DECOMPOSED", 0)
    np.testing.assert_allclose(solved(pairs).weights, exact.weights, rtol=1e-8)
    monkeypatch.setattr(from_pairs, "KRYLOV_STEPS", 5)
    scale = X.std(axis=0)
    np.testing.assert_allclose(solved(pairs).weights * scale, exact.weights * scale, atol=0.1)
    monkeypatch.setattr(from_pairs, "KRYLOV_STEPS", 1)
    assert np.abs((solved(pairs).weights - exact.weights) * scale).max() > 0.3


def test_the_noise_level_makes_the_moments_definite():
    """Also where pairs contradict one another by more than chance."""
    rng = np.random.default_rng(0)
    n = 3000
    common = rng.normal(size=n)
    rows = common + 0.1 * rng.normal(size=(3, n))
    part = np.arange(n) % 3
    rows[2, part == 2] *= -1.0
    rows[2 - part, np.arange(n)] = np.nan  # the last two are seen together where they are opposed
    A, _, v, V = literal.pair_moments(rows.T, common)
    A, _, noise = literal.scaled(A, v, V, True)
    least = -np.linalg.eigvalsh(A)[0]
    assert noise == least > 5 * np.sqrt((V / np.outer(v, v)).sum() / 3)
    moments, _, _ = FoldPairs([pairs_of(rows, common, np.zeros(n)).folds[0]] * 2).without(0)
    assert Spectrum.of(moments, "deviations").noise == pytest.approx(least)


def test_pairs_of_few_values_among_many_columns():
    """Are added up one by one, to the same statistic."""
    rng = np.random.default_rng(4)
    observed = 1e6 + rng.normal(size=(600, 80))
    observed[:-1][rng.random((599, 80)) > 0.05] = np.nan
    sparse = Pairs.of(observed, np.zeros(80)).folds[0]
    dense = CoMoments.from_block(observed)
    assert sparse.n_samples == dense.n_samples
    np.testing.assert_allclose(sparse.mean, dense.mean, rtol=1e-13)
    np.testing.assert_array_equal(sparse.pair_weight, dense.pair_weight)
    for name in ("comoment", "cross"):
        np.testing.assert_allclose(getattr(sparse, name), getattr(dense, name), atol=1e-8)


def test_draws_follow_the_weights():
    keys = np.arange(40_000, dtype=np.uint64)
    weights = np.array([4.0, 2.0, 1.0, 1.0])
    shares = np.bincount(Draws(1, 0, weights).attributes(keys, 4).ravel()) / len(keys)
    np.testing.assert_allclose(shares, weights / 8, atol=0.01)
    alike = np.bincount(Draws(2, 0).attributes(keys, 4).ravel()) / len(keys)
    np.testing.assert_allclose(alike, 0.5, atol=0.01)
    draws = Draws(1, 0, np.array([1.0, 1e-9, 1e-9, 1e-9]), phases=True)
    first = draws.first_phase(keys)
    assert first.mean() == pytest.approx(0.1, abs=0.01)
    drawn = draws.attributes(keys, 4).ravel()
    assert (drawn[~first] == 0).all()
    np.testing.assert_allclose(np.bincount(drawn[first]) / first.sum(), 0.25, atol=0.03)
