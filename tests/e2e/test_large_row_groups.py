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
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.multiselect_jobs import NAMES, objects, write
from tests.e2e.multiselect_jobs import job as multiselect_job
from tests.e2e.sequence_jobs import mixed_job, mixed_rows

N_ROWS = 3000
SECTION = {"max_partition_rows": 400}


def judgments(n):
    """Objects with one to three judgments of each attribute."""
    columns = objects(n, k=3)
    for name in NAMES:
        columns[name] = [values[: 1 + i % 3] for i, values in enumerate(columns[name])]
    return columns


def rows(n):
    return mixed_rows(n) | {"weight": np.random.default_rng(1).random(n)}


@pytest.mark.parametrize(
    ("columns", "job", "section"),
    [(rows, mixed_job, {"weight": "weight"}), (judgments, multiselect_job, {})],
    ids=["sequence", "multiselect"],
)
def test_results_are_those_of_small_row_groups_and_of_any_workers(tmp_path, columns, job, section):
    results = []
    predicted = []
    for name, size, workers in (("small", 400, 1), ("one", N_ROWS, 1), ("two", N_ROWS, 2)):
        path = write(tmp_path / name, columns(N_ROWS), row_group_size=size)
        engine = {"workers": workers, "cache": False}
        spec = job(path, tmp_path / f"{name}-runs", data=SECTION | section, engine=engine)
        folder = run_job(spec).folder
        results.append(content(folder, "model.json"))
        predict_file(folder, str(path), tmp_path / f"{name}.parquet")
        predicted.append(pq.read_table(tmp_path / f"{name}.parquet").column(1).to_numpy())
    small, one, two = predicted
    np.testing.assert_allclose(one, small, rtol=1e-9)
    np.testing.assert_array_equal(one, two)
    assert results[1] == results[2]


def test_messages_name_the_row_of_the_file(tmp_path):
    columns = mixed_rows(N_ROWS)
    columns["y"][1234] = np.inf
    path = write(tmp_path, columns, row_group_size=N_ROWS)
    with pytest.raises(DataError, match="row group 0, first at its row 1234"):
        run_job(mixed_job(path, tmp_path / "runs", data=SECTION))


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
        "engine": {"memory": "480MiB", "workers": 2},
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
    assert int(done.stdout.split()[-1]) < 480 * 2**10
