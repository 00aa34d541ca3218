"""What passes over 10 M to 10 G rows would take on 1 to 128 nodes, from costs measured here.

Measured on this machine: seconds for each partition of the Gram pass (100 columns, decoded and
multiplied) with all processors busy, bytes of a partial, seconds to merge two, processor time that
a task costs its driver and its worker on Dask and on Ray, milliseconds of a step of the distributed
greedy search. Assumed, and printed: the nodes' processors, network and storage.

The simulation runs the graph that ``build_graph`` makes, task by task: the driver (or scheduler)
serves one task after the other, hands out batches as the engine does, a merge begins when both its
values are there and fetches one of them over the network, a worker does one task at a time, a
batch reads its partitions one by one from storage that the processors of a node share. Batches are
those of ``batch_size``; "single" is the same with every partition in a task of its own. Before it
is used, the simulation is compared with real passes here; its error is printed.

Run with ``python benchmarks/simulated_scale.py [--cores 16] [--storage-gbit 10]``; 2 minutes.
"""

from __future__ import annotations

import argparse
import heapq
import os
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from engine_overhead import COLUMNS, WORKERS, Single, add, moments, nothing, opened
from generators import GRAM

from benchmarks.synthetic import generate
from distfms.data.files.dataset import open_dataset
from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan
from distfms.data.rows.roles import resolve_roles
from distfms.engine.base import Executor, map_reduce
from distfms.engine.graph import RetryPolicy, Unit, UnitRunner, batch_size, build_graph
from distfms.engine.local import LocalExecutor
from distfms.stats.comoments import CoMoments

ROWS = (10_000_000, 1_000_000_000, 10_000_000_000)
NODES = (1, 16, 128)
ATTRIBUTES = (2_000, 20_000, 200_000)
ACTORS = (1, 2, 4, 16, 64)
ENGINES = ("local", "ray", "dask")
SPEED_UP = 1.6


@dataclass(frozen=True)
class Costs:
    """What things take.

    Attributes
    ----------
    unit_s : ndarray
        Seconds of reading and summarising single partitions, a sample.
    merge_s : float
        Seconds to merge two values.
    value_bytes, file_bytes, rows : float
        Of a partial, of a partition in its file, and rows of a partition.
    driver_s, worker_s : float
        Processor time of a task on its driver, and on its worker beside the work.
    latency_s, network_bps, storage_bps : float
        From one node to another, and bytes a second of each processor's share of network and
        storage.
    in_flight : int or None
        Batches handed out for each worker; None for all at once.
    """

    unit_s: np.ndarray
    merge_s: float
    value_bytes: float
    file_bytes: float
    rows: float
    driver_s: float = 0.0
    worker_s: float = 0.0
    latency_s: float = 0.0
    network_bps: float = np.inf
    storage_bps: float = np.inf
    in_flight: int | None = 2


# --- the simulation -----------------------------------------------------------------------------


def task_graph(n_units: int, batch: int) -> list[tuple[int, int]]:
    """Shape of the engine's graph, in the order of submission.

    Returns
    -------
    list of (n, parent)
        For each task its units, 0 for a merge, and the position of the task that takes its value,
        −1 for the root.
    """
    runner: UnitRunner[int] = UnitRunner(nothing, add, None, RetryPolicy(), False)
    tasks = build_graph([Unit("", 0)] * n_units, runner, batch).tasks
    graph = {key: task for key, task in tasks.items() if isinstance(key, tuple)}
    position = {key: i for i, key in enumerate(graph)}
    parents = [-1] * len(graph)
    for i, task in enumerate(graph.values()):
        for key in task[1:]:
            if key in position:
                parents[position[key]] = i
    units = [len(task[0].keywords.get("units", ())) for task in graph.values()]
    return list(zip(units, parents, strict=True))


class Simulation:
    """One pass; see the module's description."""

    def __init__(self, tasks: list[tuple[int, int]], workers: int, costs: Costs) -> None:
        self.tasks, self.workers, self.costs = tasks, workers, costs
        self.missing = [0 if n else 2 for n, _ in tasks]
        self.submitted = [False] * len(tasks)
        self.free, self.n_out, self.next = workers, 0, 0
        self.ready: deque[int] = deque()
        self.events: list[tuple[float, int, int]] = []  # time, what, task
        self.seconds = self._durations()
        limit = costs.in_flight
        self.limit = len(tasks) if limit is None else limit * workers

    def _durations(self) -> list[float]:
        """Draw what each task takes on its worker."""
        costs, rng = self.costs, np.random.default_rng(0)
        read_s = costs.file_bytes / costs.storage_bps
        merge_s = costs.merge_s + costs.value_bytes / costs.network_bps + 2 * costs.latency_s
        drawn = rng.choice(costs.unit_s, sum(n for n, _ in self.tasks)) + read_s
        ends = np.cumsum([n for n, _ in self.tasks])
        sums = np.concatenate([[0.0], np.cumsum(drawn)]).tolist()
        return [
            costs.worker_s + (sums[end] - sums[end - n] + (n - 1) * costs.merge_s if n else merge_s)
            for end, (n, _) in zip(ends.tolist(), self.tasks, strict=True)
        ]

    def run(self) -> float:
        """Seconds until the root is at the driver."""
        now = 0.0
        self._submit(now)
        while self.events:
            now, what, task = heapq.heappop(self.events)
            (self._arrive, self._finish, self._enter)[what](now, task)
            while self.free and self.ready:
                begun = self.ready.popleft()
                self.free -= 1
                heapq.heappush(self.events, (now + self.seconds[begun], 1, begun))
        return now + self.costs.latency_s + self.costs.value_bytes / self.costs.network_bps

    def _submit(self, now: float) -> None:
        """Let the driver begin with the next task, unless enough batches are out."""
        if self.next < len(self.tasks) and not (
            self.tasks[self.next][0] and self.n_out >= self.limit
        ):
            heapq.heappush(self.events, (now + self.costs.driver_s, 0, self.next))
            self.n_out += self.tasks[self.next][0] > 0
            self.next += 1
            self.waits = False
        else:
            self.waits = True

    def _arrive(self, now: float, task: int) -> None:
        """Take it that the driver has handed out a task."""
        self.submitted[task] = True
        if not self.missing[task]:
            heapq.heappush(self.events, (now + self.costs.latency_s, 2, task))
        self._submit(now)

    def _enter(self, now: float, task: int) -> None:
        """Take it that a task is where it can run."""
        self.ready.append(task)

    def _finish(self, now: float, task: int) -> None:
        """Take it that a worker has done a task."""
        self.free += 1
        n, parent = self.tasks[task]
        self.n_out -= n > 0
        if parent >= 0:
            self.missing[parent] -= 1
            if not self.missing[parent] and self.submitted[parent]:
                heapq.heappush(self.events, (now + self.costs.latency_s, 2, parent))
        if self.waits:
            self._submit(now)


def simulate(n_units: int, workers: int, costs: Costs, batch: int) -> float:
    return Simulation(task_graph(n_units, batch), workers, costs).run()


# --- what is measured ---------------------------------------------------------------------------


class Clocked:
    """A map function that notes the processor time it took; load changes it less than wall time."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.seconds: list[float] = []

    def __call__(self, payload: Any) -> Any:
        begin_s = time.thread_time()
        value = self.work(payload)
        self.seconds.append(time.thread_time() - begin_s)
        return value


def best_of(
    n: int, work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(n):
        begin_s = clock()
        work()
        times.append(clock() - begin_s)
    return min(times)


def measure_units(dataset: Dataset, read: Any, units: list[Unit], workers: int) -> Costs:
    """Costs of the work itself, with so many processors busy."""
    clocked = Clocked(read)
    with LocalExecutor(workers) as executor:
        map_reduce(units[: 2 * workers], read, CoMoments.merge, executor)
        value = map_reduce(units, clocked, CoMoments.merge, executor).value
    return Costs(
        unit_s=np.array(clocked.seconds),
        merge_s=best_of(20, lambda: value.merge(value), time.thread_time),
        value_bytes=len(pickle.dumps(value)),
        file_bytes=sum(f.n_bytes for f in dataset.files) / len(units),
        rows=dataset.n_rows / len(units),
    )


def measure_tasks(executor: Executor, n_units: int) -> tuple[float, float]:
    """Seconds that a task costs the driver, and its worker, when it does nothing.

    The driver serves one task after the other, so no more than what passes in between can be its
    part; nor can it be more than the processor time of its process.
    """
    units = [Unit(str(i), i) for i in range(n_units)]
    alone: Any = Single(executor)
    map_reduce(units[:50], nothing, add, alone)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    map_reduce(units, nothing, add, alone)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    n_tasks = 2 * n_units - 1
    driver_s = min(wall_s, cpu_s) / n_tasks
    if executor.name == "local":
        return driver_s, 0.0  # all of it is done under one lock
    return driver_s, max(0.0, wall_s / n_tasks - driver_s) * executor.workers


def measure_steps() -> tuple[float, float, float, float]:
    """Step of Full's greedy search: seconds beside the candidates, seconds of each candidate.

    The candidates' part is that of one process at two sizes; a pool's round trip is measured with
    one and with two actors that do nothing: seconds of each, beside and for each actor.
    """
    from distributed_greedy import Statistics, full_in_one_process

    from distfms.engine.blas import single_threaded_blas

    sizes, steps = (3_000, 9_000), []
    with single_threaded_blas():
        for d in sizes:
            search = full_in_one_process(Statistics(d), 100)
            n_steps = len(search()[0])
            steps.append(best_of(4, search, time.process_time) / n_steps)
    each_s = (steps[1] - steps[0]) / (sizes[1] - sizes[0])
    trips = []
    for n_actors in (1, 2):
        with LocalExecutor().pool(n_actors) as pool:
            pool.start(nothing, list(range(n_actors)))
            message = np.zeros(600)  # an entry for 300 selected attributes

            def many(pool: Any = pool, message: np.ndarray = message) -> None:
                for _ in range(200):
                    pool.step(answer, message)

            trips.append(best_of(5, many) / 200)
    actor_s = max(0.0, trips[1] - trips[0])
    return max(0.0, steps[0] - each_s * sizes[0]), each_s, trips[0] - actor_s, actor_s


def answer(state: Any, message: Any) -> Any:
    return None, message


# --- the tables ---------------------------------------------------------------------------------


def validate(
    executors: dict[str, Executor], read: Any, units: list[Unit], costs: dict[str, Costs]
) -> None:
    """Compare simulated with real passes."""
    print(f"\nsimulated and real passes over {len(units)} partitions here, seconds")
    print(f"{'':16}{'batch':>7}{'real':>9}{'simulated':>11}{'error':>9}")
    for name, executor in executors.items():
        engine, n = name.split(" ")[0], executor.workers
        size = batch_size(len(units), n, coarse=executor.coarse_batches)
        for some, batch in ((executor, size), (Single(executor), 1)):
            if batch == 1 and some is not executor and size == 1:
                continue
            run: Any = partial(map_reduce, units, read, CoMoments.merge, some)
            map_reduce(units[: 2 * n], read, CoMoments.merge, executor)
            real_s = median(best_of(1, run) for _ in range(3))
            found_s = simulate(len(units), n, costs[f"{engine} {n}"], batch)
            error = f"{100 * (found_s / real_s - 1):+.0f} %"
            print(f"{name:16}{batch:7}{real_s:9.2f}{found_s:11.2f}{error:>9}", flush=True)


def report_passes(costs: Costs, name: str, cores: int) -> None:
    """Table of rows and nodes."""
    print(
        f"\n{name}: {1e3 * costs.driver_s:.2f} ms of the driver and {1e3 * costs.worker_s:.2f} ms "
        "of the worker a task"
    )
    print(
        f"{'rows':>15}{'nodes':>6}{'partitions':>11}{'batch':>6}{'tasks':>8}{'work s':>9}"
        f"{'pass s':>9}{'use':>6}{'single s':>10}{'driver s':>10}"
    )
    for n_rows in ROWS:
        n_units = round(n_rows / costs.rows)
        for nodes in NODES:
            workers = nodes * cores
            batch = batch_size(n_units, workers)
            work_s = n_units * (costs.unit_s.mean() + costs.file_bytes / costs.storage_bps)
            pass_s = simulate(n_units, workers, costs, batch)
            single_s = pass_s if batch == 1 else simulate(n_units, workers, costs, 1)
            n_tasks = 2 * -(-n_units // batch) - 1
            print(
                f"{n_rows:15,}{nodes:6}{n_units:11,}{batch:6}{n_tasks:8,}{work_s / workers:9.1f}"
                f"{pass_s:9.1f}{100 * work_s / workers / pass_s:5.0f}%{single_s:10.1f}"
                f"{n_tasks * costs.driver_s:10.1f}",
                flush=True,
            )


def report_graph(n_units: int) -> None:
    """Memory and time of the driver's graph."""
    for batch in (1, 32):
        before, begin_s = resident_bytes(), time.perf_counter()
        runner: UnitRunner[int] = UnitRunner(nothing, add, None, RetryPolicy(), False)
        graph = build_graph([Unit(str(i), i) for i in range(n_units)], runner, batch)
        size, seconds = resident_bytes() - before, time.perf_counter() - begin_s
        print(f"graph of {n_units:,} units in batches of {batch}: {size / 2**20:.0f} MiB with its "
              f"units, {seconds:.1f} s")  # fmt: skip
        del graph


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def two_actors_pay(beside_s: float, each_s: float, away_s: float) -> float:
    """Attributes from which two actors are SPEED_UP times as fast as one process.

    (p + c d) = s (p + c d/2 + a), solved for d.
    """
    return ((SPEED_UP - 1) * beside_s + SPEED_UP * away_s) / (each_s * (1 - SPEED_UP / 2))


def report_steps(latency_s: float) -> None:
    """Table of attributes and actors."""
    beside_s, each_s, trip_s, actor_s = measure_steps()
    print(
        f"\nstep of Full's distributed search: {1e6 * beside_s:.0f} µs and {1e9 * each_s:.0f} ns a "
        f"candidate; round trip {1e6 * trip_s:.0f} µs and {1e6 * actor_s:.0f} µs an actor, and "
        f"{1e6 * 2 * latency_s:.0f} µs of network from 16 actors on"
    )
    if each_s <= 0:
        print("no table: the machine was too busy to tell what a candidate costs")
        return
    away_s = trip_s + 2 * actor_s
    print(
        f"two actors are as fast as one process with {away_s / (each_s / 2):,.0f} attributes, and "
        f"{SPEED_UP} × as fast with {two_actors_pay(beside_s, each_s, away_s):,.0f}"
    )
    print(f"{'attributes':>12}" + "".join(f"{f'{a} actors':>14}" for a in ACTORS) + "   ms a step")
    for d in ATTRIBUTES:
        line = ""
        for n in ACTORS:
            away_s = trip_s + n * actor_s + (2 * latency_s if n >= 16 else 0.0)
            line += f"{1e3 * (beside_s + each_s * d / n + (away_s if n > 1 else 0.0)):14.2f}"
        print(f"{d:12,}{line}")


def measure_and_validate(args: argparse.Namespace) -> dict[str, Costs]:
    """Costs by engine and workers; prints how far simulated passes are from real ones."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=args.data))
        generate(
            GRAM, Path(folder) / "rows", args.rows, rows_per_shard=max(args.rows // 8, 1),
            n_features=COLUMNS - 1,
        )  # fmt: skip
        dataset = open_dataset(Path(folder) / "rows")
        plan = ColumnPlan.of(resolve_roles(dataset.schema, target=dataset.schema.names[-1]))
        read = partial(moments, dataset.reader, plan)
        units = [Unit(p.fingerprint, p, p.n_bytes) for p in dataset.partitions]
        work = {n: measure_units(dataset, read, units, n) for n in (1, WORKERS)}
        executors: dict[str, Executor] = {
            "local 1": stack.enter_context(LocalExecutor(1)),
            **{f"{name} {WORKERS}": stack.enter_context(opened(name)) for name in ENGINES},
        }
        costs = {}
        for name, executor in executors.items():
            driver_s, worker_s = measure_tasks(executor, 500)
            costs[name] = replace(
                work[executor.workers], driver_s=driver_s, worker_s=worker_s,
                in_flight=None if name.startswith("dask") else 2,
            )  # fmt: skip
        validate(executors, read, units, costs)
        return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the data measured")
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of a node")
    parser.add_argument("--storage-gbit", type=float, default=25.0, help="of a node")
    parser.add_argument("--latency-ms", type=float, default=0.25, help="from node to node")
    parser.add_argument("--data", type=Path, help="folder for scratch files (1.4 GB)")
    args = parser.parse_args()
    costs = measure_and_validate(args)
    base = costs[f"local {WORKERS}"]
    print(
        f"\na partition: {base.rows:,.0f} rows × {COLUMNS}, {base.file_bytes / 2**20:.1f} MiB in "
        f"its file, {1e3 * base.unit_s.mean():.0f} ms (with {WORKERS} processors busy); a partial: "
        f"{base.value_bytes / 2**10:.0f} KiB, {1e6 * base.merge_s:.0f} µs to merge"
        f"\nassumed: nodes of {args.cores} processors as fast as these, a task each; network "
        f"{args.network_gbit:g} Gbit/s a node and {args.latency_ms:g} ms; storage "
        f"{args.storage_gbit:g} Gbit/s a node, shared evenly, read before computing"
    )
    report_graph(round(ROWS[-1] / base.rows))
    for name in ("ray", "dask"):
        away = replace(
            costs[f"{name} {WORKERS}"],
            latency_s=args.latency_ms / 1e3,
            network_bps=args.network_gbit * 1e9 / 8 / args.cores,
            storage_bps=args.storage_gbit * 1e9 / 8 / args.cores,
        )
        report_passes(away, name, args.cores)
    report_steps(args.latency_ms / 1e3)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
