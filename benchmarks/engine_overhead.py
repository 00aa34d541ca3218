"""What the engine costs for each unit, and what BLAS pools cost that fight.

Usage: python benchmarks/engine_overhead.py [--units 2000] [--dask]

Prints one line per executor: microseconds for each unit of a map-reduce whose units do nothing
(graph, scheduling, merging), then the seconds of the same Gram pass on two threads with one BLAS
thread each, as the engine sets it, and with two BLAS threads each.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from distfms.engine import Executor, LocalExecutor, Unit, make_executor, map_reduce
from distfms.engine.graph import UnitRunner, build_graph
from distfms.engine.retry import RetryPolicy


def nothing(payload: int) -> int:
    return payload


def add(left: int, right: int) -> int:
    return left + right


def gram(seed: int) -> np.ndarray:
    block = np.random.default_rng(seed).normal(size=(200, 50_000))
    return block @ block.T


def time_units(executor: Executor, n_units: int) -> float:
    units = [Unit(str(i), i) for i in range(n_units)]
    map_reduce(units[:8], nothing, add, executor)  # workers started, modules imported
    begin_s = time.perf_counter()
    map_reduce(units, nothing, add, executor)
    return (time.perf_counter() - begin_s) / n_units


def time_graph(n_units: int) -> float:
    begin_s = time.perf_counter()
    runner: UnitRunner[int] = UnitRunner(nothing, None, RetryPolicy(), None, False)
    build_graph([Unit(str(i), i) for i in range(n_units)], runner, add)
    return (time.perf_counter() - begin_s) / n_units


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--dask", action="store_true", help="also on a Dask cluster started here")
    options = parser.parse_args()
    print(f"building the graph      {1e6 * time_graph(options.units):8.0f} us/unit")
    for workers, processes in ((1, False), (2, False), (2, True)):
        with LocalExecutor(workers, processes=processes) as executor:
            name = f"local, {workers} {'processes' if processes else 'threads'}"
            print(f"{name:23s} {1e6 * time_units(executor, options.units):8.0f} us/unit")
    if options.dask:
        from distributed import LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            make_executor("dask", address=cluster.scheduler_address) as executor,
        ):
            name = "dask, 2 workers"
            print(f"{name:23s} {1e6 * time_units(executor, options.units):8.0f} us/unit")
    limited_s, free_s = time_gram(24)
    print(f"24 Gram units, 2 threads: one BLAS thread each {limited_s:.2f} s, free {free_s:.2f} s")


if __name__ == "__main__":
    main()
