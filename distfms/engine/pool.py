"""Pools of states that survive the loss of their actors: built anew, with steps replayed."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distfms.engine.graph import EventHandler, resumable, times
from distfms.engine.host import Host, Reply, dump
from distfms.engine.memory import require_room
from distfms.engine.tasks import Closing, LostError, Task, Tasks
from distfms.errors import EngineError, SpecError

StepFunction = Callable[[Any, Any], tuple[Any, Any]]

#: Multiplications of work that actors do no sooner than it is done without them, whatever its size:
#: 150 purchases among 6,000 attributes take one process 0.8 s, and two new actors 6.8 s.
NO_GAIN = -math.inf

#: The same of reading with something large, which actors on Ray are sent once and keep.
ON_RAY = -1.0

_POLL_S = 1.0
_BUILDING = "building states"


@dataclass
class PoolCounts:
    """What a pool has done since it was made.

    Attributes
    ----------
    n_steps, n_items : int
        Steps completed, items answered.
    n_built : int
        States built from their shards, again after losses included.
    n_replayed : int
        Single steps of single shards done again to bring a rebuilt state up to date.
    n_lost : int
        Actors that died and were replaced.
    n_retries : int
        Attempts to build a state that were repeated after a transient error.
    """

    n_steps: int = 0
    n_items: int = 0
    n_built: int = 0
    n_replayed: int = 0
    n_lost: int = 0
    n_retries: int = 0


@dataclass
class _Work:
    """What an actor is at; the request is as `Tasks.share` gave it."""

    request: Any
    what: str
    index: int = 0
    task: Task | None = None
    n_losses: int = 0


class ActorPool(Closing):
    """States, one for each shard, on actors that can be replaced.

    What an answer is depends on the shards and the messages only: not on the kind of pool, the
    number of actors, or actors that died on the way. When an actor dies or loses its node, its
    states are built again from their shards where its process was started anew, or on another seat,
    the messages of the steps that changed them are replayed, and what it was asked is asked again.
    `build` and functions must therefore be deterministic and free of lasting effects elsewhere.
    Messages and answers are pickled on every kind of pool, so nobody shares memory with the driver.

    Parameters
    ----------
    tasks : Tasks
    name : str
        ``"serial"``, ``"local"``, ``"dask"`` or ``"ray"``.
    n_actors, attempts, on_event, actor_bytes
        See `distfms.engine.base.Executor.pool`.

    Attributes
    ----------
    n_actors : int
        Processes that hold states. Shard ``i`` lives on actor ``i % n_actors``.
    counts : PoolCounts
    """

    def __init__(
        self,
        tasks: Tasks,
        name: str,
        n_actors: int,
        attempts: int,
        on_event: EventHandler,
        actor_bytes: int,
    ) -> None:
        if n_actors < 1:
            raise SpecError(f"A pool needs at least 1 actor; there are {n_actors}.")
        require_room(actor_bytes, *tasks.room(n_actors))
        self.name = name
        self.n_actors = n_actors
        self.counts = PoolCounts()
        self._tasks = tasks
        self._actor_bytes = actor_bytes
        self._attempts = attempts
        self._on_event = on_event
        self._seats: dict[int, Any] = {}
        self._built: set[int] = set()
        self._n_sent = 0
        self._ready = False
        self._build = b""
        self._shards: list[bytes] = []
        self._log: list[Any] = []  # as `Tasks.share` gave it

    def start(self, build: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        """Build one state for each shard; may be called again, which begins anew.

        Parameters
        ----------
        build : callable
            ``shard → state``. Picklable (closures may travel). It may read from storage:
            transient errors are retried.
        shards : sequence
            Small picklable descriptions, such as a range of columns or a partition; more shards
            than actors are fine.

        Raises
        ------
        EngineError
            Actors kept dying, lack a module, or storage kept failing.
        Exception
            What `build` raised, for the first shard in order.
        """
        if not shards:
            raise EngineError("A pool needs at least one shard.")
        self._build = dump(build)
        self._shards = [dump(shard) for shard in shards]
        self._log = []
        self._give_back()
        self._ask_all(_BUILDING, b"")

    def step(self, fn: StepFunction, message: Any = None) -> list[Any]:
        """Call ``fn(state, message)`` on every state; answers in the order of shards.

        Parameters
        ----------
        fn : callable
            ``(state, message) → (new state, answer)``. Returns None as new state when the state
            is as it was, which saves the replay; a state changed in place is returned itself.
        message : Any
            Picklable; sent once to each actor.

        Raises
        ------
        EngineError
            Actors kept dying, or the pool has not been started, or failed before.
        Exception
            What ``fn`` raised, for the first shard in order. The pool must be started again.
        """
        self._require_ready()
        start_s = time.perf_counter()
        call = dump((fn, message))
        number = self.counts.n_steps + 1
        replies = self._ask_all(f"step {number}", dump((call, False)))
        if any(reply.changed for reply in replies):
            self._log.append(self._tasks.share(call))
        self.counts.n_steps = number
        self._event("pool_step", step=number, seconds=time.perf_counter() - start_s)
        answers: dict[int, bytes] = {}
        for reply in replies:
            answers |= reply.answers
        return [pickle.loads(answers[index]) for index in range(len(self._shards))]

    def map(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Call ``function(state, item)`` for every item, each on the next actor that is free.

        The state is that of the actor's first shard, so states have to be interchangeable (what
        was loaded from one file; one shard for each actor is enough), and stay as they are. Answers
        are in the order of items. Raises what `step` raises, after items under way are finished.

        Parameters
        ----------
        function : callable
            ``(state, item) → answer``. Picklable; deterministic.
        items : sequence
            Picklable.
        """
        self._require_ready()

        def work(index: int, item: Any) -> _Work:
            request = dump((dump((function, item)), True))
            return _Work(self._tasks.share(request), f"item {index}", index)

        ended = self._run(work(index, item) for index, item in enumerate(items))
        self.counts.n_items += len(ended)
        answers = {work.index: answer for work, reply in ended for answer in reply.answers.values()}
        return [pickle.loads(answers[index]) for index in range(len(items))]

    def close(self) -> None:
        """Give the actors back; safe to call twice."""
        self._ready = False
        self._give_back()

    def _give_back(self) -> None:
        self._built.clear()
        while self._seats:
            _, seat = self._seats.popitem()
            self._tasks.keep(seat)

    # --- requests, whatever happens ---

    def _ask_all(self, what: str, request: bytes) -> list[Reply]:
        """Have all actors, the first of which take work in their order, do the same."""
        shared = self._tasks.share(request)
        n_busy = min(self.n_actors, len(self._shards))
        return [reply for _, reply in self._run(_Work(shared, what) for _ in range(n_busy))]

    def _run(self, todo: Iterator[_Work]) -> list[tuple[_Work, Reply]]:
        """Hand actors work until there is no more, and make good what is lost."""
        self._ready = False  # until all is answered, states may stand at several steps
        works: dict[int, _Work] = {}
        ended: list[tuple[_Work, Reply]] = []
        errors: dict[tuple[int, int], BaseException] = {}

        def go_on(actor: int) -> None:
            work = None if errors else next(todo, None)
            if work is not None:
                works[actor] = work
                self._post(actor, work)

        try:
            for actor in range(min(self.n_actors, len(self._shards))):
                go_on(actor)
            while works:
                tasks = [work.task for work in works.values() if work.task is not None]
                done = self._tasks.done(tasks, _POLL_S)
                for actor in [actor for actor, work in works.items() if work.task in done]:
                    reply = self._reply(actor, works[actor])
                    if reply is not None:
                        work = works.pop(actor)
                        ended.append((work, reply))
                        for shard, error in reply.errors.items():
                            errors[work.index, shard] = error
                        go_on(actor)
        except BaseException:
            # What these would still answer belongs to no request any more.
            self._drop(self._seats.keys() & works.keys())
            raise
        if errors:
            raise _explained(errors[min(errors)])
        self._ready = True
        return ended

    def _post(self, actor: int, work: _Work) -> None:
        setup = None
        log: list[Any] = []
        if actor not in self._seats:
            self._seats[actor] = self._tasks.seat(self._actor_bytes)
        if actor not in self._built:
            shards = {i: self._shards[i] for i in range(actor, len(self._shards), self.n_actors)}
            setup = dump((self._build, shards, self._attempts))
            log = self._log
        self._n_sent += 1
        arguments = (setup, work.request, self._n_sent, *log)
        options = {"seat": self._seats[actor], "attempts": self._attempts}
        work.task = self._tasks.submit(Host.handle, *arguments, **options)

    def _drop(self, actors: Iterable[int]) -> None:
        for actor in list(actors):
            self._tasks.leave(self._seats.pop(actor))
            self._built.discard(actor)

    def _reply(self, actor: int, work: _Work) -> Reply | None:
        """Return the reply to a request; ask again where the actor is lost."""
        assert work.task is not None
        try:
            raw = self._tasks.result(work.task)
        except LostError as loss:
            self._replace(actor, work, str(loss))
            return None
        if not raw:
            self._built.discard(actor)
            self._repeat(actor, work, "its process was started again")
            return None
        reply: Reply = pickle.loads(raw)
        self.counts.n_built += reply.n_built
        self.counts.n_replayed += reply.n_replayed
        self.counts.n_retries += reply.n_retries
        if reply.n_retries:
            self._event("retry", key=f"actor-{actor}", n_retries=reply.n_retries)
        if reply.n_built and work.what != _BUILDING:
            self._event("actor_replayed", actor=actor, shards=reply.n_built, steps=reply.n_replayed)
        self._built.add(actor)
        return reply

    def _replace(self, actor: int, work: _Work, reason: str) -> None:
        """Have an actor's work done on another seat."""
        lost = self._seats[actor]
        self._drop([actor])
        if work.n_losses + 1 < self._attempts:
            self._seats[actor] = self._tasks.seat(self._actor_bytes, instead_of=lost)
        self._repeat(actor, work, reason)

    def _repeat(self, actor: int, work: _Work, reason: str) -> None:
        """Count a loss and have the actor do the same again."""
        work.n_losses += 1
        self.counts.n_lost += 1
        self._event("actor_lost", actor=actor, reason=reason, n_losses=self.counts.n_lost)
        if work.n_losses >= self._attempts:
            raise resumable(
                f"Actor {actor} was lost {times(work.n_losses)} while {work.what}: {reason}. It "
                "probably ran out of memory: use more and smaller shards, or fewer actors"
            )
        self._post(actor, work)

    def _event(self, event: str, **facts: Any) -> None:
        self._on_event({"event": event, **facts})

    def _require_ready(self) -> None:
        if not self._ready:
            raise EngineError("The pool is not running: start it.")


def _explained(error: BaseException) -> BaseException:
    """Put an error that befell the whole request into words a user can act on."""
    if not isinstance(error, ImportError):
        return error
    return resumable(f"The workers lack a module ({error}). Install the same packages there")
