"""Rows, objects and judgments that play no part are counted in a note of the run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N_ROWS = 200


def rows():
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=N_ROWS) for i in range(3)}
    columns["y"] = columns["x0"] + rng.normal(size=N_ROWS)
    columns["y"][:4] = np.nan
    columns["x1"][4:7] = np.nan
    return columns | {"weight": np.where(np.arange(N_ROWS) < 180, 1.0, 0.0)}


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
