"""The contracts: executors run graphs, pools keep states; implementations import this module.

`map_reduce` is what work over a data set comes through.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from distfms.engine.graph import (
    USUAL,
    Account,
    Graph,
    Partial,
    RetryPolicy,
    Unit,
    UnitReport,
    UnitRunner,
    Watch,
    WorkerLoss,
    batch_size,
    build_graph,
)
from distfms.errors import DataError, EngineError
from distfms.store.kept import PartialCache

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

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
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy = USUAL
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

    @abstractmethod
    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run any graph of Dask: ``collection.compute(scheduler=executor.get)``.

        Parameters
        ----------
        dsk : mapping or dask expression
            Task, or constant, of each key.
        keys : key or nested list of keys
        **options
            Of Dask's scheduler.

        Returns
        -------
        object
            The values of the keys, in tuples for lists (lists, of a Dask cluster).
        """

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        retry: RetryPolicy = USUAL,
        watch: Watch | None = None,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items.

        `watch` gets news of items as of units; see `compute`.
        Raises what ``fn`` raised, and EngineError where a task kept failing for a transient reason
        or workers were lost.
        """
        units = [Unit(repr(item)[:60], item) for item in items]
        if not units:
            return []
        runner: UnitRunner[list[R]] = UnitRunner(
            lambda item: [fn(item)], operator.add, None, retry, self.limit_blas
        )
        return self.compute(build_graph(units, runner), watch=watch, retry=retry).value

    @abstractmethod
    def pool(
        self,
        n_actors: int | None = None,
        *,
        retry: RetryPolicy = USUAL,
        on_event: EventHandler = ignore,
        actor_bytes: int = 0,
    ) -> ActorPool:
        """Open a pool of actors beside this executor.

        Parameters
        ----------
        n_actors : int, optional
            Default: `actors`.
        retry : RetryPolicy, optional
            How often the build of a state is attempted, and a request whose actor is lost. An actor
            that takes longer than its limit for one request (a step of all its shards, or an item;
            to build all its states once its process runs) is taken for hung.
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
        ``"serial"``, ``"local"``, ``"dask"`` or ``"ray"``.
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


# --- map-reduce over units with the same bits on every executor ----------------------------------


@dataclass(frozen=True)
class Reduction(Account):
    """The result of a map-reduce and what it took.

    Attributes
    ----------
    value : object
        The merged value of all units.
    n_computed, n_cached : int
        Units computed and units loaded from the cache; they add up to the number of units.
    bytes_read : int
        Sum of ``n_bytes`` of the computed units.
    n_retries, n_corrupt : int
        Attempts beyond the first of each unit; cache entries that failed their checks and were
        computed again.
    """

    value: Any = None


def map_reduce(
    units: Sequence[Unit],
    map_fn: Callable[[Any], T],
    merge_fn: Callable[[Any, Any], Any],
    executor: Executor,
    *,
    finish_fn: Callable[[Any, T], Any] | None = None,
    cache: PartialCache[T] | None = None,
    retry: RetryPolicy = USUAL,
    on_event: EventHandler = ignore,
    value_bytes: int = 0,
) -> Reduction:
    """Map every unit and merge the results along a fixed binary tree.

    The value depends on the units and the functions only: not on the executor, its number of
    workers, retries, or what was cached. Where a task does several units, they are cached, retried
    and reported one by one.

    Parameters
    ----------
    units : sequence of Unit
        At least one, in merging order.
    map_fn : callable
        ``payload → value``. Picklable when the executor's workers are other processes.
    merge_fn : callable
        ``(earlier, later) → value``; must not change its arguments.
    executor : Executor
    finish_fn : callable, optional
        ``(payload, value) → what is merged``; the cache keeps the value as `map_fn` returned it.
    cache : PartialCache, optional
        Values of single units and, without `finish_fn`, of packs of them; read and written by the
        tasks, where they run.
    retry : RetryPolicy, optional
        Rules for transient failures of a unit and for lost worker processes.
    on_event : callable, optional
        Called in the calling thread with dicts: ``{"event": "pass_started", "total"}``;
        for each unit ``{"event": "unit", "index", "key", "from_cache", "done", "total",
        "cached", "bytes"}`` (counts so far; when its task is done, in any order); ``{"event":
        "retry", "key", "n_retries"}``; ``{"event": "cache_corrupt", "key"}``; at most one
        ``{"event": "cache_unwritable", "error"}``; ``{"event": "worker_lost", "n_losses"}``; and
        ``{"event": "pass_finished", "total", "computed", "cached", "bytes"}``.
    value_bytes : int
        What a value takes, where that is known; bounds the units of a task.

    Returns
    -------
    Reduction
        Value and exact counts, taken from the values that reached the root.

    Raises
    ------
    DataError
        There are no units.
    DistfmsError, Exception
        What ``map_fn`` or ``merge_fn`` raised, as it is: of several, what was noticed first.
    EngineError
        A unit kept failing for a transient reason, or workers or the cluster were lost.
    """
    if not units:
        raise DataError("There is nothing to compute: the data set has no partitions.")
    tally = _Tally(units, on_event)
    runner = UnitRunner(map_fn, merge_fn, cache, retry, executor.limit_blas, finish_fn)
    size = batch_size(
        len(units),
        executor.workers,
        coarse=executor.coarse_batches,
        unit_bytes=max(unit.n_bytes for unit in units),
        value_bytes=value_bytes,
    )
    packs = cache.packs([unit.key for unit in units]) if cache and finish_fn is None else None
    on_event({"event": "pass_started", "total": len(units)})
    root: Partial[Any] = executor.compute(
        build_graph(units, runner, size, packs), watch=tally.notice, retry=retry
    )
    account = root.account
    if account.n_computed + account.n_cached != len(units):
        raise EngineError(
            f"The merged result accounts for {account.n_computed + account.n_cached} of "
            f"{len(units)} units; this is a bug in distfms or its scheduler, not in the data."
        )
    tally.unwritable(account.cache_error)  # its report may have been lost
    on_event(
        {
            "event": "pass_finished",
            "total": len(units),
            "computed": account.n_computed,
            "cached": account.n_cached,
            "bytes": account.bytes_read,
        }
    )
    return Reduction(**vars(account), value=root.value)


class _Tally:
    """Turns news, possibly repeated, into events with running counts."""

    def __init__(self, units: Sequence[Unit], on_event: EventHandler) -> None:
        self._units = units
        self._on_event = on_event
        self._seen: set[int] = set()
        self._sum = Account()
        self._told_unwritable = False

    def notice(self, notice: UnitReport | WorkerLoss) -> None:
        """Take news from the executor."""
        if isinstance(notice, WorkerLoss):
            self._on_event({"event": "worker_lost", "n_losses": notice.n_losses})
            return
        if notice.index in self._seen:
            return
        self._seen.add(notice.index)
        key, account = self._units[notice.index].key, notice.account
        self._sum = self._sum + account
        if account.n_retries:
            self._on_event({"event": "retry", "key": key, "n_retries": account.n_retries})
        if account.n_corrupt:
            self._on_event({"event": "cache_corrupt", "key": key})
        self.unwritable(account.cache_error)
        self._on_event(
            {
                "event": "unit",
                "index": notice.index,
                "key": key,
                "from_cache": bool(account.n_cached),
                "done": len(self._seen),
                "total": len(self._units),
                "cached": self._sum.n_cached,
                "bytes": self._sum.bytes_read,
            }
        )

    def unwritable(self, error: str) -> None:
        """Tell of the first failure to write the cache."""
        if error and not self._told_unwritable:
            self._told_unwritable = True
            self._on_event({"event": "cache_unwritable", "error": error})
