"""Rows, objects and judgments that play no part are counted in a note of the run."""

import json

import numpy as np
import pyarrow as pa
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


def test_judgments_in_long_form(tmp_path, capsys):
    rng = np.random.default_rng(1)
    lines = ["face,question,answer"]
    for face in range(40):
        true = rng.normal(size=2)
        lines += [f"{face},q{k % 2},{true[k % 2] + rng.normal():.3f}" for k in range(6)]
        lines += [f"{face},label,{true.sum():.3f}"] if face % 10 else []
        lines += [f"{face},q0,", f"{face},q1,NaN"] if face < 3 else []
    (tmp_path / "long.csv").write_text("\n".join(lines) + "\n")
    long = {"object": "face", "attribute": "question", "value": "answer", "label": "label"}
    found = notes(tmp_path, capsys, "multiselect", tmp_path / "long.csv", long=long)
    assert found[0] == (
        "Left out when converting the judgments: 4 objects without a label, 6 rows without a value."
    )
