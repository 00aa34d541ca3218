"""What only the estimators with landmarks do: similarities, classes, levels."""

from functools import partial

import dask.array as da
import numpy as np
import pytest
from dask_ml.metrics import pairwise
from distributed import Client, wait

from distfms import LandmarkRegressor
from tests.conformance.engine_tasks import dask_cluster


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 7.0


@pytest.mark.parametrize(
    ("name", "scaling", "metric"),
    [
        *((n, "standard", "none") for n in ("linear", "gaussian", "sigmoid")),
        *(("gaussian", "standard", metric) for metric in ("diagonal", "full")),
        ("laplace", "standard", "full"),
    ],
)
def test_similarities_of_dask_arrays(monkeypatch, name, scaling, metric):
    X, y = rows()
    more = np.column_stack([X, np.ones(300)])
    model = LandmarkRegressor(name, landmarks=20, metric=metric, scaling=scaling, folds=0).fit(
        more, y
    )
    assert model.metric_["kind"] == metric
    of_dask_ml = []
    for kernel in ("linear", "rbf", "sigmoid"):
        own = getattr(pairwise, f"{kernel}_kernel")
        spied = partial(lambda own, *a, **k: of_dask_ml.append(own) or own(*a, **k), own)
        monkeypatch.setattr(pairwise, f"{kernel}_kernel", spied)
    given = da.from_array(more, chunks=(90, 2))
    lazy = model.transform(given)
    predicted = model.predict(given)
    assert (isinstance(lazy, da.Array), isinstance(predicted, da.Array)) == (True, True)
    assert len(of_dask_ml) == (scaling == "standard" and name != "laplace")
    np.testing.assert_allclose(lazy.compute(), model.transform(more), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(predicted.compute(), model.predict(more), rtol=1e-9)


def test_a_cluster_of_dask_computes_similarities_and_learns_from_its_rows():
    X, y = rows()
    options = {"similarity": "gaussian", "landmarks": 20}
    options |= {"metric": "none", "folds": 0}
    alone = LandmarkRegressor(**options).fit(X, y)
    with dask_cluster(2, processes=False) as cluster, Client(cluster) as client:
        given = da.from_array(X, chunks=(90, 3)).persist()
        model = LandmarkRegressor(**options).fit(given, da.from_array(y, chunks=90))
        similar = model.transform(given).persist()
        wait(similar)
        assert all(client.who_has(similar).values())  # blocks that its workers hold
        np.testing.assert_allclose(similar.compute(), alone.transform(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.landmarks_, alone.landmarks_)


def test_landmarks_from_a_table():
    X, y = rows()
    others = rows(n=80, seed=5)[0]
    model = LandmarkRegressor(landmarks=20, metric="none", folds=0).fit(X, y, unlabelled=others)
    Z = (others - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(model.map_.scaled(model.map_.landmarks.T).T, Z[model.landmarks_])
    assert model.score(X, y) > 0.8


# --- classes and levels -------------------------------------------------------------------------


OF_NO_USE = "is the same for all rows and landmarks: it is of no use"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        *(({"similarity": (name, 1e-300)}, None) for name in ("gaussian", "laplace")),
        *(({"similarity": (name, 1e300)}, OF_NO_USE) for name in ("gaussian", "laplace")),
        ({"similarity": ("gaussian", 1e-160)}, None),
        ({"landmarks": 1, "similarity": "laplace"}, None),
        ({"landmarks": 1, "metric": "none"}, None),
        *(({"ridge": ridge}, None) for ridge in (0, 1e-300, 1e100)),
        *(({"ridge": ridge, "metric": "none"}, None) for ridge in (0, 1e-300, 1e100)),
        ({"ridge": 1e300}, r"`ridge` is 1e\+300; at most 1e\+100 is of use"),
        *(({"bound": bound}, None) for bound in (1e-300, 1e300)),
        pytest.param(
            {"bound": 1e-300, "task": "sparse", "selection": "steps"}, None, marks=pytest.mark.slow
        ),
        *(
            pytest.param({name: value, "loss": "epsilon_insensitive"}, None, marks=pytest.mark.slow)
            for name in ("bound", "epsilon", "smoothing")
            for value in (1e-300, 1e300)
        ),
        ({"similarity": {"name": "linear", "sigma": 2}}, "`sigma` is not a parameter of `linear`"),
        ({"similarity": "cosine"}, "unknown similarity `cosine`"),
    ],
)
def test_extreme_options_have_a_finite_answer_or_are_refused(own, message):
    X, y = rows(80)
    if isinstance(own.get("similarity"), tuple):
        name, sigma = own["similarity"]
        own = {**own, "similarity": {"name": name, "sigma": sigma}}
    model = LandmarkRegressor(**{"landmarks": 12, **own})
    if message is not None:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
        return
    assert np.isfinite(model.fit(X, y).predict(X)).all()
    assert np.linalg.norm(model.weights_) <= own.get("bound", np.inf)
