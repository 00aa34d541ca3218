"""A metric learned from the target, against its formulas and on rows of a known answer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression

from distfms import LandmarkClassifier
from distfms.methods.landmarks import fit, logistic, metric
from distfms.methods.landmarks.likelihood import likely_scales, unlikeliness
from distfms.methods.landmarks.logistic import LOGISTIC_RIDGES, log_losses
from distfms.methods.landmarks.losses import probabilities
from distfms.methods.landmarks.metric import Fitter, TaughtRows, Way, again, choose, learn, root
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


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("transform", [np.array([1.0, 0.5, 2.0]), RNG.normal(size=(3, 3))])
def test_mean_products_of_gradients(kernel, transform):
    under = metric.Metric(Way("full"), transform, 1.0, 1.3, 0.1, np.zeros(1), np.ones(1))
    mean, on_landmarks = (
        Fitter(own, own, kernel).mean_product(MARKS.T, under, WEIGHTS, True)
        for own in (rows_of(X, X[:, 0]) for X in (ROWS, MARKS))
    )
    assert np.isfinite(on_landmarks).all()
    T = np.diag(transform) if transform.ndim == 1 else transform
    wanted = literal.mean_gradient_product(kernel, ROWS, MARKS, T, 1.3, WEIGHTS)
    np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-9)
    rows = rows_of(ROWS, ROWS[:, 0])
    alone = Fitter(rows, rows, kernel).mean_product(MARKS.T, under, WEIGHTS, False)
    np.testing.assert_allclose(alone, np.diag(mean), rtol=1e-12)
    np.testing.assert_allclose(root(alone, "diagonal"), root(mean, "diagonal"), rtol=1e-12)
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
    one, other = (Fitter(own, replace(own), "gaussian") for own in (weighted, many))
    found, wanted = (own.fitted(X[:9].T, Way("none"), np.ones(3)) for own in (one, other))
    assert (found[0].sigma, found[0].ridge) == (wanted[0].sigma, wanted[0].ridge)
    assert found[0].error == pytest.approx(wanted[0].error)
    products = [own.mean_product(X[:9].T, *found, True) for own in (one, other)]
    np.testing.assert_allclose(*products, rtol=1e-10)


def test_likelihood_of_scales():
    """Against its definition, at the likeliest variance, and its gradient against differences."""
    noise, target = RNG.uniform(0.5, 2.0, size=11), RNG.normal(size=(2, 11))

    def wanted(logs):
        Z, t = ROWS * np.exp(logs[:3]), 0.5 * (logs[:3] - logs[:3].mean()) @ logs[:3] / 4.0
        K = np.exp(-0.5 * ((Z[:, np.newaxis] - Z) ** 2).sum(axis=2))
        K += np.diag(np.exp(logs[3]) * noise)
        variance = np.mean([y @ np.linalg.solve(K, y) for y in target]) / 11
        return t - multivariate_normal(cov=variance * K).logpdf(target).sum()

    at, other = RNG.normal(size=4), np.array([0.1, 0.2, -0.3, -1.0])
    (value, slope), (beside, _) = (unlikeliness(x, ROWS.T, target, noise) for x in (at, other))
    assert value - beside == pytest.approx(wanted(at) - wanted(other))
    np.testing.assert_allclose(slope, approx_fprime(at, wanted, 1e-7), rtol=1e-4, atol=1e-5)
    X, y = hidden(200)
    scales = likely_scales(X.T, y[np.newaxis], np.ones(200))
    assert scales @ scales == pytest.approx(10.0)
    assert (scales[:2] > 10 * scales[2:].max()).all()


def test_errors_of_rows_that_are_left_out():
    """As models fitted without each row in turn have them."""
    K, y, A = RNG.normal(size=(4, 9)), RNG.normal(size=9), 2.0 * np.eye(4)
    share, ridge = RNG.uniform(0.5, 1.0, size=9), 0.3
    share /= share.sum()
    rows, target = K - (K @ share)[:, np.newaxis], (y - y @ share)[np.newaxis]
    ridges = Ridges.of((rows * share) @ rows.T, (rows * share) @ target.T, A)
    found = ridges.errors(np.array([ridge]), rows, target, share)[0]
    for i in range(9):
        w = np.where(np.arange(9) == i, 0.0, share)
        Z, z = K - (K @ w / w.sum())[:, np.newaxis], y - y @ w / w.sum()
        u = np.linalg.solve((Z * w) @ Z.T + ridge * A, (Z * w) @ z)
        assert found[i] == pytest.approx((u @ Z[:, i] - z[i]) ** 2, rel=1e-4)


def test_few_rows_teach_and_judge_at_once():
    X, y = hidden(150)
    rows = rows_of(X, y)
    plain, best = learn(Fitter(rows, rows, "gaussian"), X.T, ("diagonal",), 0)
    assert (best.kind, best.iteration, len(best.errors)) == ("diagonal", 0, 150)
    assert best.error < 0.1 * plain.error
    assert choose([plain, best]) is best


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
    plain = metric.Metric(Way("none"), np.ones(2), 1.0, 1.0, 0.1, errors, np.ones(4))
    for less, kept in ((np.full(4, 0.1), False), (np.array([2.0, -1.5, 0.1, 0.0]), True)):
        own = replace(plain, way=Way("full"), errors=errors - less)
        gain, error = own.gain_over(plain)
        assert gain == pytest.approx(less.mean())
        assert error == pytest.approx(less.std(ddof=1) / 2)
        assert (choose([plain, own]) is plain) == kept


def test_margins_without_a_metric_have_a_fiftieth_of_the_ridge_of_squared_loss(monkeypatch):
    X, y = load_wine(return_X_y=True)

    def ridge():
        return (
            LandmarkClassifier(landmarks=20, metric="none").fit(X, y).model_.run.selection["ridge"]
        )

    found = ridge()
    monkeypatch.setattr(fit, "_OF_MARGINS", 1.0)
    assert ridge() * 0.02 == pytest.approx(found)
    assert found > 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_log_losses_are_those_of_logistic_regression(monkeypatch, n_classes):
    """Of scikit-learn, one class against the others; its penalty is that of the sum of losses."""
    monkeypatch.setattr(logistic, "_FALL", 1e-13)
    monkeypatch.setattr(logistic, "_STEPS", 1000)
    rng = np.random.default_rng(n_classes)
    X, other = rng.normal(size=(2, 90, 3)) * [1.0, 2.0, 0.1]
    labels = [
        np.clip(np.round(own[:, 0] + 1.0), 0, n_classes - 1).astype(int) for own in (X, other)
    ]
    mean, share = X.mean(axis=0), np.full(90, 1 / 90)
    first = n_classes == 2
    target, truth = ((own == np.arange(n_classes)[first:, np.newaxis]) * 1.0 for own in labels)
    rows, asked = (X - mean).T, (other - mean).T
    found = log_losses(X.var(axis=0), rows, target, share, asked, truth) * np.log(n_classes)
    for ridge, losses in zip(LOGISTIC_RIDGES[:4], found, strict=False):
        scores = [
            LogisticRegression(C=share[0] / ridge, tol=1e-8, max_iter=1000)
            .fit(rows.T, own)
            .decision_function(asked.T)
            for own in target
        ]
        chances = probabilities(np.transpose(scores))
        wanted = -np.log(chances[np.arange(90), labels[1].astype(int)])
        np.testing.assert_allclose(losses, wanted, rtol=1e-3, atol=1e-3)


def test_ridges_below_those_that_follow_noise_are_not_fitted():
    rng = np.random.default_rng(0)
    rows, asked = rng.normal(size=(2, 20, 30))
    labels = [(own[0] + rng.normal(size=30) > 0.0) * 1.0 for own in (rows, asked)]
    share, variance = np.full(30, 1 / 30), rows.var(axis=1)
    losses = log_losses(variance, rows, labels[0][None], share, asked, labels[1][None])
    means = losses.mean(axis=1)
    last = int(np.argmax(means > 1.2 * np.minimum.accumulate(means)))
    assert 0 < last < len(means) - 2
    assert (losses[last:] == losses[last]).all()
    assert (np.diff(means[: last + 1]) != 0).all()


def test_scales_that_follow_noise_are_not_kept_for_classes():
    """Few rows of many columns: scales fit their labels, and tell nothing of others."""
    X, y = load_breast_cancer(return_X_y=True)
    model = LandmarkClassifier(folds=0).fit(X[:300], y[:300])
    assert model.metric_["kind"] == "none"
    assert np.mean(model.predict(X[300:]) != y[300:]) < 0.04


def test_classes_that_hang_on_few_columns_have_their_scales():
    X, y = hidden(300)
    found = LandmarkClassifier(folds=0).fit(X, y > np.median(y)).metric_
    assert found["kind"] == "diagonal"
    assert {*list(found["weights"])[:2]} == {"x0", "x1"}


@pytest.mark.parametrize("leaves_out", [False, True])
def test_the_way_of_a_metric_leads_to_it_again(leaves_out):
    """On the same rows to the same; on a constant target to equal scales."""
    X, y = hidden(200, 4)
    rows = rows_of(X, y)
    fitter = Fitter(rows, rows if leaves_out else rows_of(*hidden(100, 4, 1)), "gaussian")
    for best in learn(fitter, X[:30].T, ("diagonal", "full"), 2):
        way, transform = again(fitter, X[:30].T, best.way, best.iteration)
        assert way == best.way
        np.testing.assert_array_equal(transform, best.transform)
    constant = replace(fitter, taught=rows_of(X, np.ones(200)))
    assert (again(constant, X[:30].T, Way("full", 1.0, 2, (2.0, 1.0)), 2)[1] == 1.0).all()


def test_a_fold_learns_its_metric_in_the_way_of_that_of_all_rows(monkeypatch):
    monkeypatch.setattr(metric, "FEW", 100)
    X, y = hidden(200, 3)
    numbers = np.arange(200, dtype=np.uint64)
    rows = RowSample.from_rows(200, numbers, numbers, np.vstack((X.T, y)), None)
    plain = np.zeros(3), np.ones(3), np.zeros(3), X[:30]
    mapping = LandmarkMap(Similarity("gaussian"), *plain)

    def ways(like):
        found = metric.learned(LandmarksOptions(), None, (mapping, rows, numbers % 4, like))
        return [own.way for own in found]

    assert ways(None)[1] == Way("none")
    for like in (Way("full", 1.0, 1, (2.0, 1.0)), Way("diagonal", 0.0, 1, (1.0, 1.0)), Way("none")):
        assert {*ways(like)} == {like}
    own = Way("full", 1.0, 3, (2.0, 1.0))
    assert {replace(way, iteration=3) for way in ways(own)} == {own}
