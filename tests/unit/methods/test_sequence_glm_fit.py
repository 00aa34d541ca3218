import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from distfms.errors import NumericalError
from distfms.methods.sequence.glm import (
    fit_glm,
    predict_glm,
)
from tests.reference import glm as literal
from tests.unit.methods.sequence_glm_rows import ALL, Rows, make, outputs_of


@pytest.mark.parametrize("ridge", [0.0, 0.03])
def test_gaussian_is_ridge_regression_in_one_step(ridge):
    X, y = make("gaussian", n_outputs=3)
    rows = Rows(X, y, "gaussian", cuts=(120,))
    support = np.array([4, 1, 2])
    fit = fit_glm(rows, "gaussian", support, np.zeros((6, 3)), ridge)
    Z, Y = literal.standardise(X)[:, support], y.T
    expected = np.linalg.solve(Z.T @ Z / 300 + ridge * np.eye(3), Z.T @ (Y - Y.mean(0)) / 300)
    np.testing.assert_allclose(fit.weights[support], expected, rtol=1e-11)
    np.testing.assert_allclose(fit.weights[-1], Y.mean(0), rtol=1e-11)
    np.testing.assert_array_equal(fit.weights[[0, 3]], 0.0)
    assert (fit.status, fit.n_iter, fit.n_passes) == ("converged", 1, 2)
    assert rows.n_passes == 2


def test_means_of_1e8_with_unit_variance_survive():
    rng = np.random.default_rng(7)
    Z = rng.normal(size=(500, 3))
    y = Z @ [1.0, -2.0, 0.5] + 1e8
    X = Z + 1e8
    fit = fit_glm(Rows(X, y, "gaussian", cuts=(200,)), "gaussian", [0, 1, 2], np.zeros((4, 1)))
    slopes = fit.weights[:3, 0] / X.std(axis=0)
    np.testing.assert_allclose(slopes, [1.0, -2.0, 0.5], atol=1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.02])
@pytest.mark.parametrize("family", ["logistic", "softmax", "poisson"])
def test_fit_agrees_with_scikit_learn(family, ridge):
    X, y = make(family, n=800, d=6)
    P = outputs_of(y, family)
    Z, target = literal.standardise(X), y if family == "softmax" else y[0]
    if family == "poisson":
        peer = PoissonRegressor(alpha=ridge, solver="newton-cholesky", tol=1e-11, max_iter=500)
    else:
        C = 1 / (ridge * len(X)) if ridge else np.inf
        peer = LogisticRegression(C=C, solver="newton-cg", tol=1e-11, max_iter=500)
    peer.fit(Z, target)
    expected = np.vstack([np.atleast_2d(peer.coef_).T, np.atleast_1d(peer.intercept_)])
    fit = fit_glm(
        Rows(X, y, family, cuts=(100, 500)), family, np.arange(6), np.zeros((7, P)), ridge
    )
    assert fit.status == "converged"
    assert fit.n_passes <= 8
    np.testing.assert_allclose(fit.weights, expected, atol=1e-6)
    means = predict_glm(Z @ fit.weights[:-1] + fit.weights[-1], family)
    if family == "softmax":
        np.testing.assert_allclose(means, peer.predict_proba(Z), atol=1e-6)
    elif family == "logistic":
        np.testing.assert_allclose(means[:, 0], peer.predict_proba(Z)[:, 1], atol=1e-6)
    else:
        np.testing.assert_allclose(means[:, 0], peer.predict(Z), rtol=1e-6)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_fit_agrees_with_dask_ml(family):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dask-ml uses names that dask has deprecated
        import dask.array as da
        from dask_ml.linear_model import LogisticRegression as DaskLogistic
        from dask_ml.linear_model import PoissonRegression as DaskPoisson

        X, y = make(family, n=600, d=4)
        Z = literal.standardise(X)
        # dask-ml penalises the intercept; its Newton solver takes no penalty: compare without.
        peer = {"logistic": DaskLogistic, "poisson": DaskPoisson}[family](
            solver="newton", tol=1e-10, max_iter=100
        )
        peer.fit(da.from_array(Z, chunks=(200, 4)), da.from_array(y[0], chunks=200))
    fit = fit_glm(Rows(X, y, family, cuts=(200, 400)), family, np.arange(4), np.zeros((5, 1)))
    np.testing.assert_allclose(fit.weights[:, 0], [*peer.coef_, peer.intercept_], atol=1e-6)


@pytest.mark.parametrize("family", ALL)
def test_weights_act_as_repeated_rows(family):
    X, y = make(family, n=120)
    counts = np.random.default_rng(8).integers(0, 4, 120)
    P = outputs_of(y, family)
    shared = {"mean": X.mean(axis=0), "scale": X.std(axis=0)}
    weighted = Rows(X, y, family, weight=counts.astype(float), **shared)
    repeated = Rows(np.repeat(X, counts, axis=0), np.repeat(y, counts, axis=-1), family, **shared)
    fits = [fit_glm(r, family, [0, 2], np.zeros((6, P)), 0.01) for r in (weighted, repeated)]
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-9)
    assert fits[0].loss == pytest.approx(fits[1].loss, rel=1e-11)


@pytest.mark.parametrize("family", ["logistic", "poisson", "softmax"])
def test_objective_never_rises_even_from_far_away(family):
    X, y = make(family, strength=3.0)
    P = outputs_of(y, family)
    start = np.random.default_rng(9).normal(size=(6, P)) * 3.0
    fit = fit_glm(Rows(X, y, family), family, np.arange(5), start, 1e-3, max_iter=100)
    near = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, P)), 1e-3)
    assert fit.status == "converged"
    assert (np.diff(fit.objectives) <= 1e-12 * np.array(fit.objectives[:-1])).all()
    np.testing.assert_allclose(fit.weights, near.weights, atol=1e-6)


def test_bounded_hessian_reaches_the_same_model():
    X, y = make("softmax", d=6, n_outputs=4)
    full = fit_glm(Rows(X, y, "softmax"), "softmax", np.arange(6), np.zeros((7, 4)), 0.01)
    rows = Rows(X, y, "softmax", max_hessian=20)
    bound = fit_glm(rows, "softmax", np.arange(6), np.zeros((7, 4)), 0.01, max_iter=200)
    assert (full.statistics.curvature, bound.statistics.curvature) == ("full", "bound")
    assert bound.statistics.hessian.shape == (1, 7, 7)
    assert bound.status == "converged"
    assert bound.n_passes < 30
    np.testing.assert_allclose(bound.weights, full.weights, atol=1e-6)


def test_bound_lies_above_the_hessian():
    X, y = make("softmax")
    W = np.random.default_rng(10).normal(size=(6, 3))
    full = Rows(X, y, "softmax")(W, np.arange(5)).hessian[0]
    bound = Rows(X, y, "softmax", max_hessian=0)(W, np.arange(5)).hessian[0]
    # ½(I − 11ᵀ/P) over the first two of three classes.
    gap = np.kron(2 * (np.eye(2) / 2 - 1 / 6), bound) - full
    assert np.linalg.eigvalsh(gap)[0] > 0.0


@pytest.mark.parametrize("family", ["logistic", "softmax"])
def test_separable_classes_end_with_a_status(family):
    X, _ = make(family)
    y = (X[:, 0] > X[:, 0].mean()).astype(float)
    P = 1 if family == "logistic" else 2
    fit = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, P)))
    assert fit.status == "separated"
    assert fit.loss < 1e-5
    assert np.isfinite(fit.weights).all()
    loose = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, P)), tol=1e-2)
    assert loose.loss < 1e-5  # a small gradient is no reason to stop on the way to infinity
    ridged = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, P)), 0.01)
    assert ridged.status == "converged"


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_a_pure_category_is_reported_as_separated(family):
    X, y = make(family)
    X[:, 1] = np.arange(300) % 5 == 0
    y[0, X[:, 1] == 1] = 0.0
    fit = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, 1)))
    assert fit.status == "separated"
    assert fit.statistics.min_margin <= 0.0
    assert fit.n_passes < 40


def test_huge_poisson_steps_are_halved_not_overflown():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(400, 2))
    y = rng.poisson(np.exp(6 * X[:, 0])).astype(float)
    rows = Rows(X, y, "poisson")
    fit = fit_glm(rows, "poisson", [0, 1], np.zeros((3, 1)))
    assert fit.status == "converged"
    assert fit.n_passes > fit.n_iter + 1
    assert fit.weights[0, 0] / X[:, 0].std() == pytest.approx(6.0, abs=1e-2)
    far = np.array([[900.0], [0.0], [0.0]])
    clipped = fit_glm(rows, "poisson", [0, 1], far, max_iter=3)
    assert clipped.status == "clipped"
    assert np.isfinite(clipped.loss)


@pytest.mark.parametrize("family", ALL)
def test_redundant_columns_without_ridge_converge(family):
    X, y = make(family)
    X[:, 1] = 3.0 * X[:, 0] - 1.0
    X[:, 2] = X[:, 0] + 1e-8 * X[:, 2]
    P = outputs_of(y, family)
    fit = fit_glm(Rows(X, y, family), family, np.arange(5), np.zeros((6, P)))
    thin = fit_glm(Rows(X, y, family), family, [0, 3, 4], np.zeros((6, P)))
    assert fit.status == "converged"
    assert fit.rank_deficient
    assert not thin.rank_deficient
    assert fit.loss == pytest.approx(thin.loss, rel=1e-6)


def test_too_few_iterations_and_unusable_starts_say_so():
    X, y = make("logistic")
    rows = Rows(X, y, "logistic")
    fit = fit_glm(rows, "logistic", np.arange(5), np.zeros((6, 1)), max_iter=1)
    assert (fit.status, fit.n_iter) == ("max_iter", 1)
    with pytest.raises(NumericalError, match="ridge"):
        fit_glm(rows, "logistic", [0], np.zeros((6, 1)), -1.0)
    empty = Rows(X, y, "logistic", weight=np.zeros(300))
    with pytest.raises(NumericalError, match="positive weight"):
        fit_glm(empty, "logistic", [0], np.zeros((6, 1)))
    saturated = np.zeros((6, 1))
    saturated[0] = 1e4  # every Hessian weight underflows
    assert fit_glm(rows, "logistic", [0], saturated).status == "stalled"
