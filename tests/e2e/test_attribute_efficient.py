"""Attribute-efficient regression from a spec to a finished run, against the rows."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from distfms.data.rows.folds import assign_parts, hash_keys, mix
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.kernels import uniform
from distfms.methods.attribute_efficient.learner import Chain, Design
from distfms.methods.attribute_efficient.lessons import stream
from distfms.methods.attribute_efficient.options import ALGORITHMS, paper
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.attribute_efficient_jobs import IDS, NAMES, D, N, X, Y, few_columns, few_job
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import write_rows
from tests.reference.attribute_efficient import Literal, observed_norm

PHASES = ("step_factor", "first_step_factor")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("attributes") / "data", few_columns())


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A finished run of the job without changes."""
    return run_job(few_job(data, tmp_path_factory.mktemp("runs"))).folder


PARTS = assign_parts(np.array(IDS), n_folds=3, test=0.25, seed=0)
TRAIN = PARTS < 3


def order(key, own=TRAIN):
    """Rows in the order of learning: by the hash of their ids."""
    rows = np.flatnonzero(own)
    return rows[np.argsort(mix(mix(np.uint64(key)) ^ hash_keys(np.array(IDS))[rows]))]


def literal_design(penalty, sampling, **more):
    """The design that the training rows give."""
    rows = X[order(stream(0, 0))]
    n = len(rows)
    norm = np.linalg.norm(rows, axis=1).max() if penalty == "ridge" else np.abs(rows).max()
    if sampling != "moments":
        key = np.uint64(stream(stream(0, 0), 0))
        u = np.array([uniform(key, i) for i in range(5 * n)]).reshape(-1, 5)
        n_first = int(n * more.get("first_share", Fraction(1, 10)))
        points = (u[: n_first if sampling == "two_phase" else None, :3] * D).astype(int)
        norm = observed_norm(rows, points, penalty == "lasso")
    moments = (X[TRAIN] ** 2).mean(axis=0)
    bound = np.abs(Y[TRAIN]).max()
    return Design(penalty, sampling, D, 5, n, bound, norm, moments, **more)


@pytest.mark.parametrize(
    ("penalty", "algorithm", "sampling", "first"),
    [
        ("ridge", "ddaerr", "moments", None),
        ("ridge", "aerr", "uniform", None),
        ("ridge", "two_phase_ddaerr", "two_phase", 301),
        ("lasso", "ddaelr", "moments", 301),
        ("lasso", "two_phase_ddaelr", "two_phase", None),
    ],
)
def test_the_model_is_that_of_the_rows(data, tmp_path, penalty, algorithm, sampling, first):
    options = {"penalty": penalty, "draws": sampling, "repeats": 2}
    options |= {"first_examples": first} if first else {}
    folder = run_job(few_job(data, tmp_path, options)).folder
    selection = content(folder, "selection.json")
    metrics = content(folder, "metrics.json")
    share = Fraction(first or int(TRAIN.sum()) // 10, int(TRAIN.sum()))
    chain = Chain(literal_design(penalty, sampling, first_share=share), stream(stream(0, 0), 0))
    chain.learn(X, Y, order(stream(0, 0)))
    told = {} if sampling != "two_phase" else {"first_examples": share * TRAIN.sum()}
    assert {name: selection[name] for name in ("first_examples",) if name in selection} == told
    weights = np.array([selection["coefficients"][name] for name in NAMES])
    np.testing.assert_allclose(weights, chain.weights, rtol=1e-9, atol=1e-15)
    assert selection["examples"] == TRAIN.sum()
    assert selection["attributes_seen"] == chain.n_seen <= 5 * TRAIN.sum()
    assert selection["norm"] == pytest.approx(chain.design.norm, rel=1e-12)
    scanned = D * int(TRAIN.sum()) if sampling == "moments" else 0
    counts = {"observed": chain.n_seen, "scanned": scanned}
    assert content(folder, "manifest.json")["attributes"] == counts
    moments = (X[TRAIN] ** 2).mean(axis=0)
    np.testing.assert_allclose(list(selection["second_moments"].values()), moments, rtol=1e-12)
    assert abs(sum(selection["sampling"].values()) - 1.0) < 1e-12
    # Measures, by hand.
    for part, rows in (("train", TRAIN), ("test", ~TRAIN)):
        errors = (X[rows] @ weights - Y[rows]) ** 2
        relative = errors.sum() / (Y[rows] ** 2).sum()
        assert metrics[part]["relative_loss"] == pytest.approx(relative, rel=1e-9)
    # The last point of the curve has the model among its repeats.
    assert metrics["curves"][0]["name"] == algorithm
    last = metrics["curves"][0]["points"][-1]
    assert last["repeats"] == 2
    other = 2 * last["test"]["relative_loss"] - metrics["test"]["relative_loss"]
    spread = abs(other - metrics["test"]["relative_loss"]) / 2**0.5
    assert last["test"]["deviation"] == pytest.approx(spread, rel=1e-6)


@pytest.mark.parametrize(
    ("penalty", "algorithm", "sampling"),
    [
        ("ridge", "ddaerr", "moments"),
        ("ridge", "two_phase_ddaerr", "two_phase"),
        ("lasso", "two_phase_ddaelr", "two_phase"),
    ],
)
def test_the_preset_of_the_paper_is_its_literal_form(tmp_path, penalty, algorithm, sampling):
    labels = np.where(np.median(Y) < Y, 5.0, 3.0)
    folder = write_rows(tmp_path / "data", few_columns(target=labels))
    y = np.where(labels == 5.0, 1.0, -1.0)
    key = stream(0, 0)

    def literal(sampling, own, bound, **factors):
        rows = X[order(key, own)]
        # One ball for all samplings: no row is longer than 1.
        norm = np.linalg.norm(rows, axis=1).max() if penalty == "ridge" else np.abs(rows).max()
        moments = np.mean(rows**2, axis=0)
        design = Design(penalty, sampling, D, 5, len(rows), bound, norm, moments, **factors)
        loop = Literal(design, stream(key, 0))
        loop.learn(rows, y[order(key, own)])
        return loop.average / norm

    steps = [0.3, 30.0]
    own = {"penalty": penalty, "draws": sampling, "positive": 5, "repeats": 1}
    grid = paper(own, {})["tune"]["grid"]
    assert list(grid) == [*(PHASES if sampling == "two_phase" else PHASES[:1]), "bound"]
    grid = {name: grid[name][:2] if name == "bound" else steps for name in grid}
    job = few_job(folder, tmp_path / "runs", own, preset="paper", tune={"grid": grid})
    run = run_job(job).folder
    losses = {}
    for values in product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        of_folds = []
        for fold in range(3):
            out = fold == PARTS
            errors = (X[out] @ literal(sampling, TRAIN & ~out, **point) - y[out]) ** 2
            of_folds.append(errors.mean())
        losses[values] = np.average(of_folds, weights=np.bincount(PARTS)[:3])
    chosen = dict(zip(grid, min(losses, key=losses.get), strict=True))
    selection = content(run, "selection.json")
    assert selection["tuning"]["chosen"] == chosen
    results = list(selection["coefficients"].values())
    np.testing.assert_allclose(results, literal(sampling, TRAIN, **chosen), rtol=1e-8, atol=1e-12)
    metrics = content(run, "metrics.json")
    drawings = ALGORITHMS[penalty]
    (name,) = (name for name, how in drawings.items() if how == "uniform")
    errors = X[~TRAIN] @ literal("uniform", TRAIN, **chosen) - y[~TRAIN]
    last = metrics["baselines"][name]["test"]["relative_loss"]
    assert last == pytest.approx(np.mean(errors**2), rel=1e-8)
    compared = {*drawings, "online", "offline"} - {algorithm}
    assert metrics["baselines"].keys() == compared


@pytest.mark.parametrize("norm", [None, 7.0])
@pytest.mark.parametrize("sampling", ["uniform", "two_phase"])
def test_what_was_not_observed_is_not_used(data, tmp_path, sampling, norm):
    options = {"draws": sampling, "bound": 9.0, "repeats": 0, "norm": norm}
    first = run_job(few_job(data, tmp_path / "a", options)).folder
    key = stream(0, 0)
    design = literal_design("ridge", sampling)
    design = replace(design, bound=9.0, norm=norm or design.norm, moments=None)
    twin = Chain(design, stream(key, 0))
    noise = np.random.default_rng(1).random(X.shape)
    noise[~TRAIN] = X[~TRAIN]
    n_seen = 0
    for number, row in enumerate(order(key)):
        attributes, _ = twin.draw(number)
        seen = np.unique(attributes[attributes >= 0])
        n_seen += len(seen)
        noise[row, seen] = X[row, seen]
        twin.learn(X, Y, np.array([row]))
    assert n_seen < 0.45 * TRAIN.sum() * D
    second = run_job(
        few_job(write_rows(tmp_path / "noise", few_columns(noise)), tmp_path / "b", options)
    ).folder
    selections = [content(folder, "selection.json") for folder in (first, second)]
    assert selections[0]["second_moments"] != selections[1]["second_moments"]
    for name in ("coefficients", "attributes_seen", "examples", "sampling", "norm"):
        assert selections[0][name] == selections[1][name]
    assert selections[0]["attributes_seen"] == n_seen
    assert content(first, "manifest.json")["attributes"] == {"observed": n_seen, "scanned": 0}


def test_prediction_report_and_labels(tmp_path, look):
    labels = np.where(np.median(Y) < Y, 5.0, 3.0)
    folder = write_rows(tmp_path / "data", few_columns(target=labels))
    options = {"positive": 5, "step_factor": 3.0}
    run = run_job(few_job(folder, tmp_path / "runs", options)).folder
    metrics = content(run, "metrics.json")
    selection = content(run, "selection.json")
    assert selection["bound"] == 1.0
    weights = np.array(list(selection["coefficients"].values()))
    signs = np.where(labels == 5, 1.0, -1.0)[~TRAIN]
    accuracy = np.mean((X[~TRAIN] @ weights > 0) == (signs > 0))
    assert metrics["test"]["accuracy"] == pytest.approx(accuracy)
    for values, n_told in ((labels, 1), ((labels - 4), 0)):  # −1 and 1 are classes
        data = write_rows(tmp_path / f"told-{n_told}", few_columns(target=values))
        message = prepare(few_job(data, tmp_path / "runs", {"step_factor": 3.0})).describe()
        assert str(message).count("`attribute_efficient.positive` to one of them") == n_told
    told = metrics["classes"]
    assert told["names"] == ["others", "5"]
    area = roc_auc_score(signs > 0, X[~TRAIN] @ weights)
    assert told["auroc"] == pytest.approx(area, abs=told["auroc_error"])
    page = (Path(run) / "report.html").read_text()
    look(Path(run) / "report.html", 1)
    scanned = "a pass over all of them found the scale and the second moments"
    for text in ("improvement ratio", "DDAERR", scanned, "AERR", "Relative loss", "Recall"):
        assert text in page
    predict_file(run, str(folder), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found["id"] == IDS
    np.testing.assert_allclose(found["predicted_y"], X @ weights, rtol=1e-9, atol=1e-12)
    with pytest.raises(SpecError, match="budget"):
        predict_file(run, str(folder), tmp_path / "out.parquet", budget=3)


def test_check_tells_what_can_be_gained_before_anything_is_paid(data, tmp_path, distfms):
    (tmp_path / "job.yaml").write_text(few_job(data, tmp_path / "runs").to_yaml())
    output = distfms("check", tmp_path / "job.yaml").out
    first = TRAIN & (np.arange(N) < 300)
    s = (X[first] ** 2).mean(axis=0)
    ratio = np.sqrt(s).sum() ** 2 / (D * s.sum())
    assert f"improvement ratio: {ratio:.2f}" in output
    assert f"up to a factor of {1 / ratio:.1f}" in output
    assert not (tmp_path / "runs").exists()
