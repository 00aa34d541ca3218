"""Both sides of every pool: the host inside an actor, and the driver's steps, losses and replay.

How requests travel is left open.
"""

from __future__ import annotations

import pickle
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field, replace
from typing import Any

from distfms.engine.base import ActorPool, EventHandler, PoolCounts, StepFunction, ignore
from distfms.engine.graph import USUAL, RetryPolicy, call_with_retry, times
from distfms.errors import EngineError, SpecError


@dataclass
class Reply:
    """What came of a request: by shard, pickled answers and errors; ``error`` befell the whole."""

    answers: dict[int, bytes] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    error: BaseException | None = None
    changed: bool = False
    n_lost: int = 0
    n_built: int = 0
    n_replayed: int = 0
    n_retries: int = 0


class Host:
    """The states of one actor; requests are pickled calls of its methods, one at a time.

    A ``setup``, the pickled arguments of `build` but the log, comes with the first request, which
    may be empty. ``n_lost`` hosts were in this one's place.
    """

    def __init__(self, n_lost: int = 0) -> None:
        self._states: dict[int, Any] = {}
        self._n_lost = n_lost
        self._number = 0
        self._reply = b""

    def __reduce__(self) -> Any:
        """Refuse to be copied: states are changed in place, where they are."""
        raise TypeError("The states of an actor stay in its process.")

    @property
    def has_states(self) -> bool:
        """Whether something was built here."""
        return bool(self._states)

    def handle(
        self, setup: bytes | None, request: bytes, log: Sequence[bytes] = (), number: int = 0
    ) -> bytes:
        """Carry out one request and return a pickled `Reply`; errors are in the reply.

        An engine may send a request again whose reply was lost: what has the same ``number`` as
        the last one is not done twice. Interrupts and exits pass, as they are not the work's
        errors.
        """
        if number == 0 or number != self._number:
            self._reply = self._handled(setup, request, log)
            self._number = number
        return self._reply

    def _handled(self, setup: bytes | None, request: bytes, log: Sequence[bytes]) -> bytes:
        reply = Reply(n_lost=self._n_lost)
        self._n_lost = 0
        try:
            if setup is not None:
                build, shards, retry = pickle.loads(setup)
                self.build(reply, build, shards, retry, log)
            if request and not reply.errors:
                method, call = pickle.loads(request)
                getattr(self, method)(reply, call)
        except Exception as error:
            reply = Reply(error=portable(error))
        if reply.error is None and not reply.errors:
            return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)  # answers are pickled already
        return dump(reply)

    def build(
        self,
        reply: Reply,
        build: bytes,
        shards: dict[int, bytes],
        retry: RetryPolicy,
        log: Sequence[bytes] = (),
    ) -> None:
        """Forget all states, make them from their shards and do the steps of the log again."""
        self._states = {}
        make = pickle.loads(build)

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

        self._each(reply, one, shards)

    def step(self, reply: Reply, call: bytes) -> None:
        """Call ``function(state, message)`` on every state."""

        def one(index: int) -> None:
            # Each shard gets a message of its own, which it may keep or change.
            function, message = pickle.loads(call)
            changed, answer = function(self._states[index], message)
            # Pickled now, as the state may share memory with it.
            reply.answers[index] = dump(answer)
            if changed is not None:
                self._states[index] = changed
                reply.changed = True

        self._each(reply, one, sorted(self._states))

    def call(self, reply: Reply, call: bytes) -> None:
        """Call ``function(state, item)`` on the first state."""

        def one(index: int) -> None:
            function, item = pickle.loads(call)
            reply.answers[index] = dump(function(self._states[index], item))

        self._each(reply, one, [min(self._states)])

    @staticmethod
    def _each(reply: Reply, work: Callable[[int], None], indices: Iterable[int]) -> None:
        for index in indices:
            try:
                work(index)
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
    return EngineError(f"Work on an actor failed with {type(error).__name__}: {error}")


def dump(value: Any) -> bytes:
    """Pickle; what a script or notebook defines, lambdas and local functions travel by value."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


_POLL_S = 1.0
# What starting a process and importing its modules may take besides, on a busy cluster.
_START_S = 60.0
_BUILDING = "building states"


@dataclass(frozen=True)
class ActorLoss:
    """An actor is gone; ``reason`` says why, for people, and ``n`` how often it was lost.

    ``advice`` says what to do where it is lost every time.
    """

    reason: str
    n: int = 1
    advice: str = (
        "It probably ran out of memory, or a step exceeded its timeout: use more and smaller "
        "shards, fewer actors or a longer timeout"
    )


@dataclass
class _Work:
    """What an actor is at; the request is as `_share` gave it, the answer what `_send` returned."""

    request: Any
    what: str
    index: int = 0
    answer: Any = None
    deadline_s: float = 0.0
    n_losses: int = 0


class ReplayPool(ActorPool):
    """A pool that rebuilds lost states by replaying the messages that changed them.

    Subclasses say how an actor is started, ended, written to and heard.
    """

    name = "replay"

    def __init__(
        self, n_actors: int, *, retry: RetryPolicy = USUAL, on_event: EventHandler = ignore
    ) -> None:
        if n_actors < 1:
            raise SpecError(f"A pool needs at least 1 actor; there are {n_actors}.")
        self.n_actors = n_actors
        self.counts = PoolCounts()
        self._timeout_s = retry.timeout_s
        # An actor that hangs is ended, so what it does needs no limit of its own.
        self._retry = replace(retry, timeout_s=None)
        self._on_event = on_event
        self._up: dict[int, bool] = {}  # whether they have states
        self._ready = False
        self._build = b""
        self._shards: list[bytes] = []
        self._log: list[Any] = []  # as `_share` gave it

    # --- the contract ---------------------------------------------------------------------------

    def start(self, build: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        """Build one state for each shard; see `ActorPool.start`."""
        if not shards:
            raise EngineError("A pool needs at least one shard.")
        self._build = dump(build)
        self._shards = [dump(shard) for shard in shards]
        self._log = []
        self._up = dict.fromkeys(self._up, False)
        self._ask_all(_BUILDING, b"")

    def step(self, fn: StepFunction, message: Any = None) -> list[Any]:
        """Call ``fn(state, message)`` on every state; see `ActorPool.step`."""
        self._require_ready()
        start_s = time.perf_counter()
        call, number = dump((fn, message)), self.counts.n_steps + 1
        reply = self._ask_all(f"step {number}", dump(("step", call)))
        if reply.changed:
            self._log.append(self._share(call))
        self.counts.n_steps = number
        seconds = time.perf_counter() - start_s
        self._event("pool_step", step=number, seconds=seconds)
        return [pickle.loads(reply.answers[index]) for index in range(len(self._shards))]

    def map(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Call ``function(state, item)`` for every item; see `ActorPool.map`."""
        self._require_ready()
        todo = deque(enumerate(items))
        answers: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def assign(actor: int) -> _Work | None:
            if not todo or errors:
                return None
            index, item = todo.popleft()
            request = self._share(dump(("call", dump((function, item)))))
            return _Work(request, f"item {index}", index)

        def take(work: _Work, reply: Reply) -> None:
            for error in reply.errors.values():
                errors[work.index] = error
            for answer in reply.answers.values():
                answers[work.index] = pickle.loads(answer)
                self.counts.n_items += 1

        self._run(assign, take)
        self._finish(errors)
        return [answers[index] for index in range(len(answers))]

    def close(self) -> None:
        """End the actors; safe to call twice."""
        self._ready = False
        self._drop(self._up)

    # --- how requests travel --------------------------------------------------------------------

    @abstractmethod
    def _spawn(self, actor: int) -> None:
        """Start the actor of this number."""

    @abstractmethod
    def _end(self, actor: int) -> None:
        """End an actor at once, whatever it does."""

    @abstractmethod
    def _send(self, actor: int, setup: bytes | None, request: Any) -> Any:
        """Have an actor's `Host` handle this, and the log with a setup.

        The request is as `_share` gave it. Returns a future, or what `_done` and `_heard` take for
        one.
        """

    def _done(self, answers: Sequence[Any], wait_s: float) -> Collection[Any]:
        """Wait up to ``wait_s`` for one of the answers; return all that are there."""
        return wait(answers, wait_s, FIRST_COMPLETED).done

    def _heard(self, answer: Any) -> bytes | ActorLoss:
        """Return the reply, or why there is none."""
        reply: bytes = answer.result()
        return reply

    def _share(self, request: bytes) -> Any:
        """Prepare a request that goes to several actors, so that it travels once."""
        return request

    def _check(self) -> None:
        """Raise EngineError when there is no use in waiting any longer."""
        return

    # --- requests, whatever happens -------------------------------------------------------------

    def _ask_all(self, what: str, request: bytes) -> Reply:
        """Have all actors do the same."""
        shared, found = self._share(request), Reply()
        todo = {actor: _Work(shared, what) for actor in range(self.n_actors)}

        def take(work: _Work, reply: Reply) -> None:
            found.answers |= reply.answers
            found.errors |= reply.errors
            found.changed |= reply.changed

        self._run(lambda actor: todo.pop(actor, None), take)
        self._finish(found.errors)
        return found

    def _run(
        self, assign: Callable[[int], _Work | None], take: Callable[[_Work, Reply], None]
    ) -> None:
        """Hand actors work until there is no more, and make good what is lost."""
        self._ready = False  # until all is answered, states may stand at several steps
        works: dict[int, _Work] = {}

        def go_on(actor: int) -> None:
            works.pop(actor, None)
            if (work := assign(actor)) is not None:
                works[actor] = work
                self._post(actor, work)

        try:
            for actor in range(min(self.n_actors, len(self._shards))):
                go_on(actor)
            while works:
                for actor, news in self._next(works).items():
                    if isinstance(news, ActorLoss):
                        self._replace(actor, works[actor], news)
                    else:
                        take(works[actor], self._opened(actor, works[actor], news))
                        go_on(actor)
        except BaseException:
            # What these would still answer belongs to no request any more.
            self._drop(self._up.keys() & works.keys())
            raise

    def _post(self, actor: int, work: _Work) -> None:
        limit_s, setup = self._timeout_s, None
        if actor not in self._up:
            self._spawn(actor)
            self._up[actor] = False
        if not self._up[actor]:
            shards = {i: self._shards[i] for i in range(actor, len(self._shards), self.n_actors)}
            setup = dump((self._build, shards, self._retry))
            if limit_s is not None:
                # A new process, every state, every step that is replayed, and the request.
                limit_s = _START_S + limit_s * (2 + len(self._log))
        work.deadline_s = float("inf") if limit_s is None else time.monotonic() + limit_s
        work.answer = self._send(actor, setup, work.request)

    def _drop(self, actors: Iterable[int]) -> None:
        for actor in list(actors):
            self._end(actor)
            del self._up[actor]

    def _next(self, works: Mapping[int, _Work]) -> dict[int, bytes | ActorLoss]:
        """Wait for replies; actors beyond their deadline count as lost."""
        soonest_s = min(work.deadline_s for work in works.values())
        wait_s = min(_POLL_S, max(0.0, soonest_s - time.monotonic()))
        done = self._done([work.answer for work in works.values()], wait_s)
        self._check()
        news: dict[int, bytes | ActorLoss] = {}
        for actor, work in works.items():
            if work.answer in done:
                news[actor] = self._heard(work.answer)
            elif time.monotonic() >= work.deadline_s:
                news[actor] = ActorLoss(f"it did not answer in time ({work.what})")
        return news

    def _opened(self, actor: int, work: _Work, raw: bytes) -> Reply:
        """Return the reply to a request, and account for what was built before."""
        reply: Reply = pickle.loads(raw)
        if reply.error is not None:
            raise _explained(reply.error)
        for _ in range(reply.n_lost):
            self._count_loss(actor, "the engine started its process again")
        self.counts.n_built += reply.n_built
        self.counts.n_replayed += reply.n_replayed
        self.counts.n_retries += reply.n_retries
        if reply.n_retries:
            self._event("retry", key=f"actor-{actor}", n_retries=reply.n_retries)
        if reply.n_built and work.what != _BUILDING:
            self._event("actor_replayed", actor=actor, shards=reply.n_built, steps=reply.n_replayed)
        self._up[actor] = True
        return reply

    def _replace(self, actor: int, work: _Work, loss: ActorLoss) -> None:
        """Start another actor in place of a lost one and have it do the same."""
        self._check()
        work.n_losses += loss.n
        for _ in range(loss.n):
            self._count_loss(actor, loss.reason)
        self._drop([actor])
        if not self._retry.allows(work.n_losses):
            raise EngineError(
                f"Actor {actor} was lost {times(work.n_losses)} while {work.what}: "
                f"{loss.reason}. {loss.advice}, then run the same command again; finished work is "
                "kept."
            )
        self._post(actor, work)

    def _count_loss(self, actor: int, reason: str) -> None:
        self.counts.n_lost += 1
        self._event("actor_lost", actor=actor, reason=reason, n_losses=self.counts.n_lost)

    def _event(self, event: str, **facts: Any) -> None:
        self._on_event({"event": event, **facts})

    def _finish(self, errors: Mapping[int, BaseException]) -> None:
        if errors:
            raise _explained(errors[min(errors)])
        self._ready = True

    def _require_ready(self) -> None:
        if not self._ready:
            raise EngineError("The pool is not running: start it.")


def _explained(error: BaseException) -> BaseException:
    """Put an error that befell the whole request into words a user can act on."""
    if not isinstance(error, ImportError):
        return error
    return EngineError(
        f"The workers lack a module that the work needs ({error}). Install the same packages "
        "there, then run the same command again."
    )
