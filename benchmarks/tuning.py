"""A grid by cross-validation on one and two actors.

Six points (FR and matching pursuit with three ridges) on five folds: thirty sequences of all
groups of five columns, from statistics of synthetic rows in a file that every actor loads. Each
line is one size: seconds of all evaluations in this process, and for each kind of pool the seconds
of its start (processes, imports, reading the file; a Ray cluster is taken to be there), of the
evaluations on one and on two actors, and the ratio of the two. As other work on the machine
disturbs these, the processor time is given as well: that of all evaluations over that of the busier
of two actors is the ratio that two free processors would give, and what two actors take more than
one in total is what they disturb one another. The last figure is the gain of two actors, their
start included, over this process: above 1 they pay. The answers must be the same bits.

``OMP_NUM_THREADS=1 python benchmarks/tuning.py`` takes about two minutes; ``--d 100 200 400 1000``
for other sizes, ``--kinds local`` without Ray.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distfms.engine import make_executor
from distfms.engine.blas import single_threaded_blas
from distfms.engine.local import SerialPool
from distfms.engine.pool import ActorPool
from distfms.methods.frame.contract import FoldAnswers
from distfms.methods.frame.cross_validation import FoldWork, evaluate_on_folds
from distfms.methods.frame.moments import Tuned, TunedItem
from distfms.methods.frame.tuning import grid_points
from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import FeatureGroups
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.solve.costs import GroupCosts
from distfms.spec import EngineSection
from distfms.stats.base import Bundle, Folded
from distfms.stats.codec import encode, load
from distfms.stats.comoments import CoMoments

N_FOLDS = 5
GROUP_SIZE = 5
GRID = {"ridge": [1e-6, 1e-3, 0.1], "criterion": ["fr", "omp"]}
FILE = "folds.step"


@dataclass(frozen=True)
class Metered:
    """An evaluation that also says which process did it, and its processor time."""

    evaluate: Callable[[Any, Any], Any]

    def __call__(self, data: Any, item: Any) -> dict[str, np.ndarray]:
        start_s = time.process_time()
        answer = self.evaluate(data, item)
        cpu_s = time.process_time() - start_s
        return {**answer, "cpu_s": np.array(cpu_s), "pid": np.array(os.getpid())}


class Timed:
    """A pool that notes how long its start and its evaluations take."""

    def __init__(self, pool: ActorPool) -> None:
        self.pool, self.start_s, self.steps_s = pool, 0.0, 0.0

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def n_actors(self) -> int:
        return self.pool.n_actors

    def start(self, *arguments: Any, **options: Any) -> int:
        begin_s = time.perf_counter()
        number = self.pool.start(*arguments, **options)
        self.start_s = time.perf_counter() - begin_s
        return number

    def map(self, *arguments: Any, **options: Any) -> list[Any]:
        begin_s = time.perf_counter()
        answers = self.pool.map(*arguments, **options)
        self.steps_s += time.perf_counter() - begin_s
        return answers


class Here:
    """As much of a run as evaluations use."""

    def __init__(self, folder: Path, kind: str, n_actors: int) -> None:
        self.folder, self.kind, self.n_actors = folder, kind, n_actors
        self.timed: Timed | None = None

    @contextmanager
    def pool(self, *sizes: Any, **more: Any) -> Iterator[Timed]:
        if self.kind == "serial":
            self.timed = Timed(SerialPool())
            yield self.timed
            return
        engine = EngineSection(kind=self.kind, workers=self.n_actors)
        with make_executor(engine) as executor, executor.pool(self.n_actors) as made:
            self.timed = Timed(made)
            yield self.timed

    def place(self, step: str) -> Path:
        return self.folder / FILE

    def scratch(self) -> None:
        return None

    def note(self, text: str) -> None:
        print(text)


def write_moments(folder: Path, d: int) -> None:
    """Co-moments of five folds of 3 d rows, neighbouring columns correlated."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(N_FOLDS + 1):
        block = rng.normal(size=(d + 1, 3 * d))
        block[1:d] += 0.5 * block[: d - 1]
        block[d] += block[: d : d // 40 or 1].sum(axis=0)
        parts.append(CoMoments.from_block(block))
    (folder / FILE).write_bytes(encode(Bundle({"moments": Folded(tuple(parts))})))


def work_of(d: int) -> FoldWork:
    n_groups = d // GROUP_SIZE
    columns = tuple(tuple(range(GROUP_SIZE * g, GROUP_SIZE * (g + 1))) for g in range(n_groups))
    items = [
        TunedItem(
            SequenceProcedure(
                rules=(OrderRule(point["criterion"]),), ridge=point["ridge"],
                max_groups=None, seed=0,
                feature_names=tuple(f"x{i}" for i in range(d)), target_names=("y",),
                groups=FeatureGroups(tuple(f"g{g}" for g in range(n_groups)), columns),
                costs=GroupCosts(np.ones(n_groups)),
            ),
            (None,),
        )
        for point in grid_points(GRID)
    ]  # fmt: skip
    procedure = items[0].procedure
    return FoldWork(
        size=procedure.size,
        evaluate=Metered(Tuned("timeliness")),
        items=items,
        n_folds=N_FOLDS,
        held_bytes=8 * (N_FOLDS + 1) * (d + 1) ** 2,
        n_operations=N_FOLDS * len(items) * procedure.n_operations(),
    )


@dataclass(frozen=True)
class Run:
    """One measurement: seconds, processor seconds by process, digest of the answers."""

    start_s: float
    steps_s: float
    cpu_s: tuple[float, ...]
    digest: str


def measure(folder: Path, work: FoldWork, kind: str, n_actors: int) -> Run:
    here = Here(folder, kind, n_actors)
    with single_threaded_blas(), (folder / FILE).open("rb") as stream:
        done = evaluate_on_folds(here, load(stream), work)  # type: ignore[arg-type]
    assert here.timed is not None
    by_process: dict[int, float] = {}
    for answers in done.answers:
        for answer in answers:
            pid = int(answer["pid"])
            by_process[pid] = by_process.get(pid, 0.0) + float(answer["cpu_s"])
    timed = here.timed
    return Run(timed.start_s, timed.steps_s, tuple(by_process.values()), digest(done))


def digest(done: FoldAnswers) -> str:
    found = hashlib.sha256()
    for answers in done.answers:
        for answer in answers:
            found.update(answer["values"].tobytes())
    return found.hexdigest()[:12]


def line(d: int, serial: Run, kind: str, one: Run, two: Run) -> str:
    assert len({serial.digest, one.digest, two.digest}) == 1, "the answers differ"
    alone, both = sum(one.cpu_s), sum(two.cpu_s)
    whole_s = two.start_s + two.steps_s
    return (
        f"{d:>6} {serial.steps_s:8.1f} {kind:>6} {two.start_s:7.1f} {one.steps_s:8.1f} "
        f"{two.steps_s:8.1f} {one.steps_s / two.steps_s:7.2f} {both / max(two.cpu_s):10.2f} "
        f"{both / alone:9.2f} {serial.steps_s / whole_s:9.2f}  {two.digest}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--d", type=int, nargs="+", default=[250, 500, 1000, 1500])
    parser.add_argument("--kinds", nargs="+", default=["local", "ray"])
    arguments = parser.parse_args()
    print(
        f"{'':>6} {'one':>8} {'':>6} {'':>7} {'1 actor':>8} {'2 actors':>8} {'':>7} "
        f"{'free':>10} {'CPU 2':>9} {'gain over':>9}\n"
        f"{'d':>6} {'process':>8} {'pool':>6} {'start':>7} {'s':>8} {'s':>8} {'ratio':>7} "
        f"{'processors':>10} {'over 1':>9} {'one proc.':>9}  answers"
    )
    for d in arguments.d:
        with tempfile.TemporaryDirectory() as name:
            folder, work = Path(name), work_of(d)
            write_moments(folder, d)
            serial = measure(folder, work, "serial", 1)
            for kind in arguments.kinds:
                one, two = (measure(folder, work, kind, n) for n in (1, 2))
                print(line(d, serial, kind, one, two), flush=True)


if __name__ == "__main__":
    main()
