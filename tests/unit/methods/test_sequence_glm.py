"""Generalised linear sequences against the literal formulas, scikit-learn and dask-ml."""

from dataclasses import replace

import numpy as np
import pytest

from distfms.errors import DataError
from distfms.methods.frame.classes import MAX_CLASSES, ClassCounts, find_classes
from distfms.methods.frame.judge import LossSums
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.glm import fitted, sequence_glm
from distfms.methods.sequence.glm_rows import GlmDesign, View
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.judged import few_rows
from distfms.methods.sequence.problem import Ladder
from distfms.solve.costs import GroupCosts
from distfms.solve.lbfgs import side_by_side
from distfms.solve.losses import FAMILIES
from distfms.stats.base import Folded, merge_tree
from distfms.stats.codec import settled
from distfms.stats.sums import Sums
from tests.reference import glm as literal
from tests.reference.sequence import make_problem

ALL = tuple(FAMILIES)
GROUPS = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]
COSTS = np.array([2.0, 0.7, 3.0, 1.1, 1.6])


# --- families -----------------------------------------------------------------------------------


def test_losses_survive_large_numbers():
    poisson, logistic, softmax = (FAMILIES[f] for f in ("poisson", "logistic", "softmax"))
    big = np.array([[1e9]])
    assert poisson.loss(np.log(big) + 1e-6, big)[0] == pytest.approx(1e9 * 0.5e-12, rel=1e-5)
    far = poisson.loss(np.array([[50.0, 51.0, 52.0, 1e6]]), np.ones((1, 4)))
    np.testing.assert_allclose(np.diff(far)[:2], np.exp(50), rtol=1e-12)
    assert np.isfinite(far).all()
    assert logistic.loss(np.array([[-800.0]]), np.array([[1.0]]))[0] == 800.0
    assert softmax.loss(np.array([[900.0], [0.0]]), np.array([[0.0], [1.0]]))[0] == 900.0


def test_responses_outside_the_family_and_rows_without_weight_are_refused():
    for family, y in (("logistic", [[0.0, 2.0]]), ("poisson", [[1.0, -1.0]])):
        with pytest.raises(DataError, match=family):
            FAMILIES[family].require(np.array(y))
    with pytest.raises(DataError, match="positive weight"):
        Case("logistic", *grouped("logistic"), weight=np.zeros(150)).sequence()


# --- sums ---------------------------------------------------------------------------------------


def grouped(family, n=150):
    """Groups 2 and 3 matter, group 4 is correlated with group 2, the rest is noise."""
    rng = np.random.default_rng(12)
    X = rng.normal(size=(n, 9))
    X[:, 7] = 0.7 * X[:, 3] + 0.7 * X[:, 7]
    P = 3 if family == "softmax" else 1
    B = np.zeros((9, P))
    B[[3, 4, 6]] = rng.choice([-1.0, 1.0], size=(3, P)) * rng.uniform(0.7, 1.2, size=(3, P))
    eta = (X @ B).T
    X = X * rng.uniform(0.1, 9.0, 9) + 5.0
    if family == "logistic":
        return X, (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float)
    return X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=0).astype(float)


class Case:
    """Rows in memory, and how many passes were made over them."""

    def __init__(self, family, X, y, *, ridge=1e-3, costs=COSTS, weight=None, cuts=(40,)):
        self.n_outputs = int(y.max()) + 1 if family == "softmax" else len(y)
        targets = np.atleast_2d(y)
        costs = costs if isinstance(costs, GroupCosts) else GroupCosts(np.asarray(costs))
        self.problem = make_problem(X, targets.T, GROUPS, costs, ridge)
        self.design = GlmDesign(family, self.n_outputs, self.problem.scaling)
        weight = np.ones(len(X)) if weight is None else weight
        columns = np.ascontiguousarray(X.T)
        self.parts = []
        for rows in np.split(np.arange(len(X)), cuts):
            of_rows = (columns[:, rows], y[..., rows], weight[rows], np.zeros(len(rows)))
            self.parts.append(self.design.rows(*of_rows))
        self.n_passes = 0

    def sums(self, *models):
        return merge_tree([self.design.sums(rows, models) for rows in self.parts])

    def one(self, model):
        self.n_passes += 1
        return Sums({name: array[0] for name, array in self.sums(model).arrays.items()})

    def found(self, search):
        return side_by_side([search], lambda models: map(self.one, models))[0]

    @property
    def view(self):
        return View(self.design, self.problem.scaling)

    def path(self, search):
        self.n_passes = 0
        (fits,) = fitted([search], lambda models: map(self.one, models))
        return fits.path(self.n_passes)

    def sequence(self, prefixes="all", costs=None, view=None, **options):
        ladder = Ladder(prefixes, costs)
        return self.path(sequence_glm(self.problem, view or self.view, ladder, **options))


def literal_rows(family, X, y):
    return literal.standardise(X), np.eye(3)[y.astype(int)] if family == "softmax" else y.T


@pytest.mark.parametrize("family", ALL)
def test_fr_orders_by_the_squared_loss_about_the_null_model_in_two_passes(family):
    X, y = grouped(family, n=80)
    X[:, 4] += 4.0 * X[:, 3] * X[:, 4].std() / X[:, 3].std()
    Z, Y = literal_rows(family, X, y)
    mean = Y.mean(axis=0)
    own = FAMILIES[family]
    variance = mean if family == "softmax" else own.variance(mean)
    case = Case(family, X, y, ridge=0.1)
    squared = replace(
        case.problem,
        target=Z.T @ (Y - mean) / len(Z) / np.sqrt(variance),
        ridge=0.1 / own.variance(mean).mean(),
    )
    for options in ({}, {"cost_aware": False}, {"doubling": True}, {"max_groups": 3}):
        expected = sequence(squared, "fr", **options)
        path = case.sequence((), **options)
        assert path.order.tolist() == expected.order.tolist()
        assert (path.notes, path.n_candidates) == (expected.notes, expected.n_candidates)
        assert case.n_passes > 2
        np.testing.assert_array_equal(path.cost, expected.cost)


# --- sequences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "whiten", "cost_aware"),
    [*((family, True, True) for family in ALL), ("softmax", False, True), ("poisson", True, False)],
)
def test_sequence_equals_the_literal_refit_from_rows(family, whiten, cost_aware):
    X, y = grouped(family, n=80)
    X[:, 4] += 4.0 * X[:, 3] * X[:, 4].std() / X[:, 3].std()  # whitening changes the order
    case = Case(family, X, y)
    path = case.sequence(criterion="omp" if whiten else "omp-no-whiten", cost_aware=cost_aware)
    Z, Y = literal_rows(family, X, y)
    chosen, weights = literal.sequence(
        Z, Y, GROUPS, COSTS, family, 1e-3, whiten=whiten, cost_aware=cost_aware
    )
    assert path.order.tolist() == chosen
    np.testing.assert_array_equal(path.cost, COSTS[chosen])
    for k, expected in enumerate(weights):
        np.testing.assert_allclose(path.weights[k], expected, atol=1e-5)
    predictor = AnytimePredictor.from_path(path, family, tuple("abc"[: case.n_outputs]))
    eta = Z @ weights[3][:-1] + weights[3][-1]
    expected = np.array([literal.MEAN[family](e) for e in eta])
    names = predictor.feature_names
    found = predictor.predict(3, dict(zip(names, X.T, strict=True)), len(X))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_between_fits_groups_go_by_the_quadratic_model():
    X, y = grouped("logistic", n=600)
    X[:, 8] = X[:, 3] + 0.1 * X[:, 8]  # says what group 2 says
    full = Case("logistic", X, y).sequence(criterion="omp")
    case = Case("logistic", X, y)
    path = case.sequence(prefixes=(3,), criterion="omp")
    assert path.refit_at.tolist() == [3, 5]
    assert path.model_of_prefix.tolist() == [0, 0, 0, 1, 1, 2]
    assert path.n_candidates == 5 + 4 + 3 + 2 + 1
    assert path.n_passes < full.n_passes
    start = literal.gradient(path.weights[0], literal.standardise(X), y.T, "logistic")[:-1]
    corr = np.corrcoef(X.T)
    chosen = []
    for _ in range(3):
        own = [c for g in chosen for c in GROUPS[g]]
        ridge = 1e-3 / (y.mean() * (1 - y.mean())) * np.eye(len(own))
        left = start - corr[:, own] @ np.linalg.solve(corr[np.ix_(own, own)] + ridge, start[own])
        scores = [
            (left[g].T @ np.linalg.solve(corr[np.ix_(g, g)], left[g])).item() / c
            for g, c in zip(GROUPS, COSTS, strict=True)
        ]
        chosen.append(next(g for g in np.argsort(scores)[::-1].tolist() if g not in chosen))
    assert path.order[:3].tolist() == chosen
    np.testing.assert_allclose(path.weights[-1], full.weights[-1], atol=1e-5)
    np.testing.assert_array_equal(settled(path).curve_value, path.curve_value)


def test_models_are_fitted_where_costs_end():
    path = Case("logistic", *grouped("logistic")).sequence(costs=(0.1, 4.0, 4.5, 100.0))
    within = [int(np.searchsorted(path.spent, cost, "right")) for cost in (4.0, 4.5)]
    assert path.refit_at.tolist() == sorted({*within, 5} - {0})


@pytest.mark.parametrize(
    ("loss", "n_rows", "told"),
    [(1.0, 2000, ""), (100.0, 2000, "About 88 of 2,000"), (100.0, 400, "About 19 of 400"),
     (15.0, 400, "")],
)  # fmt: skip
def test_a_few_rows_that_decide_about_the_deviance_are_told(loss, n_rows, told):
    losses = np.r_[np.ones(n_rows - 10), np.full(10, loss)]
    squares = np.square(losses)
    sums = {"n_rows": n_rows, "deviance": [losses.sum()], "deviance_squares": [squares.sum()]}
    arrays = {name: np.array(values) for name, values in sums.items()}
    said = few_rows(LossSums(Sums(arrays)), "held-out rows")
    assert said.startswith(told)
    assert bool(said) == bool(told)


# --- classes ------------------------------------------------------------------------------------


def counts(*values):
    return ClassCounts.from_rows(np.array(values, dtype=float), None)


def test_classes_are_those_of_training_rows():
    train = counts(1, 2)
    assert find_classes(Folded((train, counts(1))), "y", "logistic", 2).tolist() == [1, 2]
    with pytest.raises(DataError, match=r"value 4 .* held-out"):
        find_classes(Folded((train, counts(4))), "y", "logistic")
    with pytest.raises(DataError, match="Softmax treats each of the 30 values"):
        find_classes(Folded((counts(*range(30)), counts(30))), "y", "softmax")
    many = counts(*range(800)).merge(counts(*range(700, 1500)))
    assert len(many.values) == MAX_CLASSES + 1
    with pytest.raises(DataError, match="more than 1000 values"):
        find_classes(Folded((many, counts())), "y", "softmax")
