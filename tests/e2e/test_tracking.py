"""Runs that MLflow is told of, by a stand-in for it."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from tests.e2e.jobs import content, judgments_job


@pytest.fixture
def told(monkeypatch):
    """What MLflow is told: (function, argument), files by name."""
    calls = {}

    def log_artifacts(folder):
        calls["files"] = {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def start_run(run_name):
        calls["start_run"] = run_name
        return nullcontext()

    names = ("set_experiment", "set_tags", "log_params", "log_metrics")
    functions = {name: lambda value, name=name: calls.__setitem__(name, value) for name in names}
    module = SimpleNamespace(**functions, start_run=start_run, log_artifacts=log_artifacts)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    calls["module"] = module
    return calls


@pytest.fixture
def job(judgments, tmp_path):
    section = judgments_job(judgments, tmp_path / "runs", multiselect={"plan": False}).to_mapping()
    section["output"]["tracking"] = "mlflow"
    return build_spec(section)


def test_parameters_metrics_and_files_of_a_run(job, told):
    folder = run_job(job).folder
    assert (told["set_experiment"], told["start_run"]) == ("small", folder.name)
    assert told["log_params"]["multiselect.budget"] == "12.0"
    assert told["log_params"]["data.target"] == "['y']"
    metrics = content(folder, "metrics.json")
    logged = told["log_metrics"]
    assert logged
    assert all(isinstance(value, float) for value in logged.values())
    for key, value in logged.items():
        found = metrics
        for part in key.split("."):
            found = found[part]
        assert found == value
    assert told["set_tags"]["distfms.run"] == str(folder)
    for name in ("spec.yaml", "model.json", "weights.npz", "report.html", "manifest.json"):
        assert told["files"][name] == (folder / name).read_bytes()


def test_it_is_off_unless_asked(judgments, told, tmp_path):
    run_job(judgments_job(judgments, tmp_path))
    assert told.keys() == {"module"}


def test_a_run_stays_finished_where_it_fails(job, told):
    def refuse(name):
        raise ConnectionError("no server")

    told["module"].set_experiment = refuse
    messages = []
    folder = run_job(job, say=messages.append).folder
    assert any(
        "mlflow could not be told of this run (ConnectionError: no server)" in s for s in messages
    )
    assert content(folder, "manifest.json")["status"] == "done"


def test_without_the_package_nothing_starts(job, monkeypatch, tmp_path, distfms):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    refused = distfms("run", tmp_path / "job.yaml")
    assert refused.code == 2
    assert "`output.tracking: mlflow` needs a package" in refused.err
    assert "pip install 'distfms[mlflow]'" in refused.err
    assert not (tmp_path / "runs").exists()
