"""What holds for all estimators: each is its job, in whatever form the rows come."""

import doctest
import json
import pickle
from importlib import import_module

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import distfms
from distfms.errors import DataError
from distfms.estimators.inputs import array_names, of_memory
from distfms.estimators.parameters import plain, said
from distfms.report.metrics import ROWS
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from tests.e2e.jobs import run_on

N = 240
NAMES = ("a", "b", "c", "d", "e")
RESULTS = ("selection.json", "metrics.json", "model.json", "weights.npz")


def made():
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, size=(N, len(NAMES)))
    score = X @ [2.0, -1.0, 0.0, 0.5, 0.0] + X[:, 0] ** 2
    y = score + 0.3 * rng.normal(size=N)
    targets = {
        "number": y,
        "count": rng.poisson(np.exp(0.5 * score)),
        "class": np.where(y > 0.2, "yes", "no"),
        "level": np.digitize(y, [-1.0, 1.0]) + 3,
        "grade": np.digitize(y, [-1.0, 1.0]),
    }
    return X, targets


X, TARGETS = made()
#: Two judgments of each attribute.
JUDGED = X[:, :, None] + np.random.default_rng(6).normal(size=(N, len(NAMES), 2))
QUERY = np.sort(np.random.default_rng(9).integers(0, 40, N))
#: Estimator, kind of target, options of the job and of the estimator, what the job has beside.
CASES = {
    "sequence": (
        "GroupSequencer",
        "number",
        {
            "model": "linear",
            "costs": {"default": 3.0},
            "ridge": 1e-3,
            "budgets": "auto",
            "expand": {"splines": 3},
        },
        {},
    ),
    "sequence-auto": (
        "GroupSequencer",
        "number",
        {"model": "auto", "ridge": "auto"},
        {"folds": "auto"},
    ),
    "sequence-tuned": (
        "GroupSequencer",
        "number",
        {"model": "linear", "max_groups": 4},
        {"folds": 3, "tune": {"ridge": [1e-3, 1.0], "cost_aware": [True, False]}},
    ),
    "poisson": (
        "GroupSequencer",
        "count",
        {"model": "linear", "family": "poisson", "budget": 3.0},
        {"folds": 2},
    ),
    "logistic": (
        "GroupSequenceClassifier",
        "class",
        {"family": "logistic", "class_weights": "balanced", "baselines": ["oracle"]},
        {},
    ),
    "softmax": ("GroupSequenceClassifier", "level", {"family": "softmax"}, {}),
    "landmarks": ("LandmarkRegressor", "number", {"landmarks": 30}, {}),
    "sparse": (
        "LandmarkRegressor",
        "number",
        {"task": "sparse", "landmarks": 30, "keep": 9, "similarity": ["linear", "gaussian"]},
        {"folds": 3, "tune": {"ridge": [1e-4, 1.0]}},
    ),
    "insensitive": ("LandmarkRegressor", "number", {"loss": "epsilon_insensitive"}, {}),
    "margins": ("LandmarkClassifier", "class", {"similarity": "manhattan", "loss": "hinge"}, {}),
    "ridge": ("AttributeEfficientRidge", "number", {"attributes_per_example": 3}, {"folds": 2}),
    "lasso": (
        "AttributeEfficientLasso",
        "number",
        {"attributes_per_example": 3, "solver": "online", "draws": "two_phase"},
        {},
    ),
    "multiselect": ("FeatureMultiSelector", "number", {"budget": 9.0}, {}),
    "refit": (
        "FeatureMultiSelector",
        "number",
        {"budget": 4.0, "model": "refit", "costs": {"default": 1.5}},
        {"folds": 3, "tune": {"ridge": [0.0, 1.0]}},
    ),
    "ranking": ("LandmarkRanker", "grade", {"landmarks": 30}, {}),
    "ordinal": ("LandmarkOrdinalRegressor", "level", {"spacing": 0.3, "ridge": 1e-3}, {}),
}
#: One case of each way to read rows; selectors and rankers have tests of their own.
FORMS = ("sequence", "logistic", "landmarks", "lasso")
#: One case of each kind of model; others nearly repeat these, and are slow.
KINDS = ("sequence", "logistic", "landmarks", "ridge", "multiselect", "ranking", "ordinal")


def each(cases, by_default=KINDS):
    """Run a test on some cases, by default on those of a kind of their own."""
    slow = pytest.mark.slow
    marked = [pytest.param(c, marks=() if c in by_default else slow) for c in cases]
    return pytest.mark.parametrize("case", marked)


def estimator_of(case):
    name, _, options, more = CASES[case]
    return getattr(distfms, name)(**options, **{"folds": 0, **more}, random_state=3)


@each(CASES)
def test_an_estimator_is_its_job(case, tmp_path):
    _, target, options, more = CASES[case]
    rows = JUDGED if "Select" in CASES[case][0] else X
    columns = dict(zip(array_names(rows.shape), rows.reshape(N, -1).T, strict=True))
    path = tmp_path / "any-name.parquet"
    pq.write_table(pa.table({**columns, "y": TARGETS[target], "query": QUERY}), path)
    ranks = {"query": QUERY} if target == "grade" else {}
    model = estimator_of(case).fit(rows, TARGETS[target], **ranks)
    method = model.model_.method
    # What is only compared with the result is left out by estimators, unless it is asked for.
    unasked = model._defaults.keys() & {"baselines", "repeats"}
    defaults = {name: plain(model._defaults[name]) for name in unasked}
    content = {
        "name": "same",
        "method": method,
        "seed": 3,
        "data": {
            "path": str(path),
            "target": "y",
            "folds": more.get("folds", 0),
            **({"query": "query"} if ranks else {"exclude": "query"}),
        },
        method: {**defaults, **options, **model._fixed},
        "output": str(tmp_path / "runs"),
    }
    if "tune" in more:
        content["tune"] = {"grid": more["tune"]}
        for tried in more["tune"]:
            content[method].pop(tried, None)
    run = run_job(build_spec(content)).folder
    for file in RESULTS:
        assert (run / file).read_bytes() == model.model_.files.files[file], file
    saved = model.save(tmp_path / "saved")
    again = distfms.load_estimator(saved)
    assert type(again) is type(model)
    for folder in (saved, run):
        predict_file(folder, str(path), tmp_path / "found.parquet")
        found = pq.read_table(tmp_path / "found.parquet").column("predicted_y")
        for one in (model, again, pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(one.predict(rows), np.asarray(found))
    assert model.report() == again.report()
    assert model.summary().startswith(said(model.model_.headline(), method))
    assert "<html" in model.report()
    assert model.report()._repr_html_().startswith("<iframe srcdoc=")
    assert model.model_.headline()[:20] in model._repr_html_()
    assert "finished" in json.loads((saved / "manifest.json").read_text())
    for points in again.curves_.values():
        assert [p["budget"] for p in points] == sorted(p["budget"] for p in points)
        for point in points:
            assert "train" in point
            folds = point.pop("folds", [])
            assert all(isinstance(fold, dict) for fold in folds)
            assert all(isinstance(v, dict if k in ROWS else float | int) for k, v in point.items())


@each(FORMS, ("sequence", "landmarks"))
def test_the_form_of_the_rows_does_not_matter(case, tmp_path):
    y = TARGETS[CASES[case][1]]
    frame = pd.DataFrame(X, columns=NAMES)
    whole = frame.assign(y=y)
    path = tmp_path / "any-name.parquet"
    whole.to_parquet(path)
    model = estimator_of(case)
    expected = clone(model).fit(frame, y)
    chunks = da.from_array(X, chunks=(100, 3))
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(expected.predict(X), expected.predict(frame))
    for data, target, new in (
        (whole, "y", whole),
        (pl.from_pandas(whole), "y", pl.from_pandas(frame)),
        (pa.Table.from_pandas(frame), y, pa.Table.from_pandas(frame)),
        ({n: X[:, i] for i, n in enumerate(NAMES)}, y, whole),
        (str(path), "y", path),
        (dd.from_pandas(whole, npartitions=3), "y", dd.from_pandas(frame, npartitions=2)),
        (chunks, y, chunks),
    ):
        found = clone(model).fit(data, target)
        predicted = found.predict(new)
        assert isinstance(predicted, da.Array) == (type(new).__module__.startswith("dask"))
        _close(np.asarray(predicted), expected.predict(frame))
        assert hasattr(found, "feature_names_in_") == (data is not chunks)
        assert found.score(new, y) == pytest.approx(expected.score(frame, y), abs=1e-3)


#: Targets that are no counts, relevances or known classes.
IMPOSSIBLE = {"number": -1e9, "count": -1, "class": "none", "level": 4, "grade": 99}


@each([case for case in CASES if case not in ("ridge", "lasso")])
def test_rows_of_weight_0_have_no_say(case):
    name, kind, *_ = CASES[case]
    target = TARGETS[kind]
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(k=np.resize(["u", "v"], N))
    wild = {"a": np.inf, "b": -999.0, "c": np.nan, "k": "only here"}
    if "Select" in name:
        frame = pd.DataFrame({"a": [*JUDGED[:, 0]], "b": [*JUDGED[:, 1]]})
        wild = {"a": [-np.inf, 1.0], "b": [-999.0]}
    frame["w"] = np.random.default_rng(8).uniform(0.5, 2.0, N)
    after = pd.concat([frame, pd.DataFrame([{**wild, "w": 0.0}] * 60)], ignore_index=True)
    frame["y"] = target
    after["y"] = np.append(target, np.full(60, IMPOSSIBLE[kind], target.dtype))
    results = []
    for data in (frame, after):
        ranks = {"query": np.append(QUERY, [40] * 60)[: len(data)]} if kind == "grade" else {}
        model = estimator_of(case).fit(data, "y", sample_weight="w", **ranks)
        manifest = model.model_.run.manifest
        results.append([model.model_.headline(), model.curves_, manifest["objects"]])
    assert results[0] == results[1]
    assert any(note.startswith(("60 rows of weight 0", "60 of 300")) for note in manifest["notes"])


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**53, 2**53 + 1, 7]),
        np.array([2**64 - 1, 2**64 - 2, 0], dtype=np.uint64),
        np.array([-1.0, 0.0, 1e9 + 1]),
        pd.Categorical([10, 9, -1]),
        np.array(["b", "a", "é"]),
    ],
)
def test_labels_come_back_as_they_were_given(labels, tmp_path):
    given = labels[np.digitize(X[:, 0], [-0.3, 0.3])]
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(t=given)
    classes = np.unique(np.asarray(labels))
    for estimator in (
        distfms.GroupSequenceClassifier(folds=0),
        distfms.LandmarkClassifier(landmarks=20, metric="none", folds=0),
        distfms.LandmarkOrdinalRegressor(landmarks=20, metric="none", folds=0),
    ):
        ordinal = isinstance(estimator, distfms.LandmarkOrdinalRegressor)
        if ordinal and given.dtype.kind not in "iuf":
            continue
        model = estimator.fit(frame, "t")
        assert model.classes_.tolist() == classes.tolist()
        assert set(model.predict(frame)) == set(classes)
        assert model.score(frame, "t") > (0.6 if ordinal else 0.9)
        loaded = distfms.load(model.save(tmp_path / type(model).__name__))
        predicted = loaded.predict(frame)
        assert set(predicted["predicted_t"]) == set(classes)
        names = [name for name in predicted if name.startswith("probability_")]
        assert len(names) == (0 if ordinal else 3)


SMALL = {
    "GroupSequencer": {"folds": 0},
    "LandmarkRegressor": {"folds": 0, "landmarks": 20, "metric": "none"},
    "AttributeEfficientRidge": {"folds": 0, "attributes_per_example": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_frames_are_read_as_they_are(name):
    with_texts = name != "AttributeEfficientRidge"
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["time"] = 2**60 + np.arange(N) * 60_000_000_001
    y = TARGETS["number"].copy()
    if with_texts:
        frame["k"] = pd.Categorical(np.resize(["u", "v", "w"], N))
        y += 3.0 * frame["k"].cat.codes
    model = getattr(distfms, name)(**SMALL[name]).fit(frame, y)
    expected = model.predict(frame)
    others = {"a": "n/a"}
    if with_texts:
        others["k"] = frame["k"].cat.codes
        np.testing.assert_array_equal(model.predict(frame.astype({"k": object})), expected)
    for column, values in others.items():
        changed = frame.assign(**{column: values})
        for X_new in (changed, pl.from_pandas(changed), dd.from_pandas(changed, npartitions=2)):
            with pytest.raises(DataError, match=f"column '{column}'"):
                np.asarray(model.predict(X_new))


@pytest.mark.parametrize("name", SMALL)
def test_columns_that_are_left_out_may_come_again(name, tmp_path):
    y = TARGETS["number"]
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame.insert(0, "id_1", np.arange(N) % 7)
    frame.insert(1, "id_2", "x")
    model = getattr(distfms, name)(**SMALL[name], exclude=["id_*"])
    fitted = clone(model).fit(frame, y)
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    kept = frame[["a", "b", "c"]]
    expected = clone(model).set_params(exclude=()).fit(kept, y).predict(kept)
    loaded = distfms.load_estimator(fitted.save(tmp_path / "saved"))
    for new in (frame, kept, frame[["id_2", "a", "b", "c"]]):
        for estimator in (fitted, loaded):
            np.testing.assert_array_equal(estimator.predict(new), expected)
    assert not np.isnan(cross_val_score(model, frame, y, cv=2)).any()
    if name == "GroupSequencer":
        chosen = frame.columns[fitted.get_support()]
        assert list(fitted.transform(frame).columns) == list(chosen)
        assert not set(chosen) & {"id_1", "id_2"}
    numbers = kept.to_numpy()
    by_position = clone(model).set_params(exclude=["x0"]).fit(numbers, y)
    assert by_position.n_features_in_ == 3
    assert by_position.predict(numbers).shape == (N,)


def test_budgets_and_stops_are_numbers():
    y = TARGETS["number"]
    sequence = distfms.GroupSequencer(folds=0).fit(X, y)
    judged = distfms.FeatureMultiSelector(6, folds=0).fit(JUDGED, y)
    classes = distfms.GroupSequenceClassifier(folds=2).fit(X, TARGETS["class"])
    landmarks = distfms.LandmarkRegressor(landmarks=9, folds=0).fit(X, y)
    row = dict(zip(array_names((1, len(NAMES))), X[:1].T, strict=True))
    for wrong in (np.nan, np.inf, -1, "2"):
        for call in (
            lambda b: sequence.get_support(budget=b),
            lambda b: sequence.predict(X, budget=b),
            lambda b: sequence.transform(X, budget=b),
            lambda b: sequence.anytime().run({}, budget=b),
            lambda b: sequence.anytime(deadline_s=b),
            lambda b: sequence.model_.predict(row, budget=b),
            lambda b: sequence.model_.predictor(None, b),
            lambda b: sequence.model_.anytime(budget=b),
            lambda b: judged.repeats_at(b),
            lambda b: judged.predict(JUDGED, budget=b),
            lambda b: landmarks.predict(X, budget=b),
            lambda b: classes.predict(X, stop="rows", mean_budget=b),
            lambda b: classes.predict(X, stop="rows", confidence=b),
        ):
            with pytest.raises(ValueError, match=r"must be (a finite number|above 0)"):
                call(wrong)
    np.testing.assert_array_equal(judged.repeats_at(None), judged.repeats_)


def test_groups_are_routed():
    person = np.arange(N) // 8
    with config_context(enable_metadata_routing=True):
        model = distfms.GroupSequencer(folds=3).set_fit_request(groups=True)
        scores = cross_val_score(
            model, X, TARGETS["number"], cv=GroupKFold(3), params={"groups": person}
        )
    assert (scores > 0.5).all()


#: Checks of scikit-learn that an estimator cannot pass, and why.
NOT_TWICE = "rows of weight 2 are not the same landmarks as rows that are there twice"
UNORDERED = "classes of the check are in no order"
EXCEPTIONS = {
    "landmarks-ordinal": dict.fromkeys(
        ("check_classifiers_classes", "check_classifiers_train"), UNORDERED
    ),
    "poisson": {"check_regressor_multioutput": "its targets are negative, which are no counts"},
}
CHECKED = {
    "classes": distfms.GroupSequenceClassifier(ridge=1e-2, folds=0),
    "sequence": distfms.GroupSequencer(folds=0),
    # Budget 5, as one check has 9 distinct objects: more attributes than that fit them exactly.
    # Whether judgments are clipped depends on how many far ones there are, whatever their weight.
    "multiselect": distfms.FeatureMultiSelector(5, internal_variance=0.0, robust=False, folds=0),
    "lasso": distfms.AttributeEfficientLasso(2, folds=0),
    "landmarks": distfms.LandmarkRegressor(folds=0),
    "landmarks-classes": distfms.LandmarkClassifier(ridge=1e-3, folds=0),
    "ridge": distfms.AttributeEfficientRidge(2),
    "landmarks-sparse": distfms.LandmarkRegressor(task="sparse", missing="mean"),
    "landmarks-insensitive": distfms.LandmarkRegressor(loss="epsilon_insensitive", ridge=1e-3),
    "landmarks-ordinal": distfms.LandmarkOrdinalRegressor(ridge=1e-3),
    "mean": distfms.GroupSequencer(missing="mean", folds=0),
    "poisson": distfms.GroupSequencer(family="poisson", folds=0),
    "softmax": distfms.GroupSequenceClassifier(family="softmax", ridge=1e-2, folds=0),
}


@each(CHECKED, ("classes",))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(case):
    failing = dict(EXCEPTIONS.get(case, {}))
    if case.startswith("landmarks"):
        weighed = "check_sample_weight_equivalence_on_{}_data"
        failing |= {weighed.format(kind): NOT_TWICE for kind in ("dense", "sparse")}
    check_estimator(CHECKED[case], expected_failed_checks=failing, on_skip=None)


@pytest.mark.parametrize("module", ["sequence", "landmarks", "attribute_efficient", "multiselect"])
def test_examples_of_the_documentation(module):
    assert doctest.testmod(import_module(f"distfms.estimators.{module}")).failed == 0


def _close(found, expected):
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    else:
        assert np.mean(found == expected) > 0.99


def test_rows_in_memory_are_not_copied():
    for data in (X, pd.DataFrame(X, columns=NAMES)):
        names = None if hasattr(data, "iloc") else NAMES
        (partition,) = of_memory(data, names, {("y",): TARGETS["number"]}).dataset.partitions
        assert np.shares_memory(partition.rows.matrix(NAMES), np.asarray(data))


_ROW = {name: [0.1 * place, 1.0] for place, name in enumerate(NAMES)}
_ROWS = [
    _ROW,
    {**_ROW, "id": [7, 9]},
    {**_ROW, "id": ["b", "a"]},
    {**_ROW, "other": ["x", "y"]},
    {name: np.array(values, dtype=np.float32) for name, values in _ROW.items()},
    {**_ROW, "a": [1, 2], "b": np.array([True, False])},
    {**_ROW, "a": [None, 1.0]},
    {**_ROW, "a": ["1", "2"]},
    {**_ROW, "a": [np.inf, 1.0]},
    {**_ROW, "a": [[1.0, 2.0], [3.0]]},
    {**_ROW, "a": [1.0]},
    {**_ROW, "id": [7]},
    {name: [] for name in NAMES},
    {name: _ROW[name] for name in NAMES[1:]},
]


def test_what_a_service_predicted_before_has_no_say(tmp_path):
    frame = pd.DataFrame(X, columns=NAMES).assign(y=TARGETS["number"], id=range(N))
    run = run_on(frame, tmp_path, "sequence", {"baselines": []}, {"id": "id"})
    warm = distfms.load(run, budget=9)
    for rows in _ROWS:
        expected = _said(distfms.load(run, budget=9), rows)
        for before in (_ROW, {**_ROW, "id": [7, 9]}):
            warm.predict(before)
            assert _said(warm, rows) == expected


def _said(model, rows):
    try:
        return model.predict(rows)
    except DataError as error:
        return str(error)


def test_columns_of_one_name_are_refused():
    for dtype in (float, int):
        frame = pd.DataFrame(X, columns=["a", "b", "a", "d", "e"]).astype(dtype)
        with pytest.raises(ValueError, match="two columns named 'a'"):
            distfms.GroupSequencer().fit(frame, TARGETS["number"])
