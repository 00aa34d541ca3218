"""Losses against their formulas, and fits by passes against other solvers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from distfms.methods.frame.moments import NamedRule
from distfms.methods.landmarks import fit
from distfms.methods.landmarks.fit import EmbeddedRows, FitPass, PassProcedure
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap, Similarity
from distfms.methods.landmarks.squared import LandmarkProcedure, SquaredProblem
from distfms.solve.losses import AllMargins, EpsilonInsensitive, Margin, OrdinalMargin
from distfms.stats.comoments import CoMoments
from tests.reference import landmarks as literal

# --- fits ---------------------------------------------------------------------------------------

#: Of six similarities that are columns.
AS_THEY_ARE = LandmarkMap(
    Similarity("precomputed"), np.zeros(6), np.ones(6), np.zeros(6), np.eye(6)
)


def rows(n=600, n_landmarks=8, seed=0):
    rng = np.random.default_rng(seed)
    K = rng.normal(size=(n, n_landmarks)) + 1.0
    return K, K @ rng.normal(size=n_landmarks) + rng.standard_t(3, size=n)


def fitted(loss, K, y, k=None, ridge=0.0, bound=None, left_out=None, intercept=True):
    cuts = [slice(0, 200), slice(200, 450), slice(450, None)]
    parts = [
        EmbeddedRows(part, {"own": np.ascontiguousarray(K[c].T)}, y[c], np.ones(len(y[c])))
        for part, c in enumerate(cuts)
    ]
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))

    def make_pass(loss, model, wanted="model"):
        return FitPass("own", loss, model, problem.mean[:-1], left_out, wanted).sums(parts)

    problem = SquaredProblem.of(moments, intercept=intercept)
    order = np.arange(k or K.shape[1])
    procedure = PassProcedure(
        LandmarkProcedure((), LandmarksOptions(ridge=ridge, bound=bound), 0), loss
    )
    return procedure.fitted(make_pass, problem, order), parts


def literal_cost(loss, K, y, parameters):
    """Mean loss of weights and of the parameters beside them, by its formula."""
    n_landmarks = K.shape[1]
    w = parameters[:n_landmarks]
    beside = parameters[n_landmarks:]
    shift = beside[0] if loss.has_intercept else 0.0

    def corner(t):
        inside = np.clip(t, 0, loss.width)
        return np.where(t > loss.width, t - loss.width / 2, inside**2 / (2 * loss.width))

    f = (K - K.mean(axis=0) if loss.has_intercept else K) @ w
    if isinstance(loss, EpsilonInsensitive):
        return corner(np.abs(f + shift - y) - loss.epsilon).mean()
    if isinstance(loss, Margin):
        return corner(1 - np.where(y > 0, 1, -1) * (f + shift)).mean()
    if isinstance(loss, AllMargins):
        corners = [literal.all_margins(int(level), beside, loss.gamma) for level in y]
        return np.mean([literal.loss(*row, corner) for row in zip(f, corners, strict=True)])
    shift = shift if loss.spacing is None else 0.0
    inner = 0.5 + np.arange(loss.n_levels - 1) if loss.spacing is None else np.cumsum(beside)
    b = np.r_[-1e9, inner, 1e9]
    level = y.astype(int)
    f = f + shift
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
        EpsilonInsensitive(0.05, 0.2, has_intercept=False),
        Margin(0.05, 2, False, has_intercept=False),
        OrdinalMargin(0.05, 4, 0.5, None, has_intercept=False),
    ],
)
def test_no_other_solver_finds_a_better_model(loss, bound):
    K, y = rows(n_landmarks=5)
    if not isinstance(loss, EpsilonInsensitive):
        cuts = [0.3] if isinstance(loss, Margin) else [0.3, 0.35, 0.9]
        y = np.digitize(y, np.quantile(y, cuts)) * 1.0
    ridge = 1e-3
    n = len(loss.start())
    ours, _ = fitted(loss, K, y, ridge=ridge, bound=bound, intercept=loss.has_intercept)
    deviation = np.std if loss.has_intercept else lambda x, axis=None: np.sqrt((x**2).mean(axis))
    unit = deviation(y) if isinstance(loss, EpsilonInsensitive) else 1.0
    penalty = ridge * np.mean(deviation(K, axis=0) ** 2) / unit

    def cost(at):
        return literal_cost(loss, K, y, at) + penalty / 2 * np.sum(at[:5] ** 2)

    results = ours.minimum.parameters[:, 0]
    assert len(results) == 5 + n
    assert (ours.minimum.status, ours.minimum.gap <= ours.tolerance) == ("converged", True)
    assert ours.tolerance == pytest.approx(1e-10 * unit)
    assert ours.minimum.value == pytest.approx(cost(results), rel=1e-12)
    least = loss.least() if loss.least() is not None else np.full(n, -np.inf)
    ball = {"type": "ineq", "fun": lambda at: bound**2 / 5 - np.sum(at[:5] ** 2)}
    theirs = minimize(
        cost,
        np.r_[np.zeros(5), np.maximum(loss.start(), least)],
        method="SLSQP",
        bounds=[(None, None)] * 5 + [(low, None) for low in least],
        constraints=[] if bound is None else [ball],
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert cost(results) <= theirs.fun + 1e-9
    assert cost(results) == pytest.approx(theirs.fun, abs=1e-5)
    assert (results[5:] >= least).all()
    if bound is not None:
        assert np.sqrt(5) * np.linalg.norm(results[:5]) <= bound * (1 + 1e-12)
    if isinstance(loss, AllMargins):
        ascending = loss.thresholds(results[-n:])
        np.testing.assert_array_equal(ascending, results[-n:])  # in order unasked
    elif isinstance(loss, OrdinalMargin) and loss.spacing == 0.5:
        fixed, _ = fitted(replace(loss, spacing=None), K, y, ridge=ridge, bound=bound)
        assert ours.minimum.value <= fixed.minimum.value
        assert np.isclose(results[-n:], 0.5).any()


def test_landmarks_are_chosen_where_the_loss_falls_most_steeply():
    K, y = rows(n_landmarks=6)
    K *= np.array([1.0, 3.0, 1.0, 0.3, 1.0, 1.0])
    loss = EpsilonInsensitive(0.5, 0.2)
    _, parts = fitted(loss, K, y, k=1)
    rule = NamedRule("own")
    options = LandmarksOptions(task="sparse", keep=4, ridge=1e-4)
    procedure = PassProcedure(LandmarkProcedure((rule,), options, 6, {"own": AS_THEY_ARE}), loss)
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


@pytest.mark.parametrize(
    ("most", "tolerance", "intercept"),
    [(6, 0.02, True), (2, 0.02, True), (6, 10.0, True), (6, 0.02, False)],
)
def test_algorithm_2_takes_the_steps_of_the_paper_with_its_smoothed_loss(
    most, tolerance, intercept, monkeypatch
):
    monkeypatch.setattr(fit, "STEPS_TOLERANCE", tolerance)
    K, y = rows(n=60, n_landmarks=6)
    loss = EpsilonInsensitive(0.5, 0.2, has_intercept=intercept)
    rule = NamedRule("own")
    bound = 6.0
    parts = [EmbeddedRows(0, {"own": np.ascontiguousarray(K.T)}, y, np.ones(60))]
    section = {"task": "sparse", "selection": "steps", "bound": bound, "ridge": 0.0}
    section |= {"loss": "epsilon_insensitive", "intercept": intercept}
    options = LandmarksOptions(**section, keep=most)
    procedure = PassProcedure(LandmarkProcedure((rule,), options, 6, {"own": AS_THEY_ARE}), loss)
    moments = CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))
    problem = procedure.problem({"own": moments, "make_pass": lambda m: m.sums(parts)})
    path = procedure.search(problem, rule)
    level = y.mean() if intercept else 0.0
    centred = K - K.mean(axis=0) if intercept else K
    epsilon = tolerance * np.sqrt(np.mean((y - level) ** 2))
    smoothness = np.mean(centred**2, axis=0).max() / 0.5
    expected = literal.sparse_steps(
        *(centred, y - level, bound, epsilon, smoothness, 10_000),
        lambda t: literal.smoothed_slope(t, 0.2, 1 / 0.5),
    )
    within = [w for w in expected if np.count_nonzero(w) <= most]
    assert path.progress["n_steps"] == len(within) > (5 if tolerance < 1 else -1)
    assert (path.progress["gap"] <= epsilon) == (most == 6)
    for model in path.models:
        dense = np.zeros(6)
        dense[model.landmarks] = model.weights[:, 0]
        few = [np.zeros(6), *(w for w in expected if np.count_nonzero(w) <= len(model.weights))]
        np.testing.assert_allclose(dense, few[-1], rtol=1e-9, atol=1e-12)
        scores = model.scores(K.T[model.landmarks])[0]
        np.testing.assert_allclose(scores, centred @ dense + level, atol=1e-9)
