"""Jobs of learning with similarities, from spec to report and prediction."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.data.folds import assign_parts
from distfms.errors import DataError, SpecError
from distfms.methods import passes
from distfms.runs import context as run_context
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.predict import predict_file
from tests.e2e.sequence_jobs import content, mixed_rows, write_rows
from tests.reference import landmarks as literal

JOBS = Path(__file__).resolve().parents[2] / "jobs"
N = 400


def smooth_rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 3, size=(n, 3))
    y = 20 + 5 * np.exp(-((X - 1) ** 2).sum(axis=1)) + 0.05 * rng.normal(size=n)
    columns = {f"x{j}": X[:, j] for j in range(3)}
    return {"id": [f"r{i}" for i in range(n)], **columns, "still": np.full(n, 2.0), "y": y}


@pytest.fixture(scope="module")
def columns():
    return smooth_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("smooth") / "rows", columns)


def spec(data, output, /, **changes):
    content = {
        "name": "smooth",
        "method": "landmarks",
        "data": {"path": str(data), "target": "y", "id": "id", "folds": 4, "test": 0.25},
        "landmarks": {"similarity": "gaussian", "landmarks": 60},
        "engine": {"workers": 1},
        "output": str(output),
    }
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value} if isinstance(value, dict) else value
    return build_spec(content)


def files_of(folder):
    names = ("selection.json", "metrics.json", "model.json", "weights.npz")
    return {name: (folder / name).read_bytes() for name in names}


def predicted(folder, data, out, **options):
    predict_file(folder, str(data), out, **options)
    table = pq.read_table(out).to_pydict()
    return np.array(
        [dict(zip(table["id"], table["predicted_y"], strict=True))[f"r{i}"] for i in range(N)]
    )


def test_a_model_on_all_landmarks(data, columns, tmp_path):
    folder = run_job(spec(data, tmp_path)).folder
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
    gram = A.T @ A + 1e-6 * np.mean(np.diag(A.T @ A)) * np.eye(60)
    wanted = (K - centre) @ np.linalg.solve(gram, A.T @ b) + mean
    for rows, part in (("train", train), ("test", ~train)):
        mse = np.mean((wanted[part] - y[part]) ** 2)
        assert metrics[rows]["mse"] == pytest.approx(mse, rel=1e-6)
    assert metrics["test"]["mse"] < 0.2 * y.var()
    found = predicted(folder, data, tmp_path / "out.parquet")
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
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
    assert "still" in " ".join(content(folder, "manifest.json")["notes"])


def test_chosen_landmarks_of_the_best_similarity(data, tmp_path):
    own = {"task": "sparse", "similarity": ["linear", "gaussian"], "keep": 12}
    folder = run_job(spec(data, tmp_path, landmarks=own)).folder
    selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
    assert selection["similarity"] == "gaussian"
    assert len(selection["landmarks"]) == 12
    assert len(set(selection["order"])) == 12
    assert [curve["name"] for curve in metrics["curves"]] == ["gaussian", "linear"]
    compared = content(folder, "similarities.json")
    assert compared["best"] == "gaussian"
    assert compared["errors"]["gaussian"] < compared["errors"]["linear"]
    points = metrics["curves"][0]["points"]
    assert compared["errors"]["gaussian"] == pytest.approx(points[-1]["validation"]["mse"])
    errors = [point["train"]["mse"] for point in points]
    assert errors == sorted(errors, reverse=True)
    report = (folder / "report.html").read_text()
    assert "12\u202f" not in report
    for heading in ("Error and number of landmarks", "How good the similarities are"):
        assert heading in report
    # The model needs its 12 landmarks only.
    with np.load(folder / "weights.npz") as arrays:
        assert arrays["landmarks"].shape == (12, 4)
        assert arrays["weights"].shape[1:] == (12, 1)


def test_landmarks_of_a_table_and_of_rows_without_a_target(columns, tmp_path):
    gaps = {**columns, "y": np.where(np.arange(N) % 3 == 0, np.nan, columns["y"])}
    data = write_rows(tmp_path / "rows", gaps)
    own = {name: columns[name][:25] for name in ("x0", "x1", "x2", "still")}
    table = write_rows(tmp_path / "table", own, n_files=2)
    known = {"missing": "mean", "unlabelled_path": str(table)}
    job = spec(data, tmp_path, data=known, landmarks={"landmarks": None})
    one = run_job(job).folder
    assert sorted(content(one, "selection.json")["landmarks"]) == list(range(25))
    with np.load(one / "weights.npz") as arrays:
        found = np.sort(arrays["landmarks"][:, 0])
    np.testing.assert_array_equal(found, np.sort(own["x0"]))
    two = spec(data, tmp_path / "two", data=known, landmarks={"landmarks": None})
    engine = two.engine.model_copy(update={"workers": 2, "processes": True})
    assert files_of(run_job(dataclasses.replace(two, engine=engine)).folder) == files_of(one)
    write_rows(table, {name: values + 1.0 for name, values in own.items()}, n_files=2)
    assert run_job(job).folder != one  # another table is another job
    section = {"unlabelled": True, "landmarks": 150}
    every = run_job(spec(data, tmp_path, data={"missing": "drop"}, landmarks=section)).folder
    chosen = [int(name[1:]) for name in content(every, "selection.json")["landmarks"]]
    assert 20 < sum(i % 3 == 0 for i in chosen) < 80
    with pytest.raises(DataError, match=r"There are 25 rows to take landmarks from in .*table"):
        run_job(spec(data, tmp_path, data=known, landmarks={"landmarks": 30}))


def test_landmarks_far_from_one_another_and_float32(data, tmp_path):
    found = {}
    for choice in ("random", "spread"):
        section = {"choice": choice, "landmarks": 20}
        folder = run_job(spec(data, tmp_path, landmarks=section)).folder
        with np.load(folder / "weights.npz") as arrays:
            points = arrays["landmarks"][:, :3]
        pairs = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(20) * 1e9
        found[choice] = pairs.min(axis=1).mean()
    assert found["spread"] > 1.2 * found["random"]
    section = {"precision": "float32", "ridge": 1e-3}
    errors = []
    for precision in ("float32", "float64"):
        section = {"precision": precision, "ridge": 1e-3, "task": "sparse"}
        folder = run_job(spec(data, tmp_path, landmarks=section)).folder
        errors.append(content(folder, "metrics.json")["test"]["mse"])
        with np.load(folder / "weights.npz") as arrays:
            assert arrays["single"] == (precision == "float32")
    assert errors[0] == pytest.approx(errors[1], rel=1e-2)
    assert errors[0] != errors[1]


def test_tuning_of_the_number_of_candidates(data, tmp_path):
    section = {"task": "sparse", "keep": 5, "similarity": ["linear", "gaussian"]}
    tune = {"grid": {"landmarks": [5, 20, 60], "keep": [2, 5]}}
    folder = run_job(spec(data, tmp_path, landmarks=section, tune=tune)).folder
    tuning, selection = (content(folder, f"{n}.json") for n in ("tuning", "selection"))
    n_candidates = tuning["chosen"]["landmarks"]
    assert selection["n_candidates"] == n_candidates
    # A job of so many landmarks finds the same.
    alone = {**section, **tuning["chosen"], "similarity": "gaussian"}
    other = run_job(spec(data, tmp_path / "alone", landmarks=alone)).folder
    assert content(other, "selection.json")["order"] == selection["order"]
    metrics, own = (content(f, "metrics.json") for f in (other, folder))
    assert metrics["test"]["mse"] == pytest.approx(own["test"]["mse"], rel=1e-7)
    validation = next(p["mean"] for p in tuning["points"] if p["options"] == tuning["chosen"])
    means = [point["validation"]["mse"] for point in metrics["curves"][0]["points"]]
    assert means[-1] == pytest.approx(validation, rel=1e-7)


def test_steps_of_algorithm_2(data, tmp_path):
    own = {"task": "sparse", "refit": False, "bound": 60.0, "keep": 20, "tolerance": 0.02}
    tune = {"grid": {"bound": [1.0, 60.0]}}
    folder = run_job(spec(data, tmp_path, landmarks=own, tune=tune)).folder
    selection, metrics = (content(folder, f"{n}.json") for n in ("selection", "metrics"))
    assert content(folder, "tuning.json")["chosen"] == {"bound": 60.0}
    assert len(selection["landmarks"]) <= 20
    assert selection["n_steps"] > len(selection["landmarks"])
    with np.load(folder / "weights.npz") as arrays:
        assert np.abs(arrays["weights"][-1]).sum() <= 60.0 * (1 + 1e-9)
    refitted = run_job(spec(data, tmp_path, landmarks={"task": "sparse", "keep": 20})).folder
    assert content(refitted, "metrics.json")["train"]["mse"] < metrics["train"]["mse"]
    assert metrics["test"]["r2"] > 0.5


def test_the_same_bits_on_two_workers_in_processes_and_from_the_cache(data, tmp_path):
    whole = files_of(run_job(spec(data, tmp_path / "a")).folder)
    threads = spec(data, tmp_path / "b", engine={"workers": 2})
    assert files_of(run_job(threads).folder) == whole
    processes = spec(data, tmp_path / "c", engine={"workers": 2, "processes": True})
    assert files_of(run_job(processes).folder) == whole
    again = run_job(spec(data, tmp_path / "b", engine={"workers": 2}))
    assert files_of(again.folder) == whole
    assert sum(s.get("n_read", 0) for s in content(again.folder, "manifest.json")["stages"]) == 0


def test_landmarks_do_not_depend_on_how_rows_are_divided(columns, data, tmp_path):
    order = np.random.default_rng(1).permutation(N)
    other = {name: np.array(values, dtype=object)[order] for name, values in columns.items()}
    other = {n: v.tolist() if n == "id" else v.astype(float) for n, v in other.items()}
    shuffled = write_rows(tmp_path / "shuffled", other, n_files=2)
    folders = [
        run_job(spec(rows, tmp_path / f"{i}")).folder for i, rows in enumerate((data, shuffled))
    ]
    one, two = (content(folder, "selection.json") for folder in folders)
    assert one["landmarks"] == two["landmarks"]
    errors = [content(folder, "metrics.json")["test"]["mse"] for folder in folders]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)


def test_tuning_of_the_number_of_landmarks_and_of_the_bound(data, tmp_path):
    tune = {"grid": {"keep": [2, 10, 60], "bound": [1.0, 1000.0], "ridge": [1e-6, 1.0]}}
    folder = run_job(spec(data, tmp_path, tune=tune)).folder
    tuning = content(folder, "tuning.json")
    assert tuning["chosen"] == {"keep": 60, "bound": 1000.0, "ridge": 1e-6}
    assert len(content(folder, "selection.json")["landmarks"]) == 60
    stages = content(folder, "manifest.json")["stages"]
    assert sum(s.get("n_read", 0) for s in stages) == 2 * 3  # a sample, then similarities


def test_precomputed_similarities(columns, tmp_path):
    X = np.column_stack([columns[f"x{j}"] for j in range(3)])
    K = literal.embedding("gaussian", X, X[:30], {"sigma": 1.5})
    own = {"id": columns["id"], "y": columns["y"]} | {f"k{j}": K[:, j] for j in range(30)}
    data = write_rows(tmp_path / "rows", own)
    folder = run_job(
        spec(
            data,
            tmp_path / "runs",
            landmarks={
                "similarity": "precomputed",
                "landmarks": None,
                "task": "sparse",
                "keep": 10,
            },
        )
    ).folder
    selection = content(folder, "selection.json")
    assert set(selection["landmarks"]) <= {f"k{j}" for j in range(30)}
    narrow = {name: own[name] for name in ("id", *selection["landmarks"])}
    found = predicted(folder, write_rows(tmp_path / "narrow", narrow), tmp_path / "out.parquet")
    assert np.mean((found - columns["y"]) ** 2) < 0.4 * columns["y"].var()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"landmarks": 350}, r"landmarks\.landmarks` is 350: choose at most 3\d\d"),
        (
            {"similarity": "tests.e2e.test_landmarks:broken"},
            r"part-\d\.parquet, row group.* failed: ValueError: broken",
        ),
    ],
)
def test_bad_data_and_functions(data, tmp_path, section, message):
    with pytest.raises(DataError, match=message):
        run_job(spec(data, tmp_path, landmarks=section))
    assert not list((tmp_path / "smooth").glob("*/selection.json"))


def broken(rows, landmarks):
    raise ValueError("broken")


def near(rows, landmarks):
    """A function of the user's: 1 where the first features differ by less than 0.5."""
    return (np.abs(rows[:, :1] - landmarks[:, 0]) < 0.5) * 1.0


def narrow(rows, landmarks):
    return np.ones((len(rows), 1))


def undefined(rows, landmarks):
    found = near(rows, landmarks)
    found[0, 2] = np.nan
    return found


@pytest.mark.parametrize(
    ("name", "section", "message"),
    [
        ("broken", {}, "failed: ValueError: broken"),
        ("narrow", {}, r"returned an array of shape \(\d+, 1\)"),
        ("undefined", {"loss": "epsilon_insensitive"}, "returned nan for row 0 of a block"),
    ],
)
def test_functions_that_fail_in_processes_name_the_partition(
    data, tmp_path, monkeypatch, name, section, message
):
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    own = {"similarity": f"tests.e2e.test_landmarks:{name}", **section}
    job = spec(data, tmp_path, landmarks=own, engine={"workers": 2, "processes": True})
    with pytest.raises(DataError, match=rf"part-\d\.parquet, row group.* {message}"):
        run_job(job)
    assert not list((tmp_path / "smooth").glob("*/selection.json"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"landmarks": {"similarity": "gausian"}}, "there is no similarity `gausian`"),
        (
            {"landmarks": {"similarity": {"name": "linear", "sigma": 2.0}}},
            "no parameter of `linear`",
        ),
        ({"landmarks": {"similarity": ["linear", "linear"]}}, "the same similarity twice"),
        ({"landmarks": {"refit": False}}, "`refit: false` is for the task `sparse`"),
        ({"landmarks": {"task": "sparse", "refit": False}}, "needs a `bound`"),
        ({"landmarks": {"keep": 61}}, "`keep` is 61, and there are 60 landmarks"),
        ({"landmarks": {"similarity": ["linear", "precomputed"]}}, "`precomputed` beside others"),
        ({"landmarks": {"similarity": ["linear", "cosine"]}, "data": {"folds": 0}}, "at least 2"),
        ({"landmarks": {"similarity": "tests.nowhere:f"}}, "cannot be imported"),
        ({"data": {"target": ["y", "still"]}}, "landmarks predict one"),
        ({"tune": {"grid": {"landmarks": [10, 90]}}}, r"grid.landmarks\[1\]` is 90, and what is"),
    ],
)
def test_bad_specs(data, tmp_path, changes, message):
    with pytest.raises(SpecError, match=message):
        run_job(spec(data, tmp_path, **changes))
    assert not (tmp_path / "smooth").exists()


def test_the_embedded_job(tmp_path):
    folder = run_job(load_spec(JOBS / "landmarks-diabetes.yaml", [f"output={tmp_path}"])).folder
    metrics = content(folder, "metrics.json")
    references = [
        e["test"]["mse"] for n, e in metrics["baselines"].items() if n.startswith("kernel")
    ]
    assert metrics["test"]["mse"] < min(references)


# --- other losses -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def levels(columns, tmp_path_factory):
    """The same rows with levels 1, 2, 4 in place of the numbers, and two classes."""
    y = columns["y"]
    cuts = np.quantile(y, [0.4, 0.75])
    level = np.array([1.0, 2.0, 4.0])[np.searchsorted(cuts, y)]
    own = {**columns, "level": level, "high": (y > cuts[0]) * 1}
    return write_rows(tmp_path_factory.mktemp("levels") / "rows", own), own


def classes_spec(data, output, task, target, **section):
    left = [name for name in ("y", "level", "high") if name != target]
    left = left if "levels" in str(data) else ["y"]
    own = {"task": task, "similarity": "gaussian", "landmarks": 30, **section}
    rows = {"target": target, "exclude": left, "folds": 2}
    return spec(data, output, data=rows, landmarks=own)


@pytest.mark.parametrize(
    ("task", "target", "section"),
    [
        ("ordinal", "level", {}),
        ("ordinal", "level", {"spacing": 0.2, "similarity": ["gaussian", "linear"]}),
        ("classification", "high", {}),
        ("classification", "level", {"loss": "hinge", "smoothing": 0.1}),
        ("regression", "y", {"loss": "epsilon_insensitive", "epsilon": 0.05}),
        ("sparse", "y", {"loss": "epsilon_insensitive", "smoothing": 0.5, "keep": 30}),
    ],
)
def test_losses_by_passes(levels, tmp_path, task, target, section):
    data, own = levels
    one = run_job(classes_spec(data, tmp_path / "one", task, target, **section))
    selection, metrics = (content(one.folder, f"{n}.json") for n in ("selection", "metrics"))
    assert [fit["sizes"] for fit in selection["fits"]] == [5, 10, 20, 30]
    assert all(fit["status"] == "converged" for fit in selection["fits"])
    assert all(fit["gradient_norm"] <= fit["tolerance"] for fit in selection["fits"])
    assert len(metrics["folds"]) == 2
    measure = "error" if task == "classification" else "mae"
    assert metrics["measure"] == measure
    for name, entry in metrics["baselines"].items():
        if name.startswith("kernel"):
            assert metrics["test"][measure] < entry["test"][measure]
    # The predictions of the whole model are those that were judged.
    predict_file(one.folder, str(data), tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    by_id = dict(zip(table["id"], table[f"predicted_{target}"], strict=True))
    found = np.array([by_id[name] for name in own["id"]])
    parts = assign_parts(np.array(own["id"], object), n_folds=2, test=0.25, seed=0)
    test = parts == 2
    if target == "y":
        wanted = np.mean(np.abs(found - own[target])[test])
    else:
        assert set(found) <= set(own[target])
        rank = {value: i for i, value in enumerate(sorted(set(own[target])))}
        away = np.array([rank[f] - rank[t] for f, t in zip(found, own[target], strict=True)])
        wanted = np.mean(np.abs(away)[test]) if task == "ordinal" else np.mean(away[test] != 0)
    assert metrics["test"][measure] == pytest.approx(wanted)


@pytest.mark.parametrize("target", ["high", "level"])
def test_classes_in_text(levels, tmp_path, target):
    numbers = np.unique(levels[1][target], return_inverse=True)[1]
    texts = np.array([f"class {number}" for number in numbers])
    folders, found = [], []
    for i, values in enumerate((numbers, texts)):
        data = write_rows(tmp_path / f"levels-{i}", {**levels[1], target: values})
        folders.append(run_job(classes_spec(data, tmp_path, "classification", target)).folder)
        predict_file(folders[-1], str(data), tmp_path / f"{i}.parquet")
        found.append(pq.read_table(tmp_path / f"{i}.parquet")[f"predicted_{target}"].to_pylist())
    of_numbers, of_texts = (content(folder, "metrics.json") for folder in folders)
    assert of_texts["test"] == of_numbers["test"]
    assert content(folders[1], "selection.json")["classes"] == np.unique(texts).tolist()
    assert found[1] == [f"class {number:g}" for number in found[0]]
    with pytest.raises(DataError, match="must hold numbers"):
        run_job(classes_spec(tmp_path / "levels-1", tmp_path, "ordinal", target))


def test_the_same_bits_by_passes_whoever_makes_them(levels, tmp_path, monkeypatch):
    data, _ = levels
    section = {"loss": "epsilon_insensitive", "landmarks": 12}
    whole = files_of(
        run_job(classes_spec(data, tmp_path / "a", "regression", "y", **section)).folder
    )
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    other = classes_spec(data, tmp_path / "b", "regression", "y", **section)
    two = dataclasses.replace(other, engine=other.engine.model_copy(update={"workers": 2}))
    assert files_of(run_job(two).folder) == whole
    monkeypatch.setattr(passes, "keeps_rows", lambda n_bytes: False)
    again = run_job(classes_spec(data, tmp_path / "c", "regression", "y", **section)).folder
    assert files_of(again) == whole


def test_tuning_by_passes(levels, tmp_path):
    data, _ = levels
    job = {"task": "ordinal", "similarity": "gaussian", "landmarks": 30}
    tune = {"grid": {"keep": [3, 30], "gamma": [0.5, 1.0]}, "measure": "mae"}
    exclude = {"target": "level", "exclude": ["y", "high"], "folds": 2}
    folder = run_job(spec(data, tmp_path, data=exclude, landmarks=job, tune=tune)).folder
    tuning = content(folder, "tuning.json")
    assert tuning["chosen"]["keep"] == 30
    assert len(tuning["points"]) == 4


@pytest.mark.parametrize(
    ("section", "error", "message"),
    [
        ({"loss": "hinge"}, SpecError, "does not have the loss `hinge`"),
        ({"levels": [1, 2, 3]}, DataError, r"value 4, which is not among `landmarks\.levels`"),
        ({"levels": [2, 1]}, SpecError, "must ascend"),
    ],
)
def test_bad_levels(levels, tmp_path, section, error, message):
    with pytest.raises(error, match=message):
        run_job(classes_spec(levels[0], tmp_path, "ordinal", "level", **section))


def test_values_that_occur_in_held_out_rows_only(columns, tmp_path):
    parts = assign_parts(np.array(columns["id"], object), n_folds=2, test=0.25, seed=0)
    level = np.where(parts == 2, 3.0, np.arange(N) % 2)
    data = write_rows(tmp_path / "rows", {**columns, "level": level})
    with pytest.raises(DataError, match="occurs in held-out rows only"):
        run_job(classes_spec(data, tmp_path / "runs", "ordinal", "level"))


def test_a_target_that_never_varies(columns, tmp_path):
    data = write_rows(tmp_path / "rows", {**columns, "same": np.full(N, 0.1)})
    spec = classes_spec(data, tmp_path / "runs", "regression", "same")
    with pytest.raises(DataError, match="Target 'same' is constant"):
        run_job(spec)


def test_the_embedded_ordinal_job(tmp_path):
    settings = [f"output={tmp_path}", "data.folds=2", "landmarks.landmarks=20"]
    folder = run_job(load_spec(JOBS / "landmarks-wine.yaml", settings)).folder
    assert content(folder, "metrics.json")["test"]["mae"] < 0.15
    assert "mean absolute error" in (folder / "report.html").read_text()


def test_classes_of_rows_with_categories_gaps_and_weights(tmp_path):
    rows = mixed_rows(300)
    rows["weight"] = np.arange(300) % 3 * 1.0
    rows["high"] = (rows["y"] > np.nanmedian(rows["y"])) * 1.0
    data = write_rows(tmp_path / "rows", rows)
    own = {"target": "high", "exclude": ["y"], "missing": "mean", "weight": "weight", "folds": 2}
    section = {"task": "classification", "landmarks": 25, "ridge": 1e-3}
    folder = run_job(spec(data, tmp_path / "runs", data=own, landmarks=section)).folder
    metrics = content(folder, "metrics.json")
    assert metrics["test"]["error"] < 0.35
    assert "Constant columns play no part: still" in " ".join(
        content(folder, "manifest.json")["notes"]
    )
    predict_file(folder, str(data), tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert set(table["predicted_high"]) == {0.0, 1.0}
    assert sum(n > 0 for n in table["values_missing"]) > 20


def test_the_same_bits_on_ray(ray_session, levels, tmp_path):
    data, _ = levels
    section = {"loss": "epsilon_insensitive", "landmarks": 12}
    for name, own in (("squared", {"landmarks": 12}), ("passes", section)):
        here = classes_spec(data, tmp_path / f"{name}-here", "regression", "y", **own)
        there = classes_spec(data, tmp_path / f"{name}-there", "regression", "y", **own)
        engine = there.engine.model_copy(update={"kind": "ray", "workers": 2})
        there = dataclasses.replace(there, engine=engine)
        assert files_of(run_job(there).folder) == files_of(run_job(here).folder)


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_functions_give_the_same_bits_in_processes_and_on_ray_too(
    ray_session, data, tmp_path, monkeypatch, loss
):
    own = {"similarity": "tests.e2e.test_landmarks:near", "landmarks": 12, "loss": loss}
    here = files_of(run_job(spec(data, tmp_path / "here", landmarks=own)).folder)
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    for engine in ({"workers": 2, "processes": True}, {"kind": "ray", "workers": 2}):
        there = spec(data, tmp_path / engine.get("kind", "local"), landmarks=own, engine=engine)
        assert files_of(run_job(there).folder) == here


def test_functions_that_fail_on_ray_name_the_partition(ray_session, data, tmp_path):
    own = {"similarity": "tests.e2e.test_landmarks:undefined"}
    job = spec(data, tmp_path, landmarks=own, engine={"kind": "ray", "workers": 2})
    with pytest.raises(DataError, match=r"part-\d\.parquet, row group.* returned nan"):
        run_job(job)
