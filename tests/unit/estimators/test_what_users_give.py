"""Forms in which users of scikit-learn give rows, targets, groups and weights."""

import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.model_selection import cross_val_score

import distfms
from distfms import (
    AttributeEfficientRidge,
    FeatureMultiSelector,
    GroupSequenceClassifier,
    GroupSequencer,
    LandmarkClassifier,
    LandmarkOrdinalRegressor,
    LandmarkRegressor,
)
from distfms.errors import DataError

N = 90
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"))
Y = (X["a"] + 2 * X["c"] + 0.1 * RNG.normal(size=N)).to_numpy()
LABEL = np.where(Y > 0, "p", "n")
PLACE = np.arange(N) % 3
QUICK = {"n_jobs": 1, "folds": 0}


def sequencer(**options):
    return GroupSequencer(**QUICK, **options)


def landmarks(**options):
    return LandmarkRegressor(landmarks=20, **QUICK, **options)


def texts(*labels):
    return np.array(labels, dtype=object)[PLACE]


COLUMNS = {
    "cut": pd.cut(X["b"], 3),
    "cut with gaps": pd.cut(X["b"].where(PLACE > 0), 3),
    "ordered": pd.Categorical(texts("lo", "mid", "hi"), ["lo", "mid", "hi"], ordered=True),
    "nullable texts": pd.array(texts("x", "y", None), dtype="string"),
    "nullable numbers": pd.array(texts(1, 2, None), dtype="Int64"),
    "nullable truths": pd.array(texts(True, False, None), dtype="boolean"),
    "truths as categories": pd.Categorical(PLACE == 1),
    "dates as categories": pd.Categorical(texts(*(datetime.date(2020, 1, k) for k in (1, 2, 3)))),
    "periods": pd.period_range("2020-01", periods=3, freq="M")[PLACE],
    "intervals": pd.IntervalIndex.from_breaks([0, 1, 2, 3])[PLACE],
    "categories written alike": pd.Categorical(texts(1, "1", 2)),
    "sparse": pd.arrays.SparseArray(1.0 * PLACE),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_pandas_fit_and_predict(name):
    frame = X.assign(k=COLUMNS[name]).set_axis(range(7, 7 + N))
    model = sequencer(missing="mean").fit(frame, Y)
    predicted = model.predict(frame)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame), predicted)
    np.testing.assert_array_equal(model.predict(frame.iloc[:4]), predicted[:4])


@pytest.mark.parametrize("values", [texts(1, "a", 2.5), 1j * PLACE])
def test_columns_that_cannot_be_read_are_named(values):
    with pytest.raises(DataError, match="column 'k' cannot be read: it holds values of the types"):
        sequencer().fit(X.assign(k=values), Y)


@pytest.mark.parametrize("target", [Y > 0, (Y > 0) * 1.0, np.where(Y > 0, 1, -1), LABEL])
def test_weights_of_classes_are_keyed_as_the_classes_are(target):
    classes = np.unique(target)
    for keys in (classes.tolist(), list(classes)):
        weights = dict(zip(keys, (1, 5), strict=True))
        model = GroupSequenceClassifier(class_weights=weights, **QUICK).fit(X, target)
        assert model.classes_.dtype == classes.dtype
        assert model.score(X, target) > 0.8


def test_regressors_name_the_classifier():
    for model, other in ((sequencer(), "GroupSequenceClassifier"), (landmarks(), "LandmarkCla")):
        for target in (LABEL, pd.Series(LABEL, dtype="category"), pd.Series(LABEL)):
            with pytest.raises(
                DataError, match=f"holds texts, and .* predicts numbers: use {other}"
            ):
                model.fit(X, target)
        for target in (Y > 0, 1 * (Y > 0)):
            with pytest.warns(UserWarning, match=f"holds two values.* use {other}") as told:
                model.fit(X, target)
            assert len(told) == 1


def test_ordered_categories_are_grades():
    grades = pd.cut(pd.Series(Y), [-99, -1, 1, 99], labels=["low", "mid", "high"])
    model = LandmarkOrdinalRegressor(landmarks=20, **QUICK)
    fitted = clone(model).fit(X, grades)
    assert fitted.classes_.tolist() == ["low", "mid", "high"]
    assert set(fitted.predict(X)) <= {"low", "mid", "high"}
    assert fitted.score(X, grades) > 0.8
    assert pickle.loads(pickle.dumps(fitted)).score(X, grades) == fitted.score(X, grades)
    assert np.isfinite(cross_val_score(model, X, grades, cv=2)).all()
    named = clone(model).fit(X.assign(g=grades), "g")
    assert named.score(X.assign(g=grades), "g") == fitted.score(X, grades)
    numbers = clone(model).fit(X, grades.cat.rename_categories([1, 2, 3]))
    assert numbers.classes_.tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="y has 1 missing value"):
        clone(model).fit(X, grades.where(grades.index > 0))


def test_selectors_take_what_has_a_number_for_each_column():
    assert SelectFromModel(sequencer()).fit(X, Y).get_support().tolist() == [True, False, True]
    assert RFE(sequencer(), n_features_to_select=2).fit(X, Y).support_.tolist() == [1, 0, 1]
    for model, target in ((landmarks(), Y), (LandmarkClassifier(landmarks=20, **QUICK), LABEL)):
        with pytest.raises(ValueError, match="should have `coef_` or `feature_importances_`"):
            SelectFromModel(model).fit(X, target).get_support()
        drops = permutation_importance(model.fit(X, target), X, target, n_repeats=2)
        assert drops.importances_mean.argmax() == 2
    with_texts = sequencer().fit(X.assign(k=texts("x", "y", "z")), Y)
    assert not hasattr(with_texts, "coef_")
    assert with_texts.feature_importances_.argmax() == 2
    assert not hasattr(sequencer(groups=[0, 0, 1]).fit(X, Y), "feature_importances_")


def test_loaded_models_return_what_they_are_given(tmp_path):
    model = sequencer().fit(X, Y)
    loaded = distfms.load(model.save(tmp_path / "run"))
    expected = model.predict(X)
    frame = X.set_axis(range(5, 5 + N))
    assert loaded.predict(frame).index.equals(frame.index)
    for rows in (pl.from_pandas(X), pl.from_pandas(X).lazy()):
        found = loaded.predict(rows)
        assert isinstance(found, pl.DataFrame)
        np.testing.assert_array_equal(found["predicted_y"].to_numpy(), expected)
        np.testing.assert_array_equal(model.predict(rows), expected)
    assert isinstance(loaded.predict(pa.Table.from_pandas(X)), pa.Table)
    for rows in (X.to_numpy(), X.to_numpy().tolist()):
        np.testing.assert_array_equal(loaded.predict(rows), expected)
    with pytest.raises(DataError, match=r"shape \(90, 2\); the model was made with 3 columns: a"):
        loaded.predict(X.to_numpy()[:, :2])
    with pytest.raises(DataError, match=r"sparse.*toarray"):
        loaded.predict(scipy.sparse.csr_array(X.to_numpy()))


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize(
    "model", [sequencer(), landmarks(), AttributeEfficientRidge(2), FeatureMultiSelector(budget=2)]
)
def test_sparse_rows_are_refused_with_what_to_do(model, kind):
    with pytest.raises(TypeError, match="toarray"):
        model.fit(kind(X.to_numpy()), Y)


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ([["a", "b"], ["c"]], {"0": ("a", "b"), "1": ("c",)}),
        ([[0, 1], "c"], {"0": ("a", "b"), "1": ("c",)}),
        ((("a", "c"), ("b",)), {"0": ("a", "c"), "1": ("b",)}),
        ([0, 0, 1], {"0": ("a", "b"), "1": ("c",)}),
        ([np.array(["a", "b"]), {"c"}], {"0": ("a", "b"), "1": ("c",)}),
        ([pd.Index(["a", "b"]), ["c"]], {"0": ("a", "b"), "1": ("c",)}),
    ],
)
def test_groups_are_listings_of_columns_or_ids(groups, wanted):
    model = sequencer(groups=groups, costs=2).fit(X, Y)
    assert model.groups_ == wanted
    assert set(model.costs_.values()) == {2.0}


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        (["a", "b"], r"has the shape \(2,\): give an id for each of the 3 columns, a list of col"),
        ([["a", "b"], ["b", "c"]], "Column 'b' is in group '0' and in group '1'"),
        ([["a", "z"], ["c"]], "'z' of group '0' is not a feature column"),
    ],
)
def test_other_groups_are_refused_in_clear_words(groups, reason):
    with pytest.raises(ValueError, match=reason):
        sequencer(groups=groups).fit(X, Y)


def test_one_number_weighs_all_rows():
    plain = sequencer().fit(X, Y).predict(X)
    for weight in (1.0, 1, np.float64(1.0)):
        weighted = sequencer().fit(X, Y, sample_weight=weight)
        np.testing.assert_allclose(weighted.predict(X), plain, rtol=1e-9)


@pytest.mark.parametrize("only", ["a", 1, True, 1.0])
def test_one_class_is_refused_as_it_is_written(only):
    for model in (GroupSequenceClassifier(), LandmarkClassifier(), LandmarkOrdinalRegressor()):
        with pytest.raises(DataError, match=f"holds 1 class, {only!r}; at least 2 are needed"):
            model.fit(X, [only] * N)


LEVELS = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))


@pytest.mark.parametrize(
    ("target", "order"),
    [
        (pl.Series(np.array(["c", "a", "b"])[LEVELS], dtype=pl.Enum(["c", "a", "b"])), "cab"),
        (pd.Series(pd.Categorical(LEVELS, [2, 1, 0], ordered=True)), [2, 1, 0]),
        (pd.Series(pd.Categorical(LEVELS, [0, 1, 2], ordered=True)), [0, 1, 2]),
    ],
)
def test_grades_of_any_kind(target, order):
    model = LandmarkOrdinalRegressor(landmarks=20, metric="none", folds=0).fit(X, target)
    assert model.classes_.tolist() == list(order)
    assert model.score(X, target) > 0.5


def test_texts_without_an_order_are_no_grades():
    with pytest.raises(DataError, match="texts without an order: give numbers, or an"):
        LandmarkOrdinalRegressor().fit(X, np.array(["a", "b", "c"])[LEVELS])


def test_one_row_as_a_series_is_refused():
    rows = pd.DataFrame(X, columns=list("abc"))
    model = sequencer().fit(rows, Y).model_
    with pytest.raises(DataError, match="One row is a frame of one row"):
        model.predict(rows.iloc[0])
