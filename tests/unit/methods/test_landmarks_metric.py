"""A metric learned from the target, against its formulas and on rows of a known answer."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression

from distfms.methods.landmarks.likelihood import unlikeliness
from distfms.methods.landmarks.metric import learned_transform
from distfms.solve import logistic
from distfms.solve.logistic import logistic_scores

RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(11, 3))


def hidden(n=200, d=10, seed=0):
    """Rows whose target depends on the first two columns alone."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 1])


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_metrics_see_the_columns_that_matter(kind):
    X, y = hidden()
    found = learned_transform(kind, X.T, y[np.newaxis], np.ones(200))
    squares = found**2 if kind == "diagonal" else np.sum(found**2, axis=0)
    assert squares.sum() == pytest.approx(10.0)
    assert squares[:2].sum() > 9.5
    constant = learned_transform(kind, X.T, np.ones((1, 200)), np.ones(200))
    np.testing.assert_array_equal(constant, np.ones(10))


def test_likelihood_of_scales():
    """Against its definition, at the likeliest variance, and its gradient against differences."""
    noise = RNG.uniform(0.5, 2.0, size=11)
    target = RNG.normal(size=(2, 11))

    def wanted(logs):
        Z = ROWS * np.exp(logs[:3])
        t = 0.5 * (logs[:3] - logs[:3].mean()) @ logs[:3] / 4.0
        K = np.exp(-0.5 * ((Z[:, np.newaxis] - Z) ** 2).sum(axis=2))
        K += np.diag(np.exp(logs[3]) * noise)
        variance = np.mean([y @ np.linalg.solve(K, y) for y in target]) / 11
        return t - multivariate_normal(cov=variance * K).logpdf(target).sum()

    at = RNG.normal(size=4)
    other = np.array([0.1, 0.2, -0.3, -1.0])
    (value, slope), (beside, _) = (unlikeliness(x, ROWS.T, target, noise) for x in (at, other))
    assert value - beside == pytest.approx(wanted(at) - wanted(other))
    np.testing.assert_allclose(slope, approx_fprime(at, wanted, 1e-7), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_logistic_regression(monkeypatch, n_classes):
    """Of scikit-learn, one class against the others; its penalty is that of the sum of losses."""
    monkeypatch.setattr(logistic, "_FALL", 1e-13)
    monkeypatch.setattr(logistic, "_STEPS", 1000)
    rng = np.random.default_rng(n_classes)
    X, other = rng.normal(size=(2, 90, 3)) * [1.0, 2.0, 0.1]
    labels = [
        np.clip(np.round(own[:, 0] + 1.0), 0, n_classes - 1).astype(int) for own in (X, other)
    ]
    mean = X.mean(axis=0)
    share = np.full(90, 1 / 90)
    grid = np.logspace(-1, -4, 4)
    classes = np.arange(n_classes)[int(n_classes == 2) :, np.newaxis]
    target, truth = ((own == classes) * 1.0 for own in labels)
    rows = (X - mean).T
    asked = (other - mean).T
    found = logistic_scores(grid, X.var(axis=0), rows, target, share, asked, truth)
    for ridge, scores in zip(grid, found, strict=True):
        for own, score in zip(target, scores, strict=True):
            model = LogisticRegression(C=share[0] / ridge, tol=1e-8, max_iter=1000)
            expected = model.fit(rows.T, own).decision_function(asked.T)
            np.testing.assert_allclose(score, expected, rtol=1e-3, atol=1e-3)
