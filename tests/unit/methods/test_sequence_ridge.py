"""Ridges of linear regressions: their losses, and columns that hardly vary without a fold."""

import numpy as np
import pytest

from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.ridge import (
    losses_of_ridges,
    losses_without_folds,
    refitted,
    ridge_without_folds,
)
from tests.reference.sequence import (
    comoments,
    correlated,
    fitted,
    make_problem,
    search,
    standardised,
)

RIDGES = (1e3, 1.0, 1e-2, 1e-5)


def tables(n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X, Y, groups = correlated(rng, 90, [2, 1, 3])
    Y = Y[:, :1] if n_targets == 1 else np.column_stack((Y[:, :1], 1e3 * X[:, 1]))
    return X[:60], Y[:60], X[60:], Y[60:], groups


@pytest.mark.parametrize("n_targets", [1, 2])
def test_losses_are_those_of_the_rows(n_targets):
    X, Y, X_out, Y_out, groups = tables(n_targets)
    problem = make_problem(X, Y, groups)
    losses = losses_of_ridges(problem, comoments(X_out, Y_out), RIDGES)
    scaled = (X_out - X.mean(axis=0)) / X.std(axis=0)
    for ridge, found in zip(RIDGES, losses, strict=True):
        weights = fitted(standardised(X), standardised(Y), range(X.shape[1]), ridge)
        predicted = Y.mean(axis=0) + (scaled @ weights) * Y.std(axis=0)
        squares = np.mean((Y_out - predicted) ** 2, axis=0)
        expected = squares[0]
        if n_targets == 2:
            expected = np.mean(squares / np.mean((Y_out - Y.mean(axis=0)) ** 2, axis=0))
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ridge", RIDGES)
def test_a_path_has_the_models_of_another_ridge_in_the_same_order(ridge):
    X, Y, X_out, Y_out, groups = tables()
    path = search(make_problem(X, Y, groups, ridge=0.1), "fr")
    problem = make_problem(X, Y, groups, ridge=ridge)
    found = refitted(path, make_problem(X, Y, groups, ridge=0.1), ridge)
    assert found.order.tolist() == path.order.tolist()
    assert found.outline.ridge == ridge
    for size, model in enumerate(found.prefix_models().coefficients):
        columns = [c for g in path.order[:size] for c in groups[g]]
        expected = np.zeros(X.shape[1])
        if columns:
            weights = fitted(standardised(X), standardised(Y), columns, ridge)
            expected[columns] = weights[:, 0] * Y.std() / X[:, columns].std(axis=0)
        np.testing.assert_allclose(model[:, 0], expected, rtol=1e-7, atol=1e-10)
    assert problem.ridge == ridge
    held_out = comoments(X_out, Y_out)
    last = losses_of_ridges(problem, held_out, [ridge])[0]
    assert found.held_out(held_out)["mse"][-1] == pytest.approx(last, rel=1e-8)


@pytest.mark.parametrize("ridge", RIDGES)
def test_generalised_cross_validation_is_the_literal_one(ridge):
    X, Y, *_, groups = tables()
    path = search(make_problem(X, Y, groups, ridge=ridge), "fr")
    losses = losses_without_folds(path, comoments(X, Y))
    for size, loss in enumerate(losses):
        columns = [c for g in path.order[:size] for c in groups[g]]
        rows = standardised(X)[:, columns]
        hat = rows @ np.linalg.solve(rows.T @ rows / 60 + ridge * np.eye(len(columns)), rows.T) / 60
        hat += 1 / 60  # the mean
        residual = (standardised(Y) - hat @ standardised(Y)) * Y.std()
        expected = np.mean(residual**2) / (1 - 1.4 * np.trace(hat) / 60) ** 2
        assert loss == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("n_rows", "is_noise", "least", "most"), [(40, True, 1.0, 1e3), (20, False, 1e-3, 3.0)]
)
def test_without_folds_noise_and_few_rows_do_not_have_the_least_ridge(
    n_rows, is_noise, least, most
):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_rows, 30)) + 2 * rng.normal(size=(n_rows, 1))
    Y = rng.normal(size=(n_rows, 1)) if is_noise else X.mean(axis=1, keepdims=True)
    problem = make_problem(X, Y, [[j] for j in range(30)])
    names = tuple(map(str, range(30)))
    procedure = SequenceProcedure(
        (OrderRule("fr"),), names, ("y",), problem.groups, problem.costs, 0.0, None
    )
    losses = ridge_without_folds(procedure, problem, comoments(X, Y))
    assert least <= min(losses, key=losses.__getitem__) <= most
