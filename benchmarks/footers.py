"""Memory and processor time of opening many wide files, anew and when their footers are known.

Run with ``python benchmarks/footers.py [--files 1800] [--columns 500]``; half a minute. The first
file is opened before, so that what is imported does not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.data.files.dataset import open_dataset
from distfms.data.files.known_footers import KnownFooters


def main() -> None:
    """Write files, open them twice, and print what each opening took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=1_800)
    parser.add_argument("--columns", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
        X = np.random.default_rng(0).normal(size=(40, args.columns))
        table = pa.table({f"x{j}": X[:, j] for j in range(args.columns)})
        for number in range(args.files):
            pq.write_table(table, data / f"{number:05d}.parquet")
        open_dataset(data / "00000.parquet")
        process = psutil.Process()
        for what in ("new", "known"):
            known = KnownFooters(Path(name) / "kept", "data")
            held, start = process.memory_info().rss, time.process_time()
            dataset = open_dataset(data, known=known)
            took = 1e3 * (time.process_time() - start) / args.files
            held = (process.memory_info().rss - held) / args.files / 1024
            print(f"{what}: {took:.2f} ms cpu and {held:.1f} KiB a file of {len(dataset.files)}")
            known.keep()


if __name__ == "__main__":
    main()
