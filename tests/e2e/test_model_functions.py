"""Functions that models name: only those run that the caller, or the spec of a job, names too."""

import sys

import pyarrow.parquet as pq
import pytest

import distfms as package
from distfms.errors import SpecError
from distfms.estimators.load import load_estimator
from distfms.methods.landmarks.similarity import user_function
from distfms.registry import Registry
from distfms.runs.driver import run_job
from tests.e2e.retrain_jobs import again, growing_job, retraining, write_day

CODE = """
from pathlib import Path

import numpy as np

Path({mark!r}).touch()


def near(rows, landmarks):
    return np.exp(-np.square(rows[:, None] - landmarks).sum(axis=2))


other = near
"""


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Whether the module ``mine``, in the current folder, has been imported since the last look."""
    mark = tmp_path / "imported"
    (tmp_path / "mine.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    def look():
        found = mark.exists()
        mark.unlink(missing_ok=True)
        sys.modules.pop("mine", None)
        user_function.cache_clear()
        return found

    look()
    yield look
    look()


@pytest.fixture
def job(days, tmp_path):
    section = {"similarity": "mine:near", "landmarks": 5, "baselines": []}
    return growing_job(days, tmp_path / "runs", method="landmarks", landmarks=section)


def test_who_checks_a_spec_runs_no_code_of_it(imported, job, tmp_path, distfms):
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    result = distfms("check", "job.yaml")
    assert (result.code, imported()) == (0, False)
    assert "The function `mine:near` is not imported here" in result.out


def test_a_model_runs_only_code_that_its_user_names(imported, job, days, distfms):
    run = run_job(job).folder
    registry = Registry(run.parents[1] / "registry")
    registry.add("small", {p.name: p.read_bytes() for p in run.iterdir() if p.suffix}, {})
    registry.promote("small", 1)
    rows = pq.read_table(days / "2026-01-02.parquet")
    assert imported()
    for name in (run, "registry:small"):
        result = distfms("predict", name, days, "--out", "p.parquet", "--allow", "mine:other")
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert "calls the function `mine:near`" in result.err
        assert "add --allow mine:near" in result.err
        with pytest.raises(SpecError, match=r"allow=\['mine:near'\]"):
            package.load(name).predict(rows)
        with pytest.raises(SpecError, match=r"allow=\['mine:near'\]"):
            load_estimator(name).predict(rows.drop_columns(["id"]))
    assert distfms("report", run).code == 0
    assert distfms("models", "show", "small").code == 0
    assert not imported()
    allowed = package.load("registry:small", allow=["mine:near"]).predict(rows)
    assert imported()
    assert distfms("predict", run, days, "--out", "p.parquet", "--allow", "mine:near").code == 0
    assert pq.read_table("p.parquet").slice(0, 300)["predicted_y"] == allowed["predicted_y"]


def test_a_retraining_runs_what_its_spec_names(imported, job, days):
    again(job)
    assert imported()
    write_day(days, "2026-01-04", 4)
    outcome = again(job)
    assert retraining(outcome)["compared"]
    write_day(days, "2026-01-05", 5)
    section = {**job.options.model_dump(), "similarity": "mine:other"}
    renamed = growing_job(days, days.parent / "runs", method="landmarks", landmarks=section)
    messages = []
    with pytest.raises(SpecError, match="calls the function `mine:near`"):
        again(renamed, say=messages.append)
    assert not any("Writing" in line for line in messages)
