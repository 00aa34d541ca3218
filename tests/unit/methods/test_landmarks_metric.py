"""A metric learned from the target, against its formulas and on rows of a known answer."""

from dataclasses import replace

import numpy as np
import pytest

from distfms.methods.landmarks import metric
from distfms.methods.landmarks.metric import (
    Fitter,
    TaughtRows,
    choose,
    learn,
    root,
)
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap, Similarity
from distfms.methods.landmarks.squared import Ridges
from distfms.stats.sample import RowSample
from tests.reference import landmarks as literal

RNG = np.random.default_rng(4)
ROWS, MARKS, WEIGHTS = (RNG.normal(size=size) for size in ((11, 3), (5, 3), (5, 2)))


def rows_of(X, y):
    return TaughtRows(X.T, np.atleast_2d(y), np.ones(len(X)))


def learned(X, y, n_landmarks, kernel="gaussian", kinds=("diagonal", "full"), n=3, **fixed):
    """Learn a metric from three quarters of the rows, with landmarks among all."""
    judges = np.arange(len(X)) % 4 == 0
    fitter = Fitter(rows_of(X[~judges], y[~judges]), rows_of(X[judges], y[judges]), kernel, **fixed)
    return learn(fitter, X[:n_landmarks].T, kinds, n)


def hidden(n=480, d=10, seed=0):
    """Rows whose target depends on the first two columns alone."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 1])


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
def test_one_decomposition_answers_every_ridge(ridge):
    K = np.array(
        [[literal.metric_similarity("gaussian", x, z, np.eye(3), 1.5) for z in MARKS] for x in ROWS]
    )
    norm = literal.embedding("gaussian", MARKS, MARKS, {"sigma": 1.5})
    Y = RNG.normal(size=(11, 2))
    A, left = K - K.mean(axis=0), Y - Y.mean(axis=0)
    found = Ridges.of(A.T @ A / 11, A.T @ left / 11, norm)
    wanted = literal.ridge_weights(K, Y, norm, ridge)
    np.testing.assert_allclose(found.weights(ridge), wanted, rtol=1e-6)
    errors = found.errors(np.array([0.5, ridge]), A.T, left.T)
    np.testing.assert_allclose(errors[1], ((left - A @ wanted) ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("transform", [np.array([1.0, 0.5, 2.0]), RNG.normal(size=(3, 3))])
def test_mean_products_of_gradients(kernel, transform):
    under = metric.Metric("full", 1, transform, 1.0, 1.3, 0.1, np.zeros(1), np.ones(1))
    mean, on_landmarks = (
        Fitter(own, own, kernel).mean_product(MARKS.T, under, WEIGHTS)
        for own in (rows_of(X, X[:, 0]) for X in (ROWS, MARKS))
    )
    assert np.isfinite(on_landmarks).all()
    T = np.diag(transform) if transform.ndim == 1 else transform
    wanted = literal.mean_gradient_product(kernel, ROWS, MARKS, T, 1.3, WEIGHTS)
    np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-9)
    for kind in ("diagonal", "full"):
        found = root(mean, kind)
        M = np.diag(found**2) if kind == "diagonal" else found.T @ found
        product = np.diag(np.diag(wanted)) if kind == "diagonal" else wanted
        np.testing.assert_allclose(M, 3 * product / np.trace(product), rtol=1e-4, atol=1e-8)


def test_a_row_of_weight_two_counts_as_two_rows():
    """In the mean of gradients' products, and in the choice of width and ridge."""
    X, y = hidden(60, 3)
    twice = np.random.default_rng(1).integers(1, 4, size=60)
    weighted = TaughtRows(X.T, y[np.newaxis], twice.astype(float))
    many = rows_of(np.repeat(X, twice, axis=0), np.repeat(y, twice))
    one, other = (Fitter(own, own, "gaussian") for own in (weighted, many))
    found, wanted = (own.fitted(X[:9].T, "none", 0, np.ones(3)) for own in (one, other))
    assert (found[0].sigma, found[0].ridge) == (wanted[0].sigma, wanted[0].ridge)
    assert found[0].error == pytest.approx(wanted[0].error)
    products = [own.mean_product(X[:9].T, *found) for own in (one, other)]
    np.testing.assert_allclose(*products, rtol=1e-10)


@pytest.mark.parametrize(
    ("errors", "best"), [([9, 9, 7, 8, 8], 3), ([8, 9, 9, 7, 1], 5), ([9, 9, 9, 1, 1], 0)]
)
def test_three_iterations_without_a_lower_error_are_the_last(errors, best):
    class Scripted(Fitter):
        def fitted(self, landmarks, kind, iteration, transform, widths=()):
            own = np.full(4, [9, *errors][iteration] / 10.0)
            made = metric.Metric(kind, iteration, transform, 1.0, 1.0, 0.1, own, np.ones(4))
            return made, np.ones((len(landmarks[0]), 1))

    X, y = hidden(60, 3)
    found = learn(Scripted(rows_of(X, y), rows_of(X, y), "gaussian"), X[:9].T, ("full",), 5)
    assert found[-1].iteration == best


@pytest.mark.parametrize(
    ("task", "given", "share"),
    [("classification", None, 0.02), ("classification", 0.1, 1.0), ("regression", None, 1.0)],
)
def test_a_loss_of_margins_has_a_smaller_ridge_than_squared_loss(task, given, share):
    X, y = hidden(60, 3)
    values = np.vstack((X.T, y > 0))
    sample = RowSample(60, np.arange(60).astype(np.uint64), np.arange(60), None, values)
    gaussian = Similarity("gaussian", (("sigma", 1.0),))
    mapping = LandmarkMap(gaussian, np.zeros(3), np.ones(3), np.zeros(3), X[:9])
    options = LandmarksOptions(task=task, metric="diagonal", iterations=1, ridge=given)
    last, *found = metric.learned(options, (0.0, 1.0), (mapping, sample, np.arange(60) % 4 == 0))
    ridges = metric.RIDGES if given is None else [given]
    assert np.isclose(np.asarray(ridges) * share, last.ridge, rtol=1e-12).any()
    assert np.isclose(ridges, found[-1].ridge, rtol=1e-12).any()


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_columns_that_matter_are_found(kernel):
    X, y = hidden()
    found = learned(X, y, 100, kernel)
    best = choose(found)
    assert best.kind != "none"
    assert best.error < 0.4 * found[0].error
    diagonal = next(own for own in found if own.kind == "diagonal")
    assert (diagonal.transform[:2] ** 2).sum() > 0.95 * (diagonal.transform**2).sum()
    # No width that was tried has a lower error.
    unit = found[0].sigma / found[0].width
    for width in metric.WIDTHS:
        assert learned(X, y, 100, kernel, (), sigma=width * unit)[0].error >= found[0].error


@pytest.mark.parametrize("of", ["noise", "constant"])
def test_the_isotropic_metric_stays_where_none_is_clearly_better(of):
    X, _ = hidden(120, 4)
    y = {"noise": RNG.normal(size=120), "constant": np.full(120, 3.0)}[of]
    found = learned(X, y, 40)
    assert choose(found) is found[0]
    assert found[0].transform.tolist() == [1.0] * 4


def test_gradients_that_are_the_same_everywhere_leave_one_direction():
    X, _ = hidden(120, 4)
    best = choose(learned(X, X.sum(axis=1), 40))
    assert best.kind == "full"
    np.testing.assert_allclose(best.transform, np.full((4, 4), 0.5), atol=1e-3)
    assert best.error < 1e-6


def test_fewer_rows_than_columns():
    X, y = hidden(24, 40)
    found = learned(X, y, 24)
    assert all(np.isfinite(own.error) and np.isfinite(own.transform).all() for own in found)


def test_a_gain_counts_beside_its_standard_error():
    errors = np.array([1.0, 2.0, 1.5, 1.0])
    plain = metric.Metric("none", 0, np.ones(2), 1.0, 1.0, 0.1, errors, np.ones(4))
    for less, kept in ((np.full(4, 0.1), False), (np.array([2.0, -1.5, 0.1, 0.0]), True)):
        own = replace(plain, kind="full", errors=errors - less)
        gain, error = own.gain_over(plain)
        assert gain == pytest.approx(less.mean())
        assert error == pytest.approx(less.std(ddof=1) / 2)
        assert (choose([plain, own]) is plain) == kept
