"""What users of the engine see: executors with graphs, tasks and pools; `map_reduce`."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from distfms.engine.graph import (
    USUAL,
    Account,
    EventHandler,
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
    ignore,
)
from distfms.engine.pool import ActorPool, Host
from distfms.engine.tasks import POLL_S, Task, Tasks
from distfms.errors import DataError, EngineError
from distfms.store.kept import PartialCache

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


class Executor(Tasks):
    """What runs graphs and independent tasks.

    Dask's own scheduler in this process decides what is next, on every engine, and few values exist
    at the same time. Lost work is made good by whoever lost it; see `Tasks.submit`.

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
    n_out : int
        Tasks that are out for each that runs, so that no worker waits for the driver.
    n_losses : int
        Workers that the executor itself lost, and replaced.
    """

    name: str
    workers: int
    actors: int
    limit_blas: bool = True
    coarse_batches: int = 1
    n_out: int = 1
    n_losses: int = 0

    def __init__(self) -> None:
        self._spare_seats: list[Any] = []

    @abstractmethod
    def open_seat(self, actor_bytes: int, instead_of: Any) -> Any:
        """Start what a seat is; see `Tasks.seat`."""

    def seat(self, actor_bytes: int, instead_of: Any = None) -> Any:
        """Return a seat that an earlier pool left, as processes take long to start, or open one."""
        if self._spare_seats:
            return self._spare_seats.pop()
        return self.open_seat(actor_bytes, instead_of)

    def keep(self, seat: Any) -> None:
        """Have a seat forget its states, and keep it for another pool."""
        self.submit(Host.forget, seat=seat, retry=RetryPolicy(attempts=1))
        self._spare_seats.append(seat)

    def close(self) -> None:
        """End the seats that are kept."""
        while self._spare_seats:
            self.leave(self._spare_seats.pop())

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
            How often work is begun whose worker is lost.

        Raises
        ------
        EngineError
            Workers running a task kept dying, or the cluster was lost.
        """
        news: dict[str, Any] = {"watch": watch, "leaves": graph.leaves}
        root: Partial[Any] = self.follow(graph.tasks, graph.root, retry=retry, **news)
        return root

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
        return self.follow(dsk, keys, **options)

    def follow(
        self,
        dsk: Any,
        keys: Any,
        *,
        watch: Watch | None = None,
        leaves: Iterable[Any] = (),
        retry: RetryPolicy = USUAL,
        **options: Any,
    ) -> Any:
        """Run any graph of Dask, task by task; see `compute` and `get`."""
        from dask.local import get_async

        out = _TasksOut(self, watch, frozenset(leaves), retry)
        settings = {"num_workers": self.n_out * self.workers, **options, "chunksize": 1}
        try:
            return self._fetched(keys, get_async(out.submit, dsk=dsk, result=keys, **settings))
        finally:
            self.forget(list(out.made))

    def _fetched(self, keys: Any, values: Any) -> Any:
        """Return values of tasks, or constants, in tuples as keys are in lists."""
        if isinstance(keys, list):
            return tuple(map(self._fetched, keys, values))
        return self.result(values) if isinstance(values, Task) else values

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
        number = self.actors if n_actors is None else n_actors
        options: dict[str, Any] = {"retry": retry, "on_event": on_event}
        return ActorPool(self, self.name, number, actor_bytes=actor_bytes, **options)

    def probe(self, paths: Sequence[str]) -> None:
        """Raise EngineError unless every worker sees these local paths as this process does."""
        return

    @abstractmethod
    def available_bytes(self) -> int | None:
        """Return the memory that work may use, over all workers, or None when not known."""


class _TasksOut:
    """The tasks of a graph that are out, in the place of Dask's pool and of all its futures.

    A future that says at once that it is done, and waits for whichever task is next when it is
    asked, keeps all waiting in the calling thread.
    """

    def __init__(
        self, executor: Executor, watch: Watch | None, leaves: frozenset[Any], retry: RetryPolicy
    ) -> None:
        self.made: WeakSet[Task] = WeakSet()
        self._executor = executor
        self._watch = watch
        self._leaves = leaves
        self._retry = retry
        self._keys: dict[Task, Any] = {}
        self._n_losses = executor.n_losses
        self._n_before = executor.n_losses

    def submit(self, _: Any, batch: Sequence[Any]) -> _TasksOut:
        """Start the only task of a batch."""
        ((key, (work, needed), *_),) = batch
        # Not as an argument, as a client of Dask would run it first.
        function = partial(_run, work, tuple(needed))
        options: dict[str, Any] = {"retry": self._retry, "is_leaf": key in self._leaves}
        task = self._executor.submit(function, *needed.values(), **options)
        self._keys[task] = key
        self.made.add(task)
        return self

    def add_done_callback(self, call: Callable[[_TasksOut], None]) -> None:
        """Say that a task is done."""
        call(self)

    def result(self) -> list[tuple[Any, Any, bool]]:
        """Wait for a task; return its key and itself as Dask takes them, or raise its error."""
        done: list[Task] = []
        while not done:
            done = self._executor.done([*self._keys], POLL_S)
            self._tell_losses()
        key = self._keys.pop(done[0])
        for report in self._executor.reports(done[0]):
            if self._watch is not None:
                self._watch(report)
        return [(key, (done[0], None), False)]

    def _tell_losses(self) -> None:
        while self._n_losses < self._executor.n_losses:
            self._n_losses += 1
            if self._watch is not None:
                self._watch(WorkerLoss(self._n_losses - self._n_before))


def _run(work: Any, keys: Sequence[Any], *values: Any) -> Any:
    """Run a task of Dask's where the values of these keys are."""
    return work(dict(zip(keys, values, strict=True)))


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
