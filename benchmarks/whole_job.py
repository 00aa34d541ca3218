"""Whole jobs as users run them: ``distfms run`` in fresh processes, against limits and peers.

For each layout of the same rows (1 M × 100 float64 or float32, 5 folds) these are run in turn, each
in a process of its own, several times:

- ``distfms run`` of linear models, which can be compared (by default LightGBM is fitted too): wall
  and processor time of the command, its peak memory, and the wall time of its statistics stage;
- ``limit``: decoding the same files and multiplying as much data, on two threads with one BLAS
  thread each, without folds, checks or libraries to import. Each row group is opened once and its
  columns decoded one after the other, which is the fastest way that was measured;
- ``numpy``: the loop a user would write for the Gram matrix of each fold, by ``iter_batches``, and
  six ridges on the folds;
- ``dask``: the same by ``dask.dataframe`` and ``dask.array``;

and ratios are taken within each round. The smallest jobs and ``distfms check`` are timed as well.

With ``--classes`` it is instead a job of classes: its processor time beside that of seven fits of
scikit-learn's logistic regression to all columns, with the ridge that the job chose.

Run with ``python benchmarks/whole_job.py [--rows N] [--data FOLDER] [--repeats N] [--classes N]``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import Process
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

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
    "float32, one row group": {"row_group_size": 1_000_000},
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
    with pq.ParquetFile(path) as file:
        for column in columns:
            file.read_row_group(group, columns=[column], use_threads=False)
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
rng, parts = np.random.default_rng(0), [[0.0, 0.0, 0] for _ in range(5)]
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(65_536):
    X = np.column_stack([column.to_numpy() for column in batch.columns]).astype(float)
    fold = rng.integers(0, 5, len(X))
    for f, part in enumerate(parts):
        own = X[fold == f]
        for i, more in enumerate((own.T @ own, own.sum(axis=0), len(own))):
            part[i] = part[i] + more
def covariance(parts):
    total, sums, n = map(sum, zip(*parts))
    return total / n - np.outer(sums / n, sums / n)
figures = np.empty((6, 5))
for f in range(5):
    C, H = covariance(parts[:f] + parts[f + 1 :]), covariance([parts[f]])
    for r, ridge in enumerate(np.geomspace(1e-5, 1, 6)):
        w = np.linalg.solve(C[:-1, :-1] + ridge * np.diag(np.diag(C)[:-1]), C[:-1, -1])
        figures[r, f] = 1 - (H[-1, -1] - 2 * w @ H[:-1, -1] + w @ H[:-1, :-1] @ w) / H[-1, -1]
print(figures.mean(axis=1))
"""

DASK = """
import sys, dask.dataframe as dd
X = dd.read_parquet(sys.argv[1], split_row_groups=True).to_dask_array().astype(float)
X.compute_chunk_sizes()
(X.T @ X).compute()
"""

SEVEN_FITS = """
import sys, time, numpy as np, pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
threadpool_limits(1)
table, ridge = pq.read_table(sys.argv[1]), float(sys.argv[2])
y, start = table["y"].to_numpy(), time.process_time()
X = StandardScaler().fit_transform(np.column_stack([c.to_numpy() for c in table.columns[:-1]]))
for fold in (-1, -1, 0, 1, 2, 3, 4):
    rows = np.arange(len(y)) % 5 != fold
    LogisticRegression(C=1 / (ridge * rows.sum()), max_iter=1000).fit(X[rows], y[rows])
print(time.process_time() - start)
"""


def classes_round(scratch: Path, n_classes: int) -> dict[str, float]:
    """Run a job of 20,000 rows of 500 columns in 100 groups, of 40 factors and noise, and fits."""
    rng, n, d = np.random.default_rng(0), 20_000, 500
    X = rng.normal(size=(n, 40)) @ rng.normal(size=(40, d)) / 40**0.5 + rng.normal(0, 0.7, (n, d))
    score = X @ (rng.normal(0, 0.3, d) * (rng.random(d) < 0.3)) + rng.logistic(size=n)
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    file, spec, folder = (scratch / name for name in ("classes.parquet", "spec.yaml", "runs"))
    pq.write_table(pa.table({**{f"g{i // 5}_{i}": X[:, i] for i in range(d)}, "y": y}), file)
    section = {"groups": {f"g{g}": [f"g{g}_*"] for g in range(d // 5)}, "baselines": []}
    section |= {"family": "logistic" if n_classes == 2 else "softmax", "model": "linear"}
    data = {"path": str(file), "target": "y", "folds": 5}
    content = {"name": "classes", "method": "sequence", "data": data, "sequence": section}
    spec.write_text(json.dumps(content | {"engine": {"workers": 2}}))
    done = distfms("run", spec, folder)
    selection = json.loads((folder / "classes" / "latest" / "selection.json").read_text())
    fits = run(sys.executable, "-c", SEVEN_FITS, str(file), str(selection["ridge"])).output
    figures = {"processor time": done.processor_s, "passes": selection["n_passes"]}
    return {**figures, "seven fits": float(fits), "ratio": done.processor_s / float(fits)}


def write_layouts(folder: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{i:02d}": rng.normal(size=n_rows) for i in range(COLUMNS - 1)}
    columns["y"] = np.sum(list(columns.values())[:9], axis=0) + rng.normal(size=n_rows)
    table = pa.table(columns)
    for name, options in LAYOUTS.items():
        rows = table
        if "float32" in name:
            rows = table.cast(pa.schema([(c, pa.float32()) for c in table.column_names]))
        if "split" in name:
            split = dict.fromkeys(table.column_names, "BYTE_STREAM_SPLIT")
            options = {**options, "use_dictionary": False, "column_encoding": split}
        pq.write_table(rows, folder / f"{name}.parquet", **options)


class Done(NamedTuple):
    """What a process took: wall and processor time, most memory held; and what it printed."""

    seconds: float
    processor_s: float
    peak_mib: float
    output: str


def run(*command: str) -> Done:
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        return Done(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output.read())


def distfms(command: str, spec: Path, runs: Path) -> Done:
    arguments = [command, str(spec), "--set", f"output={runs}", "--set", "engine.cache=false"]
    script = "import sys; from distfms.cli import main; main(sys.argv[1:])"
    return run(sys.executable, "-c", script, *arguments)


def one_round(file: Path, scratch: Path) -> dict[str, float]:
    """Run everything once on a file; seconds by name."""
    spec = scratch / "spec.yaml"
    data = {"path": str(file), "target": "y", "folds": 5}
    content = {"name": "whole", "method": "sequence", "data": data, "engine": {"workers": 2}}
    spec.write_text(json.dumps(content | {"sequence": {"model": "linear", "baselines": []}}))
    done = distfms("run", spec, scratch / "runs")
    figures = {"distfms run": done.seconds, "processor time": done.processor_s}
    figures["peak MiB"] = done.peak_mib
    manifest = json.loads((scratch / "runs" / "whole" / "latest" / "manifest.json").read_text())
    figures |= {stage["name"]: stage["seconds"] for stage in manifest["stages"]}
    figures["limit"] = float(run(sys.executable, "-c", LIMIT, str(file)).output)
    figures["numpy"] = run(sys.executable, "-c", NUMPY, str(file)).seconds
    figures["dask"] = run(sys.executable, "-c", DASK, str(file)).seconds
    return figures


def spread(values: list[float]) -> str:
    return f"{median(values):6.2f} [{min(values):.2f}–{max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="folder for scratch files (3 GB)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--classes", type=int, help="of a job of classes alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=args.data) as folder:
        scratch = Path(folder)
        if args.classes:
            rounds = [classes_round(scratch, args.classes) for _ in range(args.repeats)]
            for key in rounds[0]:
                print(f"  {key:22}{spread([r[key] for r in rounds])}")
            return
        # In another process: what this one holds would count as held by those it starts.
        writer = Process(target=write_layouts, args=(scratch, args.rows))
        writer.start()
        writer.join()
        rounds = [
            {name: one_round(scratch / f"{name}.parquet", scratch) for name in LAYOUTS}
            for _ in range(args.repeats)
        ]
        first = next(iter(LAYOUTS))
        for name in LAYOUTS:
            own = [r[name] for r in rounds]
            print(f"\n{name}: seconds, medians and ranges of {args.repeats} rounds")
            for key in own[0]:
                print(f"  {key:22}{spread([r[key] for r in own])}")
            for of, to in (
                ("statistics", "limit"), ("distfms run", "numpy"), ("distfms run", "dask")
            ):  # fmt: skip
                print(f"  {f'{of} / {to}':22}{spread([r[of] / r[to] for r in own])}")
            others = [r[name]["statistics"] / r[first]["statistics"] for r in rounds]
            print(f"  statistics / those of {first}: {spread(others)}", flush=True)
        print("\nsmall jobs: seconds of the command")
        for command, job in (
            ("check", "sequence-breast-cancer"),
            ("run", "multiselect-digits"),
            ("run", "sequence-breast-cancer"),
        ):
            spec = JOBS / f"{job}.yaml"
            times = [distfms(command, spec, scratch / "runs").seconds for _ in range(args.repeats)]
            print(f"  {command} {job:28}{spread(times)}", flush=True)


if __name__ == "__main__":
    main()
