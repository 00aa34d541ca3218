"""`preset: paper` is the paper's algorithm and nothing else; what a spec says itself goes first."""

import numpy as np
import pandas as pd
import pytest

from distfms import load
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content
from tests.reference import glm, landmarks, sequence
from tests.reference.multiselect_cases import random_judgments
from tests.reference.multiselect_rows import Independent

NEEDED = {
    "multiselect": {"budget": 5},
    "attribute_efficient": {"attributes_per_example": 4, "positive": 3},
}
#: What literal forms do not show.
SETS = {
    "multiselect": ({"robust": False, "algorithm": "full"}, {}),
    "sequence": ({"criterion": "omp"}, {"folds": 0}),
    "landmarks": ({"metric": "none", "clip": False}, {}),
    "attribute_efficient": ({"repeats": 100}, {"folds": 10}),
}


def spec(method, options=None, data=None, **top):
    section = {**NEEDED.get(method, {}), **(options or {})}
    source = {"path": "rows", "target": "y", **(data or {})}
    return build_spec({"name": "it", "method": method, "data": source, method: section, **top})


@pytest.mark.parametrize("method", SETS)
def test_a_preset_is_its_options_written_out(method):
    job = spec(method, preset="paper")
    options, data = SETS[method]
    assert options.items() <= job.options.model_dump().items()
    assert data.items() <= job.data.model_dump().items()
    listed = {name: own for name, own in job.preset.items() if own}
    section = {**NEEDED.get(method, {}), **listed.pop(method)}
    alike = spec(method, section, listed.pop("data", {}), **listed)
    assert job.to_mapping() == alike.to_mapping()
    assert not spec(method).preset


def test_what_the_spec_says_wins():
    job = spec("multiselect", {"psd": "none"}, preset="paper")
    assert (job.options.psd, job.options.ridge) == ("none", 0.0)
    assert "psd" not in job.preset["multiselect"]
    grid = {"step_factor": [1.0, 2.0]}
    job = spec("attribute_efficient", {"bound": 2.0}, preset="paper")
    assert "bound" not in job.tune.grid
    job = spec("attribute_efficient", preset="paper", tune={"grid": grid})
    assert job.tune.grid == {"step_factor": (1.0, 2.0)}
    assert not spec("attribute_efficient", {"solver": "pairs"}, preset="paper").preset


def test_check_says_what_a_preset_set():
    described = prepare(load_spec("jobs/landmarks-digits.yaml", ["preset=paper"])).describe()
    assert "landmarks.metric none" in described["preset"]


# --- literal forms --------------------------------------------------------------------------------


def run(folder, method, columns, options, **data):
    """Selection and model of a job that says nothing but what it must."""
    frame = pd.DataFrame(columns)
    frame.to_parquet(folder / "rows.parquet")
    data["path"] = str(folder / "rows.parquet")
    job = spec(method, options, data, preset="paper", output=str(folder), engine={"workers": 1})
    done = run_job(job).folder
    return content(done, "selection.json"), load(done), frame


@pytest.mark.parametrize("algorithm", ["full", "scoring"])
def test_multiselect(tmp_path, algorithm):
    """Also of judgments and raters that would be bounded or left out."""
    judgments, label, _ = random_judgments(1, m=90, d=4, k=3)
    rng = np.random.default_rng(0)
    judgments[::10, 0] *= 40.0
    lists = judgments.transpose(1, 0, 2).tolist()
    columns = dict(zip(["q0", "q1", "q2", "q3"], lists, strict=True))
    raters = [rng.permutation(list("abcdef"))[:3] for _ in label]
    columns |= {"y": label, "raters": raters}
    options = {"budget": 9, "algorithm": algorithm}
    selection, model, frame = run(tmp_path, "multiselect", columns, options)
    literal = Independent(lists, label, np.ones(90), ridge=0.0, data_units=True)
    repeats, weights, intercept, _ = literal.fit(np.full(90, True), algorithm, 9)
    assert [selection["repeats"].get(f"q{a}", 0) for a in range(4)] == repeats.tolist()
    means = [judgments[:, a, : max(repeats[a], 1)].mean(axis=1) for a in range(4)]
    predicted = model.predict(frame)["predicted_y"]
    np.testing.assert_allclose(predicted, intercept + weights @ means, rtol=1e-8)


SIZES = [2, 1, 3, 1]
COSTS = [1.0, 2.0, 1.5, 3.0]
SECTION = {
    "groups": {"a": ["x0", "x1"], "b": ["x2"], "c": ["x3", "x4", "x5"], "d": ["x6"]},
    "costs": dict(zip("abcd", COSTS, strict=True)),
}
CLASSES = {"gaussian": [], "logistic": ["no", "yes"], "softmax": ["high", "low", "middle"]}


@pytest.mark.parametrize("family", CLASSES)
def test_sequence(tmp_path, family):
    """Of two targets, or of classes that are texts, at each of its prefixes."""
    X, Y, groups = sequence.correlated(np.random.default_rng(3), 80, SIZES, n_targets=2)
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    rows = glm.standardise(X)
    shown = glm.standardise(Y)
    if names := CLASSES[family]:
        numbers = np.digitize(shown[:, 0], [0.0, 0.8]) % len(names)
        shown = np.eye(len(names))[numbers]
        columns["y"] = np.array(names)[numbers]
        target = "y"
        last = f"probability_{names[-1]}"
    else:
        columns |= dict(zip("yz", shown.T, strict=True))
        target = ["y", "z"]
        last = "predicted_z"
    if family == "logistic":
        shown = shown[:, 1:]
    selection, model, frame = run(tmp_path, "sequence", columns, SECTION, target=target)
    order, weights = glm.sequence(rows, shown, groups, COSTS, family, 1e-5)
    assert [step["group"] for step in selection["sequence"]] == ["abcd"[g] for g in order]
    for spent, own in zip(np.cumsum([COSTS[g] for g in order]), weights[1:], strict=True):
        literal = [glm.MEAN[family](own[:-1].T @ row + own[-1])[-1] for row in rows]
        predicted = model.predict(frame, budget=spent)[last]
        np.testing.assert_allclose(predicted, literal, atol=1e-6)


def similar(n=50, d=3):
    """Similarities to all rows, a target, and the columns."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * [1.0, 5.0, 0.2] + 3.0
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + rng.normal(size=n) + 5.0
    rows = glm.standardise(X)
    K = landmarks.embedding("sigmoid", rows, rows, {"a": 1 / d, "r": -1.0})
    return K, y, dict(zip("abc", X.T, strict=True))


def test_landmarks_sparse(tmp_path):
    K, y, columns = similar()
    options = {"task": "sparse", "landmarks": 50, "keep": 6}
    selection, model, frame = run(tmp_path, "landmarks", {**columns, "y": y}, options)
    chosen = []
    for _ in range(6):
        chosen.append(landmarks.steepest_next(K, y, chosen))
    assert selection["landmarks"] == chosen
    literal = K @ landmarks.least_squares(K, y, chosen)
    np.testing.assert_allclose(model.predict(frame)["predicted_y"], literal, rtol=1e-6)


def test_landmarks_ranking(tmp_path):
    """Least squares on the normalised gains of each query."""
    K, y, columns = similar()
    grade = np.digitize(y, np.quantile(y, [0.3, 0.6, 0.9]))
    columns |= {"y": grade, "query": np.arange(len(y)) // 5}
    options = {"task": "ranking", "landmarks": 5}
    selection, model, frame = run(tmp_path, "landmarks", columns, options, query="query")
    gains = np.concatenate([landmarks.eta(own) for own in grade.reshape(-1, 5)])
    literal = K @ landmarks.least_squares(K, gains, selection["landmarks"])
    np.testing.assert_allclose(model.predict(frame)["predicted_y"], literal, rtol=1e-6)


@pytest.mark.parametrize("task", ["regression", "ordinal", "auto"])
def test_landmarks_of_losses_with_corners(tmp_path, task):
    """Which are hardly rounded here: weights are those of a linear program."""
    K, y, columns = similar()
    thresholds = [0.5, 1.5, 2.5]
    level = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    target, corners, predicted = {
        "regression": (y, [landmarks.insensitive(t, 0.1 * y.std()) for t in y], lambda f: f),
        "ordinal": (
            level + 3,
            [landmarks.margin(one, thresholds, 0.5) for one in level],
            lambda f: np.digitize(f, thresholds) + 3,
        ),
        "auto": (
            np.array(["no", "yes"])[level // 2],
            [landmarks.hinge(one > 1) for one in level],
            lambda f: np.where(f > 0, "yes", "no"),
        ),
    }[task]
    options = {"task": task, "landmarks": 5, "smoothing": 1e-6}
    selection, model, frame = run(tmp_path, "landmarks", {**columns, "y": target}, options)
    own = K[:, selection["landmarks"]]
    weights = landmarks.least_corners(own, corners)
    np.testing.assert_allclose(model.run.weights["weights"][-1, :, 0], weights, rtol=1e-3)
    literal = pd.Series(predicted(own @ weights), name="predicted_y")
    results = model.predict(frame)["predicted_y"]
    pd.testing.assert_series_equal(results, literal, check_dtype=False, rtol=1e-4)
