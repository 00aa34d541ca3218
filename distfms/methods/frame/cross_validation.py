"""Evaluations on folds, side by side on actors that hold the folds' statistics.

A unit is one item (a rule, a point of a grid) on one fold. Every actor reads the statistics from
the file of their step once, and makes of each fold what the evaluations want. A unit's answer is a
few numbers, and depends on the item and the fold only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from distfms.engine.pool import ActorPool
from distfms.errors import EngineError
from distfms.methods.frame.contract import Answer, FoldAnswers, Run
from distfms.stats.base import Bundle
from distfms.stats.codec import load
from distfms.store.places import Location, open_binary

#: Number of a fold and of an item.
Unit = tuple[int, int]
Members = Mapping[str, Any]
M = TypeVar("M")

#: Items that an actor evaluates on a fold before it asks for more: what they share of a fold is
#: made once.
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


def held_out(statistics: Bundle) -> Members:
    """Return the statistics of the held-out rows by name."""
    return {name: part.test for name, part in statistics.members.items()}


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
    return arranged(work, answers)


def _evaluated_by(run: Run, pool: ActorPool, statistics: Bundle, work: FoldWork) -> FoldAnswers:
    build = partial(_held, statistics, work)
    place = run.place(work.step)
    if pool.name != "serial" and place is not None:
        build = partial(_load, place, work)
    portions = _portions(work)
    pool.start(build, range(pool.n_actors))
    answers: dict[Unit, Answer] = {}
    for (fold, _), of_portion in zip(portions, pool.map(_evaluate, portions), strict=True):
        answers |= {(fold, item): answer for item, answer in of_portion.items()}
    return arranged(work, answers)


def _portions(work: FoldWork) -> list[tuple[int, list[int]]]:
    """Cut the work into portions of one fold each, fold by fold."""
    items = list(range(len(work.items)))
    portions = []
    for fold in range(work.n_folds):
        starts = range(0, len(items), PORTION)
        portions += [(fold, items[start : start + PORTION]) for start in starts]
    return portions


def arranged(work: FoldWork, answers: Mapping[Unit, Answer]) -> FoldAnswers:
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
        n_done=len(answers),
    )
