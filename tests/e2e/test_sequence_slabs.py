"""Sequencing with the Gram matrix in slabs is the job of one process but for what it says."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.engine.memory import COLUMN_BYTES
from distfms.errors import SpecError
from distfms.methods.frame import slab_search, slabs
from distfms.methods.frame.slab_search import ONE_PROCESS_BYTES, SlabForm
from distfms.methods.sequence.form import Sizes
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content, stage
from tests.e2e.memory import Peaks
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, with_labels, write_rows

PASSES = [f"statistics {k} of 5" for k in range(1, 6)]
STEPS = ["categories", *PASSES, "select", "chosen", "evaluate", "model", "report"]
BASELINES = ["omp", "fr-blind", "omp-doubling", "oracle", "random"]


@pytest.fixture(scope="module", autouse=True)
def small_slabs():
    """Slabs that hold at most two of the numbers; a category is one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "SLAB_COLUMNS", 2)
        patch.setattr(Sizes, "one_process_bytes", lambda self: 2**50)
        yield


def job(data: Path, output: Path, /, **changes):
    """Spec of a job without folds."""
    return mixed_job(data, output, **changes | {"data": {"folds": 0} | changes.get("data", {})})


def run(data: Path, output: Path, /, **changes):
    return run_job(job(data, output, **changes)).folder


def run_both(data: Path, folder: Path, /, **changes):
    """Run in slabs and in one process, and require the same results."""
    cut = run(data, folder / "slabs", **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sizes, "one_process_bytes", lambda self: 0)
        one = run(data, folder / "whole", **changes)
    require_like(cut, one)
    for name in ("objects", "dropped", "imputed"):
        manifests = [content(folder, "manifest.json").get(name) for folder in (cut, one)]
        assert manifests[0] == manifests[1], name
    return cut, one


def require_like(cut: Path, one: Path) -> None:
    """All results of a run in slabs are those of one process, but for rounding."""
    selections = [content(folder, "selection.json") for folder in (cut, one)]
    # Columns are in the order of their groups here.
    constant, notes = ([set(s.pop(key)) for s in selections] for key in ("constant", "notes"))
    assert constant[0] == constant[1]
    assert len(notes[0]) == len(notes[1])
    require_close(*selections)
    require_close(content(cut, "metrics.json"), content(one, "metrics.json"))


def flat(value, where=""):
    """Entries of a JSON value by their places."""
    if not isinstance(value, dict | list):
        return {where: value}
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, own in entries for k, v in flat(own, f"{where}/{key}").items()}


def require_close(found, expected):
    """Two JSON values are the same but for the last digits of floats."""
    found, expected = flat(found), flat(expected)
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
    ],
)
def test_result_is_that_of_one_process(mixed_columns, tmp_path, options, settings):
    n = len(mixed_columns["y"])
    weight = np.random.default_rng(1).choice([0.0, 1.0, 2.5], n)
    data = write_rows(tmp_path / "data", {**mixed_columns, "w": weight})
    settings = {"exclude": [] if "weight" in settings else ["w"]} | settings
    changes = {"sequence": options | {"baselines": BASELINES}, "data": settings}
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


def scattered_rows(n: int = 300) -> dict[str, np.ndarray]:
    """Groups whose columns are far apart, the last one a copy of the first, and constants."""
    rng = np.random.default_rng(3)
    common = rng.normal(size=n)
    columns = {f"{g}_{k}": common + rng.normal(size=n) for k in range(3) for g in "abcde"}
    columns |= {f"z_{k}": 3.0 * columns[f"a_{k}"] + 5.0 for k in range(3)}
    columns |= {"b_3": np.full(n, 2.0), "s_0": np.zeros(n), "s_1": np.ones(n)}
    target = columns["a_0"] - 2.0 * columns["c_1"] + rng.normal(size=n)
    return {"id": [f"{i}" for i in range(n)], **columns, "y": target, "other": common}


@pytest.mark.parametrize(("criterion", "slab_columns"), [("fr", 1), ("omp", 5)])
def test_scattered_repeated_and_constant_groups(tmp_path, monkeypatch, criterion, slab_columns):
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", slab_columns)
    data = write_rows(tmp_path / "data", scattered_rows())
    options = {
        "groups": {g: [f"{g}_*"] for g in "zsabcde"}, "costs": {"a": 2.0}, "shared_costs": {},
        "ridge": 0.0, "criterion": criterion, "baselines": ["fr-blind", "oracle"],
    }  # fmt: skip
    settings = {"target": ["y", "other"], "missing": "error"}
    folder, _ = run_both(data, tmp_path, data=settings, sequence=options)
    selection = content(folder, "selection.json")
    # z is a and costs less: a adds nothing after it. s does not vary.
    steps = {step["group"]: step for step in selection["sequence"]}
    assert set(steps) == set("zabcde")
    assert steps["a"]["n_independent"] == 0
    assert steps["a"]["gain"] == pytest.approx(0.0, abs=1e-14)
    assert set(selection["constant"]) == {"s_0", "s_1", "b_3"}


# --- what it says -------------------------------------------------------------------------------


def test_says_what_it_did_and_left_out(mixed_data, tmp_path):
    said: list[str] = []
    spec = job(mixed_data, tmp_path / "a", sequence={"baselines": ["omp"]}, data={"folds": 3})
    described = prepare(spec).job.describe()
    assert "5 slabs of up to 32 columns" in described["search"]
    assert "one process would need" in described["search"]
    assert "one slab, or the chosen columns" in described["driver"]
    folder = run_job(spec, say=said.append).folder
    manifest = content(folder, "manifest.json")
    note = next(n for n in manifest["notes"] if "6 groups were searched in 5 slabs" in n)
    assert "There is no cross-validation." in note
    assert f"Note: {note} (N027)" in said
    assert content(folder, "metrics.json")["folds"] == []
    assert "Feature-group sequencing" in (folder / "report.html").read_text()
    assert [entry["name"] for entry in manifest["stages"]] == STEPS
    # A pass over the three files for each slab, and one for the chosen columns.
    for name in [*PASSES, "chosen"]:
        assert stage(manifest, name)["n_read"] == 3


def sizes(n_groups, folds=0, max_groups=None, width=1, n_searches=2):
    return Sizes((width,) * n_groups, 1, n_searches, max_groups or n_groups, folds)


def test_projected_sizes():
    assert sizes(100).chosen_bytes() == 8 * ((4 + 1 + 3) * 101**2 + 3 * 101 * 100)
    many = sizes(20_000, max_groups=300)
    assert many.chosen_bytes() < ONE_PROCESS_BYTES < sizes(20_000, width=3).chosen_bytes()
    assert many.support() == 300
    assert [Sizes((1, 32, 1, 4), 1, 2, n).support() for n in (2, 3)] == [36, 37]


def test_form_depends_on_spec_and_columns(mixed_data, tmp_path, monkeypatch):
    def made(**sequence):
        return prepare(job(mixed_data, tmp_path, sequence=sequence, data={"folds": 3})).job

    assert made().form.slabs
    assert not made(family="poisson", baselines=[]).form.slabs
    one_group = made(max_groups=1).form.slabs.chosen_bytes
    monkeypatch.setattr(slab_search, "ONE_PROCESS_BYTES", one_group)
    assert made(max_groups=1).form.slabs
    whole = made()
    assert not whole.form.slabs
    assert "a lower `sequence.max_groups`" in whole.describe()["search"]


# --- memory -------------------------------------------------------------------------------------


def test_a_group_lasso_is_refused(mixed_data, tmp_path):
    with pytest.raises(SpecError, match="`sparse` needs all columns in one process"):
        prepare(job(mixed_data, tmp_path, sequence={"max_groups": 4, "baselines": ["sparse"]}))


def test_pool_is_refused_where_a_slab_does_not_fit(mixed_data, tmp_path, monkeypatch):
    monkeypatch.setattr(SlabForm, "shard_bytes", 2**45)
    with pytest.raises(SpecError, match="fewer actors on one machine"):
        run(mixed_data, tmp_path)


def test_driver_keeps_to_what_it_has_stated(tmp_path, monkeypatch):
    d, n = 400, 40
    values = np.random.default_rng(0).normal(size=(n, d))
    columns = {f"x{j:04d}": values[:, j] for j in range(d)}
    data = write_rows(tmp_path / "data", {**columns, "y": values[:, :5].sum(axis=1)}, n_files=1)
    run(write_rows(tmp_path / "small", mixed_rows()), tmp_path)  # loads what is loaded once
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 40)
    options = {"groups": {}, "costs": {}, "shared_costs": {}, "baselines": [], "max_groups": 12}
    settings = {"id": None, "missing": "error", "test": 0}
    spec = job(data, tmp_path / "a", sequence=options, data=settings)
    peaks = Peaks(monkeypatch, last="chosen")
    try:
        peaks.start()
        run_job(spec)
    finally:
        tracemalloc.stop()
    made = prepare(spec).job
    matrix, stated = 8 * d * d, made.form.slabs.driver_bytes
    assert made.form.slabs.n_slabs == 10
    assert stated - COLUMN_BYTES * d < 2 * matrix / 3
    # What the one worker here decodes and computes is beside what the driver holds.
    worker = 3 * 8 * n * d + 2 * made.statistics_bytes
    assert len(peaks.bytes) == 12
    for name, peak in peaks.bytes.items():
        assert peak < stated + worker + 2**20, name
