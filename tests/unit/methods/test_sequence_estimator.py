import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from distfms import GroupSequenceClassifier, GroupSequencer
from distfms.data.write import write_table

GROUPS = {"blood": ["iron", "sugar"], "scan": "image_*"}
COSTS = {"blood": 2.0, "scan": 7.0, "default": 0.5}


def _expected_failures(estimator):
    if estimator.family != "poisson":
        return {}
    return {"check_regressor_multioutput": "its targets are negative, which are no counts"}


# The checks compare fits to seven digits, on classes that a fit without ridge separates.
@parametrize_with_checks([GroupSequencer(), GroupSequenceClassifier(ridge=1e-2, tol=1e-12)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:No features were selected")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        GroupSequencer(missing="mean"),
        GroupSequencer(family="poisson"),
        GroupSequenceClassifier(family="softmax", ridge=1e-2, tol=1e-12),
    ],
    expected_failed_checks=_expected_failures,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:No features were selected")
def test_scikit_learn_checks_of_other_forms(estimator, check):
    check(estimator)


def patients(n=400, seed=3):
    """Numbers, a category and a boolean; the target depends on some of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "iron": rng.normal(50.0, 9.0, n),
            "sugar": rng.gamma(2.0, 3.0, n),
            "ward": pd.Categorical(rng.choice(["north", "south", "west"], n)),
            "image_a": rng.normal(size=n),
            "smoker": rng.random(n) < 0.3,
            "image_b": rng.normal(1e6, 1.0, n),
        }
    )
    score = (frame["iron"] - 50) / 9 + frame["image_a"] + 0.7 * (frame["ward"] == "west")
    return frame, score.to_numpy(), rng


def targets(kind, score, rng):
    if kind == "gaussian":
        return score + rng.normal(size=len(score))
    if kind == "two-targets":
        return np.column_stack([score + rng.normal(size=len(score)), 2.0 - score])
    if kind == "poisson":
        return rng.poisson(np.exp(0.5 * score)).astype(float)
    noisy = score + rng.logistic(size=len(score))
    edges = [0.3] if kind == "logistic" else [-0.8, 0.9]
    return np.digitize(noisy, edges)


def estimator_of(kind, **changes):
    options = {"groups": GROUPS, "costs": COSTS, "ridge": 1e-3, **changes}
    if kind in ("logistic", "softmax"):
        return GroupSequenceClassifier(**options)
    return GroupSequencer(family="poisson" if kind == "poisson" else "gaussian", **options)


def encoded(frame):
    """The numbers that the frame stands for, by the literal rule."""
    levels = sorted(frame["ward"].unique())
    columns = [
        (frame["ward"] == level).to_numpy(float) if name == "ward" else frame[name].to_numpy(float)
        for name in frame.columns
        for level in (levels if name == "ward" else [None])
    ]
    return np.column_stack(columns)


def as_given(form, frame, y, weight, folder):
    """X, y, sample_weight for `fit`, and X for `predict`."""
    import dask.array as da
    import dask.dataframe as dd

    if form == "numpy":
        return encoded(frame), y, weight, encoded(frame)
    if form == "pandas":
        return frame, y, weight, frame
    if form == "dask-array":
        X = da.from_array(encoded(frame), chunks=(90, 3))
        return X, da.from_array(y, chunks=70), weight, X
    if form == "dask-frame":
        X = dd.from_pandas(frame, npartitions=5)
        return X, y, weight, X
    names = ["y"] if y.ndim == 1 else ["y0", "y1"]
    table = frame.assign(**dict(zip(names, np.atleast_2d(y.T), strict=True)), weight=weight)
    import pyarrow as pa

    write_table(folder / "part-0.parquet", pa.Table.from_pandas(table[:150], preserve_index=False))
    write_table(folder / "part-1.parquet", pa.Table.from_pandas(table[150:], preserve_index=False))
    return str(folder), names if len(names) > 1 else names[0], "weight", str(folder)


@pytest.mark.parametrize("kind", ["gaussian", "two-targets", "poisson", "logistic", "softmax"])
def test_the_form_of_the_data_does_not_matter(kind, tmp_path):
    frame, score, rng = patients()
    y = targets(kind, score, rng)
    weight = rng.uniform(0.5, 2.0, len(y))
    reference = estimator_of(kind).fit(frame, y, weight)
    names = reference.columns_.feature_names
    groups = {**{k: [names.index(c) for c in v] for k, v in reference.groups_.items()}}
    for form in ("numpy", "pandas", "dask-array", "dask-frame", "parquet"):
        unnamed = form in ("numpy", "dask-array")
        model = estimator_of(kind, **({"groups": groups} if unnamed else {}))
        X, target, w, new = as_given(form, frame, y, weight, tmp_path)
        model.fit(X, target, w)
        assert model.sequence_ == reference.sequence_, form
        assert model.n_features_in_ == (8 if unnamed else 6)
        assert hasattr(model, "feature_names_in_") == (not unnamed)
        linear = kind in ("gaussian", "two-targets")
        for name in ("explained_variance_", "coef_path_", "intercept_path_", "coef_"):
            rtol = 1e-10 if linear and name == "explained_variance_" else 1e-7
            np.testing.assert_allclose(
                getattr(model, name), getattr(reference, name), rtol, atol=1e-10, err_msg=form
            )
        assert model.timeliness_ == pytest.approx(reference.timeliness_, abs=1e-10)
        for budget in (None, 3.0, 0.1):
            expected = np.asarray(reference.predict(frame, budget=budget), dtype=float)
            found = np.asarray(model.predict(new, budget=budget), dtype=float)
            np.testing.assert_allclose(found, expected, atol=1e-8, rtol=1e-10, err_msg=form)
        assert model.score(new, target) == pytest.approx(reference.score(frame, y), abs=1e-9)


def test_target_and_weights_may_be_columns_of_a_frame():
    import dask.dataframe as dd
    import pyarrow as pa

    frame, score, rng = patients()
    weight = rng.uniform(0.5, 2.0, len(score))
    whole = frame.assign(risk=score > 0.2, share=score, w=weight)
    both = ["risk", "share"]
    for kind, y in (("gaussian", "share"), ("two-targets", both), ("logistic", "risk")):
        expected = estimator_of(kind).fit(frame, whole[y], weight)
        given = whole.drop(columns=set(both) - set(np.atleast_1d(y).tolist()))
        for X in (given, pa.Table.from_pandas(given), dd.from_pandas(given, npartitions=3)):
            found = estimator_of(kind).fit(X, y, "w")
            assert found.feature_names_in_.tolist() == frame.columns.tolist()
            np.testing.assert_allclose(found.coef_path_, expected.coef_path_, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(
                np.asarray(found.predict(X)), expected.predict(frame), rtol=1e-5
            )
            assert found.score(X, y) == pytest.approx(expected.score(frame, whole[y]))
    with pytest.raises(ValueError, match=r"no column 'risky'.*'risk'"):
        GroupSequencer().fit(whole, "risky")


def test_classes_and_their_shares():
    frame, score, rng = patients(n=600)
    y = np.array(["no", "yes"])[targets("logistic", score, rng)]
    model = estimator_of("logistic").fit(frame, y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(frame, y) == np.mean(model.predict(frame) == y) > 0.7
    assert np.all(np.diff(model.explained_variance_) > -1e-9)
    # Nothing is affordable: the shares of the classes.
    shares = model.predict_proba(frame[:3], budget=0.01)
    np.testing.assert_allclose(shares[:, 1], (y == "yes").mean(), rtol=1e-9)


def test_a_budget_needs_and_reads_the_columns_of_its_prefix_only(tmp_path):
    import pyarrow as pa

    frame, score, rng = patients()
    y = targets("gaussian", score, rng)
    model = estimator_of("gaussian").fit(frame, y)
    first = model.path_.spent[0]
    part = frame[model.get_feature_names_out()[model.get_support(budget=first)]]
    assert list(part.columns) == ["iron", "sugar"]
    expected = model.predict(frame, budget=first)
    np.testing.assert_array_equal(model.predict(part, budget=first), expected)
    write_table(tmp_path / "part.parquet", pa.Table.from_pandas(part, preserve_index=False))
    np.testing.assert_allclose(model.predict(tmp_path, budget=first), expected, rtol=1e-14)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(part)
    assert list(model.transform(frame, budget=first).columns) == ["iron", "sugar"]
    limited = clone(model).set_params(budget=first).fit(frame, y)
    np.testing.assert_allclose(limited.predict(frame), expected, rtol=1e-14)
    assert np.flatnonzero(limited.coef_).tolist() == [0, 1]
    assert limited.get_feature_names_out().tolist() == ["iron", "sugar"]
    assert limited.get_support(indices=True).tolist() == [0, 1]
    numbers = model.predict(frame, budget=0.0)
    np.testing.assert_allclose(numbers, y.mean(), rtol=1e-12)


def test_rows_of_several_chunks_give_what_one_gives(monkeypatch):
    from distfms.methods import estimator_input

    frame, score, rng = patients()
    y = targets("logistic", score, rng)
    whole = estimator_of("logistic").fit(frame, y)
    monkeypatch.setattr(estimator_input, "MAX_ROWS", 64)
    parts = estimator_of("logistic").fit(frame, y)
    np.testing.assert_allclose(parts.coef_path_, whole.coef_path_, rtol=1e-7, atol=1e-12)


def test_groups_come_one_by_one():
    frame, score, rng = patients()
    model = estimator_of("gaussian").fit(frame, targets("gaussian", score, rng))
    session = model.anytime(n_samples=4)
    for group, spent in zip(model.sequence_, model.path_.spent, strict=True):
        source = frame[["ward"]] if group == "ward" else frame
        assert session.deliver(group, model.group_values(group, source[:4]))
        np.testing.assert_allclose(session.prediction, model.predict(frame[:4], budget=spent))
    assert not model.anytime(deadline_s=0.0).deliver("scan", [1.0, 1.0])


def test_missing_values_are_refused_or_taken_for_the_mean(tmp_path):
    frame, score, rng = patients()
    y = targets("gaussian", score, rng)
    gaps = frame.copy()
    gaps.loc[5:40, "image_a"] = np.nan
    gaps.loc[[7, 99], "ward"] = None
    with pytest.raises(ValueError, match=r"'ward'.*2 missing"):
        estimator_of("gaussian").fit(gaps, y)
    model = estimator_of("gaussian", missing="mean").fit(gaps, y)
    X = encoded(frame)
    X[[7, 99], 2:5] = np.nan
    X[5:41, 5] = np.nan
    imputed = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    names = model.columns_.feature_names
    groups = {k: [names.index(c) for c in v] for k, v in model.groups_.items()}
    other = estimator_of("gaussian", groups=groups).fit(imputed, y)
    assert other.sequence_ == model.sequence_
    np.testing.assert_allclose(model.predict(gaps), other.predict(imputed), atol=1e-9)
    X, target, _, new = as_given("parquet", gaps, y, np.ones(len(y)), tmp_path)
    stored = estimator_of("gaussian", missing="mean").fit(X, target, "weight")
    np.testing.assert_allclose(stored.predict(new), model.predict(gaps), atol=1e-10, rtol=0)


def test_an_unknown_category_counts_as_the_mean(tmp_path):
    import pyarrow as pa

    frame, score, rng = patients()
    y = targets("gaussian", score, rng)
    model = estimator_of("gaussian").fit(frame, y)
    new = frame[:2].assign(ward=["east", "north"])
    known = pd.concat([frame[:1].assign(ward=level) for level in ("north", "south", "west")])
    shares = frame["ward"].value_counts(normalize=True)[["north", "south", "west"]]
    expected = model.predict(known) @ shares.to_numpy()
    assert model.predict(new)[0] == pytest.approx(expected, abs=1e-9)
    gaps = clone(model).set_params(missing="mean").fit(frame, y)
    assert gaps.predict(frame[:1].assign(ward=None))[0] == pytest.approx(expected, abs=1e-9)
    write_table(tmp_path / "new.parquet", pa.Table.from_pandas(new, preserve_index=False))
    np.testing.assert_allclose(model.predict(tmp_path), model.predict(new), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {"a": ["irn"]}}, "Did you mean 'iron'"),
        ({"groups": {"a": [17]}}, "names column 17"),
        ({"groups": [0, 1]}, "one id for each of the 6"),
        ({"costs": [1.0]}, "one for each of the"),
        ({"costs": {"blood": -1.0}}, "costs.blood` is -1.0: it should be greater"),
        ({"shared_costs": {"kit": {"groups": ["blood"]}}}, "missing the key"),
        ({"ridge": -1.0}, "ridge"),
        ({"family": "logistic"}, "GroupSequenceClassifier"),
        ({"criterion": "lars"}, "criterion"),
        ({"missing": "drop"}, "choose 'error' or 'mean'"),
    ],
)
def test_wrong_parameters_are_value_errors_that_say_what_to_do(options, message):
    frame, score, _ = patients(n=30)
    with pytest.raises(ValueError, match=message):
        GroupSequencer(**{"groups": GROUPS, **options}).fit(frame, np.abs(score))


def test_ids_make_groups_and_costs_follow_their_order():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    model = GroupSequencer([7, 3, 7, 3], [1.0, 10.0], criterion="omp").fit(X, X @ [1, 0, 1, 0.0])
    assert model.groups_ == {"3": ("x1", "x3"), "7": ("x0", "x2")}
    assert model.costs_ == {"3": 1.0, "7": 10.0}


def test_pickle_clone_and_search():
    frame, score, rng = patients(n=200)
    y = targets("softmax", score, rng)
    model = estimator_of("softmax", max_groups=3, max_refits=2).fit(frame, y)
    assert len(model.sequence_) == 3
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict_proba(frame), model.predict_proba(frame))
    assert clone(model).get_params() == model.get_params()
    assert model.path_.refit_at[-1] == len(model.sequence_)
    assert len(model.path_.refit_at) == 2
    grid = {"ridge": [1e-3, 100.0], "criterion": ["omp"]}
    found = GridSearchCV(clone(model), grid, cv=KFold(2)).fit(frame, y)
    assert found.best_params_["ridge"] == 1e-3
    # The score of a point is that of a clone fitted on the other folds.
    scores = []
    for train, test in KFold(2).split(frame):
        own = clone(model).set_params(ridge=100.0, criterion="omp")
        own.fit(frame.iloc[train], y[train])
        scores.append(own.score(frame.iloc[test], y[test]))
    assert found.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(scores))
