import numpy as np
import pandas as pd
import pytest

from distfms.solve.trees import FIXED, fitted, gains_by_feature, scores
from tests.e2e.jobs import run_on

PARAMETERS = {**FIXED, "objective": "regression", "seed": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    return X, 2 * np.sign(X[:, 0] * X[:, 1]) + X[:, 2] + 0.5 * rng.normal(size=300)


@pytest.mark.parametrize(
    ("scale", "shift"), [(1, 1e6), (1, -1e8), (1e-9, 0), (1e70, 0), (-3, 1e9), (1e-4, 1e4)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_and_gains_follow_the_units_of_the_response(rows, scale, shift, weighted):
    X, y = rows
    fold = np.arange(len(y)) % 5
    weight = 1.0 + np.arange(len(y)) % 3 if weighted else None
    plain = fitted(X, y, PARAMETERS, fold, weight=weight)
    moved = fitted(X, scale * y + shift, PARAMETERS, fold, weight=weight)
    if scale > 0:  # of −y, LightGBM breaks ties the other way
        restored = (scores(moved, X) - shift) / scale
        np.testing.assert_allclose(restored, scores(plain, X), atol=1e-6)
        ours = gains_by_feature(moved) / scale**2
        theirs = gains_by_feature(plain)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    explained = 1 - np.var(scale * y + shift - scores(moved, X)) / np.var(scale * y)
    assert explained > 0.8


def test_a_constant_response_is_predicted_and_classes_keep_their_scores(rows):
    X, y = rows
    fold = np.arange(len(y)) % 5
    np.testing.assert_array_equal(scores(fitted(X, 0 * y + 7e9, PARAMETERS, fold), X), 7e9)
    binary = fitted(X, (y > 0).astype(float), {**PARAMETERS, "objective": "binary"}, fold)
    assert np.mean((scores(binary, X) > 0) == (y > 0)) > 0.9
    assert scores(binary, X[:0]).size == 0


def test_rows_of_an_id_stop_trees_together_where_a_job_has_no_folds(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    groups = list[np.ndarray]()
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "y"])
    frame["person"] = np.repeat(np.arange(30), 4)

    def seen(inputs, response, parameters, fold, **data):
        groups.append(fold)
        return fitted(inputs, response, parameters, fold, **data)

    monkeypatch.setattr("distfms.methods.sequence.trees.fitted", seen)
    options = {"model": "lightgbm", "baselines": []}
    run_on(frame, tmp_path, "sequence", options, {"id": "person"})
    persons = [np.unique(fold, return_counts=True) for fold in groups]
    assert persons
    for folds, counts in persons:
        assert len(folds) == 5
        assert not (counts % 4).any()
