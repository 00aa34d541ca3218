"""Models of squared loss from statistics, against fits on the rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.newton import Domain
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.references import kernel_regression
from distfms.methods.landmarks.similarity import LandmarkMap, Similarity
from distfms.methods.landmarks.squared import (
    LandmarkProcedure,
    NamedRule,
    SquaredProblem,
    errors,
    greedy,
    ladder,
    refitted,
    squared_steps,
)
from distfms.stats.comoments import CoMoments
from tests.reference import landmarks as literal


def rows(n=120, n_landmarks=9, seed=0):
    rng = np.random.default_rng(seed)
    K = rng.normal(size=(n, n_landmarks)) + 2.0
    y = K[:, [1, 4, 6]] @ [3.0, -2.0, 0.5] + 0.2 * rng.normal(size=n) + 10.0
    return K, y


def problem_of(K, y):
    return SquaredProblem.of(moments_of(K, y))


def moments_of(K, y):
    return CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))


def test_greedy_takes_what_lowers_the_loss_most():
    K, y = rows()
    chosen = greedy(problem_of(K, y), 5, 0.0)
    wanted = []
    for _ in range(5):
        wanted.append(literal.best_next(K, y, wanted))
    assert chosen.tolist() == wanted
    assert set(chosen[:3].tolist()) == {1, 4, 6}


def test_weights_are_refitted_after_each_step():
    K, y = rows()
    problem = problem_of(K, y)
    order = greedy(problem, 4, 0.0)
    weights = refitted(problem, order, [1, 3, 4], 0.0)
    for own, k in zip(weights, (1, 3, 4), strict=True):
        X = np.column_stack([np.ones(len(y)), K[:, order[:k]]])
        wanted = np.linalg.lstsq(X, y, rcond=None)[0]
        np.testing.assert_allclose(own[order[:k]], wanted[1:], rtol=1e-8)
        assert problem.intercept(own) == pytest.approx(wanted[0])
        assert np.count_nonzero(own) == k
    tight = refitted(problem, order, [4], 0.0, 1.5)  # of similarities over √4
    assert 2 * np.linalg.norm(tight) == pytest.approx(1.5)
    within = refitted(problem, order, [1, 3, 4], 0.0, bound=0.5)
    np.testing.assert_allclose(np.linalg.norm(within, axis=1), 0.5 / np.sqrt([1, 3, 4]))


def test_errors_on_other_rows_count_how_far_their_means_are_off():
    (K, y), (L, z) = rows(), rows(80, seed=1)
    L, z = L + 0.7, z - 0.4
    problem, weights = problem_of(K, y), np.random.default_rng(2).normal(size=(3, 9))
    predicted = weights @ L.T + problem.intercept(weights)[:, np.newaxis]
    found = errors(problem, weights, moments_of(L, z))
    np.testing.assert_allclose(found, np.mean((predicted - z) ** 2, axis=1), rtol=1e-10)


def test_the_steps_of_algorithm_2_are_those_of_the_paper():
    K, y = rows(n=40, n_landmarks=7)
    problem, tolerance = problem_of(K, y), 0.05
    found = squared_steps(problem, 7, 0.0, 6.0, tolerance)
    smoothness = 2 * np.var(K, axis=0).max()
    wanted = literal.sparse_steps(K, y, 6.0, tolerance * y.var(), smoothness, 10_000)
    assert found["n_steps"] == len(wanted) > 5
    dense = np.zeros(7)
    dense[found["order"]] = found["weights"][-1]
    np.testing.assert_allclose(dense, wanted[-1], rtol=1e-9, atol=1e-12)
    # The gap bounds how far the loss is above the least within the bound.
    assert found["gap"] <= tolerance * y.var()
    one = next(w for w in reversed(wanted) if np.count_nonzero(w) == 1)
    assert found["weights"][0, 0] == pytest.approx(one[found["order"][0]])
    few = squared_steps(problem, 2, 0.0, 6.0, tolerance)
    assert few["order"].tolist() == found["order"][:2].tolist()
    assert few["gap"] > tolerance * y.var()


@settings(max_examples=40, deadline=None)
@given(bound=st.floats(0.01, 10.0), seed=st.integers(0, 50), rank=st.integers(1, 6))
def test_the_bound_is_kept_and_costs_as_little_as_can_be(bound, seed, rank):
    rng = np.random.default_rng(seed)
    A, c = rng.normal(size=(rank, 6)), rng.normal(size=6)
    gram, target = A.T @ A, A.T @ rng.normal(size=rank) if rank < 6 else c
    found = Domain(6, bound).best(gram[np.newaxis], target[:, np.newaxis])[:, 0]
    norm = np.linalg.norm(found)
    assert norm <= bound * (1 + 1e-12)
    # Optimality: the gradient is −λ times the weights, λ ≥ 0, and λ > 0 only on the sphere.
    gradient = gram @ found - target
    multiplier = max(-(gradient @ found) / norm**2, 0.0)
    scale = np.linalg.norm(target) + 1e-12
    assert np.linalg.norm(gradient + multiplier * found) <= 1e-6 * scale
    assert multiplier * bound <= 1e-6 * scale or norm == pytest.approx(bound, rel=1e-5)


def test_copies_of_a_landmark_are_not_chosen_twice():
    K, y = rows()
    twice = np.column_stack([K, K * 3.7 + 0.3, np.full(len(y), 3.0)])
    order = greedy(problem_of(twice, y), 19, 0.0)
    assert len(order) == 9
    assert set(order.tolist()) == set(range(9))
    assert len(greedy(problem_of(K, np.full(len(y), 4.0)), 3, 0.0)) == 0


def test_measures_of_a_procedure():
    K, y = rows()
    moments = {"linear": moments_of(K, y)}
    rule = NamedRule("linear")
    options = LandmarksOptions(task="sparse", keep=4, ridge=0.0)
    procedure = LandmarkProcedure((rule,), options, 9)
    problem = procedure.problem(moments)
    path = procedure.search(problem, rule)
    found = procedure.score(problem, path, moments, np.array([1.0, 2.5, 4.0, 99.0]))
    assert found["mse"][2] == found["mse"][3]
    weights = procedure.weights(problem, path, [1, 2, 4])
    np.testing.assert_allclose(
        found["largest_weight"][:3], np.array([1, 2, 4]) * np.abs(weights).max(axis=1)
    )
    np.testing.assert_allclose(found["r2"], 1 - found["mse"] / y.var(), rtol=1e-9)
    stepping = replace(
        procedure,
        options=options.model_copy(update={"refit": False, "bound": 5.0, "tolerance": 0.01}),
    )
    path = stepping.search(problem, rule)
    weights = stepping.weights(problem, path, [0, 1, len(path.order)])
    assert np.abs(weights).sum(axis=1).max() <= 5.0 + 1e-12
    np.testing.assert_array_equal(weights[-1, path.order], path.weights[-1])
    assert ladder(7) == [1, 2, 5, 7]
    assert ladder(10) == [1, 2, 5, 10]


def test_the_mean_stands_in_where_similarities_add_up_to_nothing():
    X, y = np.array([[1.0, -1.0]]), np.array([4.0, 8.0])
    mapping = LandmarkMap(Similarity("linear"), *np.array([[0.0], [1.0], [0.0]]), X.T)
    found, n_guarded = kernel_regression(mapping, X, y, np.array([[5.0, 0.0]]))
    assert (found.tolist(), n_guarded) == ([6.0, 6.0], 2)


def literal_scores(K, y, ridges, degree):
    """Generalised cross-validation by hat matrices, each degree of freedom counted so often."""
    n, k = K.shape
    A, left = K - K.mean(axis=0), y - y.mean()
    scores = []
    for ridge in ridges:
        hat = A @ np.linalg.solve(A.T @ A + n * ridge * np.var(K, axis=0).mean() * np.eye(k), A.T)
        kept = n - 1 - degree * np.trace(hat)
        scores.append(np.sum((left - hat @ left) ** 2) / kept**2 if kept > 0 else np.inf)
    return np.array(scores)


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_the_ridge_of_generalised_cross_validation(noise):
    chosen, plain, ridges = [], [], np.logspace(-6, 2, 17)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        K = rng.normal(size=(18, 12)) * np.linspace(0.5, 2, 12) + 4.0
        y = K @ rng.normal(size=12) + noise * rng.normal(size=18)
        chosen.append(problem_of(K, y).ridge)
        assert chosen[-1] == ridges[np.argmin(literal_scores(K, y, ridges, 1.2))]
        plain.append(ridges[np.argmin(literal_scores(K, y, ridges, 1.0))])
    assert len(set(chosen)) > 3
    assert np.mean(np.log(chosen)) > np.mean(np.log(plain)) + 0.5


@pytest.mark.parametrize("n", [2, 5, 12, 40])
def test_no_ridge_is_chosen_for_an_exact_fit(n):
    # As many columns as rows fit anything, which says nothing of other rows.
    rng = np.random.default_rng(n)
    K, y = rng.normal(size=(n, n)), rng.normal(size=n)
    assert problem_of(K, y).ridge > 1e-2
    assert problem_of(np.ones((n, 3)), y).ridge == 0.0


def test_a_problem_is_kept_for_all_options_but_the_landmarks():
    K, y = rows()
    rule, made = NamedRule("gaussian"), moments_of(K, y)
    fold = Fold({"gaussian": made}, {"gaussian": made})
    options = LandmarksOptions(metric="none")

    def found(candidates, **changes):
        own = LandmarkProcedure((rule,), options.model_copy(update=changes), candidates)
        return own.problem_on(fold), own.tuned_values(fold, (None,), "mse")[0]

    problem, by_default = found(9)
    again, shrunk = found(9, ridge=10.0)
    assert again is problem
    assert shrunk > 2 * by_default
    assert found(9, ridge=0.0)[1] < by_default
    assert found(3)[0]["gaussian"].n_landmarks == 3
    assert found(3)[1] > 2 * by_default


def test_numbers_of_landmarks_are_points_of_one_path():
    K, y = rows(n=200, n_landmarks=60)
    made, options = moments_of(K, y), LandmarksOptions(task="sparse", ridge=1e-6)
    fold, ends = Fold({"own": made}, {"own": made}), (None, 60, 2)
    procedure = LandmarkProcedure((NamedRule("own"),), options, 60)
    values = procedure.tuned_values(fold, ends, "mse")
    for value, end in zip(values, ends, strict=True):
        alone = replace(procedure, options=options.model_copy(update={"keep": end}))
        assert value == pytest.approx(alone.tuned_values(fold, (end,), "mse")[0], rel=1e-12)
    assert values[1] < values[0] < values[2]  # 50 landmarks by default
