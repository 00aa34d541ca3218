"""Evaluations on folds, side by side on actors that hold the folds' statistics.

A unit is one item (a rule, a point of a grid) on one fold. Every actor reads the statistics from
the file of their step once, and makes of each fold what the evaluations want. A unit's answer is a
few numbers, and depends on the item and the fold only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations
from typing import Any, TypeVar

import numpy as np

from distfms.engine.pool import ActorPool
from distfms.errors import EngineError
from distfms.methods.frame.contract import Job, Run
from distfms.stats.base import Bundle, Members
from distfms.stats.codec import load
from distfms.stats.folds import Answer, FoldAnswers
from distfms.store.places import Location, open_binary

M = TypeVar("M")

#: Items that an actor evaluates on a fold before it asks for more: what they share of a fold is
#: made once.
PORTION = 8


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
    _made: dict[Hashable, Any] = field(default_factory=dict)

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
        Multiplications that all evaluations take; see `solve.forward.CALLS`.
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

    @classmethod
    def of_job(
        cls, job: Job, evaluate: Any, items: Sequence[Any], procedures: Sequence[Any]
    ) -> FoldWork:
        """Return the work of evaluating items on the folds of a job, by procedures for each."""
        return cls(
            size=procedures[0].size,
            learnable=procedures[0].learnable,
            evaluate=evaluate,
            items=items,
            n_folds=job.n_folds,
            held_bytes=2 * job.statistics_bytes,  # all folds, and one merged
            n_operations=job.n_folds * sum(procedure.n_operations() for procedure in procedures),
        )

    def fold(self, statistics: Bundle, number: int) -> Fold | None:
        """Return a fold, or None if it has fewer than two rows or nothing is learned without it."""
        train, held_out = self.split(statistics, number)
        for members in (train, held_out):
            n_rows, _ = self.size(members)
            if n_rows < 2:
                return None
        return Fold(train, held_out, number) if self.learnable(train) else None

    def folds(self, statistics: Bundle) -> Iterator[Fold]:
        """Make the folds that there are, one after the other."""
        for number in range(self.n_folds):
            fold = self.fold(statistics, number)
            if fold is not None:
                yield fold

    def pairs(self, statistics: Bundle) -> Iterator[tuple[Fold, int]]:
        """Make each fold beside what is left without it and another, and that one's number.

        The two of a pair share what is made once. Where nothing can be learned there is none.
        """
        members = statistics.members.items()
        for pair in combinations(range(self.n_folds), 2):
            train = {name: part.train_without(*pair) for name, part in members}
            made = dict[Hashable, Any]()
            if not self.learnable(train):
                continue
            for number, other in permutations(pair):
                held_out = {name: part.folds[number] for name, part in members}
                yield Fold(train, held_out, number, made), other

    def answer(self, fold: Fold, item: int) -> Answer:
        """Evaluate an item on a fold; the answer also has the size of the fold."""
        n_rows, weight = self.size(fold.held_out)
        size = {"fold/n_rows": np.array(n_rows), "fold/weight": np.array(weight)}
        return {**self.evaluate(fold, self.items[item]), **size}

    def arranged(self, answers: Mapping[tuple[int, int], Answer]) -> FoldAnswers:
        """Arrange answers by fold and item; folds that there are not have none."""
        folds = sorted({fold for fold, _ in answers})
        by_item = []
        for item in range(len(self.items)):
            of_folds = [answers[fold, item] for fold in folds]
            by_item.append(tuple(of_folds))
        first = by_item[0]
        return FoldAnswers(
            folds=tuple(folds),
            n_rows=tuple(int(answer["fold/n_rows"]) for answer in first),
            weight=tuple(float(answer["fold/weight"]) for answer in first),
            answers=tuple(by_item),
            n_done=self.n_folds * len(self.items),
        )

    def here(
        self,
        statistics: Bundle,
        extended: Callable[[Fold], AbstractContextManager[Fold]] = nullcontext,
    ) -> FoldAnswers:
        """Evaluate in this process, fold by fold; `extended` adds what the items of a fold need."""
        answers = {}
        for fold in self.folds(statistics):
            with extended(fold) as whole:
                for item in range(len(self.items)):
                    answers[fold.number, item] = self.answer(whole, item)
        return self.arranged(answers)

    def on_actors(self, run: Run, statistics: Bundle) -> FoldAnswers:
        """Evaluate every item on every fold, on actors where that pays; within a step.

        The same bits whatever the pool, the number of actors and what was lost on the way.
        """
        n_portions = self.n_folds * -(-len(self.items) // PORTION)
        opened = partial(
            run.pool,
            n_portions,
            0,
            what="folds",
            shared_bytes=self.held_bytes,
            n_operations=self.n_operations,
        )
        try:
            with opened() as pool:
                return _evaluated_by(run, pool, statistics, self)
        except OutOfSightError as error:
            run.note(
                "The driver evaluated the folds alone, as some workers do not see the run folder. "
                f"{error} For speed, put `output` on storage that all machines share."
            )
        with opened(alone=True) as pool:
            return _evaluated_by(run, pool, statistics, self)


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
        loaded.fold = work.fold(loaded.bundle, number)
    fold = loaded.fold
    return {} if fold is None else {item: work.answer(fold, item) for item in items}


# --- in the driver ------------------------------------------------------------------------------


def _evaluated_by(run: Run, pool: ActorPool, statistics: Bundle, work: FoldWork) -> FoldAnswers:
    build = partial(_held, statistics, work)
    place = run.place(work.step)
    if pool.name != "serial" and place is not None:
        build = partial(_load, place, work)
    portions = _portions(work)
    pool.start(build, range(pool.n_actors))
    answers = {}
    for (fold, _), of_portion in zip(portions, pool.map(_evaluate, portions), strict=True):
        for item, answer in of_portion.items():
            answers[fold, item] = answer
    return work.arranged(answers)


def _portions(work: FoldWork) -> list[tuple[int, list[int]]]:
    """Cut the work into portions of one fold each, fold by fold."""
    items = list(range(len(work.items)))
    portions = []
    for fold in range(work.n_folds):
        starts = range(0, len(items), PORTION)
        portions += [(fold, items[start : start + PORTION]) for start in starts]
    return portions
