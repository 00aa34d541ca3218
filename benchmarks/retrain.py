"""Retraining after 1% of new partitions against a run from scratch, in fresh processes.

Rows of 100 features lie in 100 files. `distfms retrain` is run on 99 of them, then, timed, on all;
then `distfms run` of the same spec with an empty cache. Wall time and processor time (of all
threads and children) are compared, and so are the bytes of what both wrote.

Run with ``python benchmarks/retrain.py [--rows N] [--data FOLDER] [--repeats N]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS, FILES = 100, 100
SAME = ("selection.json", "model.json", "weights.npz", "metrics.json", "statistics/statistics.npz")


def write_file(path: Path, n_rows: int, number: int) -> None:
    """Write one file of correlated normals and their target."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((COLUMNS, n_rows))
    X[1:] += 0.5 * X[0]
    y = np.linspace(1, 0, COLUMNS) @ X + rng.standard_normal(n_rows)
    names = [*(f"x{i:02d}" for i in range(COLUMNS)), "y"]
    unfinished = path.with_suffix(".unfinished")
    pq.write_table(pa.table([*X, y], names=names), unfinished, row_group_size=100_000)
    unfinished.rename(path)


def timed(*command: str) -> tuple[float, float]:
    """Run distfms; return its wall and processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "distfms.cli", *command], check=True, stdout=subprocess.DEVNULL
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def latest(runs: Path) -> Path:
    """Return the folder of the last run."""
    return (runs / "nightly" / "latest").resolve()


def compare_once(data: Path, work: Path) -> dict[str, float]:
    """Retrain after the last file has come, and run from scratch."""
    spec = work / "job.yaml"
    content = {
        "name": "nightly",
        "method": "sequence",
        "data": {"path": str(data), "target": "y", "test": 0.2, "folds": 5},
        "sequence": {"baselines": []},
        "engine": {"workers": 2},
    }
    spec.write_text(json.dumps(content))
    last, away = sorted(data.glob("*.parquet"))[-1], data / "_away"
    shutil.rmtree(work / "grown", ignore_errors=True)
    shutil.rmtree(work / "fresh", ignore_errors=True)
    last.rename(away)
    timed("retrain", str(spec), "--set", f"output={work / 'grown'}")
    away.rename(last)
    wall, processor = timed("retrain", str(spec), "--set", f"output={work / 'grown'}")
    full_wall, full_processor = timed("run", str(spec), "--set", f"output={work / 'fresh'}")
    one, other = latest(work / "grown"), latest(work / "fresh")
    manifest, full = (json.loads((run / "manifest.json").read_text()) for run in (one, other))
    statistics, full_statistics = (
        next(stage["seconds"] for stage in run["stages"] if stage["name"] == "statistics")
        for run in (manifest, full)
    )
    same = [(one / name).read_bytes() == (other / name).read_bytes() for name in SAME]
    return {
        "n_read": manifest["n_read"],
        "n_cached": manifest["n_cached"],
        "wall_s": wall,
        "processor_s": processor,
        "full_wall_s": full_wall,
        "full_processor_s": full_processor,
        "statistics_s": statistics,
        "full_statistics_s": full_statistics,
        "statistics_share": statistics / full_statistics,
        "wall_share": wall / full_wall,
        "processor_share": processor / full_processor,
        "same_bytes": float(all(same)),
    }


def main() -> None:
    """Write the data, unless they are there, and print a line for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = arguments.data or Path(scratch) / "data"
        data.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            path = data / f"day-{number:03d}.parquet"
            if not path.exists():
                write_file(path, arguments.rows // FILES, number)
        for _ in range(arguments.repeats):
            shares = compare_once(data, Path(scratch))
            print(json.dumps({k: round(v, 3) for k, v in shares.items()}), flush=True)


if __name__ == "__main__":
    main()
