"""Rows, objects and judgments that play no part are counted in a note of the run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from distfms.cli import main

N_ROWS = 200


def rows():
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=N_ROWS) for i in range(3)}
    columns["y"] = columns["x0"] + rng.normal(size=N_ROWS)
    columns["y"][:4] = np.nan
    columns["x1"][4:7] = np.nan
    return columns | {"weight": np.where(np.arange(N_ROWS) < 180, 1.0, 0.0)}


def notes(tmp_path, capsys, method, data, **section):
    content = {"name": "notes", "method": method, "data": {"path": str(data), **section}}
    content |= {"multiselect": {"budget": 3}} if method == "multiselect" else {}
    (tmp_path / "spec.yaml").write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "run")])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    written = json.loads((tmp_path / "run" / "manifest.json").read_text())["notes"]
    assert [line[6:] for line in out.splitlines() if line.startswith("Note: ")] == written
    return written


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("drop", "7 rows were left out because a value is missing."),
        ("mean", "4 rows were left out because the target is missing."),
    ],
)
def test_rows_without_values_and_weights(tmp_path, capsys, missing, expected):
    pq.write_table(pa.table(rows()), tmp_path / "a.parquet")
    section = {"target": "y", "weight": "weight", "missing": missing, "folds": 2}
    found = notes(tmp_path, capsys, "sequence", tmp_path / "a.parquet", **section)
    assert expected in found
    assert "20 rows of weight 0 play no part." in found


def test_predictions_tell_the_folds_of_the_job(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table(rows() | {"id": np.arange(N_ROWS)})
    pq.write_table(table, "a.parquet")
    pq.write_table(table.slice(150), "some.parquet")
    spec = {"name": "parts", "method": "sequence"}
    section = {"path": "a.parquet", "target": "y", "missing": "mean", "folds": 3, "test": 0.3}

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        return ended.value.code, capsys.readouterr()

    def predict(data):
        return run("predict", "runs/parts", data, "--out", "p.csv", "--with-folds")

    def job(**changes):
        content = {**spec, "data": {**section, **changes}, "output": str(tmp_path / "runs")}
        (tmp_path / "spec.yaml").write_text(json.dumps(content))
        assert run("run", "spec.yaml")[0] == 0
        folder = (tmp_path / "runs" / "parts" / "latest").resolve()
        return json.loads((folder / "manifest.json").read_text())["objects"]

    objects = job(id="id")
    assert predict("a.parquet")[0] == 0
    found = csv.read_csv("p.csv").to_pandas()
    teaching = found[~table.column("y").is_null(nan_is_null=True).to_numpy()]
    assert teaching.held_out.sum() == objects["test"]
    assert (~teaching.held_out).sum() == objects["train"]
    assert found.fold.isna().equals(found.held_out)
    assert sorted(found.fold.dropna().unique()) == [0, 1, 2]
    assert predict("some.parquet")[0] == 0
    some = csv.read_csv("p.csv").to_pandas()
    assert some.fold.equals(found.fold[150:].reset_index(drop=True))
    # Without an id the row numbers in the files of the run decide.
    job(exclude=["id"])
    assert predict("a.parquet")[0] == 0
    code, said = predict("some.parquet")
    assert code == 2
    assert "no id or query" in said.err
    code, said = run("predict", "runs/parts/latest", "a.parquet", "--out", "p.json")
    assert code == 2
    assert ".parquet or .csv" in said.err
    (tmp_path / "runs" / "parts" / "latest").unlink()
    assert run("report", "runs/parts/latest")[0] == 0
    assert run("report", "runs/parts")[0] == 0
