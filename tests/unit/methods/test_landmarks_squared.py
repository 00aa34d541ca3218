"""Models of squared loss from statistics, against fits on the rows."""

import numpy as np
import pytest

from distfms.engine.local import SerialPool
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap, Similarity
from distfms.methods.landmarks.squared import (
    LandmarkProcedure,
    NamedRule,
    SquaredProblem,
    candidates_of,
    greedy,
    refitted,
    squared_steps,
)
from distfms.solve import shards
from distfms.stats.comoments import CoMoments
from tests.reference import landmarks as literal


def rows(n=120, n_landmarks=9, seed=0):
    rng = np.random.default_rng(seed)
    K = rng.normal(size=(n, n_landmarks)) + 2.0
    y = K[:, [1, 4, 6]] @ [3.0, -2.0, 0.5] + 0.2 * rng.normal(size=n) + 10.0
    return K, y


def problem_of(K, y, intercept=True):
    return SquaredProblem.of(moments_of(K, y), intercept=intercept)


def moments_of(K, y):
    return CoMoments.from_block(np.ascontiguousarray(np.column_stack([K, y]).T))


def test_actors_choose_the_landmarks_that_one_process_does(monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_COLUMNS", 4)
    problem = problem_of(*rows())
    cut = candidates_of(problem, 1e-3).shard.cut()
    assert len(cut) > 1
    with SerialPool() as pool:
        chosen = greedy(problem, 6, 1e-3, pool=pool, shards=cut)
    assert chosen.tolist() == greedy(problem, 6, 1e-3).tolist()


def test_greedy_takes_what_lowers_the_loss_most():
    K, y = rows()
    chosen = greedy(problem_of(K, y), 5, 0.0)
    expected = []
    for _ in range(5):
        expected.append(literal.best_next(K, y, expected))
    assert chosen.tolist() == expected
    assert set(chosen[:3].tolist()) == {1, 4, 6}


def test_the_gradient_chooses_as_algorithm_2_of_the_paper():
    K, y = rows()
    K *= np.linspace(0.2, 3.0, 9)
    problem = problem_of(K, y, intercept=False)
    expected = []
    for _ in range(6):
        expected.append(literal.steepest_next(K, y, expected))
    chosen = greedy(problem, 6, 0.0, "gradient")
    assert chosen.tolist() == expected != greedy(problem, 6, 0.0).tolist()
    weights = refitted(problem, chosen, [2, 6], 0.0)
    for row, k in zip(weights, (2, 6), strict=True):
        np.testing.assert_allclose(row, literal.least_squares(K, y, expected[:k]), rtol=1e-9)
    assert not problem.intercept(weights).any()


@pytest.mark.parametrize("intercept", [True, False])
def test_the_steps_of_algorithm_2_are_those_of_the_paper(intercept):
    K, y = rows(n=40, n_landmarks=7)
    problem = problem_of(K, y, intercept)
    tolerance = 0.05
    found = squared_steps(problem, 7, 0.0, 6.0, tolerance)
    if intercept:
        K = K - K.mean(axis=0)
        y = y - y.mean()
    epsilon = tolerance * np.mean(y**2)
    smoothness = 2 * np.mean(K**2, axis=0).max()
    expected = literal.sparse_steps(K, y, 6.0, epsilon, smoothness, 10_000)
    assert found["n_steps"] == len(expected) > 5
    dense = np.zeros(7)
    dense[found["order"]] = found["weights"][-1]
    np.testing.assert_allclose(dense, expected[-1], rtol=1e-9, atol=1e-12)
    # The gap bounds how far the loss is above the least within the bound.
    assert found["gap"] <= epsilon
    one = next(w for w in reversed(expected) if np.count_nonzero(w) == 1)
    assert found["weights"][0, 0] == pytest.approx(one[found["order"][0]])
    few = squared_steps(problem, 2, 0.0, 6.0, tolerance)
    assert few["order"].tolist() == found["order"][:2].tolist()
    assert few["gap"] > epsilon


def test_a_problem_is_kept_for_all_options_but_the_landmarks():
    K, y = rows()
    rule = NamedRule("gaussian")
    made = moments_of(K, y)
    fold = Fold({"gaussian": made}, {"gaussian": made})
    options = LandmarksOptions(metric="none")
    zeros = np.zeros(9)
    mapping = LandmarkMap(Similarity("precomputed"), zeros, zeros + 1, zeros, np.eye(9), ridge=1e-3)

    def found(candidates, **changes):
        own = options.model_copy(update=changes)
        own = LandmarkProcedure((rule,), own, candidates, {"gaussian": mapping})
        return own.problem_on(fold), own.tuned_values(fold, (None,), "mse")[0]

    problem, by_default = found(9)
    again, shrunk = found(9, ridge=10.0)
    assert again is problem
    assert shrunk > 2 * by_default
    assert found(9, ridge=0.0)[1] < by_default
    assert found(3)[0]["gaussian"].n_landmarks == 3
    assert found(3)[1] > 2 * by_default
