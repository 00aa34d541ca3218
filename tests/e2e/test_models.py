"""Models by name: the commands, predictions into a folder, and models in memory."""

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distfms as package
from distfms.errors import DataError, SpecError
from distfms.registry import Registry
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.spec import EngineSection
from distfms.store.places import files_below, locate
from tests.e2e.jobs import judgments_job
from tests.faults.cases import dask_engine


@pytest.fixture(scope="module")
def versions(judgments, tmp_path_factory):
    """What two runs keep, and the folder of the second."""
    place = tmp_path_factory.mktemp("runs")
    runs = [
        run_job(
            judgments_job(judgments, place, multiselect={"budget": budget, "plan": False})
        ).folder
        for budget in (6, 12)
    ]
    files = [[path for path in run.iterdir() if path.suffix] for run in runs]
    return [{path.name: path.read_bytes() for path in some} for some in files], runs[1]


@pytest.fixture
def place(versions, tmp_path, monkeypatch):
    """A folder with a registry where the first version is in place."""
    registry = Registry(tmp_path / "runs/registry")
    for number, files in enumerate(versions[0], 1):
        registry.add("small", files, {"loss": 1 / number, "rows": 200}, number - 1 or None)
    registry.promote("small", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_versions_are_listed_compared_and_switched(place, distfms):
    assert "small" in distfms("models", "list").out
    nowhere = distfms("models", "list", "--registry", "nowhere")
    assert (nowhere.code, "There is no registry at nowhere." in nowhere.err) == (2, True)
    listed = json.loads(distfms("models", "list", "--json").out)
    assert listed == [{"name": "small", "current": 1, "versions": [1, 2]}]
    of_small = json.loads(distfms("models", "list", "small", "--json").out)
    assert [(v["version"], v["current"], v["parent"]) for v in of_small] == [
        (1, True, None),
        (2, False, 1),
    ]
    assert "loss 0.5" in distfms("models", "list", "small").out
    shown = json.loads(distfms("models", "show", "small", "--json").out)
    assert (shown["number"], len(shown["promoted"])) == (1, 1)
    assert "facts.loss" in distfms("models", "show", "small@2").out
    differ = json.loads(distfms("models", "diff", "small", 1, 2, "--json").out)
    assert {"what": "loss", "1": 1.0, "2": 0.5} in differ
    assert "weights.npz" in {row["what"] for row in differ}
    for kind in ("chosen.", "weight."):
        assert any(row["what"].startswith(kind) and row["1"] != row["2"] for row in differ)
    assert "small: version 2 is current." in distfms("models", "promote", "small@2").out
    assert "version 1 is current again" in distfms("models", "rollback", "small").out
    assert "removed nothing" in distfms("models", "gc", "small", "--keep", 1).out


def test_changes_are_logged_and_damage_is_named(place, distfms):
    distfms("models", "promote", "small@2", "--because", "fewer \x1b[31m[bold]errors")
    logged = json.loads(distfms("models", "log", "small", "--json").out)
    assert [(row["kind"], row["version"]) for row in logged] == [("promote", 1), ("promote", 2)]
    assert "@" in logged[1]["author"]
    assert r"  fewer \u001b[31m[bold]errors" in distfms("models", "log", "small").out
    assert distfms("models", "verify").out == "No damage found: small.\n"
    registry = Registry(place / "runs/registry")
    (place / "runs/registry/README").touch()
    (registry.files("small", registry.version("small")) / "model.json").write_text("{}")
    registry.add("other", {"model.json": b"{}"}, {})
    (place / "runs/registry/other/versions/00000001.json").write_text("{")
    listed = distfms("models", "list", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["other", "small"]
    assert "Note: Skipping a record" in listed.err
    found = distfms("models", "verify")
    assert (found.code, found.out.count("is damaged")) == (2, 2)
    assert "version 1 is current again" in distfms("models", "rollback", "small").out


def test_what_cannot_be_done_is_refused(place, distfms):
    def refused(*arguments, code=2):
        result = distfms(*arguments)
        assert (result.code, result.err.count("\n")) == (code, 1), result.err
        return result.err

    assert "no model 'smal'. Did you mean 'small'?" in refused("models", "list", "smal")
    assert "Name the version" in refused("models", "promote", "small")
    for wrong in ("a@b", "a@" + "9" * 5000):
        assert f"{wrong[:100]!r} is not a model name" in refused("models", "show", wrong)


def test_a_registry_that_cannot_be_written(place, distfms, monkeypatch):
    def link(source, target):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "link", link)
    result = distfms("models", "promote", "small@2")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "cannot be written (Read-only file system)" in result.err
    assert "name another with --registry or DISTFMS_REGISTRY" in result.err
    assert not [path for path in (place / "runs").rglob("*") if path.suffix == ".tmp"]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("model.json", lambda model: {}),
        ("model.json", lambda model: dict.fromkeys(model)),
        ("model.json", lambda model: dict.fromkeys(model, "text")),
        ("model.json", lambda model: {key: [1, {}] for key in model}),
        ("selection.json", lambda selection: dict.fromkeys(selection)),
        ("metrics.json", lambda metrics: dict.fromkeys(metrics, "text")),
        ("spec.yaml", lambda spec: {"data": []}),
    ],
)
def test_a_model_whose_files_hold_something_else_is_refused(
    place, versions, judgments, distfms, file, change
):
    files = dict(versions[0][1])
    content = {} if file == "spec.yaml" else json.loads(files[file])
    files[file] = json.dumps(change(content)).encode()
    registry = Registry(place / "runs/registry")
    registry.promote("odd", registry.add("odd", files, {}).number)
    if file != "model.json":
        model = package.load("registry:odd")
        for ask in (model.headline, model.page):
            with suppress(SpecError):
                ask()
    result = distfms("predict", "registry:odd", judgments, "--out", "p.parquet")
    expected = 0 if file in ("selection.json", "metrics.json") else 2
    assert (result.code, result.err.count("\n")) == (expected, bool(expected)), result.err


def test_a_folder_of_predictions_goes_on_where_it_stopped(place, versions, judgments, tmp_path):
    run = versions[1]
    moved = tmp_path / "judgments"
    (moved / "day=1").mkdir(parents=True)
    for part in judgments.iterdir():
        pq.write_table(pq.read_table(part), moved / "day=1" / part.name, row_group_size=25)
    predict_file(run, str(moved), tmp_path / "all.parquet")
    out = tmp_path / "predicted"
    predict_file(run, str(moved), f"{out}/")
    files = sorted(out.rglob("*.parquet"))
    assert len(files) == 4
    assert files[0].parent == out / "day=1"
    together = pa.concat_tables(pq.read_table(f, partitioning=None) for f in files)
    assert together.equals(pq.read_table(tmp_path / "all.parquet"))
    note = json.loads((out / "_predictions.json").read_text())
    assert (note["status"], note["n_rows"], note["n_partitions"]) == ("done", 200, 4)
    # One is missing, one is new, one was rewritten, and a killed writer and others have left
    # something.
    stamps = {f: f.stat().st_mtime_ns for f in files}
    files[1].unlink()
    (out / f"day=1/.{files[1].name}.1-0a.tmp").touch()
    foreign = [out / "day=1/others.parquet", out / ".x.1-2.tmp"]
    for file in foreign:
        file.touch()
    part = pq.read_table(moved / "day=1/part-3.parquet")
    pq.write_table(part.slice(0, 30), moved / "day=1/part-3.parquet")
    pq.write_table(part.slice(0, 10), moved / "day=1/part-4.parquet")
    summary = predict_file(run, str(moved), f"{out}/")
    assert "190 predictions" in summary
    for text in ("Partitions predicted before: 2", "Removed predictions of other partitions"):
        assert text in summary
    assert set(out.rglob(".*")) == {foreign[1]}
    assert [f for f in files if f.exists() and f.stat().st_mtime_ns == stamps[f]] == [
        files[0],
        files[2],
    ]
    foreign[0].unlink()
    assert len(list(out.rglob("*.parquet"))) == 5
    predict_file(run, str(moved), tmp_path / "all.parquet")
    together = pa.concat_tables(
        pq.read_table(f, partitioning=None) for f in sorted(out.rglob("*.parquet"))
    )
    assert together.equals(pq.read_table(tmp_path / "all.parquet"))


def test_a_folder_of_something_else_is_refused(place, judgments, tmp_path):
    out = f"{tmp_path}/predicted/"
    predict_file("registry:small@1", str(judgments), out)
    # Another model, or more columns, replace what is there, as they do in a file.
    for model, options in (("registry:small@2", {}), ("registry:small@1", {"with_folds": True})):
        summary = predict_file(model, str(judgments), out, **options)
        assert "Removed predictions of other partitions or models: 4" in summary
        assert len(list(Path(out).iterdir())) == 5
    other = shutil.copytree(judgments, tmp_path / "other")
    with pytest.raises(SpecError, match=f"predictions of {judgments}, which those of {other}"):
        predict_file("registry:small@1", str(other), out)
    # What a command leaves that was killed before it wrote anything else is in nobody's way.
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/._predictions.json.12-0f.tmp").touch()
    predict_file("registry:small@1", str(judgments), f"{tmp_path}/begun/")
    assert len(list((tmp_path / "begun").iterdir())) == 5
    with pytest.raises(SpecError, match="which is not a prediction"):
        predict_file("registry:small", str(judgments), f"{tmp_path}/runs/")
    with pytest.raises(SpecError, match="is part of the data to predict"):
        predict_file("registry:small", str(judgments), f"{judgments}/")
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="is a file"):
        predict_file("registry:small", str(judgments), f"{tmp_path}/file/")


def test_a_model_in_memory_predicts_as_the_command_does(place, versions, judgments):
    predict_file("registry:small", str(judgments), place / "p.parquet")
    expected = pq.read_table(place / "p.parquet")
    model = package.load("registry:small")
    assert repr(model) == "<Model registry:small@1, multiselect>"
    rows = pq.read_table(judgments)
    assert model.predict(rows).equals(expected)
    frame = rows.to_pandas().set_index(np.arange(200) + 7)
    predicted = model.predict(frame)
    assert predicted.index.tolist() == frame.index.tolist()
    assert predicted["predicted_y"].tolist() == expected["predicted_y"].to_pylist()
    columns = {name: rows[name].to_pylist()[:3] for name in rows.column_names if name != "id"}
    few = model.predict(columns)
    assert few["row"].to_pylist() == [0, 1, 2]
    assert few["predicted_y"].to_pylist() == expected["predicted_y"].to_pylist()[:3]
    with pytest.raises(DataError, match="no rows"):
        model.predict(rows.slice(0, 0))
    with pytest.raises(DataError, match="no judgments of"):
        model.predict({"id": [1]})
    with pytest.raises(DataError, match="An array has no names of attributes"):
        model.predict(np.ones((3, 2)))
    assert package.load(versions[1]).predict(rows)["predicted_y"].null_count == 0


def test_the_same_predictions_on_a_dask_cluster(place, judgments):
    here = place / "here"
    there = place / "there"
    predict_file("registry:small@2", str(judgments), f"{here}/", engine=EngineSection(workers=1))
    with dask_engine(n_workers=2, processes=False) as section:
        engine = EngineSection(**section)
        predict_file("registry:small@2", str(judgments), f"{there}/", engine=engine)
    written = {path.name: path.read_bytes() for path in here.iterdir()}
    assert len(written) == 5
    assert written == {path.name: path.read_bytes() for path in there.iterdir()}


def test_models_and_predictions_on_object_storage(
    versions, judgments, s3_variables, distfms, tmp_path
):
    bucket = s3_variables.bucket("models")
    registry = f"{bucket}/registry"
    kept = Registry(locate(registry))
    for files in versions[0]:
        kept.add("small", files, {})
    for arguments in (("promote", "small@1"), ("promote", "small@2"), ("rollback", "small")):
        result = distfms("models", *arguments, "--registry", registry)
        assert result.code == 0, result.err
    assert "version 1 is current again" in result.out
    listed = json.loads(distfms("models", "list", "--registry", registry, "--json").out)
    assert listed == [{"name": "small", "current": 1, "versions": [1, 2]}]
    predict = ("predict", "registry:small", judgments, "--registry", registry, "--out")
    for _ in range(2):
        result = distfms(*predict, f"{bucket}/predicted/")
        assert result.code == 0, result.err
    assert "Partitions predicted before: 4" in result.out
    predict_file("registry:small", str(judgments), tmp_path / "one.parquet", registry=registry)
    parts = [e.place for e in files_below(locate(f"{bucket}/predicted"), "*.parquet")]
    tables = [pq.read_table(pa.BufferReader(place.read_bytes())) for place in parts]
    assert pa.concat_tables(tables).equals(pq.read_table(tmp_path / "one.parquet"))
    model = package.load("registry:small", registry=registry)
    assert model.predict(pq.read_table(judgments)).num_rows == 200
    result = distfms("models", "list", "--registry", "s3://denied/registry")
    assert result.code == 1
    assert "Access is denied" in result.err
