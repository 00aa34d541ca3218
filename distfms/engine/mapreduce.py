"""Map-reduce over units with the same bits on every executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from distfms.engine.base import EventHandler, Executor, ignore
from distfms.engine.cache import PartialCache
from distfms.engine.graph import (
    Account,
    Partial,
    Unit,
    UnitReport,
    UnitRunner,
    WorkerLoss,
    batch_size,
    build_graph,
)
from distfms.engine.retry import RetryPolicy
from distfms.errors import DataError, EngineError

T = TypeVar("T")


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
    retry: RetryPolicy | None = None,
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
        Values of single units; read and written by the tasks, where they run.
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
        What ``map_fn`` or ``merge_fn`` raised, as it is: of several, local executors raise that of
        the first unit, a cluster the one it noticed first.
    EngineError
        A unit kept failing for a transient reason, or workers or the cluster were lost.
    """
    if not units:
        raise DataError("There is nothing to compute: the data set has no partitions.")
    retry = retry or RetryPolicy()
    tally = _Tally(units, on_event)
    runner = UnitRunner(map_fn, merge_fn, cache, retry, executor.limit_blas, finish_fn)
    size = batch_size(
        len(units),
        executor.workers,
        coarse=executor.coarse_batches,
        unit_bytes=max(unit.n_bytes for unit in units),
        value_bytes=value_bytes,
    )
    on_event({"event": "pass_started", "total": len(units)})
    root: Partial[Any] = executor.compute(
        build_graph(units, runner, size), watch=tally.notice, retry=retry
    )
    account = root.account
    if account.n_computed + account.n_cached != len(units):
        raise EngineError(
            f"The merged result accounts for {account.n_computed + account.n_cached} of "
            f"{len(units)} units; this is a bug in distfms or its scheduler, not in the data."
        )
    tally.finish(account)
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
        elif notice.index not in self._seen:
            self._seen.add(notice.index)
            self._unit(self._units[notice.index], notice)

    def finish(self, account: Account) -> None:
        """Report the exact counts, and a cache failure whose report was lost."""
        self._unwritable(account.cache_error)
        self._on_event(
            {
                "event": "pass_finished",
                "total": len(self._units),
                "computed": account.n_computed,
                "cached": account.n_cached,
                "bytes": account.bytes_read,
            }
        )

    def _unit(self, unit: Unit, report: UnitReport) -> None:
        account = report.account
        self._sum = self._sum + account
        if account.n_retries:
            self._on_event({"event": "retry", "key": unit.key, "n_retries": account.n_retries})
        if account.n_corrupt:
            self._on_event({"event": "cache_corrupt", "key": unit.key})
        self._unwritable(account.cache_error)
        self._on_event(
            {
                "event": "unit",
                "index": report.index,
                "key": unit.key,
                "from_cache": bool(account.n_cached),
                "done": len(self._seen),
                "total": len(self._units),
                "cached": self._sum.n_cached,
                "bytes": self._sum.bytes_read,
            }
        )

    def _unwritable(self, error: str) -> None:
        if error and not self._told_unwritable:
            self._told_unwritable = True
            self._on_event({"event": "cache_unwritable", "error": error})
