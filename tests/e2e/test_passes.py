"""What `distfms check` says of candidates and passes, and what default jobs do."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from distfms.methods.frame.tuning import candidates_in_words
from distfms.methods.landmarks import form
from distfms.methods.sequence import form as sequence_form
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare
from distfms.spec import TuneSection
from tests.e2e.jobs import content, judgments_job, write_judgments

#: Passes that a default job may make: texts and classes first, then moments and a sample.
MOST = {"multiselect": 2, "sequence": 3, "landmarks": 1, "attribute_efficient": 3}
SECTIONS = {"multiselect": {"budget": 6}, "attribute_efficient": {"attributes_per_example": 2}}
CANDIDATES = {
    "multiselect": "5 folds × 19 candidates, up to 95 fits: algorithm nothing; ridge 0 | "
    "algorithm full, lasso; ridge 30, 10, 3, 1, 0.3, 0.1, 0.01, 0.001, 0",
    "sequence": "5 folds and 10 pairs of them × 28 candidates, up to 420 fits: "
    "model linear; ridge 1000, ",
    "landmarks": "5 folds × 10 candidates, up to 50 fits: similarity constant | similarity linear",
    "attribute_efficient": "5 folds × 6 candidates, up to 30 fits: model mean | model linear; ",
}


def rows(n=120):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    return frame.assign(y=frame["a"] - frame["b"] + 0.5 * rng.normal(size=n))


def default_spec(method, tmp_path, **engine):
    """Return the spec of a default job on few rows."""
    data = tmp_path / "data"
    if method == "multiselect":
        write_judgments(data, 80)
    else:
        data.mkdir()
        rows().to_parquet(data / "rows.parquet")
    section = {"path": str(data), "target": "y"}
    if method == "multiselect":
        section["id"] = "id"
    job = {"name": "job", "method": method, "data": section, "output": str(tmp_path / "runs")}
    return build_spec({**job, "engine": engine, method: SECTIONS.get(method, {})})


@pytest.mark.parametrize("method", MOST)
def test_check_says_what_a_default_job_does(tmp_path, method):
    spec = default_spec(method, tmp_path)
    prepared = prepare(spec)
    checked = prepared.describe()
    assert checked["candidates"].startswith(CANDIDATES[method])
    folder = run_job(spec).folder
    manifest = content(folder, "manifest.json")
    assert manifest["passes"] == sum(stage.get("n_passes", 0) for stage in manifest["stages"])
    fewest, most = prepared.job.passes
    assert fewest <= manifest["passes"] <= min(most, MOST[method])
    assert checked["passes"] == (f"{fewest}" if most == fewest else f"{fewest} to {most}")
    # Of what actors might do, as little is left out as is made up.
    named = {what.split(" (")[0] for what in checked["actors"].split("for ")[1:]}
    lines = (folder / "events.jsonl").read_text().splitlines()
    pools = [event for event in map(json.loads, lines) if event["event"] == "pool"]
    assert {event["what"] for event in pools} <= named
    # The dearest evaluation on folds is what was counted before.
    reasons = [event["why"] for event in pools if event["what"] == "folds"]
    dearest = max(reasons, key=lambda why: float(why.split()[1]))
    assert dearest in checked["actors"]


@pytest.mark.parametrize(
    ("task", "most_rows", "n_passes"),
    [
        ("regression", 100, 3),
        ("classification", 50_000, 3),  # texts and classes first
        ("ranking", 50_000, 1),
        ("ranking", 100, 3),
    ],
)
def test_a_default_job_of_landmarks_reads_rows_once_or_judges_by_one_pass_more(
    tmp_path, monkeypatch, task, most_rows, n_passes
):
    monkeypatch.setattr(form, "SAMPLED_ROWS", most_rows)
    frame = rows(240).assign(q=np.repeat(np.arange(60), 4))
    if task != "regression":
        frame["y"] = (frame["y"] > 0) * 1
    if task == "classification":
        frame["y"] = frame["y"].map({0: "no", 1: "yes"})
    frame.to_parquet(tmp_path / "rows.parquet")
    data = {"path": str(tmp_path / "rows.parquet"), "target": "y", "test": 0.2}
    data |= {"query": "q"} if task == "ranking" else {"exclude": ["q"]}
    section = {"task": task, "landmarks": 20}
    job = {"name": "job", "method": "landmarks", "data": data, "landmarks": section}
    spec = build_spec({**job, "output": str(tmp_path / "runs")})
    fewest, _ = prepare(spec).job.passes
    assert content(run_job(spec).folder, "manifest.json")["passes"] == fewest == n_passes
    # Rows whose similarities would fill the memory are read again.
    monkeypatch.setattr(form, "EMBEDDED_VALUES", 100)
    assert (prepare(spec).job.passes[1] is None) == (task == "classification")


@pytest.mark.parametrize("target", [pytest.param("flag", marks=pytest.mark.slow), "y", "text"])
def test_a_default_sequence_reads_texts_first_and_the_rest_at_once(tmp_path, target):
    frame = rows().assign(ward=np.where(rows()["c"] > 0, "east", "west"))
    frame["flag"] = (frame["y"] > 0) * 1
    frame["text"] = np.where(frame["y"] > 0, "yes", "no")
    frame.to_parquet(tmp_path / "rows.parquet")
    others = [name for name in ("y", "flag", "text") if name != target]
    data = {"path": str(tmp_path / "rows.parquet"), "target": target, "exclude": others}
    job = {"name": "job", "method": "sequence", "data": {**data, "test": 0.2}}
    options = {"family": "gaussian" if target == "y" else "softmax"}
    spec = build_spec({**job, "sequence": options, "output": str(tmp_path / "runs")})
    fewest, _ = prepare(spec).job.passes
    assert content(run_job(spec).folder, "manifest.json")["passes"] == fewest == 2


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("y", {}),
        ("flag", {"family": "gaussian"}),
        ("text", {"threshold": "f1"}),
        ("text", {"model": "lightgbm", "threshold": "f1", "budgets": [2.0]}),
    ],
)
def test_a_sequence_of_more_rows_than_the_sample_judges_all_by_one_pass_more(
    tmp_path, monkeypatch, target, options
):
    monkeypatch.setattr(sequence_form, "SAMPLED_ROWS", 150)
    frame = rows(400)
    frame["ward"] = np.where(frame["c"] > 0, "east", "west")
    frame["flag"] = (frame["y"] > 0) * 1
    frame["text"] = np.where(frame["y"] > 0, "yes", "no")
    frame.to_parquet(tmp_path / "rows.parquet")
    others = [name for name in ("y", "flag", "text") if name != target]
    data = {"path": str(tmp_path / "rows.parquet"), "target": target, "exclude": others}
    job = {"name": "job", "method": "sequence", "data": {**data, "test": 0.2, "folds": 3}}
    section = {"lightgbm": {"num_iterations": 10}, **options}
    folder = run_job(build_spec({**job, "sequence": section, "output": str(tmp_path)})).folder
    assert content(folder, "manifest.json")["passes"] <= 3
    metrics = content(folder, "metrics.json")
    assert metrics["reference"]["test"]
    assert metrics.get("classes", {}).get("rows", "test") == "test"


def test_each_point_of_a_grid_has_the_best_ridge_of_its_own(tmp_path):
    write_judgments(tmp_path / "data", 80)
    spec = judgments_job(
        tmp_path / "data",
        tmp_path / "runs",
        multiselect={"plan": False},
        tune={"grid": {"algorithm": ["full", "scoring"]}},
    )
    assert "2 points on 3 folds, at least 6 evaluations" in prepare(spec).describe()["tuned"]
    tuning = content(run_job(spec).folder, "tuning.json")
    tried = [point["options"] for point in tuning["points"]]
    assert len(tried) == 2 * 9
    means = np.array([point["mean"] for point in tuning["points"]])
    assert tuning["chosen"] == tried[int(np.argmin(means))]


def test_what_a_grid_sets_is_no_candidate(tmp_path):
    job = prepare(default_spec("sequence", tmp_path)).job
    tuned = replace(job, tune=TuneSection(grid={"ridge": (0.1, 1.0)}))
    assert candidates_in_words(tuned) == (
        "5 folds and 10 pairs of them × 4 candidates, up to 60 fits: model linear | "
        "model linear; splines 5 | model lightgbm; criterion fr, gain"
    )
