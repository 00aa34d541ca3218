"""Jobs of learning with similarities, from spec to report and prediction."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import RidgeCV

from distfms.data.rows.folds import assign_parts
from distfms.errors import DataError, SpecError
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.landmarks_jobs import N, landmarks_job, smooth_rows
from tests.e2e.sequence_jobs import write_rows
from tests.reference import landmarks as literal


@pytest.fixture(scope="module")
def columns():
    return smooth_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("smooth") / "rows", columns)


def predicted(folder, data, out, **options):
    predict_file(folder, str(data), out, **options)
    table = pq.read_table(out).to_pydict()
    by_id = dict(zip(table["id"], table["predicted_y"], strict=True))
    return np.array([by_id[f"r{i}"] for i in range(N)])


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A finished run on 60 landmarks."""
    return run_job(landmarks_job(data, tmp_path_factory.mktemp("runs"))).folder


def test_a_model_on_all_landmarks(run, data, columns, tmp_path):
    selection, metrics = (content(run, f"{n}.json") for n in ("selection", "metrics"))
    X = np.column_stack([columns[f"x{j}"] for j in range(3)])
    y = columns["y"]
    parts = assign_parts(np.array(columns["id"], object), n_folds=4, test=0.25, seed=0)
    train = parts < 4
    Z = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    chosen = [int(name[1:]) for name in selection["landmarks"]]
    assert set(chosen) <= set(np.flatnonzero(train).tolist())
    # The whole model by its formulas.
    sigma = selection["parameters"]["sigma"]
    pairs = np.linalg.norm(Z[train][:, None] - Z[train][None], axis=2)
    assert sigma == pytest.approx(pairs.sum() / (len(pairs) * (len(pairs) - 1)))
    K = literal.embedding("gaussian", Z, Z[chosen], {"sigma": sigma})
    centre = K[train].mean(axis=0)
    mean = y[train].mean()
    A = K[train] - centre
    b = y[train] - mean
    norm = literal.embedding("gaussian", Z[chosen], Z[chosen], {"sigma": sigma})
    gram = A.T @ A + selection["ridge"] * len(A) * (norm + 1e-6 * np.eye(60))
    expected = (K - centre) @ np.linalg.solve(gram, A.T @ b) + mean
    predictions = predicted(run, data, tmp_path / "out.parquet")
    np.testing.assert_allclose(predictions, expected, rtol=1e-5)
    # The smaller models are in the folder too.
    few = predicted(run, data, tmp_path / "few.parquet", budget=25)
    error = np.mean((few[~train] - y[~train]) ** 2)
    curve = metrics["curves"][0]["points"]
    assert [point["budget"] for point in curve] == [1, 2, 5, 10, 20, 50, 60]
    assert error == pytest.approx(curve[4]["test"]["mse"], rel=1e-6)
    with pytest.raises(SpecError, match="smallest model of this run has 1"):
        predict_file(run, str(data), tmp_path / "none.parquet", budget=0)
    # Kernel regression on all training rows.
    all_rows = literal.embedding("gaussian", Z[~train], Z[train], {"sigma": sigma})
    reference = np.mean((literal.kernel_regression(all_rows, y[train]) - y[~train]) ** 2)
    entry = metrics["baselines"]["kernel regression, gaussian"]
    assert entry["test"]["mse"] == pytest.approx(reference, rel=1e-9)
    assert entry["test"]["n_train"] == train.sum()
    # The columns themselves, and none of them.
    names = ("constant", "linear model on the columns")
    references = [metrics["baselines"][name]["test"]["mse"] for name in names]
    assert references[0] == pytest.approx(np.mean((y[~train] - mean) ** 2))
    model = RidgeCV(np.logspace(-4, 6, 21)).fit(Z[train], y[train])
    assert references[1] == pytest.approx(np.mean((model.predict(Z[~train]) - y[~train]) ** 2))
    beside = metrics["beside"]["linear model on the columns"]
    assert beside["behind"] < -beside["standard_error"] < 0
    assert "still" in " ".join(content(run, "manifest.json")["notes"])


def test_as_many_landmarks_as_pay(data, tmp_path):
    """The fewest of a ladder whose error on the folds is about the least, or all there may be."""
    options = {"landmarks": "auto"}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=options)).folder
    selection = content(folder, "selection.json")
    notes = content(folder, "manifest.json")["notes"]
    kept = len(selection["landmarks"])
    most = selection["n_candidates"]
    every = run_job(landmarks_job(data, tmp_path, landmarks={**options, "landmarks": most})).folder
    points = content(every, "metrics.json")["curves"][0]["points"]
    error = {point["budget"]: point["validation"]["mse"] for point in points}
    assert 1 < kept < most
    assert error[kept] < 1.3 * min(error.values())
    assert f"{kept} of up to {most} landmarks are kept" in " ".join(notes)


@pytest.mark.parametrize(
    ("options", "n_rows", "most"),
    [
        ({}, 100_000, 1000),
        ({}, 1_000_000, 500),
        ({}, 200_000, 819),
        ({"landmarks": 3}, 10, 3),
        ({"task": "sparse"}, 100, 500),
        ({"loss": "epsilon_insensitive"}, 100, 500),
    ],
)
def test_bounded_work_decides_how_many_landmarks_there_may_be(options, n_rows, most):
    given = LandmarksOptions(**{"task": "regression", **options})
    assert given.most_landmarks(n_rows, 20) == most


def test_landmarks_of_a_table(columns, tmp_path):
    gaps = {**columns, "y": np.where(np.arange(N) % 3 == 0, np.nan, columns["y"])}
    data = write_rows(tmp_path / "rows", gaps)
    own = {name: columns[name][:25] for name in ("x0", "x1", "x2", "still")}
    table = write_rows(tmp_path / "table", own, n_files=2)
    known = {"missing": "mean", "unlabelled_path": str(table)}
    job = landmarks_job(data, tmp_path, data=known, landmarks={"landmarks": "auto", "keep": 25})
    one = run_job(job).folder
    assert sorted(content(one, "selection.json")["landmarks"]) == list(range(25))
    with np.load(one / "weights.npz") as arrays:
        found = np.sort(arrays["landmarks"][:, 0])
    np.testing.assert_array_equal(found, np.sort(own["x0"]))
    write_rows(table, {name: values + 1.0 for name, values in own.items()}, n_files=2)
    assert run_job(job).folder != one  # another table is another job
    with pytest.raises(DataError, match=r"There are 25 rows to take landmarks from in .*table"):
        run_job(landmarks_job(data, tmp_path, data=known, landmarks={"landmarks": 30}))


def test_precomputed_similarities(columns, tmp_path):
    X = np.column_stack([columns[f"x{j}"] for j in range(3)])
    K = literal.embedding("gaussian", X, X[:30], {"sigma": 1.5})
    own = {"id": columns["id"], "y": columns["y"]} | {f"k{j}": K[:, j] for j in range(30)}
    data = write_rows(tmp_path / "rows", own)
    section = {"similarity": "precomputed", "landmarks": "auto", "task": "sparse", "keep": 10}
    job = landmarks_job(data, tmp_path / "runs", data={"exclude": []}, landmarks=section)
    folder = run_job(job).folder
    selection = content(folder, "selection.json")
    assert set(selection["landmarks"]) <= {f"k{j}" for j in range(30)}
    narrow = {name: own[name] for name in ("id", *selection["landmarks"])}
    predictions = predicted(
        folder, write_rows(tmp_path / "narrow", narrow), tmp_path / "out.parquet"
    )
    assert np.mean((predictions - columns["y"]) ** 2) < 0.4 * columns["y"].var()
    assert not content(folder, "metrics.json")["baselines"]
