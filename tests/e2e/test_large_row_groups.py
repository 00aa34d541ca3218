"""Files whose only row group is far larger than a partition should be: read in batches of rows."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import DataError
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file

N_ROWS = 3000


def write_rows(folder, row_group_size, **changes):
    rng = np.random.default_rng(1)
    columns = {f"x{i}": rng.normal(size=N_ROWS) for i in range(6)}
    columns["y"] = columns["x0"] - 2 * columns["x3"] + rng.normal(size=N_ROWS)
    columns["city"] = np.array(["Rome", "Oslo", "Lima"])[rng.integers(0, 3, N_ROWS)]
    columns |= {"id": np.arange(N_ROWS) // 2, "weight": rng.random(N_ROWS)}
    folder.mkdir()
    pq.write_table(pa.table(columns | changes), folder / "a.parquet", row_group_size=row_group_size)
    return folder


def write_judgments(folder, row_group_size):
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(N_ROWS, 3))
    columns = {
        f"a{i}": [(truth[r, i] + rng.normal(size=1 + r % 3)).tolist() for r in range(N_ROWS)]
        for i in range(3)
    }
    columns |= {"y": truth.sum(axis=1), "id": np.arange(N_ROWS)}
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=row_group_size)
    return folder


def job(data, output, method="sequence", workers=1, **changes):
    section = {"path": str(data), "target": "y", "id": "id", "folds": 3, "test": 0.2}
    section["max_partition_rows"] = 400
    content = {
        "name": "large",
        "method": method,
        "data": {**section, **changes},
        "engine": {"workers": workers, "cache": False},
        "output": str(output),
    }
    if method == "multiselect":
        content["multiselect"] = {"budget": 6}
    return build_spec(content)


@pytest.mark.parametrize("method", ["sequence", "multiselect"])
def test_results_are_those_of_small_row_groups_and_of_any_workers(tmp_path, method):
    write = write_rows if method == "sequence" else write_judgments
    changes = {"weight": "weight"} if method == "sequence" else {}
    found = []
    for name, size, workers in (("small", 400, 1), ("one", N_ROWS, 1), ("two", N_ROWS, 2)):
        data = write(tmp_path / name, size)
        result = run_job(job(data, tmp_path / f"{name}-runs", method, workers, **changes))
        found.append(json.loads((result.folder / "model.json").read_text()))
        out = tmp_path / f"{name}.parquet"
        predict_file(result.folder, str(data), out)
        found[-1]["predicted"] = pq.read_table(out).column(1).to_numpy()
    small, one, two = (content.pop("predicted") for content in found)
    # Without id the name of the folder would decide the folds.
    np.testing.assert_allclose(one, small, rtol=1e-9)
    np.testing.assert_array_equal(one, two)
    assert found[1] == found[2]


def test_messages_name_the_row_of_the_file(tmp_path):
    y = np.ones(N_ROWS)
    y[1234] = np.inf
    data = write_rows(tmp_path / "data", N_ROWS, y=y)
    with pytest.raises(DataError, match="row group 0, first at its row 1234"):
        run_job(job(data, tmp_path / "runs"))


@pytest.mark.slow
def test_memory_stays_within_the_bound_of_the_spec(tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"x{i:02d}": rng.integers(0, 16, 3_000_000).astype(float) for i in range(20)}
    columns["y"] = sum(columns.values()) + rng.integers(0, 8, 3_000_000)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "data" / "a.parquet", row_group_size=1_000_000)
    spec = {
        "name": "codes",
        "method": "sequence",
        "data": {"path": str(tmp_path / "data"), "target": "y", "folds": 5},
        "engine": {"memory": "400MiB", "workers": 2},
        "output": str(tmp_path / "runs"),
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    script = """
import re, sys
from distfms.cli import main
try:
    main(["run", sys.argv[1]])
finally:  # unlike that of getrusage, this is not the peak of the process that has forked
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
    command = [sys.executable, "-c", script, str(tmp_path / "spec.yaml")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "480.7 MiB decoded" in done.stdout
    assert int(done.stdout.split()[-1]) < 400 * 2**10
