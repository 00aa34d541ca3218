"""The states of an actor, where they are, and what travels there and back."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distfms.engine.graph import call_with_retry
from distfms.errors import EngineError


@dataclass
class Reply:
    """What came of a request: by shard, pickled answers and errors; that of -1 befell them all."""

    answers: dict[int, bytes] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    changed: bool = False
    n_built: int = 0
    n_replayed: int = 0
    n_retries: int = 0


class Host:
    """The states of one actor; requests are pickled calls of functions, one at a time."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Be as new, for another pool."""
        self._states: dict[int, Any] = {}
        self._number = 0
        self._reply = b""

    def __reduce__(self) -> Any:
        """Refuse to be copied: states are changed in place, where they are."""
        raise TypeError("The states of an actor stay in its process.")

    def handle(self, setup: bytes | None, request: bytes, number: int, *log: bytes) -> bytes:
        """Carry out one request and return a pickled `Reply`; errors are in the reply.

        A ``setup``, the pickled arguments of `build` but the log, comes with the first request,
        which may be empty. Nothing is returned by a host that has no states and gets none: its
        process was started anew. An engine may send a request again whose reply was lost: what has
        the same ``number`` as the last one is not done twice. Interrupts and exits pass, as they
        are not the work's errors.
        """
        if setup is None and not self._states:
            return b""
        if number != self._number:
            self._reply = self._handled(setup, request, log)
            self._number = number
        return self._reply

    def _handled(self, setup: bytes | None, request: bytes, log: Sequence[bytes]) -> bytes:
        reply = Reply()
        try:
            if setup is not None:
                build, shards, attempts = pickle.loads(setup)
                self._build(reply, build, shards, attempts, log)
            if request and not reply.errors:
                self._call(reply, *pickle.loads(request))
        except Exception as error:
            reply.errors[-1] = portable(error)
        return dump(reply)

    def _build(
        self,
        reply: Reply,
        build: bytes,
        shards: dict[int, bytes],
        attempts: int,
        log: Sequence[bytes],
    ) -> None:
        """Forget all states, make them from their shards and do the steps of the log again."""
        self._states = {}
        make = pickle.loads(build)
        for index, shard in shards.items():
            try:
                state, n_retries = call_with_retry(
                    lambda shard=shard: make(pickle.loads(shard)),
                    attempts=attempts,
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
            except Exception as error:
                reply.errors[index] = portable(error)

    def _call(self, reply: Reply, call: bytes, is_item: bool) -> None:
        """Call ``function(state, message)`` on every state, or on the first with an item."""
        indices = sorted(self._states)
        for index in indices[:1] if is_item else indices:
            try:
                # Each shard gets a message of its own, which it may keep or change.
                function, message = pickle.loads(call)
                result = function(self._states[index], message)
                changed, answer = (None, result) if is_item else result
                # Pickled now, as the state may share memory with it.
                reply.answers[index] = dump(answer)
                if changed is not None:
                    self._states[index] = changed
                    reply.changed = True
            except Exception as error:
                reply.errors[index] = portable(error)


def portable(error: BaseException) -> BaseException:
    """Return the error itself if it survives the way to the driver, else one that tells of it."""
    try:
        copy = pickle.loads(dump(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:
        # Its class cannot travel; the text can.
        pass
    return EngineError(f"Work in another process failed with {type(error).__name__}: {error}")


def dump(value: Any) -> bytes:
    """Pickle; what a script or notebook defines, lambdas and local functions travel by value."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled
