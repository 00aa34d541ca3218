"""Jobs of learning with similarities, from spec to report and prediction."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, roc_auc_score

from distfms.data.rows.folds import assign_parts
from distfms.errors import DataError, SpecError
from distfms.estimators.inputs import of_files, of_memory
from distfms.methods.landmarks import references
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import SampleReader
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from distfms.stats.base import merge_tree
from distfms.stats.codec import decode
from tests.e2e.jobs import content
from tests.e2e.landmarks_jobs import N, landmarks_job, smooth_rows, task_job
from tests.e2e.sequence_jobs import write_rows
from tests.reference import landmarks as literal

JOBS = Path(__file__).resolve().parents[2] / "jobs"


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
    folder = run
    selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
    assert selection["task"] == "regression"
    assert len(selection["landmarks"]) == len(selection["order"]) == 60
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
    centre, mean = K[train].mean(axis=0), y[train].mean()
    A, b = K[train] - centre, y[train] - mean
    norm = literal.embedding("gaussian", Z[chosen], Z[chosen], {"sigma": sigma})
    gram = A.T @ A + selection["ridge"] * len(A) * (norm + 1e-6 * np.eye(60))
    wanted = (K - centre) @ np.linalg.solve(gram, A.T @ b) + mean
    for rows, part in (("train", train), ("test", ~train)):
        mse = np.mean((wanted[part] - y[part]) ** 2)
        assert metrics[rows]["mse"] == pytest.approx(mse, rel=1e-5)
    assert metrics["test"]["mse"] < 0.2 * y.var()
    found = predicted(folder, data, tmp_path / "out.parquet")
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    # The smaller models are in the folder too.
    few = predicted(folder, data, tmp_path / "few.parquet", budget=25)
    error = np.mean((few[~train] - y[~train]) ** 2)
    curve = metrics["curves"][0]["points"]
    assert [point["budget"] for point in curve] == [1, 2, 5, 10, 20, 50, 60]
    assert error == pytest.approx(curve[4]["test"]["mse"], rel=1e-6)
    with pytest.raises(SpecError, match="smallest model of this run has 1"):
        predict_file(folder, str(data), tmp_path / "none.parquet", budget=0)
    # Kernel regression on all training rows.
    all_rows = literal.embedding("gaussian", Z[~train], Z[train], {"sigma": sigma})
    reference = np.mean((literal.kernel_regression(all_rows, y[train]) - y[~train]) ** 2)
    entry = metrics["baselines"]["kernel regression, gaussian"]
    assert entry["test"]["mse"] == pytest.approx(reference, rel=1e-9)
    assert entry["test"]["n_train"] == train.sum()
    # The columns themselves, and none of them.
    references = [metrics["baselines"][name]["test"] for name in ("mean", "ridge on the columns")]
    assert references[0]["mse"] == pytest.approx(np.mean((y[~train] - mean) ** 2))
    model = RidgeCV(np.logspace(-6, 2, 17) * train.sum()).fit(Z[train], y[train])
    wanted = np.mean((model.predict(Z[~train]) - y[~train]) ** 2)
    assert references[1]["mse"] == pytest.approx(wanted, rel=1e-2)  # leaves rows out
    assert metrics["linear"]["behind"] < -metrics["linear"]["standard_error"] < 0
    assert "linear model" not in (folder / "report.html").read_text().partition("</h1>")[0]
    assert "still" in " ".join(content(folder, "manifest.json")["notes"])


@pytest.mark.parametrize("most", [10**6, 100])
def test_kernel_regression_compares_with_all_training_rows(
    data, columns, tmp_path, monkeypatch, most
):
    monkeypatch.setattr(references, "_MOST_PAIRS", most)
    own = {"landmarks": 20, "sample": 50, "similarity": "manhattan", "ridge": 1.0}
    rows = {"folds": 2, "max_partition_rows": 90}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=own, data=rows)).folder
    found = content(folder, "metrics.json")["baselines"]["kernel regression, manhattan"]
    sample = decode((folder / "statistics" / "landmarks.step").read_bytes()).sample
    parts = assign_parts(np.array(columns["id"], object), n_folds=2, test=0.25, seed=0)
    X, y = np.column_stack([columns[f"x{j}"] for j in range(3)]), columns["y"]
    Z = (X - X[parts < 2].mean(axis=0)) / X[parts < 2].std(axis=0)
    errors = []
    for part, train in ((-1, parts < 2), (0, parts == 1), (1, parts == 0)):
        judged = [int(name[1:]) for name in sample.parts[part].ids[:50]]
        with_all = np.flatnonzero(train)
        if most == 100:
            others = sample.train() if part < 0 else sample.parts[1 - part]
            with_all = [int(name[1:]) for name in others.ids]
        K = literal.embedding("manhattan", Z[judged], Z[with_all], {})
        errors.append(np.mean((literal.kernel_regression(K, y[with_all]) - y[judged]) ** 2))
        assert len(judged) == 50
    assert found["test"]["mse"] == pytest.approx(errors[0], rel=1e-9)
    assert found["validation"]["mse"] == pytest.approx(np.mean(errors[1:]), rel=1e-9)
    assert found["test"]["n_train"] == (parts < 2).sum()


def test_what_is_linear_is_said_to_be_so(tmp_path):
    rows = smooth_rows()
    rows["y"] = 1000.0 + rows["x0"] - rows["x1"] + 0.5 * np.random.default_rng(1).normal(size=N)
    data = write_rows(tmp_path / "rows", rows)
    wide = {"name": "gaussian", "sigma": 100.0}
    own = {"similarity": ["linear", wide], "landmarks": 15}
    job = landmarks_job(data, tmp_path / "runs", data={"test": 0.0}, landmarks=own)
    folder = run_job(job).folder
    report = (folder / "report.html").read_text()
    assert "; a linear model on the columns is within one standard error" in report
    notes = " ".join(content(folder, "manifest.json")["notes"])
    assert re.search(r"best in cross-validation; within one standard error: [a-z]+", notes)
    # Products with rows add up to next to nothing, and to less than nothing.
    assert re.search(r"Above the chart: .*kernel regression, linear \(", report)
    few = landmarks_job(data, tmp_path / "runs", landmarks={"landmarks": 3})
    folder = run_job(few).folder
    report = (folder / "report.html").read_text()
    assert "; a linear model on the columns is better and LightGBM is better" in report
    metrics = content(folder, "metrics.json")
    trees, folds = metrics["baselines"]["LightGBM"], metrics["folds"]
    away = [one["mse"] - other["mse"] for one, other in zip(folds, trees["folds"], strict=True)]
    mean = np.average(away, weights=[own["weight"] for own in folds])
    beside = metrics["beside"]["LightGBM"]
    assert beside["behind"] == pytest.approx(mean)
    assert mean > beside["standard_error"] > 0


def test_boosted_trees_say_how_many_rows_they_learned_from(data, tmp_path, monkeypatch):
    monkeypatch.setattr(references, "MOST_VALUES", 4 * 40)  # of four columns
    own = {"landmarks": 5, "baselines": ["lightgbm"]}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=own)).folder
    found = content(folder, "metrics.json")["baselines"]["LightGBM"]
    assert [found[rows]["n_train"] for rows in ("test", "validation")] == [40, 40]


def test_rows_are_taken_by_ids_and_features_alone(tmp_path):
    """Not by targets, nor by where a row is: of a row alone, numpy adds values up differently."""

    def taken(folder):
        form = prepare(landmarks_job(folder, tmp_path / "runs")).job.form
        reader = SampleReader.of(form.source(form.plan({}), form.inputs.train, False), 20)
        samples = [reader(part)["sample"].train() for part in form.inputs.train.partitions]
        return set(merge_tree(samples).values[0])

    rows, rng = smooth_rows(60), np.random.default_rng(3)
    rows |= {f"x{j}": rng.random(60) for j in range(12)} | {"id": [i // 2 for i in range(60)]}
    expected = taken(write_rows(tmp_path / "rows", rows))
    assert taken(write_rows(tmp_path / "alone", rows, 60)) == expected
    assert taken(write_rows(tmp_path / "other", {**rows, "y": rows["y"][::-1]})) == expected


def test_chosen_landmarks_of_the_best_similarity(data, tmp_path):
    own = {"task": "sparse", "similarity": ["linear", "gaussian"], "keep": 12}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=own)).folder
    selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
    assert selection["similarity"] == "gaussian"
    assert len(selection["landmarks"]) == 12
    assert len(set(selection["order"])) == 12
    names = ["gaussian", "linear", "all landmarks"]
    assert [curve["name"] for curve in metrics["curves"]] == names
    # Figure 1a: beside models on all landmarks, and kernel regression.
    alone = run_job(landmarks_job(data, tmp_path, landmarks={"baselines": []})).folder
    (dense,) = content(alone, "metrics.json")["curves"]
    beside = metrics["curves"][2]["points"]
    assert [point["budget"] for point in beside] == [1, 2, 5, 10, 20, 50, 60]
    for rows in ("train", "validation", "test"):
        # The last point of a model's folds is of what the others choose.
        found, wanted = ([p[rows]["mse"] for p in own[:-1]] for own in (beside, dense["points"]))
        assert found == pytest.approx(wanted, rel=1e-9)
    compared = {entry["similarity"]: entry for entry in metrics["candidates"]}
    assert [name for name, entry in compared.items() if entry["chosen"]] == ["gaussian"]
    assert compared["gaussian"]["loss"] < 0.5 * compared["constant"]["loss"]
    points = metrics["curves"][0]["points"]
    errors = [point["train"]["mse"] for point in points]
    assert errors == sorted(errors, reverse=True)
    report = (folder / "report.html").read_text()
    assert "12\u202f" not in report
    for heading in ("Beside other models", "How good the similarities are"):
        assert heading in report
    goodness = report.partition("Share τ")[2].partition("</table>")[0]
    assert goodness.count("<tr") == 2 * len(points) + 7
    chart = report.partition("Error against the number of landmarks")[2].partition("<table")[0]
    for name in (*names, "kernel regression, gaussian"):
        assert name in chart
    # The model needs its 12 landmarks only.
    with np.load(folder / "weights.npz") as arrays:
        assert arrays["landmarks"].shape == (12, 4)
        assert arrays["weights"].shape[1:] == (12, 1)


def test_as_many_landmarks_as_pay(data, tmp_path):
    """The fewest of a ladder whose error on the folds is about the least, or all there may be."""
    own = {"landmarks": "auto"}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=own)).folder
    selection, notes = content(folder, "selection.json"), content(folder, "manifest.json")["notes"]
    kept, most = len(selection["landmarks"]), selection["n_candidates"]
    every = run_job(landmarks_job(data, tmp_path, landmarks={**own, "landmarks": most})).folder
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


def test_landmarks_by_kmeans(data, columns, tmp_path):
    own = {"landmarks_from": "kmeans", "similarity": ["linear", "gaussian"], "landmarks": 15}
    folder = run_job(landmarks_job(data, tmp_path, landmarks=own)).folder
    selection = content(folder, "selection.json")
    assert selection["similarity"] == "gaussian, kmeans"
    X = np.column_stack([columns[f"x{j}"] for j in range(3)])
    sample = decode((folder / "statistics" / "landmarks.step").read_bytes()).sample.train()
    rows = [int(name[1:]) for name in sample.ids]
    Z = (X[rows] - X[rows].mean(axis=0)) / X[rows].std(axis=0)
    wanted = [f"r{rows[i]}" for i in literal.kmeans(Z, 15, 100)]
    assert selection["landmarks"] == wanted
    with pytest.raises(SpecError, match="kmeans` cannot be used: the features are similarities"):
        run_job(landmarks_job(data, tmp_path, landmarks={**own, "similarity": "precomputed"}))


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


def test_each_fold_has_a_metric_of_its_own(tmp_path):
    columns = smooth_rows()
    more = np.random.default_rng(1).normal(size=(N, 5))
    columns |= {f"n{j}": values for j, values in enumerate(more.T)}
    data = write_rows(tmp_path / "rows", columns)
    own = {"landmarks": 30, "metric": "diagonal", "baselines": [], "clip": True}
    job = landmarks_job(data, tmp_path / "learned", data={"folds": 2}, landmarks=own)
    folder = run_job(job).folder
    selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
    weights = selection["metric"]["weights"]
    assert set(list(weights)[:3]) == {"x0", "x1", "x2"}
    assert sum(list(weights.values())[:3]) > 0.9
    features = [f"x{j}" for j in range(3)] + [f"n{j}" for j in range(5)]
    X, y = np.column_stack([columns[name] for name in features]), columns["y"]
    parts = assign_parts(np.array(columns["id"], object), n_folds=2, test=0.25, seed=0)
    assert content(folder, "model.json")["range"] == [y[parts < 2].min(), y[parts < 2].max()]
    report = (folder / "report.html").read_text()
    for text in ("(diagonal metric) explain", "that it did not learn from"):
        assert text in report
    # Each fold is judged by a model under the metric that the other rows taught.
    Z = (X - X[parts < 2].mean(axis=0)) / X[parts < 2].std(axis=0)
    maps = decode((folder / "statistics" / "candidates.step").read_bytes()).maps
    errors = []
    for part in ("", "@0", "@1"):
        train = parts < 2 if not part else parts == 1 - int(part[1])
        judged = parts == 2 if not part else parts == int(part[1])
        mapping = maps[f"gaussian{part}"]
        Y = Z * mapping.transform
        marks = Y[[int(name[1:]) for name in selection["landmarks"]]]
        sigma = dict(mapping.similarity.parameters)
        K, norm = (literal.embedding("gaussian", rows, marks, sigma) for rows in (Y, marks))
        w = literal.ridge_weights(K[train], y[train, None], norm, mapping.ridge)[:, 0]
        f = (K - K[train].mean(axis=0)) @ w + y[train].mean()
        f = np.clip(f, y[parts < 2].min(), y[parts < 2].max())
        errors.append(np.mean((f[judged] - y[judged]) ** 2))
    assert metrics["test"]["mse"] == pytest.approx(errors[0], rel=1e-5)
    assert np.any(maps["gaussian@0"].transform != maps["gaussian@1"].transform)


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
    found = predicted(folder, write_rows(tmp_path / "narrow", narrow), tmp_path / "out.parquet")
    assert np.mean((found - columns["y"]) ** 2) < 0.4 * columns["y"].var()
    assert content(folder, "metrics.json")["baselines"].keys() == {"all landmarks", "mean"}


# --- other losses -------------------------------------------------------------------------------


#: Algorithm 2, to a gap that some thousand steps reach.
STEPS = {"selection": "steps", "bound": 40.0, "tolerance": 0.1}


@pytest.mark.parametrize(
    ("task", "target", "section"),
    [
        ("ordinal", "level", {}),
        ("ordinal", "level", {"spacing": 0.2, "similarity": ["gaussian", "linear"]}),
        ("ordinal", "level", {"loss": "all_margins"}),
        ("classification", "high", {}),
        ("classification", "level", {"loss": "hinge", "smoothing": 0.5}),
        ("regression", "y", {"loss": "epsilon_insensitive", "epsilon": 0.05}),
        ("sparse", "y", {"loss": "epsilon_insensitive", "smoothing": 0.5, "keep": 20}),
        ("sparse", "y", {"loss": "epsilon_insensitive", "keep": 20, **STEPS}),
    ],
)
def test_losses_by_passes(data, columns, tmp_path, task, target, section):
    own = columns
    one = run_job(task_job(data, tmp_path / "one", task, target, **section))
    selection, metrics = (content(one.folder, f"{n}.json") for n in ("selection", "metrics"))
    if "selection" not in section:
        assert [fit["sizes"] for fit in selection["fits"]] == [2, 5, 10, 20]
        assert all(fit["status"] == "converged" for fit in selection["fits"])
        assert all(fit["gap"] <= fit["tolerance"] for fit in selection["fits"])
    else:
        assert (len(selection["landmarks"]) <= 20, selection["n_steps"] > 5) == (True, True)
    assert len(metrics["folds"]) == 2
    measure = "error" if task == "classification" else "mae"
    assert metrics["measure"] == measure
    for name, entry in metrics["baselines"].items():
        if name.startswith("kernel"):
            assert metrics["test"][measure] < entry["test"][measure]
    # The predictions of each model are those that were judged.
    parts = assign_parts(np.array(own["id"], object), n_folds=2, test=0.25, seed=0)
    truth = own[target][parts == 2]
    rank = {value: i for i, value in enumerate(sorted(set(own[target])))}
    for point in metrics["curves"][0]["points"]:
        predict_file(one.folder, str(data), tmp_path / "out.parquet", budget=point["budget"])
        table = pq.read_table(tmp_path / "out.parquet").to_pydict()
        by_id = dict(zip(table["id"], table[f"predicted_{target}"], strict=True))
        found = np.array([by_id[name] for name in own["id"]])[parts == 2]
        away = found - truth
        if target != "y":
            away = np.array([rank[f] - rank[t] for f, t in zip(found, truth, strict=True)])
        wanted = np.mean(away != 0) if task == "classification" else np.mean(np.abs(away))
        assert point["test"][measure] == pytest.approx(wanted)
    assert metrics["test"][measure] == point["test"][measure]
    if target != "y":
        assert metrics["classes"]["confusion"] == confusion_matrix(truth, found).tolist()
        recall = balanced_accuracy_score(truth, found)
        assert metrics["test"]["balanced_accuracy"] == pytest.approx(recall)
        page = (one.folder / "report.html").read_text()
        assert ("AUROC" in page, "true value" in page) == (True, False)


def test_classes_in_text(columns, tmp_path):
    numbers = np.unique(columns["level"], return_inverse=True)[1]
    texts = np.array([f"class {number}" for number in numbers])
    folders, found = [], []
    for i, values in enumerate((numbers, texts)):
        data = write_rows(tmp_path / f"{i}", {**columns, "level": values})
        folders.append(run_job(task_job(data, tmp_path, "classification", "level")).folder)
        predict_file(folders[-1], str(data), tmp_path / f"{i}.parquet")
        found.append(pq.read_table(tmp_path / f"{i}.parquet")["predicted_level"].to_pylist())
    of_numbers, of_texts = (content(folder, "metrics.json") for folder in folders)
    assert of_texts["test"] == of_numbers["test"]
    assert content(folders[1], "selection.json")["classes"] == np.unique(texts).tolist()
    assert found[1] == [f"class {number:g}" for number in found[0]]
    table = pq.read_table(tmp_path / "1.parquet")
    shares = np.array([table[f"probability_{name}"] for name in np.unique(texts)])
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    by_id = dict(zip(table["id"].to_pylist(), shares.T, strict=True))
    ids = np.array(columns["id"], object)
    test = assign_parts(ids, n_folds=2, test=0.25, seed=0) == 2
    own = np.array([by_id[name] for name in ids[test]])
    area = roc_auc_score(numbers[test], own, multi_class="ovr")
    classes = of_texts["classes"]
    assert classes["auroc"] == pytest.approx(area, abs=classes["auroc_error"])
    assert classes["names"] == np.unique(texts).tolist()
    assert np.unique(texts)[shares.argmax(axis=0)].tolist() == found[1]


# --- embedded data ------------------------------------------------------------------------------


def test_the_embedded_jobs(tmp_path):
    settings = [f"output={tmp_path}", "data.folds=2", "landmarks.landmarks=40"]
    settings.append("landmarks.metric=none")
    folder = run_job(load_spec(JOBS / "landmarks-digits.yaml", settings)).folder
    metrics = content(folder, "metrics.json")
    linear = metrics["baselines"]["linear model on the columns"]
    assert linear["train"]["error"] < 0.04
    for rows in ("validation", "test"):
        error = metrics["curves"][0]["points"][-1][rows]["error"]
        assert error <= linear[rows]["error"] < metrics["baselines"]["constant"][rows]["error"]
    settings = [f"output={tmp_path}", "data.folds=2", "landmarks.landmarks=20"]
    folder = run_job(load_spec(JOBS / "landmarks-wine.yaml", settings)).folder
    assert content(folder, "metrics.json")["test"]["mae"] < 0.15
    assert "mean absolute error" in (folder / "report.html").read_text()


@pytest.mark.parametrize(("landmarks", "n_rows"), [(50, [40_000]), (500, [34_359, 5641])])
def test_rows_that_cost_much_make_small_partitions(landmarks, n_rows, tmp_path):
    path, rows = tmp_path / "rows.parquet", np.random.default_rng(0).normal(size=(40_000, 2))
    table = pa.table({"x": rows[:, 0], "y": rows[:, 1]})
    pq.write_table(table, path, row_group_size=34_359)
    spec = build_spec(
        {
            "name": "costly",
            "method": "landmarks",
            "data": {"path": str(path), "target": "y"},
            "landmarks": {"landmarks": landmarks},
            "output": str(tmp_path / "runs"),
        }
    )
    given = (of_files(path), of_memory(table, None, {}))
    datasets = [own.within(spec.partition_rows) for own in given]
    for own in (prepare(spec).job.inputs.train, *datasets):
        assert [partition.n_rows for partition in own.partitions] == n_rows
