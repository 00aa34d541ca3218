"""The contracts: executors run graphs, pools keep states; implementations import this module."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from distfms.engine.graph import Graph, Partial, Unit, UnitRunner, Watch, build_graph
from distfms.engine.retry import RetryPolicy

A = TypeVar("A")
R = TypeVar("R")

EventHandler = Callable[[Mapping[str, Any]], None]
StepFunction = Callable[[Any, Any], tuple[Any, Any]]


def ignore(event: Mapping[str, Any]) -> None:
    """Take an event and do nothing."""


class _Closing(ABC):
    """A context manager that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Stop what was started; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Executor(_Closing):
    """What runs graphs and independent tasks.

    Attributes
    ----------
    name : str
        ``"local"``, ``"dask"`` or ``"ray"``.
    workers, actors : int
        Tasks, and actors of a pool beside this executor, that run at the same time.
    limit_blas : bool
        Whether tasks must hold the BLAS of their process at one thread themselves, because they
        run in processes that the executor does not hold.
    coarse_batches : int
        1 where a task costs milliseconds; more where it costs less, and batches are of less use.
    """

    name: str
    workers: int
    actors: int
    limit_blas: bool = True
    coarse_batches: int = 1

    @abstractmethod
    def compute(
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Partial[Any]:
        """Run a graph and return its root.

        Parameters
        ----------
        graph : Graph
        watch : callable, optional
            Called in the calling thread with news of units and lost workers.
        retry : RetryPolicy, optional
            How often work is begun whose worker is lost; on a Dask cluster that is for the
            scheduler to say (``distributed.scheduler.allowed-failures``).

        Raises
        ------
        EngineError
            Workers running a task kept dying, or the cluster was lost.
        """

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        retry: RetryPolicy | None = None,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items.

        Raises what ``fn`` raised, and EngineError where a task kept failing for a transient reason
        or workers were lost.
        """
        units = [Unit(_short(item), item) for item in items]
        if not units:
            return []
        retry = retry or RetryPolicy()
        runner: UnitRunner[list[R]] = UnitRunner(
            lambda item: [fn(item)], operator.add, None, retry, self.limit_blas
        )
        return self.compute(build_graph(units, runner), retry=retry).value

    @abstractmethod
    def pool(
        self,
        n_actors: int | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        on_event: EventHandler = ignore,
        actor_bytes: int = 0,
    ) -> ActorPool:
        """Open a pool of actors beside this executor.

        Parameters
        ----------
        n_actors : int, optional
            Default: `actors`.
        timeout_s : float, optional
            An actor that takes longer for one request (a step of all its shards, or an item; to
            build all its states once its process runs) is taken for hung; default: never.
        retry : RetryPolicy, optional
            How often the build of a state is attempted, and a request whose actor is lost.
        on_event : callable, optional
            Called in the calling thread with ``{"event": "pool_step", "step", "seconds"}`` after
            each completed step, ``{"event": "actor_lost", "actor", "reason", "n_losses"}``,
            ``{"event": "actor_replayed", "actor", "shards", "steps"}`` and
            ``{"event": "retry", "key", "n_retries"}``.
        actor_bytes : int
            What one actor will hold.

        Raises
        ------
        SpecError
            If there is not as much memory.
        """

    def probe(self, paths: Sequence[str]) -> None:
        """Raise EngineError unless every worker sees these local paths as this process does."""
        return

    @abstractmethod
    def available_bytes(self) -> int | None:
        """Return the memory that work may use, over all workers, or None when not known."""


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
        Actors that died or hung and were replaced.
    n_retries : int
        Attempts to build a state that were repeated after a transient error.
    """

    n_steps: int = 0
    n_items: int = 0
    n_built: int = 0
    n_replayed: int = 0
    n_lost: int = 0
    n_retries: int = 0


class ActorPool(_Closing):
    """States, one for each shard, on actors that can be replaced.

    What an answer is depends on the shards and the messages only: not on the kind of pool, the
    number of actors, or actors that died on the way. When an actor dies, hangs beyond the timeout,
    or loses its node, another is started, its states are built again from their shards, the
    messages of the steps that changed them are replayed, and what it was asked is asked again.
    `build` and functions must therefore be deterministic and free of lasting effects elsewhere.
    Messages and answers are pickled on every kind of pool, so nobody shares memory with the driver.

    Attributes
    ----------
    name : str
        ``"serial"``, ``"local"`` or ``"ray"``.
    n_actors : int
        Processes that hold states. Shard ``i`` lives on actor ``i % n_actors``.
    counts : PoolCounts
    """

    name: str
    n_actors: int
    counts: PoolCounts

    @abstractmethod
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

    @abstractmethod
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
            Actors kept dying or hanging, or the pool has not been started, or failed before.
        Exception
            What ``fn`` raised, for the first shard in order. The pool must be started again.
        """

    @abstractmethod
    def map(
        self,
        function: Callable[[Any, Any], Any],
        items: Sequence[Any],
        *,
        on_answer: Callable[[int, Any], None] | None = None,
    ) -> list[Any]:
        """Call ``function(state, item)`` for every item, each on the next actor that is free.

        The state is that of the actor's first shard, so states have to be interchangeable (what
        was loaded from one file; one shard for each actor is enough), and stay as they are. Answers
        are in the order of items. Raises what `step` raises, after items under way are finished and
        told.

        Parameters
        ----------
        function : callable
            ``(state, item) → answer``. Picklable; deterministic.
        items : sequence
            Picklable.
        on_answer : callable, optional
            Called in the calling thread with the number of an item and its answer as they come,
            in any order, each item once.
        """


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else text[:57] + "..."
