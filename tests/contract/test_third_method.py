"""A method of a few dozen lines runs from spec to report through the public driver: folds,
tuning, Ray, predict, retraining with drift. That is the contract's proof."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms import methods
from distfms.errors import SpecError
from distfms.retrain.job import retrain
from distfms.runs import context as run_context
from distfms.runs.driver import run_job
from distfms.runs.finished import headline
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, results

N_ROWS = 600
N_COLUMNS = 6


@pytest.fixture(autouse=True)
def third_method(monkeypatch):
    monkeypatch.setitem(methods.METHODS, "correlation", "tests.contract.correlation:METHOD")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N_ROWS, N_COLUMNS))
    y = X @ [3.0, 0.0, -2.0, 0.1, 1.0, 0.0] + 0.3 * rng.normal(size=N_ROWS) + 7.0
    return {**{f"x{j}": X[:, j] for j in range(N_COLUMNS)}, "y": y}


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    table = pa.table({**rows, "id": [f"r{i}" for i in range(N_ROWS)]})
    for number in range(3):
        pq.write_table(table.slice(number * 200, 200), folder / f"{number}.parquet")
    return folder


def spec(data, output, budget=3, **changes):
    sections = {
        "name": "third",
        "method": "correlation",
        "data": {"path": str(data), "target": "y", "id": "id", "folds": 4, "test": 0.25},
        "correlation": {} if budget is None else {"budget": budget},
        "engine": {"workers": 2},
        "output": str(output),
    }
    return build_spec({**sections, **changes})


def test_from_spec_to_report_and_prediction(data, rows, tmp_path):
    folder = run_job(spec(data, tmp_path)).folder
    assert content(folder, "selection.json")["columns"] == ["x0", "x2", "x4"]
    metrics = content(folder, "metrics.json")
    assert len(metrics["folds"]) == 4
    points = metrics["curves"][0]["points"]
    assert [point["budget"] for point in points] == [0, 1, 2, 3]
    for rows_of in ("train", "validation", "test"):
        errors = [point[rows_of]["mse"] for point in points]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] == pytest.approx(0.1, rel=0.3)
    assert metrics["test"]["mse"] == points[-1]["test"]["mse"]
    assert "Take x0, x2, x4" in (Path(folder) / "report.html").read_text()
    assert headline(folder) == "Take x0, x2, x4"

    predict_file(folder, str(data), tmp_path / "all.parquet")
    found = pq.read_table(tmp_path / "all.parquet").to_pydict()
    by_id = dict(zip(found["id"], found["predicted_y"], strict=True))
    errors = np.array([by_id[f"r{i}"] for i in range(N_ROWS)]) - rows["y"]
    assert np.mean(errors**2) == pytest.approx(0.1, rel=0.3)
    predict_file(folder, str(data), tmp_path / "one.parquet", budget=1)
    with_one = pq.read_table(tmp_path / "one.parquet").to_pydict()["predicted_y"]
    assert with_one != found["predicted_y"]


def test_options_are_tuned_on_the_same_statistics(data, tmp_path, monkeypatch):
    tune = {"grid": {"budget": [1, 2, 3, 6], "ridge": [10.0, 0.0]}}
    folder = run_job(spec(data, tmp_path / "a", None, tune=tune)).folder
    tuning = content(folder, "tuning.json")
    assert tuning["chosen"] == {"budget": 6, "ridge": 0.0}
    assert len(tuning["points"]) == 8
    assert all(len(point["folds"]) == 4 for point in tuning["points"])
    stages = content(folder, "manifest.json")["stages"]
    assert [s["name"] for s in stages][:3] == ["statistics", "tune", "select"]
    assert sum(s.get("n_read", 0) for s in stages) == 3  # one pass over three partitions
    # The same as an untuned run with what was chosen.
    same = run_job(spec(data, tmp_path / "b", 6)).folder
    ours = content(folder, "metrics.json")
    theirs = content(same, "metrics.json")
    assert ours["folds"] == theirs["folds"]
    # And the same bits on actors, whose answers come as they are done.
    monkeypatch.setattr(run_context, "ACTORS_PAY_OPERATIONS", -1.0)
    actors = run_job(spec(data, tmp_path / "c", None, tune=tune)).folder
    assert results(actors) == results(folder)


def test_retrained_twice_with_drift(rows, tmp_path):
    table = pa.table({**rows, "id": [f"r{i}" for i in range(N_ROWS)]})
    days = tmp_path / "days"
    days.mkdir()
    gate = {"max_regression": 1.0, "max_drift": 1.0}
    job = spec(days, tmp_path / "runs", retrain={"gate": gate, "forget": {"half_life": "9 days"}})
    outcomes = []
    for number, lacks in enumerate(("x0", "x9", "x9")):
        day = table.slice(number * 200, 200)
        if lacks in day.column_names:  # no effect yet
            day = day.set_column(0, lacks, pa.array(np.random.default_rng(0).normal(size=200)))
        if number == 2:
            day = day.set_column(4, "x4", pa.array(day["x4"].to_numpy() + 5.0))
        pq.write_table(day, days / f"2026-01-0{number + 1}.parquet")
        outcomes.append(retrain(job, job.registry()))
    assert [outcome.version for outcome in outcomes] == [1, 2, 2]
    told = content(outcomes[1].folder, "retrain.json")
    assert told["data"]["n_read"] == 1
    assert [entry["rows"] for entry in told["compared"]] == ["held_out", "newest"]
    assert ("x0", "entered", 2) in [(e["name"], e["change"], e["now"]) for e in told["selection"]]
    assert "x4 drifted by 5" in outcomes[2].reasons[-1]
    assert "Drift by column" in (Path(outcomes[2].folder) / "report.html").read_text()
    other = spec(days, tmp_path / "runs", correlation={"budget": 3, "ridge": 1.0})
    with pytest.raises(SpecError, match=r"correlation\.ridge"):
        retrain(other, other.registry())


def test_on_ray(ray_session, data, tmp_path):
    there = run_job(spec(data, tmp_path / "ray", engine={"kind": "ray", "workers": 2})).folder
    assert results(there) == results(run_job(spec(data, tmp_path / "here")).folder)
