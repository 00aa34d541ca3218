"""The explicit Dask graph of a map-reduce, and what its tasks do where they run."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distfms.engine.blas import limit_blas_threads
from distfms.engine.cache import PartialCache
from distfms.engine.deadline import deadline
from distfms.engine.retry import RetryPolicy, call_with_retry

T = TypeVar("T")

# How long a task may keep the reports of its units to itself.
_ANNOUNCE_S = 0.3


@dataclass(frozen=True)
class Unit:
    """One piece of a map-reduce: the smallest work that is cached, retried and reported.

    Attributes
    ----------
    key : str
        Content key: equal keys mean equal input. Names the unit in the cache.
    payload : Any
        Picklable argument of the map function; small, as it travels with the graph.
    n_bytes : int
        Bytes that computing the unit reads.
    """

    key: str
    payload: Any
    n_bytes: int = 0


@dataclass(frozen=True)
class Account:
    """What was done to obtain a partial; accounts of merged partials add up.

    Attributes
    ----------
    n_computed, n_cached : int
        Units computed, and units loaded from the cache.
    bytes_read : int
        Sum of ``Unit.n_bytes`` of the computed units.
    n_retries : int
        Attempts beyond the first of each unit.
    n_corrupt : int
        Cache entries that failed their checks and were computed again.
    cache_error : str
        Why the first entry that could not be written could not, or empty.
    """

    n_computed: int = 0
    n_cached: int = 0
    bytes_read: int = 0
    n_retries: int = 0
    n_corrupt: int = 0
    cache_error: str = ""

    def __add__(self, other: Account) -> Account:
        return Account(
            self.n_computed + other.n_computed,
            self.n_cached + other.n_cached,
            self.bytes_read + other.bytes_read,
            self.n_retries + other.n_retries,
            self.n_corrupt + other.n_corrupt,
            self.cache_error or other.cache_error,
        )


@dataclass(frozen=True)
class UnitReport:
    """News from a task: the unit with this index is done.

    A unit may be reported more than once, when a lost worker made it run again.
    """

    index: int
    account: Account


@dataclass(frozen=True)
class WorkerLoss:
    """News from an executor: worker processes died and their work is done again."""

    n_losses: int


Notice = UnitReport | WorkerLoss
Watch = Callable[[Notice], None]
Announce = Callable[[tuple[UnitReport, ...]], None]


@dataclass(frozen=True)
class Partial(Generic[T]):
    """A value of the merge tree with its account; ``reports`` are those of a task's own units."""

    value: T
    account: Account
    reports: tuple[UnitReport, ...] = ()


class UnitRunner(Generic[T]):
    """What every leaf of one graph has in common; travels once to each worker.

    Parameters
    ----------
    map_fn : callable
        Payload → value. Picklable (cloudpickle) when workers are other processes.
    merge_fn : callable
        (earlier, later) → value; must not change them.
    cache : PartialCache or None
        Looked up before and written after computing.
    retry : RetryPolicy
        Rules for transient failures of ``map_fn``.
    announce : callable or None
        Called with the reports of units where the task runs: with all of a batch at its end, and
        now and then before when it takes long.
    limit_blas : bool
        Whether tasks run in worker processes whose BLAS is to be held at one thread.
    """

    def __init__(
        self,
        map_fn: Callable[[Any], T],
        merge_fn: Callable[[T, T], T],
        cache: PartialCache[T] | None,
        retry: RetryPolicy,
        announce: Announce | None,
        limit_blas: bool,
    ) -> None:
        self.map_fn = map_fn
        self.merge_fn = merge_fn
        self.cache = cache
        self.retry = retry
        self.announce = announce
        self.limit_blas = limit_blas

    def run(self, first: int, units: Sequence[Unit]) -> Partial[T]:
        """Load or compute the units from index ``first`` on and merge them along the tree.

        ``first`` is a multiple of a power of two that is at least the number of units, so they
        are a subtree. Holds at most ``log2(len(units)) + 2`` values.
        """
        if self.limit_blas:
            limit_blas_threads()
        mail = _Mail(self.announce)
        done: list[Partial[T]] = []
        try:
            for n, unit in enumerate(units, 1):
                done.append(self._run_one(first + n - 1, unit, mail))
                # As a binary counter carries: one merge for each full subtree that n completes.
                for _ in range((n & -n).bit_length() - 1):
                    self._merge_last(done)
        finally:
            mail.send()
        while len(done) > 1:
            self._merge_last(done)
        return Partial(done[0].value, done[0].account, tuple(mail.reports))

    def _run_one(self, index: int, unit: Unit, mail: _Mail) -> Partial[T]:
        # Only processes that the executor can replace may be ended.
        with deadline(self.retry.timeout_s if self.limit_blas else None):
            value, account = self._obtain(unit)
        mail.add(UnitReport(index, account))
        return Partial(value, account)

    def _merge_last(self, done: list[Partial[T]]) -> None:
        right, left = done.pop(), done.pop()
        done.append(Partial(self.merge_fn(left.value, right.value), left.account + right.account))

    def _obtain(self, unit: Unit) -> tuple[T, Account]:
        corrupt = False
        if self.cache is not None:
            entry = self.cache.lookup(unit.key)
            if entry.found:
                return entry.value, Account(n_cached=1)  # type: ignore[return-value]
            corrupt = entry.corrupt
        value, n_retries = call_with_retry(
            self.map_fn, unit.payload, policy=self.retry, what=f"Work on unit {unit.key!r}"
        )
        account = Account(
            n_computed=1,
            bytes_read=unit.n_bytes,
            n_retries=n_retries,
            n_corrupt=int(corrupt),
            cache_error=self._store(unit, value),
        )
        return value, account

    def _store(self, unit: Unit, value: T) -> str:
        """Write the cache entry; the cache is optional, so failing to is told, not raised."""
        if self.cache is None:
            return ""
        try:
            self.cache.put(unit.key, value)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""


class _Mail:
    """Reports of a task's units; sends what is new at the end, and while a long task goes on."""

    def __init__(self, announce: Announce | None) -> None:
        self._announce = announce
        self._n_sent = 0
        self._sent_s = time.monotonic()
        self.reports: list[UnitReport] = []

    def add(self, report: UnitReport) -> None:
        """Take the report of a unit."""
        self.reports.append(report)
        if time.monotonic() - self._sent_s > _ANNOUNCE_S:
            self.send()

    def send(self) -> None:
        """Announce what has not been announced."""
        if self._announce is not None and len(self.reports) > self._n_sent:
            self._announce(tuple(self.reports[self._n_sent :]))
        self._n_sent, self._sent_s = len(self.reports), time.monotonic()


# The tasks are classes, not closures or dataclasses: they pickle by reference to this module, and
# Dask takes them for opaque (it would look for graph keys inside tuples, dicts and dataclasses).


class _Constant:
    """Task without arguments that gives a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class _Leaf:
    """Task that turns the shared runner into the partial of a run of units."""

    def __init__(self, first: int, units: tuple[Unit, ...]) -> None:
        self.unit_indices = range(first, first + len(units))  # so executors know a unit's task
        self.units = units

    def __call__(self, runner: UnitRunner[Any]) -> Partial[Any]:
        return runner.run(self.unit_indices.start, self.units)


class _Merge:
    """Task that merges two neighbouring partials, the earlier one first."""

    def __init__(self, merge_fn: Callable[[Any, Any], Any], limit_blas: bool) -> None:
        self.merge_fn = merge_fn
        self.limit_blas = limit_blas

    def __call__(self, left: Partial[Any], right: Partial[Any]) -> Partial[Any]:
        if self.limit_blas:
            limit_blas_threads()
        return Partial(self.merge_fn(left.value, right.value), left.account + right.account)


def build_graph(units: Sequence[Unit], runner: UnitRunner[Any], batch: int = 1) -> Any:
    """Build the graph of a map-reduce with a fixed merge tree.

    Node (level, j) of the tree covers the units ``[j·2^level, (j+1)·2^level)``; a node whose
    right child would be empty is its left child. The tree depends on the number of units only,
    and units appended later leave every full subtree as it was. A task does the whole subtree of
    a batch, so batches change what travels and never what is computed.

    Parameters
    ----------
    units : sequence of Unit
        At least one, in the order in which they are merged.
    runner : UnitRunner
        What the leaves share.
    batch : int
        Units of one task, a power of two; see :func:`distfms.engine.batches.batch_size`.

    Returns
    -------
    dask.delayed.Delayed
        The root, a Partial. It must be run without graph optimisation.

    Notes
    -----
    Dask's schedulers break ties between equal subtrees by key, the greatest first. Keys
    therefore count down, which makes batches start in index order, depth first, each merge as
    soon as both children are there. With ``w`` workers and ``n`` batches of like duration at most
    ``2w + log2(n)`` values exist between tasks on local executors, those being made included;
    whatever the durations, at most about ``(w + 1) · log2(n)``, as each running task can hold up
    one full subtree of each size. A Dask cluster adds a few for each worker, because it assigns
    tasks ahead and copies values between workers. A running batch of ``b`` units holds up to
    ``log2(b) + 2``.
    """
    from dask.delayed import Delayed

    token = uuid.uuid4().hex  # a cluster takes equal keys for equal results
    n = len(units)
    shared = f"distfms-runner-{token}"
    # Tuples, a form of graph that Dask documents; an object for each task would take much more.
    graph: dict[Any, tuple[Any, ...]] = {shared: (_Constant(runner),)}
    merge = _Merge(runner.merge_fn, runner.limit_blas)
    pending: list[tuple[int, int, Any]] = []  # level, first unit and key of nodes without parent

    def join() -> None:
        right, (level, first, left) = pending.pop()[2], pending.pop()
        key = (f"distfms-merge-{token}", level + 1, _descending(n - first))
        graph[key] = (merge, left, right)
        pending.append((level + 1, first, key))

    for first in range(0, n, batch):
        key = (f"distfms-unit-{token}", _descending(n - first))
        graph[key] = (_Leaf(first, tuple(units[first : first + batch])), shared)
        pending.append((0, first, key))
        while len(pending) > 1 and pending[-1][0] == pending[-2][0]:
            join()
    while len(pending) > 1:
        join()
    return Delayed(pending[0][2], graph)


def _descending(remaining: int) -> str:
    """Write a number so that text order is number order."""
    return f"{remaining:012d}"
