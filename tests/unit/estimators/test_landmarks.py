"""What only the estimators with landmarks do: similarities, classes, levels."""

import dask.array as da
import numpy as np
import pytest

from distfms import LandmarkClassifier, LandmarkOrdinalRegressor, LandmarkRegressor
from distfms.methods.landmarks.losses import probabilities
from tests.reference import landmarks as literal

SIMILARITIES = ("sigmoid", "manhattan", "gaussian", "euclidean", "linear", "polynomial", "cosine")


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 7.0


@pytest.mark.parametrize("name", SIMILARITIES)
def test_predictions_are_weighted_similarities(name):
    X, y = rows()
    model = LandmarkRegressor(name, landmarks=40, task="sparse", keep=15, ridge=1e-8, folds=0).fit(
        X, y
    )
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert model.metric_["kind"] == ("full" if name == "gaussian" else "none")
    Z = Z @ model.map_.transform if name == "gaussian" else Z
    parameters = dict(model.map_.similarity.parameters)
    K = literal.embedding(name, Z[:50], Z[model.landmarks_], parameters)
    np.testing.assert_allclose(model.transform(X[:50]), K, rtol=1e-9, atol=1e-12)
    wanted = np.clip(K @ model.coef_ + model.intercept_, y.min(), y.max())
    np.testing.assert_allclose(model.predict(X[:50]), wanted, rtol=1e-7, atol=1e-6)
    assert len(set(model.landmarks_.tolist())) == len(model.landmarks_) <= 15


@pytest.mark.parametrize(
    ("name", "scaling"),
    [
        *((name, "standard") for name in ("linear", "polynomial", "gaussian", "sigmoid")),
        *((name, "quantile") for name in ("manhattan", "linear")),
    ],
)
def test_similarities_of_dask_arrays(name, scaling):
    X, y = rows()
    more = np.column_stack([X, np.ones(300)])
    model = LandmarkRegressor(name, landmarks=20, metric="none", scaling=scaling, folds=0).fit(
        more, y
    )
    lazy = model.transform(da.from_array(more, chunks=(90, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), model.transform(more), rtol=1e-9, atol=1e-12)


def test_landmarks_from_a_table():
    X, y = rows()
    others = rows(n=80, seed=5)[0]
    model = LandmarkRegressor(landmarks=20, metric="none", folds=0).fit(X, y, unlabelled=others)
    Z = (others - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(model.map_.scaled(model.map_.landmarks.T).T, Z[model.landmarks_])
    assert model.score(X, y) > 0.8


def test_precomputed_similarities():
    X, y = rows()
    K = np.exp(-((X[:, None] - X[None, :40]) ** 2).sum(axis=2))
    model = LandmarkRegressor("precomputed", task="sparse", keep=25, folds=0).fit(K, y)
    assert model.score(K, y) > 0.8
    assert model.transform(K).shape == (300, 25)
    np.testing.assert_array_equal(model.transform(K), K[:, model.landmarks_])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"similarity": "rbf"}, "unknown similarity `rbf`"),
        ({"similarity": ["linear", "sigmoid"]}, "`similarity` is a list .* set `folds` to"),
        ({"landmarks": 0}, "^`landmarks` is 0"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        LandmarkRegressor(**parameters, folds=0).fit(*rows())


# --- classes and levels -------------------------------------------------------------------------


def levels_of(y):
    return np.searchsorted(np.quantile(y, [0.3, 0.7]), y)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classes(loss):
    X, y = rows()
    names = np.array(["low", "mid", "top"])[levels_of(y)]
    three, two = (
        LandmarkClassifier(landmarks=40, loss=loss, ridge=1e-4, folds=0).fit(X, own)
        for own in (names, names == "low")
    )
    assert three.score(X, names) > 0.7
    assert three.coef_.shape == (3, 40)
    assert two.score(X, names == "low") > 0.8
    shapes = [model.decision_function(X).shape for model in (three, two)]
    assert shapes == [(300, 3), (300,)]
    lazy = da.from_array(X, chunks=(90, 3))
    assert three.predict(lazy).compute().tolist() == three.predict(X).tolist()
    assert hasattr(three, "predict_proba") == (loss == "logistic")
    if loss == "hinge":
        return
    found, shares = three.predict_proba(X), 1.0 / (1.0 + np.exp(-three.decision_function(X)))
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-9)
    assert three.classes_[found.argmax(axis=1)].tolist() == three.predict(X).tolist()
    found, second = two.predict_proba(X), 1.0 / (1.0 + np.exp(-two.decision_function(X)))
    np.testing.assert_allclose(found, np.column_stack([1.0 - second, second]))
    assert second.mean() == pytest.approx(np.mean(names == "low"), abs=0.01)  # calibrated
    np.testing.assert_allclose(two.predict_proba(lazy).compute(), found, rtol=1e-9)
    far = probabilities(np.array([[-800.0, -900.0, -801.0]]))
    np.testing.assert_allclose(far, [[1.0, 0.0, np.exp(-1.0)] / (1.0 + np.exp(-1.0))], atol=1e-12)


@pytest.mark.parametrize("spacing", [None, 0.3])
def test_levels(spacing):
    X, y = rows()
    level = levels_of(y) * 2 + 3
    model = LandmarkOrdinalRegressor(landmarks=40, spacing=spacing, ridge=1e-4, folds=0).fit(
        X, level
    )
    assert model.score(X, level) > 0.7
    scores = model.decision_function(X)
    wanted = model.classes_[np.searchsorted(model.thresholds_, scores, side="right")]
    assert model.predict(X).tolist() == wanted.tolist()
    if spacing is not None:
        assert np.diff(model.thresholds_).min() >= 0.3
