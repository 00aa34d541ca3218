"""Losses against their formulas, and fits by passes against other solvers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVR

from distfms.methods.landmarks.fit import EmbeddedRows, FitPass, JudgePass, PassProcedure
from distfms.methods.landmarks.losses import EpsilonInsensitive, Margin, OrdinalMargin, rounded
from distfms.methods.landmarks.squared import SquaredProblem
from distfms.methods.statistics_job import NamedRule
from distfms.stats.comoments import CoMoments
from tests.reference import landmarks as literal

SHARP = 1e-9


@given(t=st.floats(-5, 5), epsilon=st.floats(0, 2), beta=st.floats(0.5, 100))
def test_the_smoothed_insensitive_loss(t, epsilon, beta):
    loss = EpsilonInsensitive(1 / beta, epsilon)
    found = loss.slopes(np.array([[t]]), np.zeros(1), np.ones(1), np.zeros(1)).value[0]
    assert found == pytest.approx(literal.smoothed(t, epsilon, beta), abs=1e-9)


@given(f=st.floats(-3, 6), level=st.integers(0, 3), gamma=st.floats(0.1, 2))
def test_the_margin_loss_of_levels(f, level, gamma):
    loss = OrdinalMargin(SHARP, 4, gamma, None)
    found = loss.slopes(np.array([[f]]), np.array([level]), np.ones(1), np.zeros(1)).value[0]
    assert found == pytest.approx(literal.exc_margin(f, level, [0.5, 1.5, 2.5], gamma), abs=1e-6)


LOSSES = [
    (EpsilonInsensitive(0.3, 0.2), "number"),
    (Margin(0.5, 2, False), 2),
    (Margin(0.5, 2, True), 2),
    (Margin(0.5, 3, True), 3),
    (OrdinalMargin(0.4, 4, 0.7, None), 4),
    (OrdinalMargin(0.4, 4, 0.7, 0.3), 4),
]


@pytest.mark.parametrize(("loss", "target"), LOSSES)
def test_slopes_are_derivatives(loss, target):
    rng = np.random.default_rng(0)
    y = rng.normal(size=30) if target == "number" else rng.integers(target, size=30).astype(float)
    weight, scores = rng.uniform(0.5, 2, size=30), rng.normal(size=(loss.n_scores, 30))
    extra = loss.start() + 0.1 * rng.normal(size=len(loss.start()))

    def total(scores, extra):
        return loss.slopes(scores + loss.offset(extra)[:, None], y, weight, extra).value @ weight

    found = loss.slopes(scores + loss.offset(extra)[:, None], y, weight, extra)
    step = 1e-6
    for p in range(loss.n_scores):
        moved = scores.copy()
        moved[p] += step
        assert found.score[p].sum() == pytest.approx(
            (total(moved, extra) - total(scores, extra)) / step, rel=1e-3, abs=1e-3
        )
    for e in range(len(extra)):
        change = (total(scores, extra + step * np.eye(len(extra))[e]) - total(scores, extra)) / step
        assert found.extra[e] == pytest.approx(change, rel=1e-3, abs=1e-3)


def test_rounding_costs_at_most_half_its_width():
    t = np.linspace(-1, 3, 401)
    value, slope = rounded(t, 0.5)
    assert np.all(np.maximum(t, 0) - value >= -1e-15)
    assert np.max(np.maximum(t, 0) - value) == pytest.approx(0.25)
    assert (slope.min(), slope.max()) == (0, 1)


def test_thresholds_stay_apart_and_decide():
    loss = OrdinalMargin(0.1, 5, 0.5, 0.3)
    thresholds = loss.thresholds(np.array([0.2, -40.0, 1.0, -3.0]))
    assert np.diff(thresholds).min() >= 0.3 - 1e-12
    middle = np.array([[0.1, 0.3, 1.0, thresholds[-1] + 1]])
    assert loss.decoded(middle, np.array([0.2, -40.0, 1.0, -3.0])).tolist() == [0, 1, 2, 4]
    assert Margin(0.1, 3, True).decoded(np.eye(3), np.zeros(3)).tolist() == [0, 1, 2]
    assert Margin(0.1, 2, True).decoded(np.array([[-1.0, 2.0]]), np.zeros(1)).tolist() == [0, 1]


# --- fits ---------------------------------------------------------------------------------------


def rows(n=600, n_landmarks=8, seed=0):
    rng = np.random.default_rng(seed)
    K = rng.normal(size=(n, n_landmarks)) + 1.0
    return K, K @ rng.normal(size=n_landmarks) + rng.standard_t(3, size=n)


def fitted(loss, K, y, k=None, ridge=0.0, bound=None, left_out=None):
    cuts = [slice(0, 200), slice(200, 450), slice(450, None)]
    parts = [
        EmbeddedRows(part, {"own": np.ascontiguousarray(K[c].T)}, y[c], np.ones(len(y[c])))
        for part, c in enumerate(cuts)
    ]
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))

    def make_pass(loss, model):
        return FitPass("own", loss, model, left_out).sums(parts)

    problem = SquaredProblem.of(moments)
    order = np.arange(k or K.shape[1])
    procedure = PassProcedure((), False, len(order), ridge=ridge, bound=bound, loss=loss)
    return procedure.fitted(make_pass, problem, order), parts


def test_the_insensitive_fit_costs_no_more_than_that_of_liblinear():
    K, y = rows()
    theirs = LinearSVR(epsilon=0.2, C=1.0, tol=1e-5, max_iter=100_000, intercept_scaling=3.0)
    theirs.fit(K, y)
    # The same objective: ½‖w‖² + Σ loss, so a penalty of 1/n on the mean loss.
    variance = np.mean(np.var(K, axis=0))
    ridge = np.std(y) / (len(y) * variance)
    ours, _ = fitted(EpsilonInsensitive(1e-4, 0.2), K, y, ridge=ridge)
    assert ours.minimum.status == "converged"

    def cost(w, b):
        return 0.5 * w @ w + np.maximum(np.abs(K @ w + b - y) - 0.2, 0).sum()

    w = ours.model.weights[:, 0]
    assert cost(w, ours.model.offset[0]) <= cost(theirs.coef_, theirs.intercept_[0]) * (1 + 1e-3)


def test_the_logistic_fit_is_that_of_scikit_learn():
    K, y = rows()
    y = (y > np.median(y)).astype(float)
    variance = np.mean(np.var(K, axis=0))
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(K, y)
    ours, _ = fitted(Margin(0.01, 2, True), K, y, ridge=1.0 / (len(y) * variance))
    np.testing.assert_allclose(ours.model.weights[:, 0], theirs.coef_[0], rtol=2e-2, atol=2e-3)


def test_the_bound_is_kept():
    K, y = rows()
    free, _ = fitted(EpsilonInsensitive(0.01, 0.2), K, y, ridge=1e-6)
    norm = np.sqrt(8) * np.linalg.norm(free.model.weights)
    tight, _ = fitted(EpsilonInsensitive(0.01, 0.2), K, y, ridge=1e-6, bound=norm / 3)
    assert np.sqrt(8) * np.linalg.norm(tight.model.weights) == pytest.approx(norm / 3, rel=1e-2)
    assert tight.n_passes < 150
    tiny, _ = fitted(EpsilonInsensitive(0.01, 0.2), K, y, ridge=1e-6, bound=norm / 1e4)
    assert np.sqrt(8) * np.linalg.norm(tiny.model.weights) == pytest.approx(norm / 1e4, rel=1e-2)
    assert tiny.n_passes < 150
    loose, _ = fitted(EpsilonInsensitive(0.01, 0.2), K, y, ridge=1e-6, bound=norm * 2)
    np.testing.assert_array_equal(loose.model.weights, free.model.weights)


@settings(max_examples=5, deadline=None)
@given(left_out=st.sampled_from([0, 1, 2]))
def test_a_fold_that_is_left_out_plays_no_part(left_out):
    K, y = rows(n_landmarks=3)
    loss = Margin(0.05, 2, False)
    y = (y > 0).astype(float)
    damaged = y.copy()
    damaged[[slice(0, 200), slice(200, 450), slice(450, None)][left_out]] = 1.0
    messages = []
    for target in (y, damaged):
        found, parts = fitted(loss, K, y, ridge=1e-3)
        own = [
            EmbeddedRows(p.part, p.similarities, t, p.weight)
            for p, t in zip(parts, np.split(target, [200, 450]), strict=True)
        ]
        messages.append(FitPass("own", loss, found.model, left_out).sums(own)["loss"])
    assert messages[0] == messages[1]


def test_errors_of_parts():
    K, y = rows(n_landmarks=3)
    y = (y > 0).astype(float)
    found, parts = fitted(Margin(0.05, 2, True), K, y, ridge=1e-3)
    sums = JudgePass("own", Margin(0.05, 2, True), [found.model], {0: "a", 1: "a", 2: "b"}).sums(
        parts
    )
    wrong = ((K @ found.model.weights[:, 0] + found.model.offset[0]) > 0) != y
    assert sums["a/error"][0] == wrong[:450].sum()
    assert sums["b/error"][0] == wrong[450:].sum()
    assert sums["a/weight"] == 450


@pytest.mark.parametrize("parameter", [-800.0, 0.0, 800.0])
def test_thresholds_far_apart_or_close_have_finite_slopes(parameter: float) -> None:
    loss = OrdinalMargin(0.1, 4, 0.5, 0.3)
    extra = np.array([0.5, parameter, 0.0])
    rows = np.arange(4.0)
    slopes = loss.slopes(rows[np.newaxis], rows, np.ones(4), extra)
    assert np.all(np.diff(loss.thresholds(extra)) >= 0.3)
    assert np.isfinite(slopes.value).all()
    assert np.isfinite(slopes.extra).all()


@pytest.mark.parametrize("by_gradient", [False, True])
def test_landmarks_are_chosen_where_the_loss_falls_most_steeply(by_gradient):
    K, y = rows(n_landmarks=6)
    K *= np.array([1.0, 3.0, 1.0, 0.3, 1.0, 1.0])
    loss = EpsilonInsensitive(0.5, 0.2)
    _, parts = fitted(loss, K, y, k=1)
    rule = NamedRule("own")
    procedure = PassProcedure((rule,), True, 4, by_gradient, 1e-4, loss=loss)
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))
    problem = procedure.problem({"own": moments, "make_pass": lambda m: m.sums(parts)})
    path = procedure.search(problem, rule)
    assert path.arrays["sizes"].tolist() == [1, 2, 4]
    assert set(path.arrays["status"]) == {"converged"}
    for k, model in zip((1, 2), procedure.models(problem, path, ()), strict=False):
        scores = model.scores(K.T[model.landmarks])[0]
        slopes = np.array(literal.steepest(K, y, scores, 0.2, 1 / 0.5))
        slopes = slopes if by_gradient else slopes / K.std(axis=0)
        assert path.order[k] == np.argmax(slopes)
        assert slopes[path.order[:k]].max() < 0.05 * slopes.max()
    again = procedure.restore({"own": moments}, procedure.store(problem, {"own": path}))[1]["own"]
    assert again.order.tolist() == path.order.tolist()
