"""What the engines cost: for each unit of work, and for a pass over rows.

First microseconds of wall and of processor time for each unit of a map-reduce whose units do
nothing (graph, scheduling, travelling, merging), on two workers of each engine. Then the pass for
co-moments over Parquet (100 columns) on each engine, in turn, after a short pass that starts
workers and imports modules: seconds, processor time, and both against two threads.

Processor time is that of this process and all below it, Ray's and Dask's servers included; load
changes it less than wall time. All engines must give the same bits, or there is no figure.

Run with ``python -m benchmarks.engine_overhead [--rows 5000000] [--engines local ray]``; scratch
files take 0.7 GB for each million rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.data.files.dataset import PartitionReader, open_dataset
from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, read_rows
from distfms.data.rows.roles import resolve_roles
from distfms.engine.base import Executor, map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.engine.ray_cluster import RayExecutor
from distfms.stats.comoments import CoMoments

WORKERS = 2
COLUMNS = 100
ROWS_PER_FILE = 125_000
ENGINES = ("local", "processes", "ray", "dask")


class Taken(NamedTuple):
    """Seconds by the clock, and of processors."""

    wall_s: float
    cpu_s: float


def nothing(payload: int) -> int:
    return payload


def add(left: int, right: int) -> int:
    return left + right


def moments(reader: PartitionReader, plan: ColumnPlan, partition: Any) -> CoMoments:
    block = read_rows(reader, partition, plan)
    return CoMoments.from_block(block.values, overwrite=True)


@contextmanager
def opened(engine: str) -> Iterator[Executor]:
    """Open an engine with two workers on this machine."""
    with ExitStack() as stack:
        if engine == "dask":
            from distributed import LocalCluster

            cluster = stack.enter_context(
                LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0")
            )
            yield stack.enter_context(DaskExecutor(cluster.scheduler_address))
        elif engine == "ray":
            folder = tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True)
            os.environ["RAY_TMPDIR"] = stack.enter_context(folder)
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
            yield stack.enter_context(RayExecutor(workers=WORKERS))
        else:
            yield stack.enter_context(LocalExecutor(WORKERS, processes=engine == "processes"))


def processor_s() -> float:
    """Return the processor time of this process and those below it, the ended ones included."""
    this = psutil.Process()
    seconds = 0.0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def timed(work: Any) -> tuple[Any, Taken]:
    """Return the value of a call, and what it took."""
    wall_s = time.perf_counter()
    cpu_s = processor_s()
    value = work()
    return value, Taken(time.perf_counter() - wall_s, processor_s() - cpu_s)


def report_units(executors: dict[str, Executor], n_units: int) -> None:
    print(f"{n_units} units that do nothing, µs a unit")
    print(f"{'':12}{'wall':>10}{'cpu':>10}")
    units = [Unit(str(number), number) for number in range(n_units)]
    for name, executor in executors.items():
        map_reduce(units[:8], nothing, add, executor)  # workers started, modules imported
        _, taken = timed(partial(map_reduce, units, nothing, add, executor))
        wall, cpu = (1e6 * seconds / n_units for seconds in taken)
        print(f"{name:12}{wall:10.0f}{cpu:10.0f}", flush=True)


def write_rows(folder: Path, n_rows: int) -> None:
    """Write normal columns, 125,000 rows a file."""
    rng = np.random.default_rng(0)
    names = [f"x{number:02d}" for number in range(COLUMNS)]
    folder.mkdir()
    for number, first in enumerate(range(0, n_rows, ROWS_PER_FILE)):
        columns = rng.normal(size=(COLUMNS, min(ROWS_PER_FILE, n_rows - first)))
        pq.write_table(pa.table([*columns], names), folder / f"part-{number:05d}.parquet")


def measure_pass(
    executors: dict[str, Executor], dataset: Dataset, repeats: int
) -> dict[str, list[Taken]]:
    """Return what a pass takes on each engine, round by round."""
    plan = ColumnPlan.of(resolve_roles(dataset.schema, target=dataset.schema.names[-1]))
    read = partial(moments, dataset.reader, plan)
    units = [Unit(part.fingerprint, part, part.n_bytes) for part in dataset.partitions]
    for executor in executors.values():
        map_reduce(units[: 4 * WORKERS], read, CoMoments.merge, executor)
    rounds: dict[str, list[Taken]] = {name: [] for name in executors}
    bits = set()
    for _ in range(repeats):
        for name, executor in executors.items():
            run = partial(map_reduce, units, read, CoMoments.merge, executor)
            reduced, taken = timed(run)
            bits.add(reduced.value.comoment.tobytes())
            rounds[name].append(taken)
    assert len(bits) == 1, "the bits depend on the engine"
    return rounds


def report_pass(rounds: dict[str, list[Taken]]) -> None:
    print(f"{'':12}{'wall s':>9}{'cpu s':>9}{'ratio':>9}{'lowest':>9}{'highest':>9}{'cpu':>9}")
    for name, takens in rounds.items():
        pairs = list(zip(takens, rounds["local"], strict=True))
        walls = [taken.wall_s / local.wall_s for taken, local in pairs]
        cpus = [taken.cpu_s / local.cpu_s for taken, local in pairs]
        wall_s = median(taken.wall_s for taken in takens)
        cpu_s = median(taken.cpu_s for taken in takens)
        print(
            f"{name:12}{wall_s:9.2f}{cpu_s:9.2f}{median(walls):9.2f}{min(walls):9.2f}"
            f"{max(walls):9.2f}{median(cpus):9.2f}"
        )
    print(f"load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the pass; 0 for none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--data", type=Path, help="folder for scratch files")
    args = parser.parse_args()
    with ExitStack() as stack:
        names = dict.fromkeys(["local", *args.engines])
        executors = {name: stack.enter_context(opened(name)) for name in names}
        report_units(executors, args.units)
        if args.rows:
            scratch = tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=args.data)
            rows = Path(stack.enter_context(scratch)) / "rows"
            write_rows(rows, args.rows)
            dataset = open_dataset(rows)
            print(f"\npass over {args.rows} × {COLUMNS}, {len(dataset.partitions)} partitions")
            report_pass(measure_pass(executors, dataset, args.repeats))


if __name__ == "__main__":
    main()
