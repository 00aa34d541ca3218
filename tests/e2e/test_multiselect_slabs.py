"""Multi-selection with the covariance in slabs is the job of one process but for what it says."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import EngineError, SpecError
from distfms.methods import slabs
from distfms.methods.multiselect.job import MultiselectJob
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.slab_job import MultiselectSlabsJob, one_process_bytes, wants_slabs
from distfms.runs.driver import prepare, run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import stage, write_judgments
from tests.e2e.memory import Peaks
from tests.e2e.multiselect_jobs import job as small_job

OPTIONS = {
    "budget": 12, "psd": "none", "blocks": "always", "plan": True, "costs": {"warm": 2.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    """Slabs of two of the five attributes."""
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 2)


def job(path: Path, output: Path, **changes):
    """Spec of a job in slabs."""
    return small_job(path, output, **changes | {"multiselect": OPTIONS | changes["multiselect"]})


def run(path: Path, output: Path, **changes):
    return run_job(job(path, output, **{"multiselect": {}} | changes)).folder


def read(folder: Path, name: str):
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("model", ["projected", "refit"])
def test_result_is_that_of_one_process(tmp_path, model):
    data = write_judgments(tmp_path / "data")
    blocks = run(data, tmp_path / "a", multiselect={"model": model})
    one = run(data, tmp_path / "b", multiselect={"model": model, "blocks": "never"})
    found, expected = read(blocks, "selection.json"), read(one, "selection.json")
    assert found.keys() == expected.keys()
    assert found["repeats"] == expected["repeats"]
    assert [s["attribute"] for s in found["path"]] == [s["attribute"] for s in expected["path"]]
    assert found["attributes"] == [pytest.approx(e) for e in expected["attributes"]]
    for key in ("objective", "projected_loss", "label_variance"):
        assert found[key] == pytest.approx(expected[key], rel=1e-10)
    weights = [np.load(folder / "weights.npz")["weights"] for folder in (blocks, one)]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9)
    metrics, others = read(blocks, "metrics.json"), read(one, "metrics.json")
    assert metrics.keys() == others.keys()
    assert metrics["test"] == pytest.approx(others["test"])
    assert set(metrics["baselines"]) == {"scoring"}
    scoring = [m["baselines"]["scoring"] for m in (metrics, others)]
    assert scoring[0]["repeats"] == scoring[1]["repeats"]
    assert scoring[0]["test_loss"] == pytest.approx(scoring[1]["test_loss"])
    assert metrics["folds"] == []
    predicted = [predict_file(folder, data, tmp_path / f"{i}.parquet") for i, folder in
                 enumerate((blocks, one))]  # fmt: skip
    assert len(predicted) == 2
    plans = [sorted(p.name for p in (folder / "plan").iterdir()) for folder in (blocks, one)]
    assert plans[0] == plans[1]
    assert "multi-selection" in (blocks / "report.html").read_text()


def test_says_what_it_did_and_left_out(tmp_path):
    data = write_judgments(tmp_path / "data")
    said: list[str] = []
    spec = job(data, tmp_path / "a", multiselect={})
    assert "3 slabs of up to 2 attributes" in prepare(spec).job.describe()["search"]
    folder = run_job(spec, say=said.append).folder
    manifest = read(folder, "manifest.json")
    note = next(n for n in manifest["notes"] if "searched in 3 slabs on actors" in n)
    assert "baselines left out: averages, copies" in note
    assert "no cross-validation" in note
    assert f"Note: {note}" in said
    # Each slab is a pass over the four files; then one for the chosen, and one of averages.
    for block in (1, 2, 3):
        assert stage(manifest, f"statistics {block} of 3")["n_read"] == 4
    assert set(manifest["judgments"]["train"]) == {"warm", "tall", "loud", "soft", "flat"}


def test_missing_judgments_and_weights(tmp_path):
    data = write_judgments(tmp_path / "data")
    rng = np.random.default_rng(0)
    for path in sorted(data.glob("*.parquet")):
        table = pq.read_table(path)
        for name in ("warm", "loud"):
            lists = [v if rng.random() < 0.8 else [] for v in table[name].to_pylist()]
            column = pa.array(lists, pa.list_(pa.float64()))
            table = table.set_column(table.schema.get_field_index(name), name, column)
        weight = pa.array(rng.choice([0.0, 1.0, 3.0], len(table)))
        pq.write_table(table.append_column("w", weight), path)
    paths = []
    for name, blocks in (("a", "always"), ("b", "never")):
        folder = run(data, tmp_path / name, multiselect={"blocks": blocks}, data={"weight": "w"})
        paths.append(read(folder, "selection.json"))
    assert paths[0]["repeats"] == paths[1]["repeats"]
    assert paths[0]["objective"] == pytest.approx(paths[1]["objective"], rel=1e-9)
    assert paths[0]["label_variance"] == pytest.approx(paths[1]["label_variance"], rel=1e-12)


def test_actors_and_workers_do_not_change_a_bit(tmp_path):
    data = write_judgments(tmp_path / "data")
    one = run(data, tmp_path / "a", engine={"workers": 1})
    two = run(data, tmp_path / "b", engine={"workers": 2})
    names = [p.relative_to(one) for p in one.rglob("*.npz")]
    names += [Path("selection.json"), Path("metrics.json"), Path("model.json")]
    assert len(names) > 8
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_ray_does_not_change_a_bit(tmp_path, ray_session):
    data = write_judgments(tmp_path / "data")
    here = run(data, tmp_path / "a", engine={"workers": 1})
    ray = run(data, tmp_path / "b", engine={"kind": "ray", "workers": 2})
    for name in ("selection.json", "metrics.json", "statistics/paths.npz"):
        assert (here / name).read_bytes() == (ray / name).read_bytes(), name


def test_killed_between_slabs_reads_only_the_rest(tmp_path, monkeypatch):
    data = write_judgments(tmp_path / "data")
    spec = job(data, tmp_path / "a", multiselect={}, engine={"cache": False})
    original = MultiselectSlabsJob.compute_slab

    def failing(self, number, context):
        if number == 2:
            raise EngineError("the power went")
        return original(self, number, context)

    monkeypatch.setattr(MultiselectSlabsJob, "compute_slab", failing)
    with pytest.raises(EngineError, match="the power went"):
        run_job(spec)
    monkeypatch.setattr(MultiselectSlabsJob, "compute_slab", original)
    result = run_job(spec)
    assert result.resumed
    assert result.skipped == ("statistics 1 of 3", "statistics 2 of 3")
    undisturbed = run(data, tmp_path / "b", engine={"cache": False})
    for name in ("selection.json", "metrics.json", "weights.npz"):
        assert (result.folder / name).read_bytes() == (undisturbed / name).read_bytes()


def test_pool_is_refused_where_a_slab_does_not_fit(tmp_path, monkeypatch):
    data = write_judgments(tmp_path / "data")
    monkeypatch.setattr(MultiselectSlabsJob, "slab_bytes", lambda self: 2**45)
    monkeypatch.setattr(MultiselectSlabsJob, "statistics_bytes", lambda self: 8)
    with pytest.raises(SpecError, match="smaller blocks"):
        run(data, tmp_path / "a")


def test_choice_depends_on_the_spec_and_the_number_of_attributes():
    def choice(n, folds=0, **options):
        options = {"budget": 1, "baselines": ("scoring",)} | options
        return wants_slabs(MultiselectOptions(**options), n, folds)

    options = MultiselectOptions(budget=1, baselines=("scoring",))
    assert one_process_bytes(options, 20_000, 0) == (2 * 2 + 6) * 8 * 20_000**2
    assert choice(20_000, psd="none")
    assert not choice(7_000, psd="none")
    assert choice(7_000, 5, psd="none")
    assert choice(7_000, psd="none", baselines=("copies",))
    assert choice(10, psd="none", blocks="always")
    assert not choice(20_000, psd="none", blocks="never")
    assert not choice(20_000)
    assert not choice(20_000, psd="none", algorithm="scoring")
    assert not choice(20_000, psd="none", refine=True)
    with pytest.raises(SpecError, match=r"needs `multiselect\.psd: none`; it is nearest"):
        choice(10, blocks="always")
    with pytest.raises(SpecError, match=r"needs `multiselect\.refine: false`"):
        choice(10, psd="none", blocks="always", refine=True)


def test_ordinary_jobs_are_as_they_were(tmp_path):
    data = write_judgments(tmp_path / "data")
    assert type(prepare(small_job(data, tmp_path / "a")).job) is MultiselectJob
    assert isinstance(prepare(job(data, tmp_path / "b", multiselect={})).job, MultiselectSlabsJob)


def write_wide(folder: Path, n_attributes: int, n_objects: int = 30) -> Path:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(n_objects, n_attributes))
    columns = {
        f"a{a:04d}": (truth[:, a, None] + rng.normal(size=(n_objects, 2))).tolist()
        for a in range(n_attributes)
    }
    label = truth[:, :5].sum(axis=1)
    folder.mkdir()
    table = pa.table({"id": np.arange(n_objects), "y": label, **columns})
    pq.write_table(table, folder / "wide.parquet")
    return folder


def test_driver_never_holds_the_whole_matrix(tmp_path, monkeypatch):
    """At 900 attributes; the first, small run loads what is loaded once."""
    d = 900
    data = write_wide(tmp_path / "data", d)
    small = write_judgments(tmp_path / "small")
    monkeypatch.setattr(slabs, "SLAB_COLUMNS", 64)
    run(small, tmp_path / "warm")
    options = {"budget": 10, "plan": False, "costs": {}, "ridge": 1.0, "baselines": []}
    peaks = Peaks(monkeypatch, last="select")
    found = {}
    try:
        for blocks in ("always", "never"):
            peaks.start()
            changes = {"multiselect": options | {"blocks": blocks}, "data": {"folds": 0, "test": 0}}
            folder = run(data, tmp_path / blocks, **changes)
            found[blocks] = (read(folder, "selection.json")["repeats"], dict(peaks.bytes))
    finally:
        tracemalloc.stop()
    assert found["always"][0] == found["never"][0]
    matrix = 8 * d * d
    block = prepare(job(data, tmp_path / "x", multiselect=options)).job.slab_bytes()
    assert block < matrix / 10
    in_slabs = found["always"][1]
    statistics = [in_slabs[name] for name in in_slabs if name.startswith("statistics ")]
    assert len(statistics) == 15
    # A block as arrays, twice where it is merged or written, and the values that were read.
    assert max(statistics) < 10 * block < 0.75 * matrix
    assert in_slabs["select"] < 6 * block
    assert peaks.bytes["select"] > 4 * matrix
