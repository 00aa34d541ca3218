"""Evaluations on folds that the tests give to actors; imported by their processes too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distfms.engine.pool import ActorPool
from distfms.methods.frame.cross_validation import Fold, FoldWork
from distfms.stats.base import Bundle, Folded
from distfms.stats.codec import decode, encode
from distfms.stats.comoments import CoMoments
from distfms.stats.folds import FoldAnswers
from tests.conformance.pool_tasks import pool_of

N_FOLDS = 5
FILE = "statistics.step"


@dataclass(frozen=True)
class Item:
    """A power to evaluate, which leaves a mark each time; once its process is killed."""

    power: float
    marks: str
    dies_on: int = -1


def write_folds(folder: Path) -> Path:
    """Write statistics of folds of some rows each, and of one row in fold 3."""
    rng = np.random.default_rng(0)
    parts = [CoMoments.from_block(rng.normal(size=(2, n))) for n in (40, 30, 50, 1, 20, 0)]
    (folder / FILE).write_bytes(encode(Bundle({"moments": Folded(tuple(parts))})))
    return folder


def read_folds(folder: Path) -> Bundle:
    found: Bundle = decode((folder / FILE).read_bytes())
    return found


def size(members: Mapping[str, Any]) -> tuple[int, float]:
    return members["moments"].n_samples, members["moments"].weight


def evaluate(fold: Fold, item: Item) -> dict[str, np.ndarray]:
    train = fold.train["moments"]
    held_out = fold.held_out["moments"]
    mark = Path(item.marks) / f"{item.power:g}-{held_out.n_samples}"
    with open(mark, "a") as file:
        file.write("x")
    if item.dies_on == held_out.n_samples and len(mark.read_text()) == 1:
        os.kill(os.getpid(), 9)
    value = np.abs(train.comoment) ** item.power - held_out.mean[0]
    return {"value": value[0, 0] * np.ones(2), "n": np.array(held_out.n_samples)}


def work(marks: Path, dies_on: int = -1) -> FoldWork:
    """Nine items on five folds; the second item kills its process on a fold, if asked."""
    marks.mkdir(exist_ok=True)
    powers = [1.0 + 0.25 * i for i in range(9)]
    items = [Item(p, str(marks), dies_on if i == 1 else -1) for i, p in enumerate(powers)]
    return FoldWork(size, evaluate, items, N_FOLDS, 1000, 1e12)


def marks(folder: Path) -> dict[str, int]:
    """Count the evaluations of each unit."""
    return {path.name: len(path.read_text()) for path in folder.iterdir()}


@dataclass(frozen=True)
class OnlyHere:
    """A file that no other process sees."""

    path: Path
    pid: int = field(default_factory=os.getpid)

    def read_bytes(self) -> bytes:
        if os.getpid() != self.pid:
            raise FileNotFoundError(f"no file {self.path}")
        return self.path.read_bytes()


@dataclass
class Here:
    """As much of a run as evaluations use."""

    folder: Path
    kind: str
    n_actors: int
    is_shared: bool = True
    notes: list[str] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    opened: ActorPool | None = None

    def pool(
        self, n_shards: int, shard_bytes: int, *, alone: bool = False, **others: Any
    ) -> AbstractContextManager[ActorPool]:
        return self._kept("serial" if alone else self.kind)

    @contextmanager
    def _kept(self, kind: str) -> Iterator[ActorPool]:
        with pool_of(kind, self.n_actors, on_event=self.events.append) as self.opened:
            yield self.opened

    def note(self, text: str) -> None:
        self.notes.append(text)

    def place(self, step: str) -> Path | OnlyHere:
        assert step == "statistics"
        return self.folder / FILE if self.is_shared else OnlyHere(self.folder / FILE)


def run(here: Here, work: FoldWork) -> FoldAnswers:
    return work.on_actors(here, read_folds(here.folder))  # type: ignore[arg-type]


def as_bytes(found: FoldAnswers) -> list[list[dict[str, bytes]]]:
    return [[{k: a.tobytes() for k, a in unit.items()} for unit in own] for own in found.answers]
