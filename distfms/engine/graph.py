"""The Dask graph of a map-reduce, and what its tasks do where they run, after failures too."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from distfms.engine.blas import limit_blas_threads
from distfms.errors import DistfmsError, EngineError
from distfms.stats.base import merge_tree
from distfms.store.kept import PACK_UNITS, PartialCache

T = TypeVar("T")

EventHandler = Callable[[Mapping[str, Any]], None]


def ignore(event: Any) -> None:
    """Take an event and do nothing."""


#: Units of one task at most. More would hold more values and lose more with a worker, and what a
#: task costs is by then a small share of what it does.
MOST_UNITS = PACK_UNITS

#: Tasks for each worker, at least: workers wait for one another at the end for half a task each.
TASKS_PER_WORKER = 8

#: Workers that one driver keeps busy with single units. It spends about a millisecond on each
#: task of a unit, which takes a worker some 60 ms.
WORKERS_PER_DRIVER = 32


#: How often work is attempted: a unit, the task of a lost worker, a request to an actor.
ATTEMPTS = 3


@dataclass(frozen=True)
class Unit:
    """One piece of a map-reduce: the smallest work that is cached, retried and reported.

    Equal keys mean equal input, and name units in the cache; the payload, the argument of the map
    function, is picklable and small; ``n_bytes`` is what computing the unit reads.
    """

    key: str
    payload: Any
    n_bytes: int = 0


@dataclass(frozen=True)
class UnitReport:
    """A unit is done; told more than once where a lost worker made it run again.

    ``is_damaged`` is whether a cache entry failed its checks, ``cache_error`` says why one could
    not be written.
    """

    index: int
    from_cache: bool = False
    n_retries: int = 0
    is_damaged: bool = False
    cache_error: str = ""


Watch = Callable[[UnitReport], None]


@dataclass(frozen=True)
class Leaf(Generic[T]):
    """The value of a leaf of the merge tree, with what it reports of its units."""

    value: T
    reports: tuple[UnitReport, ...]


def value_of(result: Any) -> Any:
    """Return the value of a leaf; that of another task is its result."""
    return result.value if isinstance(result, Leaf) else result


@dataclass(frozen=True)
class UnitRunner(Generic[T]):
    """What every leaf of one graph has in common; travels once to each worker of a cluster.

    ``finish_fn`` turns a payload and its value, computed or cached, into what is merged.
    """

    map_fn: Callable[[Any], T]
    merge_fn: Callable[[Any, Any], Any]
    cache: PartialCache[T] | None = None
    attempts: int = ATTEMPTS
    finish_fn: Callable[[Any, T], Any] | None = None

    def run(self, first: int, units: Sequence[Unit], pack: str = "") -> Leaf[Any]:
        """Load or compute the units from index ``first`` on and merge them along the tree.

        ``first`` is a multiple of a power of two that is at least the number of units, so they
        are a subtree; with its key as a ``pack`` it is loaded as a whole, or kept.
        """
        limit_blas_threads()
        whole, is_damaged = self._lookup(pack)
        if whole is not None:
            indices = range(first, first + len(units))
            reports = [UnitReport(index, from_cache=True) for index in indices]
            return Leaf(whole, tuple(reports))
        reports = []

        def values() -> Iterator[Any]:
            for index, unit in enumerate(units, first):
                value, report = self._obtain(index, unit)
                reports.append(report)
                yield value if self.finish_fn is None else self.finish_fn(unit.payload, value)

        whole = merge_tree(values(), self.merge_fn)
        error = self._keep(pack, whole) or reports[0].cache_error
        is_damaged = is_damaged or reports[0].is_damaged
        reports[0] = replace(reports[0], is_damaged=is_damaged, cache_error=error)
        return Leaf(whole, tuple(reports))

    def join(self, earlier: Any, later: Any, pack: str = "") -> Any:
        """Merge two neighbouring subtrees, the earlier one first, and keep them as a ``pack``."""
        limit_blas_threads()
        merged = self.merge_fn(value_of(earlier), value_of(later))
        self._keep(pack, merged)
        return merged

    def _obtain(self, index: int, unit: Unit) -> tuple[T, UnitReport]:
        key = "" if self.cache is None or self.cache.packs_only else unit.key
        value, is_damaged = self._lookup(key)
        if value is not None:
            return value, UnitReport(index, from_cache=True)
        value, n_retries = call_with_retry(
            self.map_fn, unit.payload, attempts=self.attempts, what=f"Work on unit {unit.key!r}"
        )
        error = self._keep(key, value)
        return value, UnitReport(index, False, n_retries, is_damaged, error)

    def _lookup(self, key: str) -> tuple[Any, bool]:
        return self.cache.lookup(key) if self.cache and key else (None, False)

    def _keep(self, key: str, value: Any) -> str:
        """Write an entry of the cache; return what prevents it, as the cache is optional."""
        try:
            if self.cache and key:
                self.cache.put(key, value)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""


# Tasks are partial functions, not closures: they pickle by reference to this module, and Dask takes
# them for opaque (it would look for graph keys inside tuples, dicts and dataclasses).


def _itself(value: Any) -> Any:
    """Task that returns what is at hand."""
    return value


@dataclass(frozen=True)
class Graph:
    """A map-reduce as Dask's schedulers take it, to be run without optimisation.

    Tasks are (function, keys of its arguments) by key, each after those it needs, depth first.
    """

    tasks: dict[Hashable, tuple[Any, ...]]
    root: Hashable


#: Kind of a node of the tree, its level and, counted down, its first unit.
_Key = tuple[str, int, str]


def build_graph(
    units: Sequence[Unit],
    runner: UnitRunner[Any],
    batch: int = 1,
    packs: Mapping[int, tuple[str, bool]] | None = None,
) -> Graph:
    """Build the graph of a map-reduce with a fixed merge tree.

    Node (level, j) of the tree covers the units ``[j·2^level, (j+1)·2^level)``; a node whose
    right child would be empty is its left child. The tree depends on the number of units only,
    and units appended later leave every full subtree as it was. A task does the whole subtree of
    a batch, or of a pack that is kept (see `PartialCache.packs`), so these change what travels and
    never what is computed.

    Dask's schedulers break ties between equal subtrees by key, the greatest first. Keys, of equal
    length so that text order is number order, therefore count down, which makes batches start in
    index order, depth first, each merge as soon as both children are there. With ``w`` workers and
    ``n`` batches of like duration at most ``2w + log2(n)`` values exist between tasks on local
    executors, those being made included; whatever the durations, at most about
    ``(w + 1) · log2(n)``, as each running task can hold up one full subtree of each size. A Dask
    cluster adds a few for each worker, because it assigns tasks ahead and copies values between
    workers. A running batch of ``b`` units holds up to ``log2(b) + 2``.
    """
    token = uuid.uuid4().hex  # a cluster takes equal keys for equal results
    n = len(units)
    shared = f"distfms-runner-{token}"
    tasks: dict[Hashable, tuple[Any, ...]] = {shared: (partial(_itself, runner),)}

    def leaf(first: int, size: int = batch, pack: str = "") -> _Key:
        key = (f"distfms-unit-{token}", 0, f"{n - first:012d}")
        of_task = tuple(units[first : first + size])
        tasks[key] = (partial(UnitRunner.run, first=first, units=of_task, pack=pack), shared)
        return key

    def join(earlier: _Key, later: _Key, pack: str = "") -> _Key:
        key = (f"distfms-merge-{token}", earlier[1] + 1, earlier[2])
        tasks[key] = (partial(UnitRunner.join, pack=pack), shared, earlier, later)
        return key

    def subtree(first: int) -> _Key:
        pack, is_kept = (packs or {}).get(first, ("", False))
        if is_kept or batch == PACK_UNITS:
            return leaf(first, PACK_UNITS, pack)
        top = merge_tree(map(leaf, range(first, min(first + PACK_UNITS, n), batch)), join)
        if pack:
            _, _, earlier, later = tasks[top]
            join(earlier, later, pack)  # once more, to be kept
        return top

    root = merge_tree(map(subtree, range(0, n, PACK_UNITS)), join)
    return Graph(tasks, root)


def batch_size(n_units: int, workers: int, *, unit_bytes: int = 0, value_bytes: int = 0) -> int:
    """Return the number of units that one task does, a power of two: a run of them is a subtree.

    With less than 16 units for each of less than 64 workers it is 1, so that what is lost with a
    worker, shown and waited for is one unit. More workers would wait for the driver rather than
    for one another; they get larger batches, as long as there is one for each. The log2 values that
    a batch holds together take no more than a unit.
    """
    most = MOST_UNITS
    if value_bytes:
        most = min(most, 1 << min(unit_bytes // value_bytes, most))
    balanced = n_units // (workers * TASKS_PER_WORKER)
    served = min(workers // WORKERS_PER_DRIVER, n_units // workers)
    largest = max(1, balanced, served)
    return min(most, 1 << (largest.bit_length() - 1))


# --- which failures are worth another attempt, and how long to wait before it -------------------

# OSErrors that say the same thing however often one asks.
_PERMANENT = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
)


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed when it is made again.

    True for the OSError family (network, storage, timeouts) except what cannot change by itself,
    and for a killed worker; False for what distfms raises on purpose and for programming errors.
    """
    if isinstance(error, (*_PERMANENT, DistfmsError)):
        return False
    return isinstance(error, (OSError, BrokenExecutor))


#: Seconds before the second attempt; each further delay is four times the one before, up to the
#: longest.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


def call_with_retry(
    fn: Callable[..., Any],
    *args: Any,
    attempts: int,
    what: str,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Any, int]:
    """Call ``fn(*args)``, again after transient failures; return its value and the retries.

    The call must be free of lasting effects. ``what`` it does is for the error message, such as
    ``"unit part-3.parquet"``. Raises EngineError when the last attempt allowed failed for a
    transient reason, any other error of ``fn`` as it is and at once.
    """
    failures = 0
    while True:
        try:
            return fn(*args), failures
        except Exception as error:
            failures += 1
            if not is_transient(error):
                raise
            if failures >= attempts:
                raise resumable(
                    f"{what} failed {times(failures)}; the last error was {type(error).__name__}: "
                    f"{error}. Check storage and network: every worker must read the input"
                ) from error
        # No number of failures overflows a float.
        sleep(min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 4.0 ** min(failures - 1, 60)))


def resumable(text: str) -> EngineError:
    """Return the error of work that goes on where it was stopped; the text ends with what to do."""
    return EngineError(f"{text}, then run the same command again; finished work is kept.")


def times(n: int) -> str:
    """Return how often something happened, in words."""
    return "once" if n == 1 else f"{n} times"
