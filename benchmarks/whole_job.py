"""Whole jobs as users run them: ``distfms run`` in fresh processes, against limits and peers.

For each layout of the same rows (1 M × 100 float64 or float32, 5 folds) these are run in turn, each
in a process of its own, several times:

- ``distfms run``: wall time of the command, and that of its statistics stage;
- ``limit``: decoding the same files and multiplying as much data, on two threads with one BLAS
  thread each, without folds, checks or libraries to import;
- ``numpy``: the loop a user would write for the Gram matrix alone, by ``iter_batches``;
- ``dask``: the same by ``dask.dataframe`` and ``dask.array``;

and ratios are taken within each round. The smallest jobs and ``distfms check`` are timed as well.

Run with ``python benchmarks/whole_job.py [--rows N] [--data FOLDER] [--repeats N]``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 100
JOBS = Path(__file__).resolve().parents[1] / "jobs"

#: Options of the writer by layout; the first is pyarrow's default but for its huge row groups.
LAYOUTS: dict[str, dict[str, Any]] = {
    "100k-row groups": {"row_group_size": 100_000},
    "one row group": {"row_group_size": 1_000_000},
    "zstd, byte-stream split": {"row_group_size": 100_000, "compression": "zstd"},
    "float32": {"row_group_size": 100_000},
}

LIMIT = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np, pyarrow.parquet as pq, threadpoolctl
path = sys.argv[1]
n_groups = pq.ParquetFile(path).num_row_groups
names = pq.ParquetFile(path).schema_arrow.names
shares = [(g, names) for g in range(n_groups)]
if n_groups == 1:
    shares = [(0, names[::2]), (0, names[1::2])]
n_rows = pq.ParquetFile(path).metadata.num_rows
block = np.random.default_rng(0).normal(size=(len(names), 32_768))
def decode(share):
    group, columns = share
    for start in range(0, len(columns), 5):
        with pq.ParquetFile(path) as file:
            file.read_row_group(group, columns=columns[start : start + 5], use_threads=False)
def multiply(_):
    block @ block.T
with threadpoolctl.threadpool_limits(1), ThreadPoolExecutor(2) as pool:
    block @ block.T
    start = time.perf_counter()
    list(pool.map(decode, shares))
    list(pool.map(multiply, range(-(-n_rows // block.shape[1]))))
    print(time.perf_counter() - start)
"""

NUMPY = """
import sys, numpy as np, pyarrow.parquet as pq
total, sums, n = 0.0, 0.0, 0
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(65_536):
    X = np.column_stack([column.to_numpy() for column in batch.columns]).astype(float)
    total, sums, n = total + X.T @ X, sums + X.sum(axis=0), n + len(X)
covariance = total / n - np.outer(sums / n, sums / n)
"""

DASK = """
import sys, dask.dataframe as dd
X = dd.read_parquet(sys.argv[1], split_row_groups=True).to_dask_array().astype(float)
X.compute_chunk_sizes()
(X.T @ X).compute()
"""


def write_layouts(folder: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{i:02d}": rng.normal(size=n_rows) for i in range(COLUMNS - 1)}
    columns["y"] = np.sum(list(columns.values())[:9], axis=0) + rng.normal(size=n_rows)
    table = pa.table(columns)
    for name, options in LAYOUTS.items():
        rows = table
        if name == "float32":
            rows = table.cast(pa.schema([(c, pa.float32()) for c in table.column_names]))
        if "split" in name:
            split = dict.fromkeys(table.column_names, "BYTE_STREAM_SPLIT")
            options = {**options, "use_dictionary": False, "column_encoding": split}
        pq.write_table(rows, folder / f"{name}.parquet", **options)


def seconds(*command: str) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, done.stdout


def distfms(command: str, spec: Path, runs: Path) -> tuple[float, str]:
    arguments = [command, str(spec), "--set", f"output={runs}", "--set", "engine.cache=false"]
    script = "import sys; from distfms.cli import main; main(sys.argv[1:])"
    return seconds(sys.executable, "-c", script, *arguments)


def one_round(file: Path, scratch: Path) -> dict[str, float]:
    """Run everything once on a file; seconds by name."""
    spec = scratch / "spec.yaml"
    data = {"path": str(file), "target": "y", "folds": 5}
    content = {"name": "whole", "method": "sequence", "data": data, "engine": {"workers": 2}}
    spec.write_text(json.dumps(content | {"sequence": {"baselines": []}}))
    found = {"distfms run": distfms("run", spec, scratch / "runs")[0]}
    manifest = json.loads((scratch / "runs" / "whole" / "latest" / "manifest.json").read_text())
    found |= {stage["name"]: stage["seconds"] for stage in manifest["stages"]}
    found["limit"] = float(seconds(sys.executable, "-c", LIMIT, str(file))[1])
    found["numpy"] = seconds(sys.executable, "-c", NUMPY, str(file))[0]
    found["dask"] = seconds(sys.executable, "-c", DASK, str(file))[0]
    return found


def spread(values: list[float]) -> str:
    return f"{median(values):6.2f} [{min(values):.2f}–{max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="folder for scratch files (3 GB)")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=args.data) as folder:
        scratch = Path(folder)
        write_layouts(scratch, args.rows)
        for name in LAYOUTS:
            file = scratch / f"{name}.parquet"
            rounds = [one_round(file, scratch) for _ in range(args.repeats)]
            print(f"\n{name}: seconds, medians and ranges of {args.repeats} rounds")
            for key in rounds[0]:
                print(f"  {key:22}{spread([r[key] for r in rounds])}")
            for of, to in (
                ("statistics", "limit"), ("distfms run", "numpy"), ("distfms run", "dask")
            ):  # fmt: skip
                ratios = [r[of] / r[to] for r in rounds]
                print(f"  {f'{of} / {to}':22}{spread(ratios)}", flush=True)
        print("\nsmall jobs: seconds of the command")
        for command, job in (
            ("check", "sequence-breast-cancer"),
            ("run", "multiselect-digits"),
            ("run", "sequence-breast-cancer"),
        ):
            spec = JOBS / f"{job}.yaml"
            times = [distfms(command, spec, scratch / "runs")[0] for _ in range(args.repeats)]
            print(f"  {command} {job:28}{spread(times)}", flush=True)


if __name__ == "__main__":
    main()
