"""What the engine costs: for each unit, for a pass over rows, and when BLAS pools fight.

First microseconds of wall and of processor time for each unit of a map-reduce whose units do
nothing (graph, scheduling, travelling, merging), on two workers of each engine; ``single`` is the
same with every unit in a task of its own, as before units travelled in batches. Then the Gram pass
over Parquet (100 columns) on each engine, in turn, after a short pass that starts workers and
imports modules: seconds, processor time, and both against two threads. At last a Gram pass on two
threads with one BLAS thread each, as the engine sets it, and with two.

Processor time is that of this process and all below it, Ray's and Dask's servers included; load
changes it less than wall time. All engines must give the same bits, or there is no figure.

Run with ``python benchmarks/engine_overhead.py [--rows 5000000] [--engines local ray]``; scratch
files take 0.7 GB for each million rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from generators import GRAM

from benchmarks.synthetic import generate
from distfms.data.files.dataset import PartitionReader, open_dataset
from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, read_rows
from distfms.data.rows.roles import resolve_roles
from distfms.engine.base import Executor, map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import RetryPolicy, Unit, UnitRunner, build_graph
from distfms.engine.local import LocalExecutor
from distfms.engine.ray_cluster import RayExecutor
from distfms.stats.comoments import CoMoments

WORKERS = 2
COLUMNS = 100
ROWS_PER_FILE = 125_000
TARGET = 1.3
ENGINES = ("local", "processes", "ray", "dask")


def nothing(payload: int) -> int:
    return payload


def add(left: int, right: int) -> int:
    return left + right


def gram(seed: int) -> np.ndarray:
    block = np.random.default_rng(seed).normal(size=(200, 50_000))
    return block @ block.T


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
            os.environ |= {
                "RAY_TMPDIR": stack.enter_context(folder),
                "RAY_USAGE_STATS_ENABLED": "0",
            }
            yield stack.enter_context(RayExecutor(workers=WORKERS))
        else:
            yield stack.enter_context(LocalExecutor(WORKERS, processes=engine == "processes"))


class Single:
    """An executor as it is, but for batches: every unit is a task."""

    coarse_batches = 10**9

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def processor_s() -> float:
    """Processor time of this process and those below it, the ended ones included."""
    found: dict[int, tuple[int, float]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / ticks
    family, more = set[int](), {os.getpid()}
    while more:
        family |= more
        more = {pid for pid, (parent, _) in found.items() if parent in family} - family
    return sum(found[pid][1] for pid in family)


def timed(work: Any) -> tuple[Any, float, float]:
    """Value, seconds, seconds of processor time."""
    wall_s, cpu_s = time.perf_counter(), processor_s()
    value = work()
    return value, time.perf_counter() - wall_s, processor_s() - cpu_s


def time_units(executor: Executor, n_units: int) -> tuple[float, float]:
    units = [Unit(str(i), i) for i in range(n_units)]
    map_reduce(units[:8], nothing, add, executor)  # workers started, modules imported
    _, wall_s, cpu_s = timed(lambda: map_reduce(units, nothing, add, executor))
    return 1e6 * wall_s / n_units, 1e6 * cpu_s / n_units


def time_graph(n_units: int) -> float:
    begin_s = time.perf_counter()
    runner: UnitRunner[int] = UnitRunner(nothing, add, None, RetryPolicy(), False)
    build_graph([Unit(str(i), i) for i in range(n_units)], runner)
    return 1e6 * (time.perf_counter() - begin_s) / n_units


def report_units(executors: dict[str, Executor], n_units: int) -> None:
    print(f"{n_units} units that do nothing, µs a unit")
    print(f"{'':12}{'wall':>10}{'cpu':>10}{'single':>10}{'cpu':>10}")
    print(f"{'graph only':12}{time_graph(n_units):10.0f}")
    for name, executor in executors.items():
        alone: Any = Single(executor)
        figures = (*time_units(executor, n_units), *time_units(alone, n_units // 4))
        print(f"{name:12}" + "".join(f"{figure:10.0f}" for figure in figures), flush=True)


def measure_pass(
    executors: dict[str, Executor], dataset: Dataset, repeats: int
) -> list[dict[str, tuple[float, float]]]:
    """Seconds and processor seconds of each engine, round by round."""
    plan = ColumnPlan.of(resolve_roles(dataset.schema, target=dataset.schema.names[-1]))
    read = partial(moments, dataset.reader, plan)
    units = [Unit(p.fingerprint, p, p.n_bytes) for p in dataset.partitions]

    def run(executor: Executor, units: list[Unit]) -> CoMoments:
        return map_reduce(units, read, CoMoments.merge, executor).value

    for executor in executors.values():
        run(executor, units[: 4 * WORKERS])
    rounds, bits = [], set()
    for _ in range(repeats):
        times = {}
        for name, executor in executors.items():
            value, wall_s, cpu_s = timed(partial(run, executor, units))
            bits.add(value.comoment.tobytes())
            times[name] = wall_s, cpu_s
        rounds.append(times)
    assert len(bits) == 1, "the bits depend on the engine"
    return rounds


def report_pass(
    executors: dict[str, Executor], n_rows: int, data: Path | None, repeats: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=data) as folder:
        generate(
            GRAM, Path(folder) / "rows", n_rows, rows_per_shard=ROWS_PER_FILE,
            n_features=COLUMNS - 1,
        )  # fmt: skip
        dataset = open_dataset(Path(folder) / "rows")
        rounds = measure_pass(executors, dataset, repeats)
    print(f"\npass over {n_rows} × {COLUMNS}, {len(dataset.partitions)} partitions")
    print(f"{'':12}{'wall s':>9}{'cpu s':>9}{'ratio':>9}{'lowest':>9}{'highest':>9}{'cpu':>9}")
    for name in executors:
        ratios = [[r[name][k] / r["local"][k] for r in rounds] for k in (0, 1)]
        wall_s, cpu_s = (median(r[name][k] for r in rounds) for k in (0, 1))
        print(
            f"{name:12}{wall_s:9.2f}{cpu_s:9.2f}{median(ratios[0]):9.2f}{min(ratios[0]):9.2f}"
            f"{max(ratios[0]):9.2f}{median(ratios[1]):9.2f}"
            + (f"   target {TARGET}" if name == "ray" else "")
        )
    print(f"load average {os.getloadavg()[0]:.1f}")


def time_gram(n_units: int) -> tuple[float, float]:
    """Seconds with one BLAS thread for each task, and with as many as the library takes."""
    units = [Unit(str(i), i) for i in range(n_units)]
    with LocalExecutor(2) as executor:
        map_reduce(units[:2], gram, np.add, executor)
        begin_s = time.perf_counter()
        map_reduce(units, gram, np.add, executor)
        limited_s = time.perf_counter() - begin_s
    with ThreadPoolExecutor(2) as pool:
        begin_s = time.perf_counter()
        list(pool.map(gram, range(n_units)))
        free_s = time.perf_counter() - begin_s
    return limited_s, free_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the pass; 0 for none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--data", type=Path, help="folder for scratch files")
    args = parser.parse_args()
    limited_s, free_s = time_gram(24)
    with ExitStack() as stack:
        names = dict.fromkeys(["local", *args.engines])
        executors = {name: stack.enter_context(opened(name)) for name in names}
        report_units(executors, args.units)
        if args.rows:
            report_pass(executors, args.rows, args.data, args.repeats)
    print(
        f"\n24 Gram units, 2 threads: one BLAS thread each {limited_s:.2f} s, free {free_s:.2f} s"
    )


if __name__ == "__main__":
    main()
