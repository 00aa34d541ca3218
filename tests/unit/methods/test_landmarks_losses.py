"""Losses against their formulas, and fits by passes against other solvers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from distfms.methods.frame.moments import NamedRule
from distfms.methods.landmarks.fit import EmbeddedRows, FitPass, PassProcedure
from distfms.methods.landmarks.losses import (
    AllMargins,
    EpsilonInsensitive,
    Margin,
    OrdinalMargin,
    probabilities,
)
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.squared import SquaredProblem
from distfms.stats.comoments import CoMoments
from tests.reference import landmarks as literal

LOSSES = [
    (EpsilonInsensitive(0.3, 0.2), "number"),
    (Margin(0.5, 2, False), 2),
    (Margin(0.5, 2, True), 2),
    (Margin(0.5, 3, True), 3),
    (OrdinalMargin(0.4, 4, 0.7, None), 4),
    (OrdinalMargin(0.4, 4, 0.7, 0.3), 4),
    (AllMargins(0.4, 4, 0.7, None), 4),
]


@pytest.mark.parametrize(("loss", "target"), LOSSES)
def test_slopes_are_derivatives(loss, target):
    rng = np.random.default_rng(0)
    y = rng.normal(size=30) if target == "number" else rng.integers(target, size=30).astype(float)
    scores, start = rng.normal(size=(loss.n_scores, 30)), loss.start()
    extra, step = start + 0.1 * rng.uniform(size=len(start)), 1e-6

    def at(moved, beside):
        return loss.slopes(moved + loss.offset(beside)[:, None], y, beside)

    found, shifts = at(scores, extra), loss.shifts(y)
    by_score = (at(scores + step, extra).value - found.value) / step
    np.testing.assert_allclose(found.slope.sum(axis=1), by_score, atol=1e-4)
    for e, own in enumerate(np.eye(len(extra)) * step):
        change = (at(scores, extra + own).value - found.value).sum() / step
        p, parameter = e % loss.n_scores, e // loss.n_scores
        assert (found.slope[p] * shifts[:, parameter]).sum() == pytest.approx(change, abs=1e-3)
    second = (at(scores + step, extra).slope - found.slope) / step
    far_from_corners = np.abs(second - found.curvature) < 1e-4
    assert far_from_corners.mean() > 0.99
    assert found.curvature.max() <= loss.steepest * (1 + 1e-12)


def test_scores_decide():
    learned, levels = OrdinalMargin(0.1, 5, 0.5, 0.3), np.array([0.2, 0.3, 1.0, 0.5])
    assert learned.decoded(np.array([[0.1, 0.3, 1.0, 2.1]]), levels).tolist() == [0, 1, 2, 4]
    assert OrdinalMargin(0.1, 3, 1.0, None).decoded(np.array([[0.5]]), np.zeros(1)) == 1
    scores = np.random.default_rng(0).normal(size=(5, 3))
    alone = expit(scores)
    np.testing.assert_allclose(probabilities(scores), alone / alone.sum(axis=1, keepdims=True))
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

    def make_pass(loss, model, wanted="model"):
        return FitPass("own", loss, model, problem.mean[:-1], left_out, wanted).sums(parts)

    problem = SquaredProblem.of(moments)
    order = np.arange(k or K.shape[1])
    procedure = PassProcedure((), LandmarksOptions(ridge=ridge, bound=bound), 0, loss=loss)
    return procedure.fitted(make_pass, problem, order), parts


@pytest.mark.parametrize("rare", [None, 0.004])
def test_the_logistic_fit_is_that_of_scikit_learn(rare):
    K, y = rows()
    K = K @ np.random.default_rng(1).normal(size=(8, 8))
    y = np.digitize(y, np.quantile(y, [0.5] if rare is None else [0.5, 1 - rare])) * 1.0
    ridge = 1e-4
    ours, _ = fitted(Margin(0.01, 2 + (rare is not None), True), K, y, ridge=ridge)
    assert ours.minimum.status == "converged"
    for c in range(ours.model.weights.shape[1]):
        theirs = LogisticRegression(
            C=1 / (ridge * len(y) * np.mean(np.var(K, axis=0))), solver="newton-cholesky", tol=1e-12
        ).fit(K, y == (c if rare else 1))
        shares = expit(K @ ours.model.weights[:, c] + ours.model.offset[c])
        np.testing.assert_allclose(shares, theirs.predict_proba(K)[:, 1], atol=1e-5)


def literal_cost(loss, K, y, parameters, n_beside):
    """Mean loss of weights and of the parameters beside them, by its formula."""
    w, beside = parameters[:-n_beside], parameters[-n_beside:]

    def corner(t):
        inside = np.clip(t, 0, loss.width)
        return np.where(t > loss.width, t - loss.width / 2, inside**2 / (2 * loss.width))

    f = (K - K.mean(axis=0)) @ w
    if isinstance(loss, EpsilonInsensitive):
        return corner(np.abs(f + beside[0] - y) - loss.epsilon).mean()
    if isinstance(loss, Margin):
        return corner(1 - np.where(y > 0, 1, -1) * (f + beside[0])).mean()
    if isinstance(loss, AllMargins):
        rows = zip(f, y, strict=True)
        return np.mean([literal.all_margins(a, at, beside, loss.gamma, corner) for a, at in rows])
    shift = beside[0] if loss.spacing is None else 0.0
    inner = 0.5 + np.arange(loss.n_levels - 1) if loss.spacing is None else np.cumsum(beside)
    b, level, f = np.r_[-1e9, inner, 1e9], y.astype(int), f + shift
    return (corner(loss.gamma - f + b[level]) + corner(loss.gamma + f - b[level + 1])).mean()


@pytest.mark.parametrize("bound", [None, 2.0])
@pytest.mark.parametrize(
    "loss",
    [
        EpsilonInsensitive(0.05, 0.2),
        Margin(0.05, 2, False),
        OrdinalMargin(0.05, 4, 0.5, None),
        OrdinalMargin(0.05, 4, 0.5, 0.5),
        OrdinalMargin(0.05, 4, 0.5, 1.5),
        AllMargins(0.05, 4, 0.5, None),
    ],
)
def test_no_other_solver_finds_a_better_model(loss, bound):
    K, y = rows(n_landmarks=5)
    if not isinstance(loss, EpsilonInsensitive):
        cuts = [0.3] if isinstance(loss, Margin) else [0.3, 0.35, 0.9]
        y = np.digitize(y, np.quantile(y, cuts)) * 1.0
    ridge, n = 1e-3, len(loss.start())
    ours, _ = fitted(loss, K, y, ridge=ridge, bound=bound)
    unit = np.std(y) if isinstance(loss, EpsilonInsensitive) else 1.0
    penalty = ridge * np.mean(np.var(K, axis=0)) / unit

    def cost(at):
        return literal_cost(loss, K, y, at, n) + penalty / 2 * np.sum(at[:-n] ** 2)

    found = ours.minimum.parameters[:, 0]
    assert (ours.minimum.status, ours.minimum.gap <= ours.tolerance) == ("converged", True)
    assert ours.tolerance == pytest.approx(1e-10 * unit)
    assert ours.minimum.value == pytest.approx(cost(found), rel=1e-12)
    least = loss.least() if loss.least() is not None else np.full(n, -np.inf)
    ball = {"type": "ineq", "fun": lambda at: bound**2 / 5 - np.sum(at[:-n] ** 2)}
    theirs = minimize(
        cost,
        np.r_[np.zeros(5), np.maximum(loss.start(), least)],
        method="SLSQP",
        bounds=[(None, None)] * 5 + [(low, None) for low in least],
        constraints=[] if bound is None else [ball],
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert cost(found) <= theirs.fun + 1e-9
    assert cost(found) == pytest.approx(theirs.fun, abs=1e-5)
    assert (found[-n:] >= least).all()
    if bound is not None:
        assert np.sqrt(5) * np.linalg.norm(found[:-n]) <= bound * (1 + 1e-12)
    if isinstance(loss, AllMargins):
        np.testing.assert_array_equal(loss.thresholds(found[-n:]), found[-n:])  # in order unasked
    elif isinstance(loss, OrdinalMargin) and loss.spacing == 0.5:
        fixed, _ = fitted(replace(loss, spacing=None), K, y, ridge=ridge, bound=bound)
        assert ours.minimum.value <= fixed.minimum.value
        assert np.isclose(found[-n:], 0.5).any()


@pytest.mark.parametrize("bound", [None, 2.0])
def test_landmarks_may_be_the_same_or_constant_without_a_ridge(bound):
    K, y = rows(n_landmarks=3)
    y = (y > np.median(y)) * 1.0
    plain, _ = fitted(Margin(0.05, 2, True), K, y, bound=bound)
    K = np.column_stack([K, K[:, :2], np.ones(len(y))])
    twice, _ = fitted(Margin(0.05, 2, True), K, y, bound=bound)
    assert (plain.minimum.status, twice.minimum.status) == ("converged", "converged")
    if bound is None:
        assert twice.minimum.value == pytest.approx(plain.minimum.value, abs=1e-9)


def test_a_hessian_is_nowhere_above_its_majorant():
    K, y = rows(n_landmarks=3)
    y = np.digitize(y, np.quantile(y, [0.3, 0.6])) * 1.0
    for loss in (OrdinalMargin(0.3, 3, 0.5, 0.2), Margin(0.3, 3, True), Margin(0.3, 3, False)):
        found, parts = fitted(loss, K, y, ridge=1e-2)
        sums = [
            FitPass("own", loss, found.model, K.mean(axis=0), None, wanted).sums(parts)
            for wanted in ("model", "majorant")
        ]
        for hessian in sums[0]["hessian"]:
            assert np.linalg.eigvalsh(sums[1]["hessian"][0] - hessian).min() > -1e-9


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_a_fold_that_is_left_out_plays_no_part(left_out):
    K, y = rows(n_landmarks=3)
    loss, y = Margin(0.05, 2, False), (y > 0).astype(float)
    found, parts = fitted(loss, K, y, ridge=1e-3)
    fit = FitPass("own", loss, found.model, K.mean(axis=0), left_out)
    damaged = [
        replace(p, target=np.ones_like(p.target)) if p.part == left_out else p for p in parts
    ]
    np.testing.assert_array_equal(*(fit.sums(own)["hessian"] for own in (parts, damaged)))


def test_landmarks_are_chosen_where_the_loss_falls_most_steeply():
    K, y = rows(n_landmarks=6)
    K *= np.array([1.0, 3.0, 1.0, 0.3, 1.0, 1.0])
    loss = EpsilonInsensitive(0.5, 0.2)
    _, parts = fitted(loss, K, y, k=1)
    rule = NamedRule("own")
    procedure = PassProcedure(
        (rule,), LandmarksOptions(task="sparse", keep=4, ridge=1e-4), 6, loss=loss
    )
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))
    problem = procedure.problem({"own": moments, "make_pass": lambda m: m.sums(parts)})
    path = procedure.search(problem, rule)
    assert procedure.grid(path).tolist() == [1, 2, 4]
    assert {fit["status"] for fit in path.progress["fits"]} == {"converged"}
    for k, model in zip((1, 2), procedure.models(problem, path, ()), strict=False):
        scores = model.scores(K.T[model.landmarks])[0]
        slopes = np.array(literal.steepest(K, y, scores, 0.2, 1 / 0.5))
        slopes = slopes / K.std(axis=0)
        assert path.order[k] == np.argmax(slopes)
        assert slopes[path.order[:k]].max() < 0.05 * slopes.max()


@pytest.mark.parametrize(("most", "tolerance"), [(6, 0.02), (2, 0.02), (6, 10.0)])
def test_algorithm_2_takes_the_steps_of_the_paper_with_its_smoothed_loss(most, tolerance):
    K, y = rows(n=60, n_landmarks=6)
    loss, rule, bound = EpsilonInsensitive(0.5, 0.2), NamedRule("own"), 6.0
    parts = [EmbeddedRows(0, {"own": np.ascontiguousarray(K.T)}, y, np.ones(60))]
    own = {"task": "sparse", "refit": False, "bound": bound, "tolerance": tolerance, "ridge": 0.0}
    options = LandmarksOptions(**own, loss="epsilon_insensitive", keep=most)
    procedure = PassProcedure((rule,), options, 6, loss=loss)
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))
    problem = procedure.problem({"own": moments, "make_pass": lambda m: m.sums(parts)})
    path, epsilon = procedure.search(problem, rule), tolerance * y.std()

    smoothness = np.var(K, axis=0).max() / 0.5
    wanted = literal.sparse_steps(
        *(K, y, bound, epsilon, smoothness, 10_000),
        lambda t: literal.smoothed_slope(t, 0.2, 1 / 0.5),
    )
    within = [w for w in wanted if np.count_nonzero(w) <= most]
    assert path.progress["n_steps"] == len(within) > (5 if tolerance < 1 else -1)
    assert (path.progress["gap"] <= epsilon) == (most == 6)
    for model in path.models:
        dense = np.zeros(6)
        dense[model.landmarks] = model.weights[:, 0]
        few = [np.zeros(6), *(w for w in wanted if np.count_nonzero(w) <= len(model.weights))]
        np.testing.assert_allclose(dense, few[-1], rtol=1e-9, atol=1e-12)
        scores = model.scores(K.T[model.landmarks])[0]
        np.testing.assert_allclose(scores, (K - K.mean(axis=0)) @ dense + y.mean(), atol=1e-9)
