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
    ATTEMPTS,
    EventHandler,
    Graph,
    Unit,
    UnitReport,
    UnitRunner,
    Watch,
    batch_size,
    build_graph,
    ignore,
    value_of,
)
from distfms.engine.pool import ActorPool
from distfms.engine.tasks import POLL_S, Task, Tasks
from distfms.errors import DataError
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
    workers : int
        Tasks that run at the same time, and actors of a pool beside this executor.
    n_out : int
        Tasks that are out for each that runs, so that no worker waits for the driver.
    """

    name: str
    workers: int
    n_out: int = 1

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
        watch: Watch = ignore,
        attempts: int = ATTEMPTS,
        **options: Any,
    ) -> Any:
        """Run any graph of Dask, task by task.

        `watch` is called in the calling thread with what tasks report of units; work is begun up to
        so many `attempts` where its worker is lost. Raises EngineError where
        workers running a task kept dying, or the cluster was lost.
        """
        from dask.local import get_async

        out = _TasksOut(self, watch, attempts)
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

    def run_graph(self, graph: Graph, watch: Watch = ignore, attempts: int = ATTEMPTS) -> Any:
        """Run the graph of a map-reduce and return its value; see `follow`."""
        return value_of(self.follow(graph.tasks, graph.root, watch=watch, attempts=attempts))

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        attempts: int = ATTEMPTS,
        watch: Watch = ignore,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items.

        `watch` gets reports of items as of units; see `follow`.
        Raises what ``fn`` raised, and EngineError where a task kept failing for a transient reason
        or workers were lost.
        """
        # By their numbers: to write out an item that holds arrays takes long.
        units = [Unit(str(number), item) for number, item in enumerate(items)]
        if not units:
            return []
        runner: UnitRunner[list[R]] = UnitRunner(
            lambda item: [fn(item)], operator.add, attempts=attempts
        )
        values: list[R] = self.run_graph(build_graph(units, runner), watch, attempts)
        return values

    def pool(
        self,
        n_actors: int | None = None,
        *,
        attempts: int = ATTEMPTS,
        on_event: EventHandler = ignore,
        actor_bytes: int = 0,
    ) -> ActorPool:
        """Open a pool of actors beside this executor.

        Parameters
        ----------
        n_actors : int, optional
            Default: `workers`.
        attempts : int
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
        number = self.workers if n_actors is None else n_actors
        return ActorPool(self, self.name, number, attempts, on_event, actor_bytes)

    @abstractmethod
    def available_bytes(self) -> int | None:
        """Return the memory that work may use, over all workers, or None when not known."""


class _TasksOut:
    """The tasks of a graph that are out, in the place of Dask's pool and of all its futures.

    A future that says at once that it is done, and waits for whichever task is next when it is
    asked, keeps all waiting in the calling thread.
    """

    def __init__(self, executor: Executor, watch: Watch, attempts: int) -> None:
        self.made: WeakSet[Task] = WeakSet()
        self._executor = executor
        self._watch = watch
        self._attempts = attempts
        self._keys: dict[Task, Any] = {}

    def submit(self, _: Any, batch: Sequence[Any]) -> _TasksOut:
        """Start the only task of a batch."""
        ((key, (work, needed), *_),) = batch
        # Not as an argument, as a client of Dask would run it first.
        function = partial(_run, work, tuple(needed))
        task = self._executor.submit(function, *needed.values(), attempts=self._attempts)
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
        key = self._keys.pop(done[0])
        for report in self._executor.reports(done[0]):
            self._watch(report)
        return [(key, (done[0], None), False)]


def _run(work: Any, keys: Sequence[Any], *values: Any) -> Any:
    """Run a task of Dask's where the values of these keys are."""
    return work(dict(zip(keys, values, strict=True)))


# --- map-reduce over units with the same bits on every executor ----------------------------------


@dataclass
class Reduction:
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
    n_computed: int = 0
    n_cached: int = 0
    bytes_read: int = 0
    n_retries: int = 0
    n_corrupt: int = 0


def map_reduce(
    units: Sequence[Unit],
    map_fn: Callable[[Any], T],
    merge_fn: Callable[[Any, Any], Any],
    executor: Executor,
    *,
    finish_fn: Callable[[Any, T], Any] | None = None,
    cache: PartialCache[T] | None = None,
    attempts: int = ATTEMPTS,
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
    attempts : int
        How often a unit is attempted after transient failures, and work of a lost worker.
    on_event : callable, optional
        Called in the calling thread with dicts: ``{"event": "pass_started", "total"}``;
        for each unit ``{"event": "unit", "index", "key", "from_cache", "done", "total",
        "cached", "bytes"}`` (counts so far; when its task is done, in any order); ``{"event":
        "retry", "key", "n_retries"}``; ``{"event": "cache_corrupt", "key"}``; at most one
        ``{"event": "cache_unwritable", "error"}``; and ``{"event": "pass_finished", "total",
        "computed", "cached", "bytes"}``.
    value_bytes : int
        What a value takes, where that is known; bounds the units of a task.

    Returns
    -------
    Reduction
        Value and exact counts.

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
    runner = UnitRunner(map_fn, merge_fn, cache, attempts, finish_fn)
    size = batch_size(
        len(units),
        executor.workers,
        unit_bytes=max(unit.n_bytes for unit in units),
        value_bytes=value_bytes,
    )
    packs = cache.packs([unit.key for unit in units]) if cache and finish_fn is None else None
    on_event({"event": "pass_started", "total": len(units)})
    graph = build_graph(units, runner, size, packs)
    reduction = tally.reduction
    reduction.value = executor.run_graph(graph, tally.notice, attempts)
    on_event(
        {
            "event": "pass_finished",
            "total": len(units),
            "computed": reduction.n_computed,
            "cached": reduction.n_cached,
            "bytes": reduction.bytes_read,
        }
    )
    return reduction


class _Tally:
    """Turns reports, possibly repeated, into counts and into events with those so far."""

    def __init__(self, units: Sequence[Unit], on_event: EventHandler) -> None:
        self.reduction = Reduction()
        self._units = units
        self._on_event = on_event
        self._done = set[int]()
        self._is_unwritable = False

    def notice(self, report: UnitReport) -> None:
        """Take a report from the executor."""
        if report.index in self._done:
            return
        self._done.add(report.index)
        unit = self._units[report.index]
        counts = self.reduction
        if report.from_cache:
            counts.n_cached += 1
        else:
            counts.n_computed += 1
            counts.bytes_read += unit.n_bytes
        if report.n_retries:
            counts.n_retries += report.n_retries
            self._on_event({"event": "retry", "key": unit.key, "n_retries": report.n_retries})
        if report.is_damaged:
            counts.n_corrupt += 1
            self._on_event({"event": "cache_corrupt", "key": unit.key})
        if report.cache_error and not self._is_unwritable:
            self._is_unwritable = True
            self._on_event({"event": "cache_unwritable", "error": report.cache_error})
        self._on_event(
            {
                "event": "unit",
                "index": report.index,
                "key": unit.key,
                "from_cache": report.from_cache,
                "done": len(self._done),
                "total": len(self._units),
                "cached": counts.n_cached,
                "bytes": counts.bytes_read,
            }
        )
