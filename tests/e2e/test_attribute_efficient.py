"""Attribute-efficient regression from a spec to a finished run, against the rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.cli import main
from distfms.data.folds import assign_parts, hash_keys, mix
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient import job as job_module
from distfms.methods.attribute_efficient import read as read_module
from distfms.methods.attribute_efficient.learner import Chain, Design
from distfms.methods.attribute_efficient.lessons import stream
from distfms.runs import context as run_context
from distfms.runs.driver import prepare, run_job
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.predict import predict_file

JOBS = Path(__file__).resolve().parents[2] / "jobs"
N, D = 900, 12
NAMES = [f"x{j}" for j in range(D)]
FILES = ("selection.json", "metrics.json", "model.json", "weights.npz")
SHARES = np.arange(1, D + 1) ** -1.0


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    X = 4.0 * (rng.random((N, D)) < SHARES) * rng.random((N, D))
    X[:, 7] = 0.0
    return X, X @ rng.choice([-0.2, 0.2], size=D)


X, Y = make_rows()
IDS = [f"r{i}" for i in range(N)]


def write(folder: Path, features: np.ndarray = X, target: np.ndarray = Y) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    columns = {name: features[:, j] for j, name in enumerate(NAMES)}
    table = pa.table({**columns, "y": target, "id": IDS})
    for number in range(3):
        pq.write_table(table.slice(number * 300, 300), folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("attributes") / "data")


def spec(path, output, own=None, **changes):
    content = {
        "name": "few",
        "method": "attribute_efficient",
        "data": {"path": str(path), "target": "y", "id": "id", "folds": 3, "test": 0.25},
        "attribute_efficient": {
            "attributes_per_example": 5,
            "repeats": 3,
            "sizes": 3,
            **(own or {}),
        },
        "engine": {"workers": 2},
        "output": str(output),
    }
    return build_spec({**content, **changes})


def read(folder, name):
    return json.loads((Path(folder) / name).read_text())


def contents(folder):
    return {name: (Path(folder) / name).read_bytes() for name in FILES}


PARTS = assign_parts(np.array(IDS), n_folds=3, test=0.25, seed=0)
TRAIN = PARTS < 3


def order(key, own=TRAIN):
    """Rows in the order of learning: by the hash of their ids."""
    rows = np.flatnonzero(own)
    return rows[np.argsort(mix(mix(np.uint64(key)) ^ hash_keys(np.array(IDS))[rows]))]


def literal_design(penalty, sampling, n_examples, own=TRAIN, **more):
    norm = np.linalg.norm(X[own], axis=1).max() if penalty == "ridge" else np.abs(X[own]).max()
    moments = (X[own] ** 2).mean(axis=0)
    bound = np.abs(Y[own]).max()
    return Design(penalty, sampling, D, 5, n_examples, bound, norm, moments, **more)


@pytest.mark.parametrize(
    ("penalty", "algorithm", "sampling"),
    [
        ("ridge", "ddaerr", "moments"),
        ("ridge", "aerr", "uniform"),
        ("ridge", "two_phase_ddaerr", "two_phase"),
        ("lasso", "ddaelr", "moments"),
        ("lasso", "two_phase_ddaelr", "two_phase"),
    ],
)
def test_the_model_is_that_of_the_rows(data, tmp_path, penalty, algorithm, sampling):
    own = {"penalty": penalty, "algorithm": algorithm, "repeats": 2}
    folder = run_job(spec(data, tmp_path, own)).folder
    selection, metrics = read(folder, "selection.json"), read(folder, "metrics.json")
    key = stream(0, 0)
    chain = Chain(literal_design(penalty, sampling, int(TRAIN.sum())), stream(key, 0))
    chain.learn(X, Y, order(key))
    weights = np.array([selection["coefficients"][name] for name in NAMES])
    np.testing.assert_allclose(weights, chain.weights, rtol=1e-9, atol=1e-15)
    assert selection["examples"] == TRAIN.sum()
    assert selection["attributes_seen"] == chain.n_seen <= 5 * TRAIN.sum()
    assert read(folder, "manifest.json")["attributes"] == {"observed": chain.n_seen}
    moments = (X[TRAIN] ** 2).mean(axis=0)
    np.testing.assert_allclose(list(selection["second_moments"].values()), moments, rtol=1e-12)
    assert abs(sum(selection["sampling"].values()) - 1.0) < 1e-12
    # Measures, by hand.
    for part, rows in (("train", TRAIN), ("test", ~TRAIN)):
        errors = (X[rows] @ weights - Y[rows]) ** 2
        assert metrics[part]["mse"] == pytest.approx(errors.mean(), rel=1e-9)
        relative = errors.sum() / (Y[rows] ** 2).sum()
        assert metrics[part]["relative_loss"] == pytest.approx(relative, rel=1e-9)
    # The last point of the curve has the model among its repeats.
    assert metrics["curves"][0]["name"] == algorithm
    last = metrics["curves"][0]["points"][-1]
    assert last["repeats"] == 2
    other = 2 * last["relative_loss"] - metrics["test"]["relative_loss"]
    spread = abs(other - metrics["test"]["relative_loss"]) / 2**0.5
    assert last["deviation"] == pytest.approx(spread, rel=1e-6)


def test_folds_are_learned_without(data, tmp_path):
    folder = run_job(spec(data, tmp_path, {"repeats": 0})).folder
    key = stream(0, 0)
    for entry in read(folder, "metrics.json")["folds"]:
        own = TRAIN & (entry["fold"] != PARTS)
        chain = Chain(literal_design("ridge", "moments", int(own.sum()), own), stream(key, 0))
        chain.learn(X, Y, order(key, own))
        out = entry["fold"] == PARTS
        mse = np.mean((X[out] @ chain.weights - Y[out]) ** 2)
        assert entry["mse"] == pytest.approx(mse, rel=1e-9)
        assert entry["n_rows"] == out.sum()


def test_full_information_and_the_best_weights(data, tmp_path):
    for penalty in ("ridge", "lasso"):
        own = {"penalty": penalty, "bound": 10.0, "baselines": ["online", "offline"]}
        metrics = read(run_job(spec(data, tmp_path / penalty, own)).folder, "metrics.json")
        curves = {curve["name"]: curve["points"] for curve in metrics["curves"]}
        assert set(curves) == {"ddaerr" if penalty == "ridge" else "ddaelr", "online", "offline"}
        for points in (curves["online"], curves["offline"]):
            assert all(p["attributes_seen"] == D * p["examples"] for p in points)
            assert points[-1]["examples"] == TRAIN.sum()
        losses = {name: points[-1]["relative_loss"] for name, points in curves.items()}
        assert losses["offline"] < losses["online"] < 1.0
        assert losses["offline"] < 0.02  # the target is a linear function
        assert curves["offline"][-1]["deviation"] < 1e-12  # whatever the order


#: Chains, repeats and folds that are enough to share out.
SHARED_OUT = {"chains": 3, "repeats": 1, "sizes": 1}


def test_same_bits_everywhere(data, tmp_path, monkeypatch):
    one = spec(data, tmp_path / "alone", SHARED_OUT, engine={"workers": 1})
    alone = contents(run_job(one).folder)
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "keeps_rows", lambda n_bytes: False)
        again = run_job(spec(data, tmp_path / "read again", SHARED_OUT)).folder
    assert contents(again) == alone
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    processes = {"workers": 2, "processes": True}
    found = run_job(spec(data, tmp_path / "actors", SHARED_OUT, engine=processes)).folder
    assert contents(found) == alone


def test_on_ray(ray_session, data, tmp_path, monkeypatch):
    own, section = {"chains": 2, "repeats": 0}, {"path": str(data), "target": "y", "id": "id"}
    expected = contents(run_job(spec(data, tmp_path / "here", own, data=section)).folder)
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    changes = {"data": section, "engine": {"kind": "ray", "workers": 2}}
    assert contents(run_job(spec(data, tmp_path / "ray", own, **changes)).folder) == expected


@pytest.mark.parametrize("window_bytes", [1, 2 * 300 * 8 * 15, 2**28])
def test_chains_share_out_the_rows(data, monkeypatch, window_bytes):
    monkeypatch.setattr(read_module, "WINDOW_BYTES", window_bytes)
    job = prepare(spec(data, "unused", {"chains": 2})).job
    rows = job._rows()
    assert len(rows.windows()) == {1: 3, 2 * 300 * 8 * 15: 2}.get(window_bytes, 1)
    for n_chains in (1, 2, 3):
        found = [
            tuple(values[i])
            for chain in range(n_chains)
            for values, _, own in rows.ordered(7, chain, n_chains, 1)
            for i in own
        ]
        expected = [tuple(row) for row in X[TRAIN & (PARTS != 1)]]
        assert sorted(found) == sorted(expected)
        assert found != expected


def test_chains_are_averaged_by_their_examples(data, tmp_path):
    folder = run_job(spec(data, tmp_path, {"chains": 2, "repeats": 0})).folder
    weights, key, n = np.zeros(D), stream(0, 0), int(TRAIN.sum())
    rows = order(key)
    for chain, own in enumerate((rows[: n // 2], rows[n // 2 :])):
        learner = Chain(literal_design("ridge", "moments", -(-n // 2)), stream(key, chain))
        learner.learn(X, Y, own)
        weights += learner.weights * len(own) / n
    found = list(read(folder, "selection.json")["coefficients"].values())
    np.testing.assert_allclose(found, weights, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("algorithm", ["aerr", "two_phase_ddaerr"])
def test_what_was_not_observed_is_not_used(data, tmp_path, algorithm):
    own = {"algorithm": algorithm, "scale": False, "bound": 9.0, "repeats": 0, "step": 0.003}
    first = run_job(spec(data, tmp_path / "a", own)).folder
    key = stream(0, 0)
    sampling = "uniform" if algorithm == "aerr" else "two_phase"
    design = Design("ridge", sampling, D, 5, int(TRAIN.sum()), 9.0, 1.0, fixed_step=0.003)
    twin, noise = Chain(design, stream(key, 0)), np.random.default_rng(1).random(X.shape)
    noise[~TRAIN] = X[~TRAIN]
    n_seen = 0
    for number, row in enumerate(order(key)):
        attributes, factors = twin.draw(number)
        seen = np.unique(attributes[attributes >= 0])
        n_seen += len(seen)
        noise[row, seen] = X[row, seen]
        twin.learn_drawn(Y[row], X[row, attributes], attributes, factors)
    assert n_seen < 0.45 * TRAIN.sum() * D
    second = run_job(spec(write(tmp_path / "noise", noise), tmp_path / "b", own)).folder
    selections = [read(folder, "selection.json") for folder in (first, second)]
    assert selections[0]["second_moments"] != selections[1]["second_moments"]
    for name in ("coefficients", "attributes_seen", "examples", "sampling"):
        assert selections[0][name] == selections[1][name]
    assert selections[0]["attributes_seen"] == n_seen


def test_tuning(data, tmp_path):
    tune = {"grid": {"step_factor": [0.01, 1.0, 5.0], "bound": [3.0, 30.0]}}
    folder = run_job(spec(data, tmp_path / "a", {"repeats": 0}, tune=tune)).folder
    tuning = read(folder, "tuning.json")
    assert len(tuning["points"]) == 6
    assert tuning["measure"] == "relative_loss"
    chosen = tuning["chosen"]
    same = run_job(spec(data, tmp_path / "b", {"repeats": 0, **chosen})).folder
    assert (
        read(folder, "selection.json")["coefficients"]
        == (read(same, "selection.json")["coefficients"])
    )
    best = min(tuning["points"], key=lambda point: point["mean"])
    folds = [fold["relative_loss"] for fold in read(same, "metrics.json")["folds"]]
    np.testing.assert_allclose(best["folds"], folds)


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_the_intercept_is_the_mean_of_the_training_rows(tmp_path, penalty):
    mean = Y[TRAIN].mean()
    folders = {}
    for name, target in {"plain": Y - mean, "intercept": Y + 100.0}.items():
        own = {"penalty": penalty, "intercept": name == "intercept"}
        job = spec(write(tmp_path / name, target=target), tmp_path / "runs", own, name=name)
        folders[name] = run_job(job).folder
    plain, own = (read(folders[name], "selection.json") for name in ("plain", "intercept"))
    assert (plain["intercept"], own["intercept"]) == (0.0, pytest.approx(mean + 100.0))
    assert own["coefficients"] == pytest.approx(plain["coefficients"], rel=1e-6, abs=1e-9)
    losses, theirs = (read(folders[name], "metrics.json") for name in ("intercept", "plain"))
    for part in ("train", "test"):
        assert losses[part] == pytest.approx(theirs[part], rel=1e-6)
    for curve, other in zip(losses["curves"], theirs["curves"], strict=True):
        found, wanted = ([p["relative_loss"] for p in c["points"]] for c in (curve, other))
        assert found == pytest.approx(wanted, rel=1e-6)
    predict_file(folders["intercept"], str(tmp_path / "intercept"), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
    weights = np.array(list(own["coefficients"].values()))
    np.testing.assert_allclose(found, X @ weights + own["intercept"])


def test_resumed(data, tmp_path, monkeypatch):
    whole = contents(run_job(spec(data, tmp_path / "whole")).folder)
    for method in ("_tell_assumptions", "selection", "metrics"):
        with monkeypatch.context() as patch:
            patch.setattr(job_module.AttributeEfficientJob, method, lambda self, *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run_job(spec(data, tmp_path / method))
        result = run_job(spec(data, tmp_path / method))
        assert result.resumed
        assert contents(result.folder) == whole


def test_prediction_report_and_labels(tmp_path):
    labels = np.where(np.median(Y) < Y, 5.0, 3.0)
    folder = write(tmp_path / "data", target=labels)
    own = {"positive": 5, "image": [3, 4], "step_factor": 3.0}
    run = run_job(spec(folder, tmp_path / "runs", own)).folder
    metrics, selection = read(run, "metrics.json"), read(run, "selection.json")
    assert selection["bound"] == 1.0
    weights = np.array(list(selection["coefficients"].values()))
    signs = np.where(labels == 5, 1.0, -1.0)[~TRAIN]
    accuracy = np.mean((X[~TRAIN] @ weights > 0) == (signs > 0))
    assert metrics["test"]["accuracy"] == pytest.approx(accuracy)
    page = (Path(run) / "report.html").read_text()
    for text in ("improvement ratio", "DDAERR", "AERR", "Relative loss", "<image"):
        assert text in page
    predict_file(run, str(folder), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found["id"] == IDS
    np.testing.assert_allclose(found["predicted_y"], X @ weights, rtol=1e-9, atol=1e-12)
    with pytest.raises(SpecError, match="budget"):
        predict_file(run, str(folder), tmp_path / "out.parquet", budget=3)


def test_missing_values_count_as_the_mean(data, tmp_path):
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    folder = write(tmp_path / "data", holes)
    section = {"path": str(folder), "target": "y", "id": "id", "missing": "mean"}
    run = run_job(spec(folder, tmp_path / "runs", {"repeats": 0}, data=section)).folder
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    weights = np.array(list(read(run, "selection.json")["coefficients"].values()))
    mse = np.mean((filled @ weights - Y) ** 2)
    assert read(run, "metrics.json")["train"]["mse"] == pytest.approx(mse, rel=1e-9)
    with pytest.raises(DataError, match="missing"):
        run_job(spec(folder, tmp_path / "refused"))


def test_check_tells_what_can_be_gained_before_anything_is_paid(data, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(spec(data, tmp_path / "runs").to_yaml())
    with pytest.raises(SystemExit, match="0"):
        main(["check", str(tmp_path / "job.yaml")])
    said = capsys.readouterr().out
    first = TRAIN & (np.arange(N) < 300)
    s = (X[first] ** 2).mean(axis=0)
    ratio = np.sqrt(s).sum() ** 2 / (D * s.sum())
    assert f"improvement ratio: {ratio:.2f}" in said
    assert f"factor of up to {1 / ratio:.1f}" in said
    assert not (tmp_path / "runs").exists()


BAD = [
    ({"attributes_per_example": 13}, {}, "only 12 attributes"),
    ({"attributes_per_example": 1}, {}, "attributes_per_example"),
    ({"algorithm": "aelr"}, {}, "aelr` is no ridge"),
    ({"baselines": ["omp"]}, {}, "no baseline `omp`"),
    ({"bound": 0.1}, {}, "beyond `attribute_efficient.bound`"),
    ({"step": 1.0, "step_factor": 2.0}, {}, "exclude each other"),
    ({"image": [3, 3]}, {}, "9 pixels"),
    ({"positive": 77}, {}, "same label"),
    ({}, {"weight": "x0"}, "data.weight"),
    ({}, {"target": ["y", "x0"]}, "one column as `data.target`"),
    ({}, {"features": ["x7"]}, "only 1 attributes"),
    ({"attributes_per_example": 2}, {"features": ["x7", "zero"]}, "All attributes are 0"),
    ({}, {"id": None}, "holds text"),
]


@pytest.mark.parametrize(("own", "section", "message"), BAD)
def test_bad_input_is_named(tmp_path, own, section, message):
    table = pa.table(
        {**{name: X[:, j] for j, name in enumerate(NAMES)}, "y": Y, "id": IDS, "zero": 0.0 * Y}
    )
    pq.write_table(table, tmp_path / "data.parquet")
    data = {"path": str(tmp_path / "data.parquet"), "target": "y", "id": "id", "exclude": "zero"}
    data = {k: v for k, v in {**data, **section}.items() if v is not None}
    if "features" in section:
        del data["exclude"]
    with pytest.raises((SpecError, DataError), match=message):
        run_job(spec(None, tmp_path / "runs", own, data=data))
    assert not list((tmp_path / "runs").glob("few/*"))


def test_a_bound_to_try_has_to_allow_the_targets(data, tmp_path):
    tune = {"grid": {"bound": [0.1, 3.0]}}
    with pytest.raises(DataError, match="go up to"):
        run_job(spec(data, tmp_path, tune=tune))


def test_large_row_groups_are_summed_in_batches(data, tmp_path):
    job = prepare(spec(data, tmp_path)).job
    reader = job.reader(None, job.inputs.train, False)
    partition = job.inputs.train.partitions[0]
    whole, found = reader(partition), reader.in_batches(replace(partition, batch_rows=100))
    for name in ("norms", "counts"):
        for ours, theirs in zip(found[name].parts, whole[name].parts, strict=True):
            for key, array in theirs.to_arrays().items():
                np.testing.assert_array_equal(ours.to_arrays()[key], array)
    for ours, theirs in zip(found["moments"].parts, whole["moments"].parts, strict=True):
        np.testing.assert_allclose(ours.second_moment, theirs.second_moment, rtol=1e-12)


def test_large_row_groups_are_learned_from_in_batches(data, tmp_path):
    rows = prepare(spec(data, tmp_path)).job._rows()
    large = replace(rows, partitions=tuple(replace(p, batch_rows=70) for p in rows.partitions))
    for found, wanted in zip(large.ordered(5, 0, 1, 1), rows.ordered(5, 0, 1, 1), strict=True):
        for values, theirs in zip(found[:2], wanted[:2], strict=True):
            np.testing.assert_array_equal(values[found[2]], theirs[wanted[2]])


def test_models_are_judged_some_in_each_pass(data, tmp_path, monkeypatch):
    expected = contents(run_job(spec(data, tmp_path / "one")).folder)
    monkeypatch.setattr(job_module, "_MODEL_VALUES", 7 * D)
    found = run_job(spec(data, tmp_path / "many")).folder
    ours, theirs = (json.loads(c["metrics.json"]) for c in (contents(found), expected))
    for own, other in zip(ours["curves"], theirs["curves"], strict=True):
        for point, same in zip(own["points"], other["points"], strict=True):
            assert point["relative_loss"] == pytest.approx(same["relative_loss"], rel=1e-12)


def test_the_job_on_embedded_images(tmp_path):
    sets = [f"output={tmp_path}", "attribute_efficient.repeats=2", "tune.grid.bound=[10.0]"]
    folder = run_job(load_spec(JOBS / "attribute-efficient-digits.yaml", sets)).folder
    metrics = read(folder, "metrics.json")
    assert metrics["test"]["accuracy"] > 0.8
    assert read(folder, "selection.json")["attributes_seen"] <= 12 * metrics["train"]["n_rows"]
