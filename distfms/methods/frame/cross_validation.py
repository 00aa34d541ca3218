"""Evaluations on folds, side by side on actors that hold the folds' statistics.

A unit is one item (a rule, a point of a grid) on one fold. Every actor reads the statistics from
the file of their step once, and makes of each fold what the evaluations want. A unit's answer is a
few numbers; the driver writes it down when it comes, so a killed run goes on with what was
answered. An answer depends on the item and the fold only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from distfms.engine.base import ActorPool
from distfms.engine.storage import Location, open_binary
from distfms.errors import EngineError
from distfms.methods.frame.contract import Answer, FoldAnswers, Run
from distfms.stats.base import Bundle
from distfms.stats.codec import load

#: Number of a fold and of an item.
Unit = tuple[int, int]
Members = Mapping[str, Any]
M = TypeVar("M")

#: Items that an actor evaluates on a fold before it asks for more: what they share of a fold is
#: made once, and a killed driver loses no more than these.
PORTION = 8

#: Multiplications that take as long as the calls of one greedy step on small arrays: 0.13 ms of
#: 6 · 10⁹ a second (measured on 30 to 1,000 columns).
CALLS = 8e5


@dataclass(frozen=True, eq=False)
class Fold:
    """All training rows but those of one fold, and the fold, as merged statistics by name.

    Attributes
    ----------
    train, held_out : mapping of str to Statistic
    number : int
        Of the fold.
    """

    train: Members
    held_out: Members
    number: int = -1
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False)

    def once(self, key: Hashable, make: Callable[[], M]) -> M:
        """Return what `make` returned for this key, which several items of the fold share."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def any_rows(train: Members) -> bool:
    """Let a fold count whatever the other rows are."""
    return True


def without_fold(bundle: Bundle, number: int) -> tuple[Members, Members]:
    """Return the statistics of all training rows but those of a fold, and of the fold."""
    members = bundle.members.items()
    return (
        {name: part.train_without(number) for name, part in members},
        {name: part.folds[number] for name, part in members},
    )


@dataclass(frozen=True, eq=False)
class FoldWork:
    """What to evaluate on which folds; picklable.

    Attributes
    ----------
    size : callable
        Number and weight of some rows, from their statistics.
    evaluate : callable
        ``(fold, item)`` → named arrays of few numbers.
    items : sequence
    n_folds : int
    held_bytes : int
        Memory that an actor takes.
    n_operations : float
        Multiplications that all evaluations take; see `CALLS`.
    split : callable
        ``(statistics, fold)`` → the statistics of all training rows but those of a fold, and of
        the fold.
    learnable : callable
        Whether a model can be learned without a fold.
    step : str
        Whose value the statistics are.
    """

    size: Callable[[Members], tuple[int, float]]
    evaluate: Callable[[Fold, Any], Answer]
    items: Sequence[Any]
    n_folds: int
    held_bytes: int
    n_operations: float
    split: Callable[[Bundle, int], tuple[Members, Members]] = without_fold
    learnable: Callable[[Members], bool] = any_rows
    step: str = "statistics"


class OutOfSightError(EngineError):
    """An actor cannot read a file of the run folder."""


# --- on an actor --------------------------------------------------------------------------------


@dataclass(eq=False)
class _Loaded:
    """Statistics of all folds in one process; one fold at a time is merged."""

    bundle: Bundle
    work: FoldWork
    number: int = -1
    fold: Fold | None = None


def _held(statistics: Bundle, work: FoldWork, shard: int) -> _Loaded:
    return _Loaded(statistics, work)


def _load(place: Location, work: FoldWork, shard: int) -> _Loaded:
    try:
        with open_binary(place) as stream:
            return _Loaded(load(stream), work)
    except (FileNotFoundError, PermissionError) as error:
        raise OutOfSightError(f"A worker cannot read {place}: {error}.") from error


def _evaluate(loaded: _Loaded, portion: tuple[int, Sequence[int]]) -> dict[int, Answer]:
    """Evaluate some items on one fold; portions come fold by fold, so it is often there."""
    work = loaded.work
    number, items = portion
    if number != loaded.number:
        loaded.fold = None  # freed before the next is made
        loaded.number = number
        loaded.fold = split_fold(loaded.bundle, work, number)
    return _evaluate_items(work, loaded.fold, items)


def _evaluate_items(work: FoldWork, fold: Fold | None, items: Iterable[int]) -> dict[int, Answer]:
    """Evaluate items on a fold; answers are empty where there is none."""
    if fold is None:
        return {item: {} for item in items}
    return {item: evaluated(work, fold, item) for item in items}


def evaluated(work: FoldWork, fold: Fold, item: int) -> Answer:
    """Evaluate an item on a fold; the answer also has the size of the fold."""
    n_rows, weight = work.size(fold.held_out)
    size = {"fold/n_rows": np.array(n_rows), "fold/weight": np.array(weight)}
    return {**work.evaluate(fold, work.items[item]), **size}


def split_fold(bundle: Bundle, work: FoldWork, number: int) -> Fold | None:
    """Return a fold, or None if it has fewer than two rows or nothing is learned without it."""
    train, held_out = work.split(bundle, number)
    for members in (train, held_out):
        n_rows, _ = work.size(members)
        if n_rows < 2:
            return None
    if not work.learnable(train):
        return None
    return Fold(train, held_out, number)


# --- in the driver ------------------------------------------------------------------------------


def evaluate_on_folds(run: Run, statistics: Bundle, work: FoldWork) -> FoldAnswers:
    """Evaluate every item on every fold, on actors where that pays; within a step.

    The same bits whatever the pool, the number of actors and what was lost on the way.
    """
    n_portions = work.n_folds * -(-len(work.items) // PORTION)
    opened = partial(
        run.pool,
        n_portions,
        0,
        what="folds",
        shared_bytes=work.held_bytes,
        n_operations=work.n_operations,
    )
    try:
        with opened() as pool:
            return _evaluated_by(run, pool, statistics, work)
    except OutOfSightError as error:
        run.note(
            "The driver evaluated the folds alone, as some workers do not see the run folder. "
            f"{error} For speed, put `output` on storage that all machines share."
        )
    with opened(alone=True) as pool:
        return _evaluated_by(run, pool, statistics, work)


def evaluate_here(
    work: FoldWork, statistics: Bundle, extended: Callable[[Fold], AbstractContextManager[Fold]]
) -> FoldAnswers:
    """Evaluate in this process, fold by fold; `extended` adds to a fold what its items need."""
    answers: dict[Unit, Answer] = {}
    items = range(len(work.items))
    for number in range(work.n_folds):
        fold = split_fold(statistics, work, number)
        with nullcontext() if fold is None else extended(fold) as whole:
            of_fold = _evaluate_items(work, whole, items)
        answers |= {(number, item): answer for item, answer in of_fold.items()}
    return arranged(work, answers, 0)


def _evaluated_by(run: Run, pool: ActorPool, statistics: Bundle, work: FoldWork) -> FoldAnswers:
    build = partial(_held, statistics, work)
    log = None
    # What is done in this process is not worth a file.
    if pool.name != "serial":
        place = run.place(work.step)
        scratch = run.scratch()
        if place is not None:
            build = partial(_load, place, work)
        if scratch is not None:
            log = AnswerLog(scratch, _key(work))
    answers = {} if log is None else log.read()
    n_kept = len(answers)
    portions = _portions(work, answers)

    def keep(index: int, of_portion: Mapping[int, Answer]) -> None:
        fold, _ = portions[index]
        for item, answer in of_portion.items():
            answers[fold, item] = answer
            if log is not None:
                log.append((fold, item), answer)

    if portions:
        pool.start(build, range(pool.n_actors))
        pool.map(_evaluate, portions, on_answer=keep)
    return arranged(work, answers, n_kept)


def _portions(work: FoldWork, answers: Mapping[Unit, Answer]) -> list[tuple[int, list[int]]]:
    """Cut what is not yet answered into portions of one fold each, fold by fold."""
    portions = []
    for fold in range(work.n_folds):
        items = [item for item in range(len(work.items)) if (fold, item) not in answers]
        starts = range(0, len(items), PORTION)
        portions += [(fold, items[start : start + PORTION]) for start in starts]
    return portions


def arranged(work: FoldWork, answers: Mapping[Unit, Answer], n_kept: int) -> FoldAnswers:
    """Arrange answers by item and fold; folds that `split_fold` leaves out have none."""
    folds = tuple(fold for fold in range(work.n_folds) if answers[fold, 0])

    def of_item(item: int) -> tuple[Answer, ...]:
        return tuple(answers[fold, item] for fold in folds)

    first = of_item(0)
    return FoldAnswers(
        folds=folds,
        n_rows=tuple(int(answer["fold/n_rows"]) for answer in first),
        weight=tuple(float(answer["fold/weight"]) for answer in first),
        answers=tuple(of_item(item) for item in range(len(work.items))),
        n_done=len(answers) - n_kept,
        n_kept=n_kept,
    )


def _key(work: FoldWork) -> str:
    """Hash what the answers depend on; the run folder belongs to one spec and one set of data."""
    text = json.dumps([work.step, work.n_folds, [repr(item) for item in work.items]])
    return hashlib.sha256(text.encode()).hexdigest()


def _arrays_of(described: Mapping[str, tuple[str, list[Any]]]) -> Answer:
    return {name: np.array(values, dtype=kind) for name, (kind, values) in described.items()}


@dataclass(frozen=True)
class AnswerLog:
    """Answers of units in a file of lines, each written when it comes, for work of one key."""

    path: Path
    key: str

    def read(self) -> dict[Unit, Answer]:
        """Return the answers so far; a line that was torn off ends them."""
        answers: dict[Unit, Answer] = {}
        key, *lines = self.path.read_text().splitlines() if self.path.exists() else [""]
        if key != self.key:
            lines = []
        with suppress(ValueError):
            for line in lines:
                fold, item, described = json.loads(line)
                answers[fold, item] = _arrays_of(described)
        self.path.write_text("\n".join([self.key, *lines[: len(answers)], ""]))
        return answers

    def append(self, unit: Unit, answer: Answer) -> None:
        """Write an answer down; floats are written so that they read back the same."""
        arrays = {name: (array.dtype.str, array.tolist()) for name, array in answer.items()}
        with self.path.open("a") as file:
            file.write(json.dumps([*unit, arrays]) + "\n")
