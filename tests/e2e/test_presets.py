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
SETS = {
    "multiselect": ({"ridge": 0.0, "psd": "data_units", "clip": False, "screen_raters": False}, {}),
    "sequence": ({"criterion": "omp", "ridge": 1e-5, "stopping": "prefix"}, {"folds": 0}),
    "landmarks": ({"metric": "none", "ridge": 0.0, "intercept": False, "clip": False}, {}),
    "attribute_efficient": ({"solver": "online", "norm": "largest", "repeats": 100}, {"folds": 10}),
}


def spec(method, options=None, data=None, **top):
    section = {**NEEDED.get(method, {}), **(options or {})}
    source = {"path": "rows", "target": "y", **(data or {})}
    return build_spec({"name": "it", "method": method, "data": source, method: section, **top})


@pytest.mark.parametrize("method", SETS)
def test_a_preset_is_its_options_written_out(method):
    made = spec(method, preset="paper")
    options, data = SETS[method]
    assert options.items() <= made.options.model_dump().items()
    assert data.items() <= made.data.model_dump().items()
    listed = {name: own for name, own in made.preset.items() if own}
    given = {**NEEDED.get(method, {}), **listed.pop(method)}
    alike = spec(method, given, listed.pop("data", {}), **listed)
    assert made.to_mapping() == alike.to_mapping()
    assert made.identity(["x"]) == alike.identity(["x"])
    assert not spec(method).preset


def test_what_the_spec_says_wins():
    made = spec("multiselect", {"psd": "none"}, preset="paper")
    assert (made.options.psd, made.options.ridge) == ("none", 0.0)
    assert "psd" not in made.preset["multiselect"]
    grid = {"step_factor": [1.0, 2.0]}
    made = spec("attribute_efficient", {"bound": 2.0}, preset="paper")
    assert "bound" not in made.tune.grid
    made = spec("attribute_efficient", preset="paper", tune={"grid": grid})
    assert made.tune.grid == {"step_factor": (1.0, 2.0)}
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
    made = spec(method, options, data, preset="paper", output=str(folder), engine={"workers": 1})
    done = run_job(made).folder
    return content(done, "selection.json"), load(done), frame


@pytest.mark.parametrize("algorithm", ["full", "scoring"])
def test_multiselect(tmp_path, algorithm):
    """Also of judgments and raters that would be bounded or left out."""
    judgments, label, _ = random_judgments(1, m=90, d=4, k=3)
    rng = np.random.default_rng(0)
    judgments[::10, 0] *= 40.0
    lists = [[list(row) for row in column] for column in judgments.transpose(1, 0, 2)]
    columns = {f"q{a}": cells for a, cells in enumerate(lists)}
    raters = [[f"r{i}" for i in rng.permutation(6)[:3]] for _ in label]
    columns |= {"y": label, "raters": raters}
    options = {"budget": 9, "algorithm": algorithm}
    selection, model, frame = run(tmp_path, "multiselect", columns, options)
    literal = Independent(lists, label, np.ones(90), ridge=0.0, data_units=True)
    everyone = np.ones(90, dtype=bool)
    repeats, weights, intercept, _ = literal.fit(everyone, algorithm, 9)
    assert [selection["repeats"].get(f"q{a}", 0) for a in range(4)] == repeats.tolist()
    means = [judgments[:, a, : max(repeats[a], 1)].mean(axis=1) for a in range(4)]
    predicted = model.predict(frame)["predicted_y"]
    np.testing.assert_allclose(predicted, intercept + weights @ means, rtol=1e-8)


SIZES, COSTS = [2, 1, 3, 1], [1.0, 2.0, 1.5, 3.0]
SECTION = {
    "groups": {"a": ["x0", "x1"], "b": ["x2"], "c": ["x3", "x4", "x5"], "d": ["x6"]},
    "costs": dict(zip("abcd", COSTS, strict=True)),
}


def grouped(seed, n=80):
    rows, target, groups = sequence.correlated(np.random.default_rng(seed), n, SIZES)
    return rows, target[:, 0], groups, {f"x{i}": column for i, column in enumerate(rows.T)}


def test_sequence(tmp_path):
    X, y, groups, columns = grouped(2)
    selection, model, frame = run(tmp_path, "sequence", {**columns, "y": y}, SECTION)
    rows, target = sequence.standardised(X), sequence.standardised(y[:, None])
    order = sequence.literal_sequence(
        "omp", rows, target, groups, lambda chosen, g: COSTS[g], ridge=1e-5
    ).order
    assert [step["group"] for step in selection["sequence"]] == ["abcd"[g] for g in order]
    spent = 0.0
    for place, group in enumerate(order):
        spent += COSTS[group]
        used = [column for g in order[: place + 1] for column in groups[g]]
        scores = rows[:, used] @ sequence.fitted(rows, target, used, 1e-5)[:, 0]
        expected = y.mean() + y.std() * scores
        predicted = model.predict(frame, budget=spent)["predicted_y"]
        np.testing.assert_allclose(predicted, expected, rtol=1e-8)
    # Nothing stops earlier.
    np.testing.assert_allclose(model.predict(frame)["predicted_y"], expected, rtol=1e-8)


@pytest.mark.parametrize("names", [("no", "yes"), ("high", "low", "middle")])
def test_sequence_of_classes_of_texts(tmp_path, names):
    X, y, groups, columns = grouped(3)
    classes = np.searchsorted(np.quantile(y, np.arange(1, len(names)) / len(names)), y)
    texts = np.array(names)[classes]
    selection, *_ = run(tmp_path, "sequence", {**columns, "y": texts}, SECTION)
    family = "logistic" if len(names) == 2 else "softmax"
    shown = np.eye(len(names))[classes][:, 1 if family == "logistic" else 0 :]
    order, _ = glm.sequence(glm.standardise(X), shown[:, : 1 if len(names) == 2 else None],
                            groups, COSTS, family, 1e-5)  # fmt: skip
    assert [step["group"] for step in selection["sequence"]] == ["abcd"[g] for g in order]
    assert selection["family"] == family


def similar(n=70, d=3):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * [1.0, 5.0, 0.2] + 3.0
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n) + 5.0
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    parameters = {"a": 1 / d, "r": -1.0}
    return (
        landmarks.embedding("sigmoid", rows, rows, parameters),
        y,
        dict(zip("abc", X.T, strict=True)),
    )


def test_landmarks_sparse(tmp_path):
    K, y, columns = similar()
    options = {"task": "sparse", "landmarks": 70, "keep": 6}
    selection, model, frame = run(tmp_path, "landmarks", {**columns, "y": y}, options)
    chosen = []
    for _ in range(6):
        chosen.append(landmarks.steepest_next(K, y, chosen))
    assert selection["landmarks"] == chosen
    weights = np.linalg.lstsq(K[:, chosen], y, rcond=None)[0]
    predicted = model.predict(frame)["predicted_y"]
    np.testing.assert_allclose(predicted, K[:, chosen] @ weights, rtol=1e-6)


def test_landmarks_regression(tmp_path):
    """Of the least ε-insensitive loss, whose corners are rounded: no slope is left."""
    K, y, columns = similar()
    options = {"landmarks": 5}
    selection, model, frame = run(tmp_path, "landmarks", {**columns, "y": y}, options)
    own = K[:, selection["landmarks"]]
    predicted = np.asarray(model.predict(frame)["predicted_y"])
    weights = np.linalg.lstsq(own, predicted, rcond=None)[0]
    np.testing.assert_allclose(own @ weights, predicted, rtol=1e-8)
    epsilon, beta = 0.1 * y.std(), 1 / (0.01 * y.std())
    slopes = [
        landmarks.smoothed_slope(f - t, epsilon, beta) for f, t in zip(predicted, y, strict=True)
    ]
    assert np.abs(own.T @ slopes).max() / len(y) < 1e-4


def test_landmarks_of_classes_of_texts(tmp_path):
    _, y, columns = similar()
    columns["y"] = np.where(y > np.median(y), "high", "low")
    selection, model, frame = run(tmp_path, "landmarks", columns, {})
    assert (selection["task"], selection["loss"]) == ("classification", "hinge")
    assert (model.predict(frame)["predicted_y"] == frame["y"]).mean() > 0.9
