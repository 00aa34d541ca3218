"""A whole job of learning with similarities on millions of rows: processor time and peak memory."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE_ROWS = 500_000


def write(folder: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    for first in range(0, n_rows, FILE_ROWS):
        X = rng.normal(size=(min(FILE_ROWS, n_rows - first), 16))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
        columns = {f"x{j:02d}": column for j, column in enumerate(X.T)} | {"y": y}
        pq.write_table(pa.table(columns), folder / f"part-{first:09d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 5_000_000])
    parser.add_argument("--landmarks", type=int, default=200)
    parser.add_argument("--data")
    args = parser.parse_args()
    for n_rows in args.rows:
        with tempfile.TemporaryDirectory(dir=args.data) as scratch:
            folder = Path(scratch) / "rows"
            folder.mkdir()
            write(folder, n_rows)
            spec = Path(scratch) / "spec.yaml"
            spec.write_text(
                f"name: scale\nmethod: landmarks\noutput: {scratch}/runs\n"
                f"data: {{path: {folder}, target: y, folds: 5, test: 0.1}}\n"
                f"landmarks: {{landmarks: {args.landmarks}, metric: none}}\n"
            )
            command = [sys.executable, "-c", "from distfms.cli import main; main()", "run", spec]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            ran = subprocess.run(command, capture_output=True, text=True, env=os.environ)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{n_rows:,} × 16, {args.landmarks} landmarks: processor "
                f"{cpu:.0f} s, {1e6 * cpu / n_rows:.1f} s a million rows; peak "
                f"{after.ru_maxrss / 2**20:.2f} GiB\n{ran.stdout.strip()}\n{ran.stderr[-300:]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
