import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.glm import (
    predict_glm,
    sequence_glm,
)
from tests.reference import glm as literal
from tests.unit.methods.sequence_glm_rows import ALL, Rows, one_hot, outputs_of

GROUPS = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]
COSTS = np.array([2.0, 0.7, 3.0, 1.1, 1.6])


def grouped(family, n=150, seed=12):
    """Groups 2 and 3 matter, group 4 is correlated with group 2, the rest is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 9))
    X[:, 7] = 0.7 * X[:, 3] + 0.7 * X[:, 7]
    P = {"gaussian": 2, "softmax": 3}.get(family, 1)
    B = np.zeros((9, P))
    B[[3, 4, 6]] = rng.choice([-1.0, 1.0], size=(3, P)) * rng.uniform(0.7, 1.2, size=(3, P))
    eta = (X @ B).T
    X = X * rng.uniform(0.1, 9.0, 9) + 5.0
    if family == "gaussian":
        return X, eta + rng.normal(size=eta.shape)
    if family == "logistic":
        return X, (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float)
    return X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=0)


def run(family, X, y, **options):
    rows = Rows(X, y, family, cuts=(40,))
    gram = np.corrcoef(X.T)
    options = {"n_outputs": outputs_of(y, family), "ridge": 1e-3} | options
    costs = options.pop("costs", COSTS)
    return sequence_glm(rows, rows.design, gram, GROUPS, costs, **options), rows


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(("whiten", "cost_aware"), [(True, True), (False, True), (True, False)])
def test_sequence_equals_the_literal_refit_from_rows(family, whiten, cost_aware):
    X, y = grouped(family, n=80)
    own, _ = run(family, X, y, whiten=whiten, cost_aware=cost_aware)
    P = outputs_of(y, family)
    Z, Y = literal.standardise(X), one_hot(y, family, P)
    chosen, weights = literal.sequence(
        Z, Y, GROUPS, COSTS, family, 1e-3, whiten=whiten, cost_aware=cost_aware
    )
    assert list(own.groups) == chosen
    np.testing.assert_array_equal(own.costs, COSTS[chosen])
    for k, expected in enumerate(weights):
        np.testing.assert_allclose(own.weights_at(k), expected, atol=1e-5)


@pytest.mark.parametrize("family", ALL)
def test_relevant_groups_come_first(family):
    X, y = grouped(family, n=1500)
    own, rows = run(family, X, y, costs=np.ones(5))
    assert set(own.groups[:2]) == {2, 3}
    assert own.n_passes == rows.n_passes
    assert own.refits[-1].n_passes == own.n_passes
    assert own.explained_deviance[0] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(own.explained_deviance) > -1e-6).all()
    assert own.explained_deviance[2] > 0.95 * own.explained_deviance[-1] > 0.1
    assert own.statuses == ("converged",) * 6


@pytest.mark.parametrize("family", ALL)
def test_coefficients_in_original_units_predict_the_same(family):
    X, y = grouped(family)
    own, rows = run(family, X, y)
    models = np.stack([own.weights_at(k) for k in range(6)])
    losses = rows.losses(models)
    shares = 1.0 - losses.losses / losses.losses[0]
    np.testing.assert_allclose(own.explained_deviance, shares, atol=1e-12)
    assert losses.losses[0] / losses.weight == pytest.approx(own.null_loss, rel=1e-12)
    Z = literal.standardise(X)
    for k, W in enumerate(models):
        slopes, intercept = own.coefficients(k)
        np.testing.assert_allclose(X @ slopes + intercept, Z @ W[:-1] + W[-1], atol=1e-10)


def test_gaussian_explained_deviance_is_r2():
    X, y = grouped("gaussian")
    own, _ = run("gaussian", X, y, ridge=0.0)
    slopes, intercept = own.coefficients(3)
    residual = y.T - X @ slopes - intercept
    r2 = 1.0 - (residual**2).sum() / ((y.T - y.T.mean(axis=0)) ** 2).sum()
    assert own.explained_deviance[3] == pytest.approx(r2, rel=1e-11)


def test_null_model_is_the_intercept_alone_after_two_passes():
    X, y = grouped("softmax")
    own, _ = run("softmax", X, y)
    shares = predict_glm(own.weights_at(0)[-1:], "softmax")[0]
    np.testing.assert_allclose(shares, np.bincount(y) / len(y), rtol=1e-12)
    assert own.refits[0].n_passes == 2


def test_fewer_refits_take_several_groups_from_one_gradient():
    X, y = grouped("logistic", n=600)
    full, _ = run("logistic", X, y)
    own, rows = run("logistic", X, y, max_refits=2)
    assert own.refit_at == (3, 5)
    assert full.refit_at == (1, 2, 3, 4, 5)
    assert own.n_passes == rows.n_passes < full.n_passes
    start = literal.gradient(own.weights_at(0), literal.standardise(X), y.T, "logistic")
    corr = np.corrcoef(X.T)
    scores = [
        (start[g].T @ np.linalg.solve(corr[np.ix_(g, g)], start[g])).item() / c
        for g, c in zip(GROUPS, COSTS, strict=True)
    ]
    assert list(own.groups[:3]) == list(np.argsort(scores)[::-1][:3])
    np.testing.assert_allclose(own.scores[:3], np.sort(scores)[::-1][:3], rtol=1e-10)
    np.testing.assert_array_equal(own.explained_deviance[:3], 0.0)
    assert own.explained_deviance[3] == own.explained_deviance[4] > 0.0
    np.testing.assert_allclose(own.weights_at(5), full.weights_at(5), atol=1e-6)
    single, _ = run("logistic", X, y, max_refits=1)
    assert single.refit_at == (5,)


def test_costs_that_depend_on_what_is_bought_and_a_cap_on_groups():
    X, y = grouped("poisson", n=600)

    def costs(bought):
        return np.where(np.arange(5) == 0, 1e-6 if 3 in bought else 1e6, COSTS)

    own, _ = run("poisson", X, y, costs=costs, max_groups=3)
    assert len(own.groups) == 3
    after = own.groups.index(3) + 1
    assert own.groups[after] == 0
    assert own.costs[after] == 1e-6
    assert len(own.explained_deviance) == 4


def test_duplicated_group_scores_zero_and_costs_no_pass():
    X, y = grouped("logistic", n=400)
    X[:, 6] = 2.0 * X[:, 2] + 1.0
    own, _ = run("logistic", X, y, costs=np.ones(5), ridge=0.0)
    twin = max(own.groups.index(1), own.groups.index(3))
    assert own.scores[twin] == 0.0
    assert own.refits[twin + 1].n_passes == own.refits[twin].n_passes
    assert own.explained_deviance[twin + 1] == own.explained_deviance[twin]
    assert own.refits[twin + 1].columns.size > own.refits[twin].columns.size


def test_a_group_without_effect_costs_no_pass_under_a_ridge():
    X, y = grouped("logistic")
    X[:, 2] = 4.0
    rows = Rows(X, y, "logistic", mean=X.mean(axis=0), scale=X.std(axis=0))
    own = sequence_glm(rows, rows.design, np.eye(9), GROUPS, COSTS, ridge=0.1)
    assert own.groups[-1] == 1
    assert own.refits[-1].n_passes == own.refits[-2].n_passes
    np.testing.assert_array_equal(own.weights_at(5)[2], 0.0)


def test_separable_data_run_to_the_end():
    X, _ = grouped("logistic")
    y = (X[:, 6] > np.median(X[:, 6])).astype(float)
    own, _ = run("logistic", X, y[np.newaxis], ridge=0.0)
    assert sorted(own.groups) == [0, 1, 2, 3, 4]
    assert "separated" in own.statuses
    assert own.explained_deviance[-1] > 0.9999


def test_constant_response_explains_nothing():
    X, _ = grouped("poisson")
    own, _ = run("poisson", X, np.full((1, len(X)), 3.0), ridge=0.0)
    np.testing.assert_array_equal(own.groups, [0, 1, 2, 3, 4])
    np.testing.assert_allclose(own.explained_deviance, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("groups", "costs", "options"),
    [
        ([[0, 1], [1]], [1.0, 1.0], {}),
        ([[0], []], [1.0, 1.0], {}),
        ([[0], [9]], [1.0, 1.0], {}),
        ([[0], [1]], [1.0, 0.0], {}),
        ([[0], [1]], [1.0], {}),
        ([[0], [1]], [1.0, np.nan], {}),
        ([[0], [1]], [1.0, 1.0], {"max_refits": 0}),
        ([], [], {}),
    ],
)
def test_misuse_is_refused(groups, costs, options):
    X, y = grouped("logistic")
    rows = Rows(X, y, "logistic")
    with pytest.raises(SpecError):
        sequence_glm(rows, rows.design, np.eye(9), groups, costs, **options)


def test_prefixes_that_do_not_exist_are_refused():
    X, y = grouped("logistic")
    own, _ = run("logistic", X, y, max_groups=1)
    with pytest.raises(SpecError, match="prefixes"):
        own.model_at(2)
