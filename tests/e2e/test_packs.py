"""Jobs over many small partitions, whose partial statistics are kept in packs."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.runs import projection
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from tests.e2e.jobs import content

N_PARTITIONS = 70
ROWS = 8


def made():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_PARTITIONS * ROWS, 24))
    y = X @ np.arange(24.0) + rng.normal(size=len(X))
    return pa.table({**{f"x{j}": X[:, j] for j in range(24)}, "y": y})


def test_packs_change_no_bit(tmp_path, monkeypatch):
    def job(path, **engine):
        spec = {
            "name": "packs",
            "method": "sequence",
            "data": {"path": str(path), "target": "y", "folds": 2, "max_partition_rows": ROWS},
            "sequence": {"model": "linear", "baselines": []},
            "engine": {"workers": 2, **engine},
            "output": str(tmp_path / f"runs{len(engine)}"),
        }
        folder = run_job(build_spec(spec)).folder
        stage = content(folder, "manifest.json")["stages"][0]
        own = [(folder / name).read_bytes() for name in ("model.json", "weights.npz")]
        return (stage["n_read"], stage["n_cached"]), own, stage["files"]

    (tmp_path / "data").mkdir()
    table = made()
    for number in range(N_PARTITIONS):
        rows = table.slice(number * ROWS, ROWS)
        pq.write_table(rows, tmp_path / "data" / f"{number:02d}.parquet")
    # Partials of all partitions take more than the files; those of packs do not.
    monkeypatch.setattr(projection, "_CACHE_FREELY_BYTES", 0)
    _, *wanted = job(tmp_path / "data", cache=False)
    assert job(tmp_path / "data")[1:] == tuple(wanted)
    assert job(tmp_path / "data") == ((6, 64), *wanted)
    pq.write_table(table.slice(1, ROWS), tmp_path / "data" / "40.parquet")
    _, *wanted = job(tmp_path / "data", cache=False)
    assert job(tmp_path / "data") == ((38, 32), *wanted)  # the pack of the change, and what is none
