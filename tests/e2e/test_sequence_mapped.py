"""Sequencing with products of columns in mapped files is the job in memory but for what it says."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.methods.frame import mapped
from distfms.methods.sequence.form import SequenceForm
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from distfms.stats import mapped as mapped_files
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, with_labels, write_rows

BASELINES = ["omp", "fr-blind", "omp-doubling", "oracle", "random"]


@pytest.fixture(scope="module", autouse=True)
def small_memory():
    """Memory for nothing but some rows of the products of columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped, "PASS_ROWS", 4)
        patch.setattr(mapped_files, "BLOCK_VALUES", 100)
        patch.setattr(SequenceForm, "one_process_bytes", 2**50)
        yield


def run(data, output, /, **changes):
    return run_job(mixed_job(data, output, **changes)).folder


def run_both(data, folder, /, **changes):
    """Run with mapped files and in memory, and require the same results."""
    cut = run(data, folder / "mapped", **changes)
    assert not list(cut.rglob("*.mapped"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequenceForm, "one_process_bytes", 0)
        one = run(data, folder / "whole", **changes)
    require_like(cut, one)
    for name in ("objects", "dropped", "imputed"):
        manifests = [content(folder, "manifest.json").get(name) for folder in (cut, one)]
        assert manifests[0] == manifests[1], name
    return cut, one


def require_like(cut, one):
    """All results of a run with mapped files are those of one in memory, but for rounding."""
    require_close(*(content(folder, "selection.json") for folder in (cut, one)))
    require_close(content(cut, "metrics.json"), content(one, "metrics.json"))


def flat(value, where=""):
    """Entries of a JSON value by their places."""
    if not isinstance(value, dict | list):
        return {where: value}
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, own in entries for k, v in flat(own, f"{where}/{key}").items()}


def require_close(found, expected):
    """Two JSON values are the same but for the last digits of floats."""
    found = flat(found)
    expected = flat(expected)
    numbers = {key for key, value in expected.items() if isinstance(value, float)}
    close = {key: pytest.approx(expected[key], rel=1e-8, abs=1e-10) for key in numbers}
    assert found == expected | close


# --- as one process -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"doubling": True, "max_groups": 4, "cost_aware": False}, {"missing": "drop"}),
        ({"criterion": "omp-single"}, {"missing": "drop", "weight": "w"}),
        ({"ridge": 0.0, "criterion": "omp-no-whiten"}, {"test": 0}),
        ({"baselines": ["lightgbm", "omp"]}, {"folds": 2, "missing": "drop"}),
    ],
)
def test_result_is_that_of_a_job_in_memory(mixed_columns, tmp_path, options, settings):
    n = len(mixed_columns["y"])
    weight = np.random.default_rng(1).choice([0.0, 1.0, 2.5], n)
    data = write_rows(tmp_path / "data", {**mixed_columns, "w": weight})
    settings = {"exclude": [] if "weight" in settings else ["w"]} | settings
    changes = {"sequence": {"baselines": BASELINES} | options, "data": settings}
    folders = run_both(data, tmp_path, **changes)
    tables = []
    for number, folder in enumerate(folders):
        predict_file(folder, data, tmp_path / f"{number}.parquet")
        tables.append(pq.read_table(tmp_path / f"{number}.parquet"))
    require_close(tables[0].to_pydict(), tables[1].to_pydict())


def test_accuracy_ranking_and_separate_test_rows(tmp_path):
    columns = {**with_labels(mixed_rows(400)), "q": np.repeat(np.arange(80), 5)}
    rows = {name: values[:300] for name, values in columns.items()}
    others = {name: values[300:] for name, values in columns.items()}
    data = write_rows(tmp_path / "data", rows)
    held_out = write_rows(tmp_path / "held-out", others, n_files=1)
    settings = {"test": 0, "test_path": str(held_out), "query": "q", "missing": "drop"}
    changes = {"data": settings, "sequence": {"max_groups": 3, "baselines": ["random"]}}
    folder, _ = run_both(data, tmp_path, **changes)
    assert {"accuracy", "ndcg@5"} < content(folder, "metrics.json")["test"].keys()


# --- what it says -------------------------------------------------------------------------------


def test_actors_hold_runs_of_groups_of_the_mapped_file(mixed_data, tmp_path, monkeypatch):
    monkeypatch.setattr("distfms.solve.shards.BLOCK_COLUMNS", 4)
    alone = run(mixed_data, tmp_path / "alone")
    engine = {"kind": "local", "workers": 2, "actors": "always"}
    shared = run(mixed_data, tmp_path / "actors", engine=engine)
    selections = [(folder / "selection.json").read_bytes() for folder in (alone, shared)]
    assert selections[0] == selections[1]


def test_form_depends_on_spec_and_columns(mixed_data, tmp_path, monkeypatch):
    def form(**sequence):
        return prepare(mixed_job(mixed_data, tmp_path, sequence=sequence)).job

    mapped_job = form()
    assert mapped_job.form.mapped
    # Of a category, as many columns as there may be levels are expected.
    text = "mapped file of the products of 39 columns, read in 10 passes"
    assert text in mapped_job.describe()["search"]
    assert not form(family="poisson", baselines=[]).form.mapped
    # Models of two groups, and the factor of the widest two: of a ward and of both pressures.
    assert form(max_groups=2).form.models_bytes == 8 * (3 * 3 * 38 + 4 * (32 + 2) ** 2)
    monkeypatch.setattr(mapped, "ONE_PROCESS_BYTES", form(max_groups=1).form.models_bytes)
    assert form(max_groups=1).form.mapped
    assert not form().form.mapped


def test_a_group_lasso_is_refused(mixed_data, tmp_path):
    with pytest.raises(SpecError, match="`sparse` needs the products of all columns in memory"):
        prepare(mixed_job(mixed_data, tmp_path, sequence={"baselines": ["sparse"]}))
