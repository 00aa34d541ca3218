"""The explicit Dask graph of a map-reduce, and what its tasks do where they run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distfms.engine.blas import limit_blas_threads
from distfms.engine.cache import PartialCache
from distfms.engine.deadline import deadline
from distfms.engine.retry import RetryPolicy, call_with_retry

T = TypeVar("T")


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


@dataclass(frozen=True)
class Partial(Generic[T]):
    """A value of the merge tree with its account; ``report`` is set on leaves only."""

    value: T
    account: Account
    report: UnitReport | None = None


class UnitRunner(Generic[T]):
    """What every leaf of one graph has in common; travels once to each worker.

    Parameters
    ----------
    map_fn : callable
        Payload → value. Picklable (cloudpickle) when workers are other processes.
    cache : PartialCache or None
        Looked up before and written after computing.
    retry : RetryPolicy
        Rules for transient failures of ``map_fn``.
    announce : callable or None
        Called with each UnitReport where the task runs.
    limit_blas : bool
        Whether tasks run in worker processes whose BLAS is to be held at one thread.
    """

    def __init__(
        self,
        map_fn: Callable[[Any], T],
        cache: PartialCache[T] | None,
        retry: RetryPolicy,
        announce: Watch | None,
        limit_blas: bool,
    ) -> None:
        self.map_fn = map_fn
        self.cache = cache
        self.retry = retry
        self.announce = announce
        self.limit_blas = limit_blas

    def run(self, index: int, unit: Unit) -> Partial[T]:
        """Load or compute one unit."""
        if self.limit_blas:
            limit_blas_threads()
        # Only processes that the executor can replace may be ended.
        with deadline(self.retry.timeout_s if self.limit_blas else None):
            value, account = self._obtain(unit)
        report = UnitReport(index, account)
        if self.announce is not None:
            self.announce(report)
        return Partial(value, account, report)

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


# The tasks are classes, not closures or dataclasses: they pickle by reference to this module, and
# Dask takes them for opaque (it would look for graph keys inside tuples, dicts and dataclasses).


class _Constant:
    """Task without arguments that gives a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class _Leaf:
    """Task that turns the shared runner into the partial of one unit."""

    def __init__(self, index: int, unit: Unit) -> None:
        self.unit_index = index  # by this name executors know a unit's task
        self.unit = unit

    def __call__(self, runner: UnitRunner[Any]) -> Partial[Any]:
        return runner.run(self.unit_index, self.unit)


class _Merge:
    """Task that merges two neighbouring partials, the earlier one first."""

    def __init__(self, merge_fn: Callable[[Any, Any], Any], limit_blas: bool) -> None:
        self.merge_fn = merge_fn
        self.limit_blas = limit_blas

    def __call__(self, left: Partial[Any], right: Partial[Any]) -> Partial[Any]:
        if self.limit_blas:
            limit_blas_threads()
        return Partial(self.merge_fn(left.value, right.value), left.account + right.account)


def build_graph(
    units: Sequence[Unit],
    runner: UnitRunner[Any],
    merge_fn: Callable[[Any, Any], Any],
) -> Any:
    """Build the graph of a map-reduce with a fixed merge tree.

    Node (level, j) of the tree covers the units ``[j·2^level, (j+1)·2^level)``; a node whose
    right child would be empty is its left child. The tree depends on the number of units only,
    and units appended later leave every full subtree as it was.

    Parameters
    ----------
    units : sequence of Unit
        At least one, in the order in which they are merged.
    runner : UnitRunner
        What the leaves share.
    merge_fn : callable
        Merges two values, the earlier one first; must not change them.

    Returns
    -------
    dask.delayed.Delayed
        The root, a Partial. It must be run without graph optimisation.

    Notes
    -----
    Dask's schedulers break ties between equal subtrees by key, the greatest first. Keys
    therefore count down, which makes units start in index order, depth first, each merge as soon
    as both children are there. With ``w`` workers and ``n`` units of like duration at most
    ``2w + log2(n)`` values exist on local executors, those being made included; whatever the
    durations, at most about ``(w + 1) · log2(n)``, as each running unit can hold up one full
    subtree of each size. A Dask cluster adds a few for each worker, because it assigns tasks
    ahead and copies values between workers.
    """
    from dask.delayed import delayed

    token = uuid.uuid4().hex  # a cluster takes equal keys for equal results
    shared = delayed(_Constant(runner), name=f"shared-{token}", pure=False, traverse=False)(
        dask_key_name=f"distfms-runner-{token}"
    )
    n = len(units)
    nodes = [
        delayed(_Leaf(i, unit), name=f"unit-{token}", pure=False, traverse=False)(
            shared, dask_key_name=(f"distfms-unit-{token}", _descending(n - i))
        )
        for i, unit in enumerate(units)
    ]
    merge = delayed(
        _Merge(merge_fn, runner.limit_blas), name=f"merge-{token}", pure=False, traverse=False
    )
    level = 0
    while len(nodes) > 1:
        level += 1
        nodes = [
            merge(
                *nodes[j : j + 2],
                dask_key_name=(f"distfms-merge-{token}", level, _descending(n - j)),
            )
            if j + 1 < len(nodes)
            else nodes[j]
            for j in range(0, len(nodes), 2)
        ]
    return nodes[0]


def _descending(remaining: int) -> str:
    """Write a number so that text order is number order."""
    return f"{remaining:012d}"
