"""Evaluations on folds, side by side on actors that hold the folds' statistics.

A unit is one item (a rule, an algorithm, a point of a grid) on one fold. Units are dealt to a
fixed number of lanes, which are the shards of an actor pool; the lanes of one actor share what it
has loaded: the statistics of the run folder, and of each fold all rows but its own. A message
names the units of a step, the answers are a few numbers each. What a unit gives depends on the
item and the fold only.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from distfms.engine.pools import ActorPool, Snapshots
from distfms.engine.storage import Location, absolute, open_binary
from distfms.errors import EngineError
from distfms.methods.contract import Context, FoldAnswers
from distfms.methods.fold_work import Answer, FoldWork, TuneWork
from distfms.stats.base import from_bytes, load_npz, to_bytes

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
    """State of one shard: what it has loaded, and its answers as far as they are to be saved."""

    loaded: _Loaded
    work: FoldWork
    number: int
    n_lanes: int
    answers: dict[int, Answer] = field(default_factory=dict)


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


def _evaluate(lane: _Lane, message: tuple[Units, bool]) -> tuple[_Lane | None, dict[int, Answer]]:
    """Evaluate a lane's own units of a step."""
    units, keep = message
    work, found = lane.work, {}
    for unit in units:
        if unit % lane.n_lanes == lane.number:
            item, fold = divmod(unit, work.n_folds)
            data = lane.loaded.fold(fold)
            found[unit] = {} if data is None else work.evaluate(data, work.items[item])
    if not keep or not found:
        return None, found
    lane.answers.update(found)
    return lane, found


def _answers(lane: _Lane, message: None) -> tuple[None, dict[int, Answer]]:
    return None, lane.answers


def _save(lane: _Lane) -> bytes:
    # Also the units whose answer is empty are named.
    arrays = {
        f"{unit}/{key}": a for unit, answer in lane.answers.items() for key, a in answer.items()
    }
    return to_bytes({"units": np.array(sorted(lane.answers), dtype=np.int64), **arrays})


def _restore(lane: _Lane, payload: bytes) -> _Lane:
    arrays = from_bytes(payload)
    lane.answers = {int(unit): {} for unit in arrays.pop("units")}
    for name, array in arrays.items():
        unit, _, key = name.partition("/")
        lane.answers[int(unit)] = {**lane.answers[int(unit)], key: array}
    return lane


# --- in the driver ------------------------------------------------------------------------------


def evaluate_on_folds(context: Context, work: FoldWork, saved: str | None = None) -> Evaluated:
    """Evaluate every item on every fold, on actors where that pays.

    Parameters
    ----------
    context : Context
    work : FoldWork
    saved : str, optional
        Folder within the run folder for the answers so far, so that a killed run loses a step.
        Not used where the run folder is at a URL, or the work is done in this process.

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
            return _run(context, pool, work, n_lanes, saved)
    except OutOfSightError as error:
        context.note(
            f"Folds were evaluated by the driver alone, as not every worker sees the run folder. "
            f"{error} For speed, let `output` be on storage that all machines share."
        )
    with opened(alone=True) as pool:
        return _run(context, pool, work, n_lanes, saved)


def tuned_answers(context: Context, plan: TuneWork, saved: str) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points of a grid; see :meth:`distfms.methods.contract.Job.tune_answers`."""
    done = evaluate_on_folds(context, plan.work, saved)
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


def _run(
    context: Context, pool: ActorPool, work: FoldWork, n_lanes: int, saved: str | None
) -> Evaluated:
    place = absolute(context.folder) / work.file
    token = uuid.uuid4().hex
    build = partial(_open_lane, place=place, token=token, work=work, n_lanes=n_lanes)
    snapshots = None
    # What is done in this process is not worth the files, and checkpoints want a file system.
    if saved is not None and pool.name != "serial" and isinstance(context.folder, Path):
        snapshots = Snapshots(context.folder / saved, _key(place, work), _save, _restore)
    pool.start(build, range(n_lanes), snapshots=snapshots)
    found: dict[int, Answer] = {}
    if snapshots is not None and pool.number:
        found = _merged(pool.step(_answers))
    kept = len(found)
    left = [unit for unit in range(work.n_units) if unit not in found]
    for units in steps(left, work.n_units, pool.n_actors):
        found |= _merged(pool.step(_evaluate, (units, snapshots is not None)))
        if snapshots is not None and len(found) < work.n_units:
            pool.checkpoint()
    by_item = [
        [found[i * work.n_folds + f] for f in range(work.n_folds)] for i in range(len(work.items))
    ]
    return Evaluated(tuple(map(tuple, by_item)), work.n_units - kept, kept)


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


def _merged(answers: Sequence[Mapping[int, Answer]]) -> dict[int, Answer]:
    return {unit: answer for some in answers for unit, answer in some.items()}


def _key(place: Location, work: FoldWork) -> str:
    """Name what the answers depend on; the run folder belongs to one spec and one set of data."""
    text = json.dumps([str(place), work.n_folds, [repr(item) for item in work.items]])
    return hashlib.sha256(text.encode()).hexdigest()
