"""What runs inside an actor: states, and the requests that change them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distfms.errors import EngineError


@dataclass(frozen=True)
class Build:
    """Make states from their shards and bring them up to a step.

    Attributes
    ----------
    function : bytes
        Pickled ``(build, load)``.
    shards : dict
        Shard number → pickled shard.
    saved : dict
        Shard number → (number of the step, bytes) of the snapshot to begin with.
    log : tuple
        (number, pickled ``(fn, message)``) of the steps to replay, in order.
    number : int
        Number of the last step of the pool.
    fresh : bool
        Whether to forget every state there was.
    """

    function: bytes
    shards: dict[int, bytes]
    saved: dict[int, tuple[int, bytes]]
    log: tuple[tuple[int, bytes], ...]
    number: int
    fresh: bool = False


@dataclass(frozen=True)
class Step:
    """Do step ``number`` on the given shards, None for all that the actor has."""

    number: int
    call: bytes
    indices: tuple[int, ...] | None


@dataclass(frozen=True)
class Call:
    """Call ``function(state, item)`` on the first state that the actor has."""

    call: bytes


@dataclass(frozen=True)
class Save:
    """Give the snapshots of the given shards, None for all."""

    function: bytes
    indices: tuple[int, ...] | None


@dataclass(frozen=True)
class Outcome:
    """What came of one request on one shard; ``error`` is set when it failed."""

    answer: Any = None
    changed: bool = False
    error: BaseException | None = None


@dataclass
class Reply:
    """Outcomes by shard and what was done for them."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    n_built: int = 0
    n_replayed: int = 0
    n_duplicates: int = 0
    error: BaseException | None = None


class Host:
    """The states of one actor.

    Requests arrive pickled, one at a time. A step that a shard has done already is answered from
    memory; a step out of turn is refused, as it would give a state that no replay reaches.
    """

    def __init__(self) -> None:
        self._states: dict[int, Any] = {}
        self._done: dict[int, int] = {}
        self._last: dict[int, Outcome] = {}

    def handle(self, request: bytes) -> bytes:
        """Carry out one pickled request; gives a pickled Reply and never raises.

        Interrupts and exits pass, as they are not the work's errors.
        """
        reply = Reply()
        try:
            task = pickle.loads(request)
            if isinstance(task, Build):
                self._build(task, reply)
            elif isinstance(task, Step):
                self._step(task, reply)
            elif isinstance(task, Call):
                index = min(self._states)
                reply.outcomes[index] = _guarded(partial(self._call, index, task))
            else:
                self._save(task, reply)
        except Exception as error:
            reply.error = portable(error)
        return dump_reply(reply)

    def _build(self, task: Build, reply: Reply) -> None:
        build, load = pickle.loads(task.function)
        for index in list(self._states) if task.fresh else task.shards:
            self._forget(index)
        for index, shard in task.shards.items():
            reply.outcomes[index] = _guarded(
                partial(self._build_one, index, shard, build, load, task, reply)
            )

    def _build_one(
        self,
        index: int,
        shard: bytes,
        build: Callable[[Any], Any],
        load: Callable[[Any, bytes], Any] | None,
        task: Build,
        reply: Reply,
    ) -> Outcome:
        state = build(pickle.loads(shard))
        reply.n_built += 1
        begin = 0
        if index in task.saved and load is not None:
            begin, payload = task.saved[index]
            state = load(state, payload)
        for number, call in task.log:
            if number > begin:
                fn, message = pickle.loads(call)
                changed, _ = fn(state, message)
                state = state if changed is None else changed
                reply.n_replayed += 1
        self._states[index] = state
        self._done[index] = task.number
        return Outcome()

    def _step(self, task: Step, reply: Reply) -> None:
        for index in self._chosen(task.indices):
            if self._done.get(index) == task.number and index in self._last:
                reply.outcomes[index] = self._last[index]
                reply.n_duplicates += 1
            else:
                reply.outcomes[index] = _guarded(partial(self._step_one, index, task))

    def _step_one(self, index: int, task: Step) -> Outcome:
        if self._done.get(index) != task.number - 1:
            raise EngineError(
                f"Shard {index} stands at step {self._done.get(index)} and was given step "
                f"{task.number}; this is a bug in distfms, not in the data."
            )
        # Each shard gets a message of its own, which it may keep or change.
        fn, message = pickle.loads(task.call)
        # A failed step may have left the state half changed: it is gone until it is rebuilt.
        state = self._states.pop(index)
        del self._done[index]
        self._last.pop(index, None)
        changed, answer = fn(state, message)
        # Pickled now, as the state may share memory with it.
        answer = _dumps(answer)
        self._states[index] = state if changed is None else changed
        self._done[index] = task.number
        self._last[index] = Outcome(answer, changed is not None)
        return self._last[index]

    def _call(self, index: int, task: Call) -> Outcome:
        function, item = pickle.loads(task.call)
        return Outcome(_dumps(function(self._states[index], item)))

    def _save(self, task: Save, reply: Reply) -> None:
        save = pickle.loads(task.function)
        for index in self._chosen(task.indices):
            reply.outcomes[index] = _guarded(partial(self._save_one, index, save))

    def _save_one(self, index: int, save: Callable[[Any], bytes]) -> Outcome:
        return Outcome(bytes(save(self._states[index])))

    def _chosen(self, indices: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(sorted(self._states)) if indices is None else indices

    def _forget(self, index: int) -> None:
        for table in (self._states, self._done, self._last):
            table.pop(index, None)


def portable(error: BaseException) -> BaseException:
    """Give the error itself when it survives the way to the driver, else one that tells of it."""
    try:
        copy = pickle.loads(_dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:
        # Its class cannot travel; the text can.
        pass
    return EngineError(f"Work on an actor failed with {type(error).__name__}: {error}")


def dump_reply(reply: Reply) -> bytes:
    """Pickle a reply."""
    # Answers are pickled already; errors may be of classes that only cloudpickle can carry.
    if reply.error is None and all(o.error is None for o in reply.outcomes.values()):
        return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)
    return _dumps(reply)


def dump(value: Any) -> bytes:
    """Pickle functions, messages and shards, those of scripts and notebooks included."""
    return _dumps(value)


def _dumps(value: Any) -> bytes:
    """Pickle; by cloudpickle, at several times the cost, only what plain pickle cannot carry."""
    import cloudpickle

    if not cloudpickle.list_registry_pickle_by_value():
        try:
            plain = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:
            # Lambdas and local functions; whatever else it is, cloudpickle says it.
            pass
        else:
            # What a script or notebook defines is another module's there: it travels by value.
            if b"__main__" not in plain:
                return plain
    return cloudpickle.dumps(value)


def _guarded(call: Callable[[], Outcome]) -> Outcome:
    try:
        return call()
    except Exception as error:
        return Outcome(error=portable(error))
