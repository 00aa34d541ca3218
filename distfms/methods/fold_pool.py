"""Evaluations on folds, side by side on actors that hold the folds' statistics.

A unit is one item (a rule, an algorithm, a point of a grid) on one fold. Units are dealt to a
fixed number of lanes, which are the shards of an actor pool; the lanes of one actor share what it
has loaded: the statistics of the run folder, and of each fold all rows but its own. A message
names the units of a step, the answers are a few numbers each. What a unit gives depends on the
item and the fold only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from distfms.engine.base import ActorPool
from distfms.engine.storage import Location, absolute, open_binary
from distfms.errors import EngineError
from distfms.methods.contract import Context, FoldAnswers
from distfms.methods.fold_work import Answer, FoldWork, TuneWork
from distfms.stats.base import load_npz

Units = tuple[int, ...]

#: Lanes of a pool at most, and so units side by side: divisible by most numbers of actors. Fixed,
#: so that a run goes on with another number of workers.
MOST_LANES = 48

#: Steps that the units are done in, where each actor has several to do: what a killed driver or
#: actor loses is one of them, and each saved step costs a small file for every lane.
MOST_STEPS = 12


@dataclass(frozen=True)
class Evaluated:
    """What became of a :class:`FoldWork`.

    Attributes
    ----------
    answers : tuple of tuple of mapping
        By item, then by fold; empty for a fold with too few rows.
    n_done, n_kept : int
        Evaluations done now, and taken from an earlier attempt.
    """

    answers: tuple[tuple[Answer, ...], ...]
    n_done: int
    n_kept: int


# --- on an actor --------------------------------------------------------------------------------


@dataclass(eq=False)
class _Loaded:
    """Statistics of all folds in one process."""

    whole: Any
    split: Callable[[Any, int], Any]
    folds: dict[int, Any] = field(default_factory=dict)

    def fold(self, number: int) -> Any:
        """Return what the evaluations want of a fold."""
        if number not in self.folds:
            self.folds[number] = self.split(self.whole, number)
        return self.folds[number]


#: What the lanes of one pool share in this process, by the pool's token; gone with the last.
_HERE: WeakValueDictionary[str, _Loaded] = WeakValueDictionary()


class OutOfSightError(EngineError):
    """An actor cannot read a file of the run folder."""


@dataclass(eq=False)
class _Lane:
    """State of one shard."""

    loaded: _Loaded
    work: FoldWork
    number: int
    n_lanes: int


def _open_lane(number: int, *, place: Location, token: str, work: FoldWork, n_lanes: int) -> _Lane:
    loaded = _HERE.get(token)
    if loaded is None:
        try:
            with open_binary(place) as file:
                arrays = load_npz(file)
        except (FileNotFoundError, PermissionError) as error:
            raise OutOfSightError(f"A worker cannot read {place}: {error}.") from error
        loaded = _HERE[token] = _Loaded(work.load(arrays), work.split)
    return _Lane(loaded, work, number, n_lanes)


def _evaluate(lane: _Lane, units: Units) -> tuple[None, dict[int, Answer]]:
    """Evaluate a lane's own units of a step."""
    work, found = lane.work, {}
    for unit in units:
        if unit % lane.n_lanes == lane.number:
            item, fold = divmod(unit, work.n_folds)
            data = lane.loaded.fold(fold)
            found[unit] = {} if data is None else work.evaluate(data, work.items[item])
    return None, found


# --- in the driver ------------------------------------------------------------------------------


def evaluate_on_folds(context: Context, work: FoldWork) -> Evaluated:
    """Evaluate every item on every fold, on actors where that pays.

    Parameters
    ----------
    context : Context
    work : FoldWork

    Returns
    -------
    Evaluated
        The same bits whatever the pool, the number of actors and what was lost on the way.

    Raises
    ------
    EngineError
        If actors kept dying, or do not have the memory.
    Exception
        What an evaluation raised.
    """
    n_lanes = min(work.n_units, MOST_LANES)
    opened = partial(
        context.pool, n_lanes, 0, shared_bytes=work.held_bytes, n_operations=work.n_operations
    )
    try:
        with opened() as pool:
            return _run(context, pool, work, n_lanes)
    except OutOfSightError as error:
        context.note(
            f"Folds were evaluated by the driver alone, as not every worker sees the run folder. "
            f"{error} For speed, let `output` be on storage that all machines share."
        )
    with opened(alone=True) as pool:
        return _run(context, pool, work, n_lanes)


def tuned_answers(context: Context, plan: TuneWork, saved: str) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points of a grid; see :meth:`distfms.methods.contract.Job.tune_answers`."""
    done = evaluate_on_folds(context, plan.work)
    first = done.answers[0]
    usable = [f for f, answer in enumerate(first) if answer]
    values = np.array(
        [[done.answers[item][f]["values"][at] for f in usable] for item, at in plan.places]
    )
    found = FoldAnswers(
        folds=tuple(usable),
        n_rows=tuple(int(first[f]["n_rows"]) for f in usable),
        weight=tuple(float(first[f]["weight"]) for f in usable),
        answers=(),
        n_done=done.n_done,
        n_kept=done.n_kept,
    )
    return found, values


def _run(context: Context, pool: ActorPool, work: FoldWork, n_lanes: int) -> Evaluated:
    place = absolute(context.folder) / work.file
    token = uuid.uuid4().hex
    build = partial(_open_lane, place=place, token=token, work=work, n_lanes=n_lanes)
    pool.start(build, range(n_lanes))
    found: dict[int, Answer] = {}
    for units in steps(range(work.n_units), work.n_units, pool.n_actors):
        for answers in pool.step(_evaluate, units):
            found |= answers
    by_item = [
        [found[i * work.n_folds + f] for f in range(work.n_folds)] for i in range(len(work.items))
    ]
    return Evaluated(tuple(map(tuple, by_item)), work.n_units, 0)


def steps(left: Sequence[int], n_units: int, n_actors: int) -> list[Units]:
    """Cut units into steps in which every actor has as much to do.

    Parameters
    ----------
    left : sequence of int
        Units still to do, in order.
    n_units : int
        All of them.
    n_actors : int

    Returns
    -------
    list of tuple of int
        Steps of a multiple of `n_actors` units: consecutive ones, most of them the same item on
        different folds, which take about as long.
    """
    size = n_actors * -(-n_units // (n_actors * MOST_STEPS))
    return [tuple(left[i : i + size]) for i in range(0, len(left), size)]
