"""The driver's side of every pool: steps, losses, replay. How requests travel is left open."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from distfms.engine.checkpoints import CheckpointFolder
from distfms.engine.pool_host import Build, Call, Outcome, Reply, Save, Step, dump
from distfms.engine.pools import EventHandler, PoolCounts, Snapshots, StepFunction
from distfms.engine.retry import RetryPolicy, is_transient
from distfms.errors import EngineError

_POLL_S = 1.0
# What starting a process and importing its modules may take besides, on a busy cluster.
_START_S = 60.0
_Indices = tuple[int, ...]


@dataclass(frozen=True)
class Loss:
    """An actor is gone; ``reason`` says why, for people."""

    reason: str


@dataclass
class _Work:
    """What one actor has still to do for the request under way."""

    # (whether to build first, shards); one entry is out at a time, the first.
    queue: deque[tuple[bool, _Indices]]
    what: str = ""
    deadline_s: float = 0.0
    n_failures: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)


@dataclass(frozen=True)
class _Request:
    """What all actors are to do: build only, or something on states that exist."""

    make: Callable[[_Indices | None], bytes] | None
    timeout_s: float | None
    what: str


class ReplayPool(ABC):
    """A pool that rebuilds lost states by replaying messages; see `ActorPool`.

    Subclasses say how an actor is started, ended, written to and heard.

    Parameters
    ----------
    n_actors : int
        At least 1.
    timeout_s : float, optional
        An actor that takes longer for one request is replaced.
    retry : RetryPolicy, optional
        Attempts of one request on one actor.
    on_event : callable, optional
        Receives events; see `make_pool`.
    """

    name = "replay"

    def __init__(
        self,
        n_actors: int,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        self.n_actors = n_actors
        self.number = 0
        self.counts = PoolCounts()
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._on_event = on_event or _ignore
        self._up: set[int] = set()
        self._ready = False
        self._shards: list[bytes] = []
        self._function = b""
        self._snapshots: Snapshots | None = None
        self._checkpoints: CheckpointFolder | None = None
        self._log: list[tuple[int, bytes]] = []
        self._log_begin = 0
        self._answers: list[Any] = []

    # --- the contract ---------------------------------------------------------------------------

    def start(
        self,
        build: Callable[[Any], Any],
        shards: Sequence[Any],
        *,
        snapshots: Snapshots | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Build one state for each shard; see `ActorPool.start`."""
        if not shards:
            raise EngineError("A pool needs at least one shard.")
        self._ready = False
        self._shards = [dump(shard) for shard in shards]
        self._function = dump((build, snapshots.load if snapshots else None))
        self._snapshots = snapshots
        self._checkpoints = None
        self._log, self._answers, self.number = [], [], 0
        if snapshots is not None:
            self._checkpoints = CheckpointFolder(snapshots.folder, snapshots.key, len(shards))
            self.number = self._resumable()
        self._log_begin = self.number
        self._run(_Request(None, timeout_s, "building states"))
        return self.number

    def step(
        self,
        fn: StepFunction,
        message: Any = None,
        *,
        number: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call ``fn(state, message)`` on every state; see `ActorPool.step`."""
        self._require_ready()
        if number == self.number and self._answers:
            self.counts.n_duplicates += len(self._shards)
            return _loaded(self._answers)
        if number not in (None, self.number + 1):
            raise EngineError(
                f"Step {number} was asked for after step {self.number}; this is a bug in distfms, "
                "not in the data."
            )
        start_s = time.perf_counter()
        call, number = dump((fn, message)), self.number + 1
        outcomes = self._run(
            _Request(lambda some: dump(Step(number, call, some)), timeout_s, f"step {number}")
        )
        self.number = number
        self.counts.n_steps += 1
        if any(outcome.changed for outcome in outcomes):
            self._log.append((number, call))
        self._answers = [outcome.answer for outcome in outcomes]
        seconds = time.perf_counter() - start_s
        self._on_event({"event": "pool_step", "step": number, "seconds": seconds})
        return _loaded(self._answers)

    def map(
        self,
        function: Callable[[Any, Any], Any],
        items: Sequence[Any],
        *,
        on_answer: Callable[[int, Any], None] | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call ``function(state, item)`` for every item; see `ActorPool.map`."""
        self._require_ready()
        self._ready = False
        todo = deque(enumerate(items))
        answers: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        works: dict[int, _Work] = {}
        at: dict[int, tuple[int, _Request]] = {}

        def hand_out(actor: int) -> None:
            works.pop(actor, None)
            if todo and not errors:
                index, item = todo.popleft()
                call = dump(Call(dump((function, item))))
                at[actor] = index, _Request(lambda some: call, timeout_s, f"item {index}")
                works[actor] = _Work(deque([(False, self._shards_of(actor))]))
                self._post(actor, works[actor], at[actor][1], None)

        try:
            for actor in range(min(self.n_actors, len(self._shards))):
                hand_out(actor)
            while works:
                for actor, news in self._next(set(works), works).items():
                    index, request = at[actor]
                    self._take(actor, works[actor], request, news)
                    if works[actor].queue:
                        self._post(actor, works[actor], request, None)
                        continue
                    (outcome,) = works[actor].outcomes.values()
                    if outcome.error is not None:
                        errors[index] = _explained(outcome.error)
                    else:
                        answers[index] = _loaded([outcome.answer])[0]
                        if on_answer is not None:
                            on_answer(index, answers[index])
                    hand_out(actor)
        except BaseException:
            self._abandon(set(works))
            raise
        if errors:
            raise errors[min(errors)]
        self._ready = True
        return [answers[index] for index in range(len(answers))]

    def checkpoint(self) -> None:
        """Save what has become of the states; see `ActorPool.checkpoint`."""
        self._require_ready()
        if self._snapshots is None or self._checkpoints is None:
            raise EngineError("The pool was started without snapshots, so it cannot save states.")
        if self.number in self._checkpoints.numbers:
            return
        save = dump(self._snapshots.save)
        outcomes = self._run(_Request(lambda some: dump(Save(save, some)), None, "saving states"))
        n_bytes = self._checkpoints.write(self.number, [outcome.answer for outcome in outcomes])
        self._on_event({"event": "checkpoint", "step": self.number, "bytes": n_bytes})
        # Replay begins at the older checkpoint at worst, or at the start while there is but one.
        if len(self._checkpoints.numbers) > 1:
            self._log_begin = max(self._log_begin, self._checkpoints.numbers[-1])
            self._log = [entry for entry in self._log if entry[0] > self._log_begin]

    def close(self) -> None:
        """End the actors; safe to call twice."""
        self._ready = False
        for actor in sorted(self._up):
            self._end(actor)
        self._up.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- how requests travel --------------------------------------------------------------------

    @abstractmethod
    def _spawn(self, actor: int) -> None:
        """Start the actor of this number."""

    @abstractmethod
    def _end(self, actor: int) -> None:
        """End an actor at once, whatever it does, and forget what it was asked."""

    @abstractmethod
    def _send(self, actor: int, request: Any) -> None:
        """Hand a request, as `_share` gave it, to an actor; never waits, never raises for loss."""

    @abstractmethod
    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, Reply | Loss]:
        """Wait up to ``wait_s`` for one of the actors; gives all replies and losses there are."""

    def _share(self, request: bytes) -> Any:
        """Prepare a request that goes to several actors, so that it travels once."""
        return request

    def _check(self) -> None:
        """Raise EngineError when there is no use in waiting any longer."""
        return

    # --- one request, whatever happens ----------------------------------------------------------

    def _run(self, request: _Request) -> list[Outcome]:
        """Have every shard answer; gives outcomes in shard order, none of them an error."""
        self._ready = False  # until every shard has answered, states may stand at several steps
        actors = range(min(self.n_actors, len(self._shards)))
        build_only = request.make is None
        works = {a: _Work(deque([(build_only, self._shards_of(a))])) for a in actors}
        shared = None if request.make is None else self._share(request.make(None))
        waiting = set(actors)
        try:
            for actor in waiting - self._up:
                self._open(actor)
            for actor, work in works.items():
                self._post(actor, work, request, shared)
            while waiting:
                for actor, news in self._next(waiting, works).items():
                    self._take(actor, works[actor], request, news)
                    if works[actor].queue:
                        self._post(actor, works[actor], request, None)
                    else:
                        waiting.discard(actor)
        except BaseException:
            self._abandon(waiting)
            raise
        outcomes = [works[i % self.n_actors].outcomes[i] for i in range(len(self._shards))]
        for outcome in outcomes:
            if outcome.error is not None:
                raise _explained(outcome.error)
        self._ready = True
        return outcomes

    def _abandon(self, waiting: set[int]) -> None:
        """End actors whose answers belong to no request any more."""
        for actor in waiting & self._up:
            self._end(actor)
        self._up -= waiting

    def _post(self, actor: int, work: _Work, request: _Request, shared: Any) -> None:
        building, shards = work.queue[0]
        limit_s = self._timeout_s if request.timeout_s is None else request.timeout_s
        if limit_s is not None and building:
            # A new process, every state, and every step that is replayed.
            limit_s = _START_S + limit_s * (1 + len(self._log))
        work.what = request.what
        work.deadline_s = float("inf") if limit_s is None else time.monotonic() + limit_s
        if building:
            # At the start there is nothing whose loss would have to be made good.
            fresh = request.make is None and work.n_failures == 0
            message = self._share(self._build(shards, fresh))
        elif shared is not None:
            message = shared
        else:
            assert request.make is not None
            message = self._share(request.make(shards))
        self._send(actor, message)

    def _next(self, waiting: set[int], works: Mapping[int, _Work]) -> dict[int, Reply | Loss]:
        """Wait for replies; actors beyond their deadline count as lost."""
        soonest_s = min(works[actor].deadline_s for actor in waiting)
        wait_s = min(_POLL_S, max(0.0, soonest_s - time.monotonic()))
        news = dict(self._receive(sorted(waiting), wait_s))
        self._check()
        now_s = time.monotonic()
        for actor in waiting - set(news):
            if now_s >= works[actor].deadline_s:
                news[actor] = Loss(f"it did not answer in time ({works[actor].what})")
        return news

    def _take(self, actor: int, work: _Work, request: _Request, news: Reply | Loss) -> None:
        """Enter a reply, or arrange for what was lost to be done again."""
        if isinstance(news, Loss):
            self._replace(actor, work, request, news)
            return
        if news.error is not None:
            raise _explained(news.error)
        building, _ = work.queue.popleft()
        self._count(actor, building, request, news)
        failed = {
            index: outcome.error
            for index, outcome in news.outcomes.items()
            if outcome.error is not None and is_transient(outcome.error)
        }
        if not building or request.make is None:
            work.outcomes |= news.outcomes
        elif bad := {i: o for i, o in news.outcomes.items() if o.error is not None}:
            # A state that cannot be rebuilt: there is nothing to ask it.
            work.outcomes |= bad
            _, shards = work.queue.popleft()
            if rest := tuple(index for index in shards if index not in bad):
                work.queue.appendleft((False, rest))
        if failed:
            self._try_again(work, request, failed)

    def _try_again(
        self, work: _Work, request: _Request, failed: Mapping[int, BaseException | None]
    ) -> None:
        """Build the states of failed shards again and repeat their part of the request."""
        work.n_failures += 1
        first = min(failed)
        error = failed[first]
        assert error is not None
        if not self._retry.another(error, work.n_failures):
            raise EngineError(
                f"Shard {first} failed {work.n_failures} times while {request.what}; the last "
                f"error was {type(error).__name__}: {error}. Such errors come from storage or the "
                "network: check that the input can be read from every worker, then run the same "
                "command again; finished work is kept."
            ) from error
        self.counts.n_retries += len(failed)
        for index in failed:
            work.outcomes.pop(index, None)
            self._on_event({"event": "retry", "key": f"shard-{index}", "n_retries": 1})
        time.sleep(self._retry.delay_s(work.n_failures))
        self._redo(work, request, tuple(sorted(failed)))

    def _replace(self, actor: int, work: _Work, request: _Request, loss: Loss) -> None:
        """Start another actor in place of a lost one and queue what that one had to do."""
        self._check()
        work.n_failures += 1
        self.counts.n_lost += 1
        self._on_event(
            {
                "event": "actor_lost",
                "actor": actor,
                "reason": loss.reason,
                "n_losses": self.counts.n_lost,
            }
        )
        self._end(actor)
        self._up.discard(actor)
        if work.n_failures >= self._retry.attempts:
            raise EngineError(
                f"Actor {actor} was lost {work.n_failures} times while {request.what}: "
                f"{loss.reason}. Most often it ran out of memory, or a step takes longer than the "
                "time it is given: use more and smaller shards, fewer actors or a longer timeout, "
                "then run the same command again; finished work is kept."
            )
        self._open(actor)
        work.outcomes.clear()
        work.queue.clear()
        self._redo(work, request, self._shards_of(actor))

    def _redo(self, work: _Work, request: _Request, shards: _Indices) -> None:
        # What is queued already was queued for shards that failed before; all are done together.
        work.queue.append((True, shards))
        if request.make is not None:
            work.queue.append((False, shards))

    def _open(self, actor: int) -> None:
        self._spawn(actor)
        self._up.add(actor)

    def _count(self, actor: int, building: bool, request: _Request, reply: Reply) -> None:
        self.counts.n_built += reply.n_built
        self.counts.n_replayed += reply.n_replayed
        self.counts.n_duplicates += reply.n_duplicates
        if building and request.make is not None:
            self._on_event(
                {
                    "event": "actor_replayed",
                    "actor": actor,
                    "shards": reply.n_built,
                    "steps": reply.n_replayed,
                }
            )

    # --- states and what is needed to build them again ------------------------------------------

    def _shards_of(self, actor: int) -> _Indices:
        return tuple(range(actor, len(self._shards), self.n_actors))

    def _build(self, shards: _Indices, fresh: bool) -> bytes:
        saved = {i: found for i in shards if (found := self._saved(i)) is not None}
        begin = min((saved[i][0] if i in saved else 0) for i in shards)
        return dump(
            Build(
                self._function,
                {i: self._shards[i] for i in shards},
                saved,
                tuple(entry for entry in self._log if entry[0] > begin),
                self.number,
                fresh,
            )
        )

    def _saved(self, shard: int) -> tuple[int, bytes] | None:
        """Give the latest sound snapshot of a shard from which it can be brought up to date."""
        if self._checkpoints is None:
            return None
        for number in self._checkpoints.numbers:
            if number < self._log_begin:
                break
            payload = self._checkpoints.read(number, shard)
            if payload is not None:
                return number, payload
            self._damaged(number, shard)
        if self._log_begin == 0:
            return None
        raise EngineError(
            f"The saved states of shard {shard} are damaged, and the steps before them are not "
            "kept. Run the same command again: it goes on from the last checkpoint that is sound, "
            "or begins anew."
        )

    def _resumable(self) -> int:
        """Give the step of the latest checkpoint that is sound in all shards, or 0."""
        assert self._checkpoints is not None
        for number in self._checkpoints.numbers:
            bad = [i for i in range(len(self._shards)) if self._checkpoints.read(number, i) is None]
            if not bad:
                return number
            for shard in bad:
                self._damaged(number, shard)
            self._checkpoints.drop(number)
        return 0

    def _damaged(self, number: int, shard: int) -> None:
        self.counts.n_damaged += 1
        self._on_event({"event": "checkpoint_damaged", "step": number, "shard": shard})

    def _require_ready(self) -> None:
        if not self._ready:
            raise EngineError(
                "The pool has not been started, has been closed, or failed before: start it again."
            )


def _ignore(event: Mapping[str, Any]) -> None:
    """Take an event and do nothing."""


def _loaded(answers: Sequence[bytes]) -> list[Any]:
    import pickle

    return [pickle.loads(answer) for answer in answers]


def _explained(error: BaseException) -> BaseException:
    """Put an error that befell the whole request into words a user can act on."""
    if not isinstance(error, ImportError):
        return error
    return EngineError(
        f"The workers lack a module that the work needs ({error}). Install the same packages "
        "there as here, then run the same command again."
    )
