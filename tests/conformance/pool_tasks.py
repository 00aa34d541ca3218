"""States and steps that the pool tests give to actors; imported by their processes too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distfms.engine.base import Executor
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.local import LocalExecutor, SerialPool
from distfms.engine.pool import ActorPool
from distfms.engine.ray_cluster import RayExecutor
from tests.conformance import engine_tasks

N_COLUMNS = 6


@dataclass(frozen=True)
class Shard:
    """Rows of a least-squares problem, named by their seed; counts how often they are built."""

    index: int
    folder: str

    def count(self, what: str) -> int:
        """Leave one more mark; gives how many there are."""
        path = Path(self.folder) / f"{what}-{self.index}"
        with open(path, "a") as file:
            file.write("x")
        return len(path.read_text())

    def counted(self, what: str) -> int:
        path = Path(self.folder) / f"{what}-{self.index}"
        return len(path.read_text()) if path.exists() else 0


@dataclass
class Rows:
    shard: Shard
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray = field(default_factory=lambda: np.zeros(N_COLUMNS))


@dataclass(frozen=True)
class Mishap:
    """What is to befall the process of one shard, once."""

    shard: int
    kind: str  # "kill", "node" or "hang"
    driver: int = field(default_factory=os.getpid)

    def befall(self, shard: Shard) -> None:
        if shard.index != self.shard or shard.count("mishap") > 1:
            return
        if self.kind == "hang":
            time.sleep(60)
        if self.kind == "node":
            kill_own_node()
        if self.kind == "kill" and os.getpid() != self.driver:
            os.kill(os.getpid(), 9)


def kill_own_node() -> None:
    """Kill the Ray node of which this process is a worker, and this process, as a power cut."""
    node = os.getppid()
    assert os.path.basename(os.readlink(f"/proc/{node}/exe")) == "raylet"
    os.kill(node, 9)
    os.kill(os.getpid(), 9)


def shards(folder: Path, n: int = 5) -> list[Shard]:
    return [Shard(index, str(folder)) for index in range(n)]


def build(shard: Shard) -> Rows:
    shard.count("built")
    rng = np.random.default_rng(shard.index)
    X = rng.normal(size=(40, N_COLUMNS)) * 10.0 ** np.linspace(-1.5, 1.5, N_COLUMNS)
    return Rows(shard, X, X @ np.arange(1.0, N_COLUMNS + 1) + rng.normal(size=40))


def loss_and_gradient(rows: Rows, message: tuple[np.ndarray, Mishap | None]) -> Any:
    """Leaves the state as it is."""
    weights, mishap = message
    rows.shard.count("evaluated")
    if mishap is not None:
        mishap.befall(rows.shard)
    residual = rows.X @ weights - rows.y
    return None, (float(residual @ residual), 2 * rows.X.T @ residual)


def walk(rows: Rows, message: tuple[int, Mishap | None]) -> Any:
    """A slice of a chain: sweeps of gradient steps on the shard's own rows, in place."""
    n_sweeps, mishap = message
    rows.shard.count("walked")
    for _ in range(n_sweeps):
        rows.weights += 1e-5 * rows.X.T @ (rows.y - rows.X @ rows.weights)
    if mishap is not None:
        mishap.befall(rows.shard)  # in the worst place: the state has been changed
    return rows, rows.weights.copy()


def build_at_second_attempt(shard: Shard) -> int:
    if shard.count("built") == 1:
        raise ConnectionResetError("the storage hung up")
    return shard.index


def blas_threads(rows: Rows, message: Any) -> Any:
    return None, engine_tasks.blas_threads(0)


def scribble(rows: Rows, message: np.ndarray) -> Any:
    """Changes its message and answers with a part of its state."""
    message += 1
    rows.weights += message
    return rows, (message, rows.weights)


def refuse(rows: Rows, message: Any) -> Any:
    if rows.shard.index >= message:
        raise ValueError(f"shard {rows.shard.index} is of no use")
    return None, None


@contextmanager
def pool_of(kind: str, n_actors: int = 2, **options: Any) -> Iterator[ActorPool]:
    """A pool of a kind, with an executor that goes with it."""
    with ExitStack() as stack:
        if kind == "serial":
            yield stack.enter_context(SerialPool(**options))
            return
        executor: Executor
        if kind == "dask":
            # One worker more, so that an actor that is lost finds one that no other has.
            cluster = stack.enter_context(engine_tasks.dask_cluster(n_actors + 1))
            executor = DaskExecutor(cluster.scheduler_address)
        else:
            executor = RayExecutor(workers=n_actors) if kind == "ray" else LocalExecutor(n_actors)
        yield stack.enter_context(stack.enter_context(executor).pool(n_actors, **options))


@contextmanager
def pool_asked_for(request: Any) -> Iterator[ActorPool]:
    """The pool that a fixture's parameter names by kind and number of actors."""
    kind, n_actors = request.param.split("-")
    if kind == "ray":
        request.getfixturevalue("ray_session")
    with pool_of(kind, int(n_actors)) as made:
        yield made


def walked(folder: Path, n_steps: int, n_shards: int = 4) -> list[bytes]:
    """The undisturbed answers."""
    (folder / "undisturbed").mkdir()
    with pool_of("serial") as pool:
        pool.start(build, shards(folder / "undisturbed", n_shards))
        for _ in range(n_steps):
            answers = pool.step(walk, (2, None))
    return [answer.tobytes() for answer in answers]


def evaluate(rows: Rows, item: tuple[int, Mishap | None]) -> tuple[int, float]:
    """An answer that depends on the item alone, from a state that all shards have alike."""
    number, mishap = item
    rows.shard.count(f"item-{number}")
    if mishap is not None:
        mishap.befall(rows.shard)
    return number, float(rows.X[0, 0]) * number


def alike(shard: Shard) -> Rows:
    """Every shard the same rows."""
    shard.count("built")
    rows = build(Shard(0, shard.folder))
    return Rows(shard, rows.X, rows.y)
