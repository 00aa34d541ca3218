"""What only the estimator of multi-selection does: forms of judgments, plans, held-out losses."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from distfms import DistfmsError, FeatureMultiSelector

NAMES = ("warm", "tall", "loud", "soft")
BUDGET = 9


@pytest.fixture(scope="module")
def cells():
    """Judgments of 60 objects as lists: 0 to 3 of each attribute; and labels."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(60, 4)) * [2.0, 1.0, 1.0, 0.5]
    noise = [0.5, 2.0, 1.0, 1.0]
    X = [
        [list(truth[i, a] + noise[a] * rng.normal(size=rng.integers(0, 4))) for a in range(4)]
        for i in range(60)
    ]
    return X, truth @ [1.0, -1.0, 0.5, 1.0] + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="module")
def frame(cells):
    X, y = cells
    table = pd.DataFrame({name: [row[a] for row in X] for a, name in enumerate(NAMES)})
    return table.assign(y=y)


@pytest.fixture(scope="module")
def array(cells):
    return padded(cells[0])


@pytest.fixture(scope="module")
def parquet(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judgments")
    for part in range(3):
        rows = frame.iloc[20 * part : 20 * (part + 1)]
        rows.to_parquet(folder / f"part-{part}.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def dask_frame(frame):
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame, npartitions=3)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def padded(X, k=3):
    array = np.full((len(X), len(X[0]), k), np.nan)
    for i, row in enumerate(X):
        for a, cell in enumerate(row):
            array[i, a, : len(cell)] = cell
    return array


def numbered(array, y):
    columns = {f"{n}__{c + 1}": array[:, a, c] for a, n in enumerate(NAMES) for c in range(3)}
    return pd.DataFrame(columns).assign(y=y)


def fitted(X, y, **options):
    return FeatureMultiSelector(BUDGET, **{"folds": 0, **options}).fit(X, y)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.fixture
def forms(cells, frame, array, parquet, dask_frame):
    """The same data in every form: (X, y)."""
    X, y = cells
    chunked = da.from_array(array, chunks=((30, 11, 19), 2, 1))
    return {
        "array": (array, y),
        "lists": (X, y.tolist()),
        "frame": (frame, "y"),
        "arrow": (pa.Table.from_pandas(frame), "y"),
        "frame and labels": (frame.drop(columns="y"), frame["y"]),
        "numbered": (numbered(array, y), "y"),
        "dask array": (chunked, y),
        "dask array and labels": (chunked, da.from_array(y, chunks=25)),
        "dask frame": (dask_frame, "y"),
        "dask frame and labels": (dask_frame.drop(columns="y"), dask_frame["y"]),
        "dask numbered": (dd.from_pandas(numbered(array, y), npartitions=2), "y"),
        "parquet": (parquet, "y"),
    }


def test_numbers_do_not_depend_on_the_form(forms):
    array, labels = forms.pop("array")
    selector = FeatureMultiSelector(3, model="refit", folds=0)
    expected = clone(selector).fit(array, labels)
    for form, (X, y) in forms.items():
        found = clone(selector).fit(X, y)
        predicted = found.predict(X)
        assert isinstance(predicted, da.Array) == form.startswith("dask")
        for one, other in (
            (found.repeats_, expected.repeats_),
            (found.coef_, expected.coef_),
            (found.intercept_, expected.intercept_),
            (predicted, expected.predict(array)),
            (found.transform(X), expected.transform(array)),
            (found.score(X, y), expected.score(array, labels)),
            (found.holdout_loss(X, y), expected.holdout_loss(array, labels)),
        ):
            np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=form)


def test_dask_collections_are_never_computed_as_a_whole(dask_frame, array, cells, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("computed as a whole")

    monkeypatch.setattr(da.Array, "compute", refuse)
    monkeypatch.setattr(type(dask_frame), "compute", refuse)
    selector = fitted(dask_frame, "y")
    selector.predict(dask_frame)
    fitted(da.from_array(array, chunks=(20, 4, 3)), cells[1])


# --- what the methods say -----------------------------------------------------------------------


def test_acquisition_plan(cells, frame, dask_frame, parquet):
    X = cells[0]
    selector = fitted(frame, "y", costs={"tall": 2.0})
    expected = [
        (i, NAMES[a], len(X[i][a]), r, r - len(X[i][a]), (2.0 if a == 1 else 1.0))
        for i in range(60)
        for a, r in enumerate(selector.repeats_)
        if len(X[i][a]) < r
    ]
    plans = [selector.acquisition_plan(data) for data in (frame, dask_frame, parquet)]
    for plan in plans:
        assert [tuple(row[:5]) for row in plan.itertuples(index=False)] == [
            row[:5] for row in expected
        ]
        np.testing.assert_array_equal(plan["cost"], [row[4] * row[5] for row in expected])
    names = [f"face-{row[0]}" for row in expected]
    index = pd.Index([f"face-{i}" for i in range(60)], name="face")
    assert selector.acquisition_plan(frame.set_index(index))["face"].tolist() == names


# --- errors -------------------------------------------------------------------------------------


def refused(match, X, y, weight=None, **options):
    options = {"budget": BUDGET, **options}
    for kind in (DistfmsError, ValueError):
        with pytest.raises(kind, match=match):
            FeatureMultiSelector(**options).fit(X, y, weight)


def test_data_that_cannot_be_used(cells, frame, array, dask_frame, parquet):
    X, y = cells
    chunked = da.from_array(array, chunks=(20, 4, 3))
    judged = dask_frame.drop(columns="y")
    shifted = dd.concat([dd.from_pandas(frame["y"].iloc[s], npartitions=1) for s in SHIFTED])
    tall = [[np.inf], *frame["tall"][1:]]
    table = np.nan_to_num(array[:, :, 0])
    for message, rows, label in (
        ("requires y", frame, None),
        ("names a column", array, "y"),
        ("'nothing'", frame, "nothing"),
        ("names of columns", parquet, y),
        ("Object 1 has 3 attributes", [X[0], X[1][:3]], y[:2]),
        ("judgments are numbers", [X[0], [["high"], *X[1][1:]]], y[:2]),
        ("'tall' of X has 1 infinite", frame.assign(tall=tall), "y"),
        ("'id'", frame.assign(id="a"), "y"),
        ("n_samples = 1", [X[0]], y[:1]),
        ("x0, x1, x2, x3 have one judgment of each object", table, y),
        ("label 'y' is 3 .* Check `target`", array, np.full(60, 3.0)),
        ("60 rows, but y", chunked, y[1:]),
        ("3 chunks, but y .* 2: chunk them", judged, dd.from_pandas(frame["y"], npartitions=2)),
        ("chunk Dask collections alike", judged, shifted),
    ):
        refused(message, rows, label)
    refused("at least 0|negative", array, y, -np.ones(60))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        fitted(array, y[1:])
    selector = fitted(frame, "y")
    with pytest.raises(ValueError, match="same order"):
        selector.predict(dask_frame[list(NAMES[::-1])])
    with pytest.raises(ValueError, match="3 features"):
        fitted(array, y).predict(da.from_array(array[:, :3], chunks=20))
    known = fitted(table, y, internal_variance=[0.1] * 4)
    assert known.spent_ == BUDGET


SHIFTED = (np.s_[:10], np.s_[10:40], np.s_[40:])
