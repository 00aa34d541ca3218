"""Evaluations on folds that the tests give to actors; imported by their processes too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distfms.engine.base import ActorPool
from distfms.engine.open import make_pool
from distfms.methods.fold_pool import Evaluated, evaluate_on_folds
from distfms.methods.fold_work import FoldWork
from distfms.stats.base import save_npz

N_ITEMS, N_FOLDS = 4, 5
FILE = "folds.npz"


@dataclass(frozen=True)
class Item:
    """A power to evaluate, which leaves a mark each time; once its process is killed."""

    power: float
    marks: str
    dies_on: int = -1


def write_folds(folder: Path) -> Path:
    """Statistics of the folds: some numbers each, none in fold 3 but one."""
    rng = np.random.default_rng(0)
    sizes = [40, 30, 50, 1, 20]
    save_npz(folder / FILE, {str(f): rng.normal(size=n) for f, n in enumerate(sizes)})
    return folder


def load(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [arrays[str(f)] for f in range(N_FOLDS)]


def split(folds: list[np.ndarray], fold: int) -> tuple[int, np.ndarray, np.ndarray] | None:
    if folds[fold].size < 2:
        return None
    return fold, np.concatenate(folds[:fold] + folds[fold + 1 :]), folds[fold]


def evaluate(data: tuple[int, np.ndarray, np.ndarray], item: Item) -> dict[str, np.ndarray]:
    fold, train, held_out = data
    mark = Path(item.marks) / f"{item.power:g}-{fold}"
    with open(mark, "a") as file:
        file.write("x")
    if item.dies_on == fold and len(mark.read_text()) == 1:
        os.kill(os.getpid(), 9)
    return {"value": np.mean(np.abs(train) ** item.power) - held_out, "n": np.array(held_out.size)}


def work(marks: Path, dies_on: int = -1) -> FoldWork:
    """Four items on five folds; the second item kills its process on a fold, if asked."""
    marks.mkdir(exist_ok=True)
    powers = [1.0, 1.5, 2.0, 3.0]
    items = [Item(p, str(marks), dies_on if i == 1 else -1) for i, p in enumerate(powers)]
    return FoldWork(FILE, load, split, evaluate, items, N_FOLDS, 1000, 1e12)


def marks(folder: Path) -> dict[str, int]:
    """Count the evaluations of each unit."""
    return {path.name: len(path.read_text()) for path in folder.iterdir()}


@dataclass(frozen=True)
class OnlyHere:
    """A folder that no other process sees."""

    path: Path
    pid: int = field(default_factory=os.getpid)

    def __truediv__(self, name: str) -> OnlyHere:
        return OnlyHere(self.path / name, self.pid)

    def read_bytes(self) -> bytes:
        if os.getpid() != self.pid:
            raise FileNotFoundError(f"no file {self.path}")
        return self.path.read_bytes()


@dataclass
class Here:
    """As much of a stage's context as evaluations use."""

    folder: Path
    kind: str
    n_actors: int
    notes: list[str] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    opened: ActorPool | None = None

    def pool(
        self, n_shards: int, shard_bytes: int, *, alone: bool = False, **sizes: Any
    ) -> AbstractContextManager[ActorPool]:
        kind = "serial" if alone else self.kind
        self.opened = make_pool(kind, self.n_actors, on_event=self.events.append)
        return self.opened

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(here: Here, work: FoldWork) -> Evaluated:
    return evaluate_on_folds(here, work)  # type: ignore[arg-type]


def as_bytes(done: Evaluated) -> list[list[dict[str, bytes]]]:
    return [[{k: a.tobytes() for k, a in unit.items()} for unit in own] for own in done.answers]
