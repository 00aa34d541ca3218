import numpy as np
import pytest

from distfms.errors import DataError, NumericalError, SpecError
from distfms.methods.sequence.families import POISSON_LIMIT
from distfms.methods.sequence.glm import (
    FAMILIES,
    GlmDesign,
    GlmLosses,
    GlmStatistics,
    fit_glm,
    get_family,
    predict_glm,
)
from tests.reference import glm as literal
from tests.unit.methods.sequence_glm_rows import ALL, Rows, make, one_hot, outputs_of


@pytest.mark.parametrize("family", ALL)
def test_derivatives_agree_with_finite_differences(family):
    rng = np.random.default_rng(1)
    own, h = get_family(family), 1e-4
    eta = rng.normal(size=(3, 20))
    expected = [literal.phi(column, family) for column in eta.T]
    np.testing.assert_allclose(own.phi(eta), expected, rtol=1e-13)
    for p in range(3):
        up, down = eta.copy(), eta.copy()
        up[p] += h
        down[p] -= h
        first = (own.phi(up) - own.phi(down)) / (2 * h)
        second = (own.phi(up) - 2 * own.phi(eta) + own.phi(down)) / h**2
        np.testing.assert_allclose(own.mean(eta)[p], first, atol=1e-7)
        np.testing.assert_allclose(own.second(eta)[p], second, atol=1e-5)


@pytest.mark.parametrize("family", ALL)
def test_loss_is_shifted_to_a_minimum_of_zero(family):
    rng = np.random.default_rng(2)
    own = get_family(family)
    eta = rng.normal(size=(3, 50))
    y = own.mean(rng.normal(size=(3, 50)))  # inner points: the saturated η exists
    shifted = own.phi(eta) - (y * eta).sum(axis=0) - own.saturated(y)
    np.testing.assert_allclose(own.loss(eta, y), shifted, atol=1e-12)
    assert (own.loss(eta, y) > 0.0).all()
    np.testing.assert_allclose(own.loss(own.link(y), y), 0.0, atol=1e-13)


def test_losses_survive_large_numbers():
    gaussian, poisson, logistic = (get_family(f) for f in ("gaussian", "poisson", "logistic"))
    big = np.array([[1e9]])
    assert gaussian.loss(big + 1.0, big)[0] == 0.5
    near = poisson.loss(np.log(big) + 1e-6, big)[0]
    assert near == pytest.approx(1e9 * 0.5e-12, rel=1e-5)
    assert logistic.loss(np.array([[-800.0]]), np.array([[1.0]]))[0] == 800.0
    assert (
        get_family("softmax").loss(np.array([[900.0], [0.0]]), np.array([[0.0], [1.0]]))[0] == 900
    )


def test_poisson_continues_along_its_tangent_without_overflow():
    poisson, at = get_family("poisson"), POISSON_LIMIT
    eta = np.array([[at, at + 1.0, at + 2.0, 1e6]])
    values = poisson.loss(eta, np.ones((1, 4)))
    assert np.isfinite(values).all()
    np.testing.assert_allclose(np.diff(values)[:2], np.exp(at), rtol=1e-12)
    np.testing.assert_array_equal(poisson.clipped(eta), [False, True, True, True])


def test_predict_gives_means_in_the_shape_of_eta():
    eta = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    shares = predict_glm(eta, "softmax")
    np.testing.assert_allclose(shares, [literal.mean(row, "softmax") for row in eta], rtol=1e-14)
    np.testing.assert_allclose(predict_glm(eta[0], "poisson"), np.exp(eta[0]))
    np.testing.assert_array_equal(predict_glm(eta, "gaussian"), eta)
    assert predict_glm([0.0], "logistic") == [0.5]


@pytest.mark.parametrize(
    ("family", "y"),
    [
        ("logistic", [0.0, 2.0]),
        ("poisson", [1.0, -1.0]),
        ("softmax", [0.0, 3.0]),
        ("softmax", [0.0, 0.5]),
        ("softmax", [0.0, np.nan]),
        ("gaussian", [0.0, np.nan]),
        ("gaussian", np.zeros((3, 2))),
        ("softmax", np.full((2, 2), 0.4)),
    ],
)
def test_responses_outside_the_family_are_refused(family, y):
    with pytest.raises(DataError):
        get_family(family).responses(y, 2 if family == "softmax" else 1)


def test_unknown_family_names_the_known():
    with pytest.raises(SpecError, match="poisson"):
        get_family("gamma")
    assert set(FAMILIES) == set(ALL)


@pytest.mark.parametrize("family", ALL)
def test_gradient_and_hessian_by_finite_differences_of_the_literal_risk(family):
    X, y = make(family, n=40, d=4)
    P = outputs_of(y, family)
    rng = np.random.default_rng(3)
    weight = rng.uniform(0.0, 2.0, 40)
    support = np.array([2, 0])
    active = [2, 0, 4]
    W = np.zeros((5, P))
    W[active] = rng.normal(size=(3, P)) * 0.5
    Z, Y = literal.standardise(X), one_hot(y, family, P)
    own = Rows(X, y, family, weight=weight)(W, support)
    total = weight.sum()
    assert own.weight == pytest.approx(total, rel=1e-14)
    value = literal.risk(W, Z, Y, family, sample_weight=weight)
    assert (own.loss + own.saturated) / total == pytest.approx(value, rel=1e-12)
    slope = literal.gradient(W, Z, Y, family, sample_weight=weight)
    np.testing.assert_allclose(own.gradient / total, slope, atol=1e-13)

    h, hessian = 1e-5, np.zeros((3, P, 3, P))
    for a, row in enumerate(active):
        for p in range(P):
            up, down = W.copy(), W.copy()
            up[row, p] += h
            down[row, p] -= h
            risks = [literal.risk(V, Z, Y, family, sample_weight=weight) for V in (up, down)]
            assert (risks[0] - risks[1]) / (2 * h) == pytest.approx(slope[row, p], abs=1e-8)
            change = literal.gradient(up, Z, Y, family, sample_weight=weight)
            change -= literal.gradient(down, Z, Y, family, sample_weight=weight)
            hessian[:, :, a, p] = change[active] / (2 * h)
    blocks = own.hessian / total
    if family == "softmax":
        kept = hessian[:, :-1, :, :-1].transpose(1, 0, 3, 2).reshape(6, 6)
        np.testing.assert_allclose(blocks[0], kept, atol=1e-8)
    else:
        for p in range(P):
            block = blocks[0 if own.curvature == "shared" else p]
            np.testing.assert_allclose(block, hessian[:, p, :, p], atol=1e-8)


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("cuts", [(1,), (100, 100, 101, 299), (300,)])
def test_any_partitioning_equals_one_block(family, cuts):
    X, y = make(family)
    X[::7, 1] = np.nan
    mean, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    weight = np.random.default_rng(4).uniform(0.0, 2.0, len(X))
    P = outputs_of(y, family)
    W = np.random.default_rng(5).normal(size=(6, P))
    support = np.arange(5)
    one = Rows(X, y, family, weight=weight, mean=mean, scale=scale)
    cut = Rows(X, y, family, weight=weight, mean=mean, scale=scale, cuts=cuts)
    expected, merged = one(W, support).to_arrays(), cut(W, support).to_arrays()
    for name, value in expected.items():
        if name == "curvature":
            assert merged[name] == value
        else:
            np.testing.assert_allclose(merged[name], value, rtol=1e-11, atol=1e-10, err_msg=name)
    assert expected["n_missing"][1] == len(X[::7])
    models = np.stack([W, 0 * W])
    np.testing.assert_allclose(one.losses(models).losses, cut.losses(models).losses, rtol=1e-12)
    assert one.losses(models).losses[0] == pytest.approx(expected["loss"], rel=1e-12)


def test_blocks_longer_than_a_cache_chunk_count_every_row_once():
    X, y = make("logistic", n=3000, d=400)
    W = np.random.default_rng(6).normal(size=(401, 1)) * 0.05
    support = np.array([5, 0])
    W[np.setdiff1d(np.arange(400), support)] = 0.0
    own = Rows(X, y, "logistic")(W, support)
    Z = np.column_stack([literal.standardise(X), np.ones(3000)])
    p = 1 / (1 + np.exp(-Z @ W[:, 0]))
    np.testing.assert_allclose(own.gradient[:, 0], Z.T @ (p - y[0]), atol=1e-9)
    A = Z[:, [5, 0, 400]]
    np.testing.assert_allclose(own.hessian[0], A.T @ (A * (p * (1 - p))[:, None]), rtol=1e-11)


def test_arrays_round_trip_and_merging_mutates_nothing():
    X, y = make("softmax")
    rows = Rows(X, y, "softmax")
    W = np.full((6, 3), 0.1)
    first, second = rows(W, np.array([0, 3])), rows(W, np.array([0, 3]))
    before = {name: value.copy() for name, value in first.to_arrays().items()}
    first.merge(second)
    again = GlmStatistics.from_arrays(first.to_arrays())
    assert isinstance(again.curvature, str)
    assert isinstance(again.n_samples, int)
    for name, value in before.items():
        np.testing.assert_array_equal(again.to_arrays()[name], value)
    losses = rows.losses(W[np.newaxis])
    assert GlmLosses.from_arrays(losses.to_arrays()).losses == losses.losses
    with pytest.raises(NumericalError, match="supports"):
        first.merge(rows(W, np.array([0, 2])))


def test_unusable_rows_are_refused():
    X, y = make("logistic")
    W = np.zeros((6, 1))
    for weight in (-np.ones(300), np.full(300, np.nan), np.ones(7)):
        with pytest.raises(DataError, match="weights"):
            GlmStatistics.from_block(
                X.T, y, weight, W, design=GlmDesign("logistic", np.zeros(5), np.ones(5)), support=[]
            )
    rows = Rows(X, y, "logistic")
    X[11, 3] = -np.inf
    with pytest.raises(DataError, match="Column 3"):
        rows(W, np.arange(5))


def test_constant_and_unobserved_columns_stay_at_zero():
    X, y = make("poisson")
    X[:, 1], X[:, 2] = 7.0, np.nan
    mean = np.append([X[:, 0].mean(), 7.0, np.nan], X[:, 3:].mean(axis=0))
    scale = np.append([X[:, 0].std(), 0.0, np.nan], X[:, 3:].std(axis=0))
    fit = fit_glm(
        Rows(X, y, "poisson", mean=mean, scale=scale), "poisson", [0, 1, 2, 3, 4], np.zeros((6, 1))
    )
    assert fit.status == "converged"
    np.testing.assert_array_equal(fit.weights[1:3], 0.0)
    assert fit.statistics.n_missing[2] == 300
