"""What earlier releases wrote is read: ``samples/form-N.zip`` has a registry of each form.

In each zip: ``runs/registry`` with a model of every method (of ``sequence`` three versions, of
which the second is current after a rollback), the ``rows`` that they were trained on, and what the
models predict for some rows, in ``expected.json``. Samples are not changed: whoever changes what
records or models hold adds an upgrade, and a sample of the form that was written until then.
"""

import html
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import distfms as package
from distfms.methods import METHODS, load_method
from distfms.registry import Registry
from distfms.retrain.job import retrain
from distfms.runs import finished
from distfms.runs.finished import read_run
from distfms.runs.job_spec import build_spec
from tests.e2e.retrain_jobs import write_day

SAMPLES = sorted(Path(__file__).resolve().parents[1].glob("samples/form-*.zip"))
ROWS = {"id": [7, 8, 9], "a": [0.5, -1.0, 2.0], "b": [1.0, 0.0, -1.0], "c": [0.0, 0.25, 1.0]}


SPEC = {
    "name": "sequence",
    "method": "sequence",
    "data": {"path": "rows", "target": "y", "id": "id", "folds": 2, "test": 0.3},
    "sequence": {"model": "linear", "baselines": []},
    "engine": {"workers": 1},
    "output": "runs",
}


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def sample(request, tmp_path, monkeypatch):
    shutil.unpack_archive(request.param, tmp_path)
    monkeypatch.chdir(tmp_path)
    return Registry(Path("runs/registry"))


def test_models_of_earlier_forms_predict(sample):
    expected = json.loads(Path("expected.json").read_text())
    assert expected.keys() == METHODS.keys() == set(sample.names())
    for name, columns in expected.items():
        rows = dict(ROWS)
        if name == "multiselect":
            rows |= {k: [[x, x + 0.5] for x in ROWS[k]] for k in "abc"}
        predicted = package.load(f"registry:{name}").predict(rows)
        np.testing.assert_allclose(predicted["predicted_y"], columns["predicted_y"], rtol=1e-12)
        method, run = read_run(f"registry:{name}").open()
        assert method.headline(run) in html.unescape(method.page(run))


def test_a_registry_of_an_earlier_form_goes_on(sample):
    for name in sample.names():
        assert sample.verify(name) == []
    assert [change.version for change in sample.history("sequence")] == [1, 2, 3, 2]
    assert sample.promote("sequence", 3).number == 5
    assert [sample.rollback("sequence").version for _ in range(2)] == [2, 1]
    sample.promote("sequence", 2)
    path = write_day(Path("rows"), "2026-01-04", 4)
    pq.write_table(pq.read_table(path).select(["a", "b", "c", "y", "id"]), path)
    outcome = retrain(build_spec(SPEC), sample)
    assert (outcome.version, outcome.promoted) == (4, True)
    assert sample.rollback("sequence").version == 2


def test_a_model_is_upgraded_step_by_step(sample, monkeypatch):
    def upgrade(step):
        def upgraded(run):
            return replace(run, model={**run.model, "steps": [*run.model.get("steps", []), step]})

        return upgraded

    newer = replace(load_method("sequence"), upgrades=(upgrade(1), upgrade(2)))
    monkeypatch.setattr(finished, "load_method", lambda name: newer)
    assert read_run("registry:sequence").open()[1].model["steps"] == [1, 2]
