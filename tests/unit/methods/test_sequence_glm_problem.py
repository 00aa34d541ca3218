import numpy as np
import pytest

from distfms.errors import DataError, SpecError
from distfms.methods.sequence.costs import resolve_costs
from distfms.methods.sequence.glm import GlmStatistics
from distfms.methods.sequence.glm_problem import GlmPath, GlmProblem, glm_criterion
from distfms.methods.sequence.glm_read import MAX_CLASSES, ClassCounts, find_classes
from distfms.methods.sequence.groups import FeatureGroups
from distfms.methods.sequence.problem import problem_from_comoments
from distfms.stats.base import Folded
from distfms.stats.comoments import CoMoments
from tests.reference import glm as literal

GROUPS = FeatureGroups(("far", "flat", "near"), ((0, 3), (2,), (1, 4)))


def make(family="logistic", n=250, **costs):
    """Rows whose column 2 is constant, and their problem."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 5)) * [1.0, 20.0, 0.0, 3.0, 0.1] + 4.0
    y = (X[:, 1] / 20 + 5 * X[:, 4] + rng.logistic(size=n) > 20.2).astype(float)
    problem = problem_from_comoments(
        CoMoments.from_block(np.vstack([X.T, y])),
        features=range(5),
        targets=[5],
        feature_names=list("abcde"),
        target_names=["y"],
        groups=GROUPS,
        costs=resolve_costs(GROUPS.names, costs.get("costs"), shared=costs.get("shared")),
        ridge=0.01,
    )
    glm = GlmProblem.of(problem, family, 1)

    def pass_fn(weights, support):
        return GlmStatistics.from_block(
            np.ascontiguousarray(X.T), y, None, weights, design=glm.design, support=support
        )

    return X, y, glm, pass_fn


def test_constant_columns_are_in_no_group_and_the_gram_is_placed_around_them():
    X, _, glm, _ = make()
    assert glm.problem.groups.names == ("far", "near")
    assert [columns.tolist() for columns in glm.columns] == [[0, 3], [1, 4]]
    varying = [0, 1, 3, 4]
    np.testing.assert_allclose(
        glm.gram[np.ix_(varying, varying)], np.corrcoef(X[:, varying].T), atol=1e-12
    )
    assert glm.gram[2].tolist() == [0, 0, 1, 0, 0]


def test_path_gives_the_models_of_the_literal_form():
    X, y, glm, pass_fn = make()
    path = GlmPath.of(glm.sequence(pass_fn))
    Z = literal.standardise(X[:, [0, 1, 3, 4]])
    chosen, weights = literal.sequence(
        Z, y[:, None], [[0, 2], [1, 3]], np.ones(2), "logistic", 0.01, whiten=True, cost_aware=True
    )
    assert path.order.tolist() == chosen == [1, 0]
    predictor = glm.predictor(path)
    assert predictor.groups == ("near", "far")
    for prefix, budget in enumerate((0.0, 1.0, 2.0)):
        eta = Z @ weights[prefix][:-1, 0] + weights[prefix][-1, 0]
        np.testing.assert_allclose(predictor.predict(X, budget), 1 / (1 + np.exp(-eta)), atol=1e-6)


def test_shared_costs_are_paid_once():
    _, _, glm, pass_fn = make(
        costs={"default": 2.0}, shared={"visit": {"groups": ["far", "near"], "cost": 5.0}}
    )
    path = GlmPath.of(glm.sequence(pass_fn))
    assert path.cost.tolist() == [7.0, 2.0]
    assert path.curve_cost.tolist() == [0.0, 7.0, 9.0]


def test_a_prefix_between_two_refits_has_the_model_of_the_earlier_one():
    X, _, glm, pass_fn = make()
    result = glm.sequence(pass_fn, max_refits=1)
    path = GlmPath.of(result)
    assert path.refit_at.tolist() == [2]
    assert path.model_of_prefix.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(path.explained_deviance, result.explained_deviance)
    predictions = [glm.predictor(path).predict(X, budget) for budget in (0.0, 1.0, 2.0)]
    np.testing.assert_array_equal(predictions[0], predictions[1])
    assert np.ptp(predictions[2]) > 0.1


def test_paths_are_stored_without_loss():
    _, _, glm, pass_fn = make()
    path = GlmPath.of(glm.sequence(pass_fn))
    again = GlmPath.from_arrays(path.to_arrays())
    for name, array in path.to_arrays().items():
        np.testing.assert_array_equal(again.to_arrays()[name], array)
    assert again.status.tolist() == ["converged"] * 3
    assert again.n_passes == path.n_passes > 4


def test_criteria_that_need_squared_loss_are_refused():
    assert glm_criterion("fr") == glm_criterion("omp") == "omp"
    assert glm_criterion("omp-no-whiten") == "omp-no-whiten"
    with pytest.raises(SpecError, match="gaussian family only"):
        glm_criterion("omp-single")
    with pytest.raises(SpecError, match="doubling"):
        glm_criterion("omp", True)


def counts(*values, weight=None):
    return ClassCounts.from_rows(np.array(values, dtype=float), weight)


def test_class_counts_merge_to_those_of_all_rows():
    whole = counts(3, 1, 3, 7, 1, weight=np.array([1.0, 2.0, 3.0, 0.5, 0.25]))
    parts = counts(3, 1, weight=np.array([1.0, 2.0])).merge(
        counts(3, 7, 1, weight=np.array([3.0, 0.5, 0.25]))
    )
    assert whole.values.tolist() == parts.values.tolist() == [1, 3, 7]
    assert whole.weight.tolist() == parts.weight.tolist() == [2.25, 4.0, 0.5]
    again = ClassCounts.from_arrays(parts.to_arrays())
    assert again.weight.tolist() == parts.weight.tolist()
    assert counts().merge(counts(2)).values.tolist() == [2]


def test_classes_are_those_of_training_rows_that_weigh_something():
    train = counts(1, 2, 4, weight=np.array([1.0, 2.0, 0.0]))
    assert find_classes(Folded((train, counts(1))), "y", "logistic").tolist() == [1, 2]
    with pytest.raises(DataError, match=r"value 4 .* held-out"):
        find_classes(Folded((train, counts(4))), "y", "logistic")
    many = counts(*range(800)).merge(counts(*range(700, 1500)))
    assert len(many.values) == MAX_CLASSES + 1
    with pytest.raises(DataError, match="more than 1000 values"):
        find_classes(Folded((many, counts())), "y", "softmax")
