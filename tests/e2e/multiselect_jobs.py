"""Small multi-selection jobs on data made up for one case each."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.runs.driver import run_job
from tests.e2e.jobs import content as read
from tests.e2e.jobs import spec_of

N = 60
NAMES = ("a", "b", "c")


def objects(n=N, k=2, seed=0, **changes):
    """Columns of `n` objects with `k` judgments of three attributes."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, 3))
    columns = {"id": list(range(n)), "y": truth @ [1.0, 2.0, 3.0] + 0.3 * rng.normal(size=n)}
    for a, name in enumerate(NAMES):
        columns[name] = (truth[:, a, None] + rng.normal(size=(n, k))).tolist()
    return columns | changes


def lists(values):
    return pa.array(values, pa.list_(pa.float64()))


def write(folder, columns, name="data.parquet", **options):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name, **options)
    return folder / name


def job(path, output, **changes):
    content = {
        "name": "small",
        "method": "multiselect",
        "data": {"path": str(path), "target": "y", "id": "id", "folds": 3, "test": 0.2},
        "multiselect": {"budget": 6, "algorithm": "full"},
        "engine": {"workers": 1},
        "output": str(output),
    }
    return spec_of(content, changes)


def run(path, output, **changes):
    folder = run_job(job(path, output, **changes)).folder
    files = ("selection", "metrics", "manifest")
    return folder, *(read(folder, f"{f}.json") for f in files)


def notes(manifest):
    return " ".join(manifest["notes"])
