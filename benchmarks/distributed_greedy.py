"""Distributed greedy: candidates in slabs over actors, against one process.

Full multi-selection with a budget of 300 judgments, and FR sequencing of 300 groups (of 10
columns each), on synthetic statistics: a low-rank matrix plus a diagonal, of which every process
computes the rows it holds from the factor, so that d × d numbers are never in one place unless
one process does it all. Each line is a fresh process (with its actors): seconds to compute the
statistics and start, seconds of the search, peak resident memory of the driver and of the largest
actor above what it has after its imports, and a digest of the path, which must be the same
whatever holds the candidates.

Run with ``OMP_NUM_THREADS=1 python benchmarks/distributed_greedy.py`` for 20,000 attributes (one
process then takes 3.5 GiB), with ``--d 1000 2000 5000 10000`` to see from which size actors pay,
with ``--kind ray`` on two Ray nodes of this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from distfms.engine.blas import single_threaded_blas
from distfms.engine.local import LocalExecutor
from distfms.engine.pool import ActorPool
from distfms.engine.ray_cluster import RayExecutor
from distfms.methods.frame.slabs import SLAB_COLUMNS
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import (
    FeatureGroups,
    Scaling,
    SequenceOutline,
    SequenceProblem,
)
from distfms.solve.buying import Problem
from distfms.solve.cholesky import Shard
from distfms.solve.costs import GroupCosts
from distfms.solve.purchases import AttributeSlab, select
from distfms.solve.shards import block_edges

RANK = 40
GROUP_SIZE = 10
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Statistics:
    """Σ = FFᵀ + Diag(u) with unit diagonal, and b = Σβ, by rows."""

    d: int
    seed: int = 0

    def factor(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        loadings = rng.standard_normal((self.d, RANK)) * 0.97 ** np.arange(RANK)
        own = rng.uniform(0.2, 1.0, self.d) * RANK / 4
        return loadings / np.sqrt((loadings**2).sum(axis=1) + own)[:, None], rng.random(self.d)

    def b(self) -> np.ndarray:
        loadings, random = self.factor()
        weights = np.where(random < 0.05, 2 * random / 0.05 - 1, 0.0)
        own = 1.0 - (loadings**2).sum(axis=1)
        return (loadings @ (loadings.T @ weights) + own * weights) / np.sqrt(self.d)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of Σ; the same bits whoever asks for them, as they are made in the same parts."""
        loadings, _ = self.factor()
        result = np.empty((stop - start, self.d))
        for low in range(start - start % ROWS_AT_ONCE, stop, ROWS_AT_ONCE):
            part = loadings[low : low + ROWS_AT_ONCE] @ loadings.T
            first, last = max(low, start), min(low + len(part), stop)
            result[first - start : last - start] = part[first - low : last - low]
        result[np.arange(stop - start), np.arange(start, stop)] = 1.0
        return result


# --- multi-selection ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of Σ, computed where they are needed."""

    statistics: Statistics
    start: int
    stop: int

    def load(self) -> np.ndarray:
        return self.statistics.rows(self.start, self.stop)


def make_problem(statistics: Statistics, external: np.ndarray) -> Problem:
    d = statistics.d
    return Problem(
        tuple(map(str, range(d))), statistics.b(), judgment_noise(d), external, np.ones(d),
        judgment_costs(d), 0.0, 2.0, 0.0, np.zeros(d), "none",
    )  # fmt: skip


def judgment_noise(d: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.1, 2.0, d)


def judgment_costs(d: int) -> np.ndarray:
    return np.random.default_rng(2).choice([1.0, 1.5], d)


def full_in_one_process(statistics: Statistics, n_steps: int) -> Callable[[], list[Any]]:
    problem = make_problem(statistics, statistics.rows(0, statistics.d))

    def search() -> list[Any]:
        path = select(problem, n_steps)
        return [path.attributes, path.objective]

    return search


def full_with_actors(
    statistics: Statistics, n_steps: int, pool: ActorPool
) -> Callable[[], list[Any]]:
    problem = make_problem(statistics, np.zeros((0, 0)))
    slabs = [
        AttributeSlab.of(problem, *own, Rows(statistics, *own))
        for own in pairwise(block_edges([1] * statistics.d, SLAB_COLUMNS))
    ]
    timed = Timed(pool)

    def search() -> list[Any]:
        path = select(problem, n_steps, pool=timed, shards=slabs)
        return [path.attributes, path.objective, timed.start_s]

    return search


# --- sequencing ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """A slab of groups."""

    statistics: Statistics
    first: int
    last: int

    def load(self) -> Shard:
        outline = make_outline(self.statistics.d)
        start, stop = self.first * GROUP_SIZE, min(self.last * GROUP_SIZE, self.statistics.d)
        groups = outline.groups.columns[self.first : self.last]
        return Shard(
            first=self.first,
            groups=groups,
            gram=self.statistics.rows(start, stop),
            places=np.arange(stop - start),
            target=self.statistics.b()[start:stop, None],
            ridge=outline.ridge,
            block_edges=block_edges(len(group) for group in groups),
        )


def make_outline(d: int) -> SequenceOutline:
    columns = [tuple(range(c, min(c + GROUP_SIZE, d))) for c in range(0, d, GROUP_SIZE)]
    names, one = tuple(map(str, range(d))), np.ones(d)
    groups = FeatureGroups(tuple(f"g{g}" for g in range(len(columns))), tuple(columns))
    costs = GroupCosts(np.random.default_rng(3).uniform(1.0, 4.0, len(columns)))
    scaling = Scaling(names, ("y",), np.arange(d), 0 * one, one, np.zeros(1), np.ones(1))
    return SequenceOutline(groups=groups, costs=costs, ridge=1e-5, scaling=scaling)


def fr_in_one_process(statistics: Statistics, n_steps: int) -> Callable[[], list[Any]]:
    outline = make_outline(statistics.d)
    gram, target = statistics.rows(0, statistics.d), statistics.b()[:, None]
    problem = SequenceProblem(gram=gram, target=target, **vars(outline))

    def search() -> list[Any]:
        path = sequence(problem, "fr", max_groups=n_steps)
        return [path.order, path.gain]

    return search


def fr_with_actors(
    statistics: Statistics, n_steps: int, pool: ActorPool
) -> Callable[[], list[Any]]:
    outline = make_outline(statistics.d)
    target = statistics.b()[:, None]
    problem = SequenceProblem(gram=np.zeros((0, 0)), target=target, **vars(outline))
    starts = block_edges((len(group) for group in outline.groups.columns), SLAB_COLUMNS)
    slabs = [Groups(statistics, *pair) for pair in pairwise(starts)]
    timed = Timed(pool)

    def search() -> list[Any]:
        path = sequence(problem, "fr", max_groups=n_steps, pool=timed, shards=slabs)
        return [path.order, path.gain, timed.start_s]

    return search


# --- measuring ----------------------------------------------------------------------------------


@dataclass
class Timed:
    """A pool that tells how long its start took."""

    pool: ActorPool
    start_s: float = 0.0

    def start(self, build: Any, shards: Any) -> int:
        begin = time.perf_counter()
        result = self.pool.start(build, shards)
        self.start_s = time.perf_counter() - begin
        return result

    def step(self, fn: Any, message: Any = None) -> list[Any]:
        return self.pool.step(fn, message)


def memory_bytes(what: str) -> int:
    """VmRSS (now) or VmHWM (the most so far) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {what} on this system")


def actor_memory(state: Any, message: Any) -> Any:
    return None, (os.getpid(), memory_bytes("VmHWM"))


ONE = {"full": full_in_one_process, "fr": fr_in_one_process}
ACTORS = {"full": full_with_actors, "fr": fr_with_actors}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One line of the table, in this process."""
    statistics, base = Statistics(args.d[0]), memory_bytes("VmRSS")
    begin = time.perf_counter()
    if args.actors == 0:
        search = ONE[args.method](statistics, args.steps)
        start_s = time.perf_counter() - begin
        begin = time.perf_counter()
        found = search()
        search_s, actors = time.perf_counter() - begin, []
    else:
        with open_pool(args.kind, args.actors) as pool:
            begin = time.perf_counter()
            search = ACTORS[args.method](statistics, args.steps, pool)
            *found, start_s = search()
            search_s = time.perf_counter() - begin - start_s
            actors = list(dict(pool.step(actor_memory)).values())
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in found))
    return {
        "start_s": start_s,
        "search_s": search_s,
        "n_steps": len(found[0]),
        "driver": memory_bytes("VmHWM") - base,
        "actor": max(actors) - base if actors else 0,
        "digest": digest.hexdigest()[:12],
    }


@contextmanager
def open_pool(kind: str, n_actors: int) -> Iterator[ActorPool]:
    if kind == "local":
        with LocalExecutor().pool(n_actors) as pool:
            yield pool
        return
    with two_nodes() as address, RayExecutor(address) as ray, ray.pool(n_actors) as pool:
        yield pool


@contextmanager
def two_nodes(object_store_bytes: int = 200 * 2**20) -> Iterator[str]:
    """Two Ray nodes on this machine, with a folder of their own."""
    folder = tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True)
    os.environ |= {"RAY_TMPDIR": folder.name, "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": object_store_bytes, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        node.pop("include_dashboard")
        cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()
        folder.cleanup()


def line_in_its_own_process(method: str, d: int, actors: int, args: argparse.Namespace) -> Any:
    command = [
        sys.executable, __file__, "--one", "--method", method, "--d", str(d),
        "--actors", str(actors), "--steps", str(args.steps), "--kind", args.kind,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, nargs="+", default=[20_000], help="attributes")
    parser.add_argument("--steps", type=int, default=300, help="budget, and groups")
    parser.add_argument("--method", choices=["full", "fr", "both"], default="both")
    parser.add_argument("--kind", choices=["local", "ray"], default="local")
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--one", action="store_true", help="only this process's line, as JSON")
    parser.add_argument("--skip-one-process", action="store_true")
    args = parser.parse_args()
    if args.one:
        with single_threaded_blas():
            print(json.dumps(measure(args)))
        return
    print(f"{os.cpu_count()} processors, {args.kind} pool")
    print("method      d  where        start s  search s  ms/step  driver MiB  actor MiB  path")
    for method in ["full", "fr"] if args.method == "both" else [args.method]:
        for d in args.d:
            counts = [] if args.skip_one_process else [0]
            digests = set()
            for actors in [*counts, *sorted({1, 2, args.actors})]:
                found = line_in_its_own_process(method, d, actors, args)
                digests.add(found["digest"])
                where = f"{actors} actors" if actors else "one process"
                print(
                    f"{method:6} {d:6}  {where:11}  {found['start_s']:7.2f}  "
                    f"{found['search_s']:8.2f}  {1e3 * found['search_s'] / found['n_steps']:7.2f}  "
                    f"{found['driver'] / 2**20:10.0f}  {found['actor'] / 2**20:9.0f}  "
                    f"{found['digest']}",
                    flush=True,
                )
            assert len(digests) == 1, "the path depends on who holds the candidates"


if __name__ == "__main__":
    main()
