"""Raters who answer at random are left out where it is known who judged."""

import numpy as np
import pyarrow as pa
import pytest

import distfms as package
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.multiselect_jobs import NAMES, lists, notes, run, write

N = 300
K = 4
RATERS = 20
BAD = ("3", "11")


def crowd(at_random, seed=0):
    """Judgments (N, 3, K) of which raters `BAD` may give theirs at random; raters; labels."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(N, 3))
    who = rng.permuted(np.tile(np.arange(RATERS), (N, 1)), axis=1)[:, :K].astype(str)
    judgments = truth[:, :, None] + rng.normal(size=(N, 3, K))
    noise = rng.uniform(-6, 6, judgments.shape)
    judgments = np.where(np.isin(who, BAD)[:, None] & at_random, noise, judgments)
    return judgments, who, truth @ [1.0, 2.0, 3.0] + 0.3 * rng.normal(size=N)


def columns(X, who, y=None, left_out=()):
    kept = [np.flatnonzero(~np.isin(own, left_out)) for own in who]
    named = {
        a: lists([x[k] for x, k in zip(X[:, i], kept, strict=True)]) for i, a in enumerate(NAMES)
    }
    ids = [own[k].tolist() for own, k in zip(who, kept, strict=True)]
    own = {"id": [f"o{i}" for i in range(len(X))], **named, "raters": pa.array(ids)}
    return own if y is None else {**own, "y": y}


def learned(folder, output, screen=True, **options):
    return run(folder, output, multiselect={"budget": 6, "robust": screen, **options})


@pytest.mark.parametrize("model", ["projected", "refit"])
def test_raters_at_random_are_left_out_as_if_they_were_not_in_the_data(tmp_path, model):
    X, who, y = crowd(at_random=True)
    options = {"budget": 4, "model": model, "plan": True}
    raw = write(tmp_path / "raw", columns(X, who, y))
    folder, selection, metrics, manifest = learned(raw, tmp_path / "a", **options)
    before = write(tmp_path / "less", columns(X, who, y, BAD))
    other, selection_, metrics_, manifest_ = learned(before, tmp_path / "b", False, **options)
    assert "Raters are left out: 327 of 2,976 judgments are theirs" in notes(manifest)
    assert (selection["path"], metrics) == (selection_["path"], metrics_)
    assert manifest["plan"] == manifest_["plan"]
    entries = content(folder, "model.json")["raters_left_out"]
    assert {entry["rater"] for entry in entries} == set(BAD)
    assert "raters_left_out" not in content(other, "model.json")
    page = (folder / "report.html").read_text()
    assert "Raters left out, in training and predictions" in page
    mine = package.load(folder)
    theirs = package.load(other)
    rows = columns(X, who)
    less = columns(X, who, left_out=BAD)
    predicted = mine.predict(rows)["predicted_y"]
    assert predicted == theirs.predict(less)["predicted_y"]
    assert predicted != theirs.predict(rows)["predicted_y"]
    worse = learned(raw, tmp_path / "c", False, **options)[2]
    assert metrics["test"]["projected_loss"] < 0.9 * worse["test"]["projected_loss"]
    # Without ids nobody can be left out, which is said.
    rows.pop("raters")
    assert mine.predict(rows)["predicted_y"] == theirs.predict(rows)["predicted_y"]
    unknown = write(tmp_path / "unknown", rows)
    summary = predict_file(folder, str(unknown), tmp_path / "out.parquet")
    assert f"Rows without rater ids, though training left raters out: {N}" in summary


def test_nothing_changes_where_no_rater_stands_out_or_none_is_known(tmp_path):
    X, who, y = crowd(at_random=False)
    raw = write(tmp_path / "raw", columns(X, who, y))
    results = [learned(raw, tmp_path / str(screen), screen) for screen in (True, False)]
    assert results[0][1:3] == results[1][1:3]
    models = [content(folder, "model.json") for folder, *_ in results]
    assert models[0] == models[1]
    assert "raters_left_out" not in models[0]
    rows = columns(*crowd(at_random=True))
    path = write(tmp_path / "known", rows)
    no_folds, *_ = run(path, tmp_path / "n", multiselect={"budget": 6}, data={"folds": 0})
    assert {e["rater"] for e in content(no_folds, "model.json")["raters_left_out"]} == {*BAD}
    rows.pop("raters")
    unknown, *_ = learned(write(tmp_path / "unknown", rows), tmp_path / "u")
    assert "raters_left_out" not in content(unknown, "model.json")


def test_raters_stay_without_whom_an_attribute_has_no_repeats(tmp_path):
    X, who, y = crowd(at_random=True)
    rows = columns(X, who, y)
    is_bad = np.isin(who, BAD)
    kept = [np.flatnonzero(bad) if bad.any() else np.arange(1) for bad in is_bad]
    rows["c"] = lists([X[i, 2, own] for i, own in enumerate(kept)])
    rows["c__raters"] = pa.array([who[i, own].tolist() for i, own in enumerate(kept)])
    rows["a__raters"] = rows["b__raters"] = rows.pop("raters")
    folder, *_ = learned(write(tmp_path / "few", rows), tmp_path / "runs")
    assert "raters_left_out" not in content(folder, "model.json")
