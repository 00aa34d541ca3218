"""What runs inside an actor: states, and the requests that change them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from distfms.engine.retry import RetryPolicy, call_with_retry
from distfms.errors import EngineError


@dataclass
class Reply:
    """What came of a request: by shard, pickled answers and errors; ``error`` befell the whole."""

    answers: dict[int, bytes] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    error: BaseException | None = None
    changed: bool = False
    n_built: int = 0
    n_replayed: int = 0
    n_retries: int = 0


class Host:
    """The states of one actor; requests are pickled calls of its methods, one at a time."""

    def __init__(self) -> None:
        self._states: dict[int, Any] = {}

    def handle(self, request: bytes) -> bytes:
        """Carry out one request and return a pickled `Reply`; errors are in the reply.

        Interrupts and exits pass, as they are not the work's errors.
        """
        try:
            method, *arguments = pickle.loads(request)
            reply = getattr(self, method)(*arguments)
        except Exception as error:
            reply = Reply(error=portable(error))
        if reply.error is None and not reply.errors:
            return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)  # answers are pickled already
        return dump(reply)

    def build(
        self, build: bytes, shards: dict[int, bytes], log: Sequence[bytes], retry: RetryPolicy
    ) -> Reply:
        """Forget all states, make them from their shards and do the steps of the log again."""
        self._states = {}
        make = pickle.loads(build)
        reply = Reply()

        def one(index: int) -> None:
            state, n_retries = call_with_retry(
                lambda: make(pickle.loads(shards[index])),
                policy=retry,
                what=f"Building the state of shard {index}",
            )
            reply.n_retries += n_retries
            reply.n_built += 1
            for call in log:
                function, message = pickle.loads(call)
                changed, _ = function(state, message)
                state = state if changed is None else changed
                reply.n_replayed += 1
            self._states[index] = state

        return self._each(reply, one, shards)

    def step(self, call: bytes) -> Reply:
        """Call ``function(state, message)`` on every state."""
        reply = Reply()

        def one(index: int) -> None:
            # Each shard gets a message of its own, which it may keep or change.
            function, message = pickle.loads(call)
            changed, answer = function(self._states[index], message)
            # Pickled now, as the state may share memory with it.
            reply.answers[index] = dump(answer)
            if changed is not None:
                self._states[index] = changed
                reply.changed = True

        return self._each(reply, one, sorted(self._states))

    def call(self, call: bytes) -> Reply:
        """Call ``function(state, item)`` on the first state."""
        reply = Reply()

        def one(index: int) -> None:
            function, item = pickle.loads(call)
            reply.answers[index] = dump(function(self._states[index], item))

        return self._each(reply, one, [min(self._states)])

    @staticmethod
    def _each(reply: Reply, work: Callable[[int], None], indices: Iterable[int]) -> Reply:
        for index in indices:
            try:
                work(index)
            except Exception as error:
                reply.errors[index] = portable(error)
        return reply


def portable(error: BaseException) -> BaseException:
    """Return the error itself if it survives the way to the driver, else one that tells of it."""
    try:
        copy = pickle.loads(dump(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:
        # Its class cannot travel; the text can.
        pass
    return EngineError(f"Work on an actor failed with {type(error).__name__}: {error}")


def dump(value: Any) -> bytes:
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
