"""Peak memory of the Gram pass, for data of two sizes.

Each pass runs in a process of its own that imports, opens the data, reads every partition with
two threads and merges (the pass of ``statistics_pass.py``), and says how much memory it held at
most: resident, so everything that Python, numpy and Arrow take is in it, and the page cache, in
which the files may lie, is not. The data (100 columns, shards of 250 000 rows) are written by the
generator ``gram`` and removed afterwards.

Run with ``python benchmarks/memory_pass.py [--rows N] [--data FOLDER] [--pandas]``; the second data
set has ten times the rows of the first (1 M; together 7.7 GB on disk). With ``--pandas`` there is
one file as pandas writes it, in row groups of a million rows, of float64 and of float32.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from generators import GRAM
from statistics_pass import TALL, WORKERS, data_folder, gram, plan_of, write_as_pandas

from benchmarks.synthetic import generate

ROWS_PER_SHARD = 250_000
TARGET_MIB, PANDAS_TARGET_MIB = 700, 400
TARGET_GROWTH = 0.10


def pass_over(folder: Path) -> None:
    """Run the pass in this process and print its peak memory (bytes) and wall time (s)."""
    from functools import partial

    from distfms.data.files.dataset import open_dataset
    from distfms.engine.base import map_reduce
    from distfms.engine.graph import Unit
    from distfms.engine.local import LocalExecutor
    from distfms.stats.comoments import CoMoments

    dataset = open_dataset(folder)
    units = [Unit(p.fingerprint, p, p.n_bytes) for p in dataset.partitions]
    begin_s = time.perf_counter()
    with LocalExecutor(WORKERS) as executor:
        read = partial(gram, dataset, plan_of(dataset))
        moments = map_reduce(units, read, CoMoments.merge, executor).value
    assert moments.n_samples == dataset.n_rows
    print(peak_bytes(), time.perf_counter() - begin_s)


def peak_bytes() -> int:
    """Most memory this process has held; a child's ru_maxrss would begin with its parent's."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def measure(folder: Path) -> tuple[float, float]:
    """Peak memory in MiB and wall time in seconds of the pass in a fresh process."""
    command = [sys.executable, __file__, "--pass-over", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, seconds = done.stdout.split()
    return int(peak) / 2**20, float(seconds)


def show(title: str, runs: list[tuple[float, float]], target: int) -> float:
    """Print one line for the passes over some data and return their highest peak."""
    highest, lowest = max(peak for peak, _ in runs), min(peak for peak, _ in runs)
    seconds = min(s for _, s in runs)
    print(f"{title:>12}{highest:10.0f}{lowest:9.0f}{f'< {target}':>9}{seconds:9.2f}")
    return highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the smaller data")
    parser.add_argument("--data", type=Path, help="folder for scratch files (7.7 GB)")
    parser.add_argument("--repeats", type=int, default=3, help="passes over each")
    parser.add_argument("--pandas", action="store_true", help="one file as pandas writes it")
    parser.add_argument("--pass-over", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pass_over:
        pass_over(args.pass_over)
        return
    if args.pandas:
        print(f"{'':>12}{'peak MiB':>10}{'lowest':>9}{'target':>9}{'wall s':>9}")
        for dtype in ("float64", "float32"):
            with data_folder(args.data) as scratch:
                write_as_pandas(scratch / "rows", args.rows, TALL, dtype)
                runs = [measure(scratch / "rows") for _ in range(args.repeats)]
            show(dtype, runs, PANDAS_TARGET_MIB)
        return
    peaks = []
    print(f"{'rows':>12}{'peak MiB':>10}{'lowest':>9}{'target':>9}{'wall s':>9}")
    for n_rows in (args.rows, 10 * args.rows):
        with data_folder(args.data) as scratch:
            shards = {"rows_per_shard": min(ROWS_PER_SHARD, args.rows // 4 or 1)}
            generate(GRAM, scratch / "gram", n_rows, n_features=TALL - 1, **shards)
            runs = [measure(scratch / "gram") for _ in range(args.repeats)]
        peaks.append(show(str(n_rows), runs, TARGET_MIB))
    growth = f"{100 * (peaks[1] / peaks[0] - 1):+.1f} %"
    target = f"±{100 * TARGET_GROWTH:.0f} %"
    print(f"{'growth':>12}{growth:>10}{'':9}{target:>9}; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
