"""Work on a Ray cluster, one that is there or one started for the job."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from distfms.engine.blas import limit_blas_threads
from distfms.engine.deadline import deadline
from distfms.engine.executors import n_processors
from distfms.engine.graph import Announce, UnitReport, Watch
from distfms.engine.memory import available_bytes
from distfms.engine.ray_session import RaySession, dask_on_ray, explained, quiet
from distfms.engine.retry import RetryPolicy, call_with_retry
from distfms.errors import EngineError

A = TypeVar("A")
R = TypeVar("R")

_POLL_S = 0.1
# How often the driver asks for reports; each time costs a call of an actor.
_DRAIN_S = 0.2
# How long a finished unit's report may be on its way before its value is looked at instead.
_REPORT_S = 0.5
_LAST_REPORTS_S = 3.0


class RayExecutor:
    """Runs work on a Ray cluster.

    Parameters
    ----------
    address : str, optional
        ``auto``, ``host:6379`` or ``ray://host:10001``; see `RaySession` for the default, which
        outside a Ray job is a cluster started here and stopped by `close`.
    workers : int, optional
        Processors of a cluster started here; default: the processors this process may use. For
        one that is there, the most tasks at the same time; default: its processors.
    object_store_bytes : int, optional
        Shared memory of a cluster started here, in bytes; default: Ray's.
    timeout_s : float
        How long to wait for the cluster to answer, at the beginning and when its head is gone.

    Raises
    ------
    EngineError
        No usable cluster; see `RaySession`.

    Notes
    -----
    If the head of a cluster that was there before is out of reach for a minute, the whole process
    ends with code 1 and words on standard error, without clean-up: Ray's calls may hang where no
    exception reaches (`HeadWatch`). In a notebook or a service that is the kernel or the service.

    Graphs run through ``ray.util.dask.ray_dask_get``. Values stay on the nodes; the driver
    receives the root of the graph only, and small reports. Batches are handed out as others
    finish, two for each processor, so that merges are not queued behind all units and few
    values exist at the same time. Ray runs tasks of lost workers again, and those whose values
    were lost with a node. After an error or an interrupt, the few tasks handed out already run to
    their end: cancelling a task that is just finishing was seen to abort the whole driver in
    Ray 2.60 (``task_manager.cc: Tried to complete task that was not pending``).
    """

    name = "ray"
    limit_blas = True
    coarse_batches = 1

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        object_store_bytes: int | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        started = not (address or os.environ.get("RAY_ADDRESS"))
        self._started_here = started
        self.session = RaySession(
            address,
            workers or n_processors() if started else None,
            object_store_bytes=object_store_bytes,
            timeout_s=timeout_s,
        )
        self.address = self.session.address
        self.workers = min(workers or self.session.n_processors, self.session.n_processors)
        self._reports: Any = _start_reports(self.session)
        self._n_passes = 0

    @property
    def announce(self) -> Announce | None:
        """What tasks of the next graph call; late news of an earlier graph are told apart."""
        return partial(_announce, self._reports, self._n_passes)

    def compute(
        self, graph: Any, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Any:
        """Run a ``dask.delayed`` graph as it is and give its value; see `Executor.compute`.

        Raises
        ------
        EngineError
            Workers running a task kept dying, or the cluster was lost.
        """
        scheduler = dask_on_ray()
        inbox = _Inbox(self._reports, self._n_passes)
        flow = _Flow(self.session, inbox, 2 * self.workers, watch)
        # Bare hooks, not a RayDaskCallback, which would travel with every task.
        nothing = dict.fromkeys(scheduler.callbacks.CBS)
        hooks = scheduler.callbacks.RayCallback(
            **nothing | {"ray_presubmit": flow.before_submit, "ray_postsubmit": flow.after_submit}
        )
        options = {"num_cpus": 1, "max_retries": (retry or RetryPolicy()).attempts - 1}
        try:
            with quiet():
                root = scheduler.ray_dask_get(
                    dict(graph.__dask_graph__()),
                    graph.key,
                    pool=_InThisThread(),
                    ray_callbacks=[hooks],
                    ray_persist=True,
                    ray_remote_args=options,
                )
                return flow.finish(root)
        except BaseException as error:
            raise _own(error) from error.__cause__
        finally:
            self._n_passes += 1

    def map(
        self,
        fn: Callable[[A], R],
        items: Iterable[A],
        *,
        watch: Callable[[int], None] | None = None,
        retry: RetryPolicy | None = None,
    ) -> list[R]:
        """Run ``fn`` on every item; results in the order of items; see `Executor.map`.

        Raises
        ------
        EngineError
            A task kept failing for a transient reason, workers kept dying, or the cluster was
            lost.
        """
        import cloudpickle
        import ray

        policy = retry or RetryPolicy()
        work = ray.put(cloudpickle.dumps((fn, policy)))
        task = ray.remote(num_cpus=1, max_retries=policy.attempts - 1)(_run_pickled)
        todo = enumerate(items)
        running: dict[Any, int] = {}
        results: dict[int, R] = {}
        try:
            while True:
                while len(running) < 2 * self.workers and (following := next(todo, None)):
                    index, item = following
                    running[task.remote(work, cloudpickle.dumps(item))] = index
                if not running:
                    return [results[index] for index in range(len(results))]
                done, _ = ray.wait(list(running), timeout=_POLL_S, num_returns=1)
                self.session.check()
                for ref in done:
                    results[running[ref]] = ray.get(ref)
                    index = running.pop(ref)
                    if watch is not None:
                        watch(index)
        except BaseException as error:
            raise _own(error) from error.__cause__

    def probe(self, paths: Sequence[str]) -> None:
        """Check that every node sees these local paths as this machine does.

        Raises
        ------
        EngineError
            Names the node and the paths.
        """
        self.session.probe(paths)

    def available_bytes(self) -> int | None:
        """Give the memory for tasks over all nodes; for a cluster here, what is free of it."""
        total = sum(self.session.memory_bytes().values()) or None
        here = available_bytes() if self._started_here else None
        known = [value for value in (total, here) if value is not None]
        return min(known) if known else None

    def close(self) -> None:
        """Disconnect; stop the cluster when it was started here."""
        self._reports = None
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _InThisThread:
    """What `ray_dask_get` takes for a pool of one thread: it submits here, one after the other.

    Submission waits for units to finish, and that is when events are handed on, which must
    happen in the thread that called.
    """

    _pool = (None,)  # its length is read

    def apply_async(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwds: dict[str, Any] | None = None,
        callback: Callable[[Any], None] | None = None,
    ) -> None:
        """Call now."""
        result = fn(*args, **(kwds or {}))
        if callback is not None:
            callback(result)


class _Flow:
    """Hands out batches as others finish, notices the first failure, passes reports on."""

    def __init__(self, session: RaySession, inbox: _Inbox, most: int, watch: Watch | None) -> None:
        self._session = session
        self._inbox = inbox
        self._most = most
        self._watch = watch
        self._running: dict[Any, range] = {}
        self._unreported: dict[Any, tuple[range, float]] = {}
        self._reported: set[int] = set()
        self._n_units = 0

    def before_submit(self, task: Any, key: Any, deps: Any) -> None:
        """Wait until there is room for one more batch; called by Dask on Ray."""
        while self._units_of(task) is not None and len(self._running) >= self._most:
            self._advance(_POLL_S)

    def after_submit(self, task: Any, key: Any, deps: Any, ref: Any) -> None:
        """Remember a submitted batch; called by Dask on Ray."""
        units = self._units_of(task)
        if units is not None:
            self._n_units += len(units)
            self._running[ref] = units

    def finish(self, root: Any) -> Any:
        """Wait for the root and for the last reports."""
        import ray

        while not ray.wait([root], timeout=0 if self._running else _POLL_S)[0]:
            self._advance(_POLL_S)
        value = ray.get(root)
        last_s = time.monotonic() + _LAST_REPORTS_S
        while self._watch and len(self._reported) < self._n_units and time.monotonic() < last_s:
            self._hand_on(self._inbox.take(_POLL_S))
        return value

    def _advance(self, wait_s: float) -> None:
        """Wait for a batch to finish, hand on reports, raise the error of a batch that failed."""
        import ray

        if self._running:
            refs = list(self._running)
            ready, _ = ray.wait(refs, timeout=wait_s, num_returns=1, fetch_local=False)
            for ref in ready:
                self._unreported[ref] = self._running.pop(ref), time.monotonic()
        self._session.check()
        self._hand_on(self._inbox.take())
        # A failed batch does not report all; looking at every value would bring it here.
        for ref, (units, since_s) in list(self._unreported.items()):
            if self._reported.issuperset(units):
                del self._unreported[ref]
            elif time.monotonic() - since_s > _REPORT_S:
                ray.get(ref)
                del self._unreported[ref]

    def _hand_on(self, reports: list[UnitReport]) -> None:
        for report in reports:
            if report.index not in self._reported:
                self._reported.add(report.index)
                if self._watch is not None:
                    self._watch(report)

    @staticmethod
    def _units_of(task: Any) -> range | None:
        """Give the indices of the units that a task computes, None for other tasks."""
        return getattr(getattr(task, "func", None), "unit_indices", None)


class _Reports:
    """Actor that keeps the reports of units until the driver takes them."""

    def __init__(self) -> None:
        self._inbox: list[Any] = []

    def add(self, number: int, reports: tuple[Any, ...]) -> None:
        """Take reports of units of the pass with this number."""
        self._inbox.append((number, reports))

    def drain(self) -> list[Any]:
        """Give what came since the last call."""
        inbox, self._inbox = self._inbox, []
        return inbox


class _Inbox:
    """The driver's side of the reports: asks now and then, and does not wait for the answer."""

    def __init__(self, reports: Any, number: int) -> None:
        self._reports = reports
        self._number = number
        self._asked: Any = None
        self._asked_s = -_DRAIN_S

    def take(self, wait_s: float = 0.0) -> list[UnitReport]:
        """Give the reports that have arrived since the last call, waiting for some if asked to."""
        import ray

        now_s = time.monotonic()
        if self._asked is None:
            if now_s - self._asked_s < _DRAIN_S:
                if not wait_s:
                    return []
                time.sleep(_POLL_S / 10)
            self._asked, self._asked_s = self._reports.drain.remote(), now_s
        if not ray.wait([self._asked], timeout=wait_s)[0]:
            return []
        asked, self._asked = self._asked, None
        try:
            return [
                report
                for number, reports in ray.get(asked)
                if number == self._number
                for report in reports
            ]
        except ray.exceptions.RayError:
            return []  # reports are for show: the result does not depend on them


def _start_reports(session: RaySession) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(session.driver_node(), soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(_Reports).remote()


def _announce(inbox: Any, number: int, reports: tuple[UnitReport, ...]) -> None:
    """Tell the driver, from a task on a Ray worker, that units are done."""
    inbox.add.remote(number, reports)


def _run_pickled(work: bytes, item: bytes) -> Any:
    """Run one task of `map` on a Ray worker."""
    limit_blas_threads()
    fn, policy = pickle.loads(work)
    with deadline(policy.timeout_s):
        return call_with_retry(fn, pickle.loads(item), policy=policy, what="A task")[0]


def _own(error: BaseException) -> BaseException:
    """Give the error to raise for one that Ray or the work raised."""
    import ray

    if isinstance(error, (ray.exceptions.RayError, ImportError)):
        return explained(error)
    if isinstance(error, RuntimeError) and "failed to import on the worker" in str(error):
        return explained(error)
    if isinstance(error, ConnectionError) and "ray" in str(error).lower():
        return EngineError(
            f"The connection to the Ray cluster was lost ({error}). Run the same command again; "
            "finished work is kept."
        )
    return error
