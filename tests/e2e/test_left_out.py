"""Rows, objects and judgments that play no part are counted in a note of the run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from distfms.report.notes import coded
from tests.e2e.jobs import content

N_ROWS = 200


def rows():
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=N_ROWS) for i in range(3)}
    columns["y"] = columns["x0"] + rng.normal(size=N_ROWS)
    columns["y"][:4] = np.nan
    columns["x1"][4:7] = np.nan
    return columns | {"weight": np.where(np.arange(N_ROWS) < 180, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("drop", "7 rows were left out because a value is missing."),
        ("mean", "4 rows were left out because the target is missing."),
    ],
)
def test_rows_without_values_and_weights(tmp_path, distfms, missing, expected):
    pq.write_table(pa.table(rows()), tmp_path / "a.parquet")
    section = {"target": "y", "weight": "weight", "missing": missing, "folds": 2}
    data = {"path": str(tmp_path / "a.parquet"), **section}
    spec = {"name": "notes", "method": "sequence", "data": data}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    done = distfms("run", tmp_path / "spec.yaml", "--out", tmp_path / "run")
    assert done.code == 0
    written = content(tmp_path / "run", "manifest.json")["notes"]
    said = [line[6:] for line in done.out.splitlines() if line.startswith("Note: ")]
    assert said == [coded(text) for text in written]
    assert expected in written
    assert "20 rows of weight 0 are ignored." in written


def test_predictions_tell_the_folds_of_the_job(tmp_path, distfms, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table(rows() | {"id": np.arange(N_ROWS)})
    pq.write_table(table, "a.parquet")
    pq.write_table(table.slice(150), "some.parquet")
    spec = {"name": "parts", "method": "sequence"}
    section = {"path": "a.parquet", "target": "y", "missing": "mean", "folds": 3, "test": 0.3}

    def predict(data):
        return distfms("predict", "runs/parts", data, "--out", "p.csv", "--with-folds")

    def job(**changes):
        job = {**spec, "data": {**section, **changes}, "output": str(tmp_path / "runs")}
        (tmp_path / "spec.yaml").write_text(json.dumps(job))
        assert distfms("run", "spec.yaml").code == 0
        return content(tmp_path / "runs" / "parts" / "latest", "manifest.json")["objects"]

    objects = job(id="id")
    assert predict("a.parquet").code == 0
    found = csv.read_csv("p.csv").to_pandas()
    teaching = found[~table.column("y").is_null(nan_is_null=True).to_numpy()]
    assert teaching.held_out.sum() == objects["test"]
    assert (~teaching.held_out).sum() == objects["train"]
    assert found.fold.isna().equals(found.held_out)
    assert sorted(found.fold.dropna().unique()) == [0, 1, 2]
    assert predict("some.parquet").code == 0
    some = csv.read_csv("p.csv").to_pandas()
    assert some.fold.equals(found.fold[150:].reset_index(drop=True))
    # Without an id the row numbers in the files of the run decide.
    job(exclude=["id"])
    assert predict("a.parquet").code == 0
    found = csv.read_csv("p.csv")
    refused = predict("some.parquet")
    assert (refused.code, "no id or query" in refused.err) == (2, True)
    # The name of a file by itself has no say.
    pq.write_table(table, "renamed.parquet")
    assert predict("renamed.parquet").code == 0
    assert csv.read_csv("p.csv").equals(found)
    # Test data of their own are held out, whatever their ids and row numbers hash to.
    for changes in ({"id": "id"}, {"exclude": ["id"]}):
        job(path="some.parquet", test=0, test_path="a.parquet", **changes)
        assert predict("a.parquet").code == 0
        found = csv.read_csv("p.csv").to_pandas()
        assert (found.held_out.all(), found.fold.isna().all()) == (True, True)
        assert predict("some.parquet").code == 0
        assert not csv.read_csv("p.csv").to_pandas().held_out.any()


def test_a_run_is_found_without_its_link_and_predictions_need_a_known_form(
    tmp_path, distfms, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(rows()), "a.parquet")
    data = {"path": "a.parquet", "target": "y", "missing": "mean", "folds": 0}
    job = {"name": "parts", "method": "sequence", "data": data, "output": str(tmp_path / "runs")}
    (tmp_path / "spec.yaml").write_text(json.dumps(job))
    assert distfms("run", "spec.yaml").code == 0
    refused = distfms("predict", "runs/parts/latest", "a.parquet", "--out", "p.json")
    assert (refused.code, ".parquet or .csv" in refused.err) == (2, True)
    (tmp_path / "runs" / "parts" / "latest").unlink()
    assert distfms("report", "runs/parts/latest").code == 0
    assert distfms("report", "runs/parts").code == 0
