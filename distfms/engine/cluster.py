"""Work on an existing Dask cluster."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from distfms.engine import node_probe
from distfms.engine.blas import limit_blas_threads
from distfms.engine.deadline import deadline
from distfms.engine.graph import Account, Announce, UnitReport, Watch
from distfms.engine.retry import RetryPolicy, call_with_retry
from distfms.errors import EngineError

A = TypeVar("A")
R = TypeVar("R")

_ADDRESS = re.compile(r"^(tcp|tls|ws|wss|ucx)://[^\s/]+:\d+/?$")
# Tasks are pickled here and run there, and numpy does the sums: these must be the same.
_SAME_VERSION = ("distfms", "dask", "distributed", "cloudpickle", "numpy")
_POLL_S = 0.2
_ASK_S = 2.0


class DaskExecutor:
    """Runs work on a Dask cluster that is already there.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://host:8786``.
    timeout_s : float
        How long to wait for the scheduler, and for its first worker.
    patience_s : float
        How long a running job waits for new workers when the cluster has lost all it had.

    Raises
    ------
    EngineError
        No Dask scheduler answers there, it has no workers, or they run other versions.

    Notes
    -----
    Values stay on the workers; the driver receives the root of the graph only, and small events.
    Lost workers are the scheduler's business, which runs their tasks again elsewhere. The BLAS
    of a worker process stays at one thread after it ran one of our tasks.
    """

    name = "dask"
    limit_blas = True
    coarse_batches = 1

    def __init__(self, address: str, *, timeout_s: float = 5.0, patience_s: float = 60.0) -> None:
        self.address = address
        self._patience_s = patience_s
        self._topic = f"distfms-{uuid.uuid4().hex}"
        self._n_passes = 0
        self._client: Any = None
        _check_address(address)
        self._client = _connect(address, timeout_s)
        try:
            self.workers = self._check_workers(timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def announce(self) -> Announce | None:
        """What tasks of the next graph call; late news of an earlier graph go nowhere."""
        return partial(_announce, self._pass_topic)

    @property
    def _pass_topic(self) -> str:
        return f"{self._topic}-{self._n_passes}"

    def compute(
        self, graph: Any, *, watch: Watch | None = None, retry: RetryPolicy | None = None
    ) -> Any:
        """Run a ``dask.delayed`` graph as it is and give its value; see `Executor.compute`.

        ``retry`` is not used: the scheduler has its own rule for lost workers
        (``distributed.scheduler.allowed-failures``).

        Raises
        ------
        EngineError
            Workers running a task kept dying, or the cluster was lost.
        """
        try:
            with self._reports(watch) as deliver, _quiet():
                future = self._client.compute(graph, optimize_graph=False)
                return self._await([future], lambda index: None, deliver)[0]
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
        inputs = list(items)
        if not inputs:
            return []
        task = partial(_attempt, fn, retry or RetryPolicy())
        token = uuid.uuid4().hex
        with _quiet():
            futures = [
                self._client.submit(task, item, key=(f"distfms-task-{token}", index), pure=False)
                for index, item in enumerate(inputs)
            ]
            return self._await(futures, watch or (lambda index: None), lambda wait_s: None)

    def probe(self, paths: Sequence[str]) -> None:
        """Check that every worker sees these paths as this machine does; see `Executor.probe`."""
        local = [os.path.abspath(path) for path in paths if "://" not in path]
        here = node_probe.examine((), local)
        with _quiet():
            found = self._client.run(node_probe.examine, (), local)
        for worker, there in found.items():
            if problems := node_probe.path_problems(here, there):
                raise node_probe.unseen(f"Dask worker {worker} on {there['host']}", problems)

    def available_bytes(self) -> int | None:
        """Give the sum of the workers' memory limits in bytes, None when one has none."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        limits = [worker["memory_limit"] for worker in workers.values()]
        return sum(limits) if limits and all(limits) else None

    def close(self) -> None:
        """Disconnect; the cluster stays."""
        client, self._client = self._client, None
        if client is not None:
            with _quiet():
                client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_workers(self, timeout_s: float) -> int:
        """Wait for a worker, compare versions, give the number of threads of all workers."""
        try:
            self._client.wait_for_workers(1, timeout=timeout_s)
        except TimeoutError as error:
            raise EngineError(
                f"The Dask scheduler at {self.address} has no workers. Start some with "
                f"`dask worker {self.address}` and run the same command again."
            ) from error
        versions = self._client.get_versions(packages=["distfms"])
        problems = version_problems(versions)
        if problems:
            raise EngineError(
                f"The Dask cluster at {self.address} does not run the same software as this "
                f"machine: {'; '.join(problems)}. Install the same versions there (or here) and "
                "restart its scheduler and workers."
            )
        return sum(self._client.nthreads().values())

    @contextmanager
    def _reports(self, watch: Watch | None) -> Iterator[Callable[[float], None]]:
        """Receive what tasks announce; gives a function that hands it on in the calling thread."""
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def deliver(wait_s: float) -> None:
            try:
                message = inbox.get(timeout=wait_s) if wait_s else inbox.get_nowait()
                while True:
                    if watch is not None:
                        for index, account in message:
                            watch(UnitReport(index, Account(*account)))
                    message = inbox.get_nowait()
            except queue.Empty:
                return

        # Events arrive in the client's own thread, where a handler must not block or raise.
        topic = self._pass_topic
        self._client.subscribe_topic(topic, lambda event: inbox.put(event[1]))
        try:
            yield deliver
        finally:
            if self._client is not None and self._client.status == "running":
                self._client.unsubscribe_topic(topic)

    def _await(
        self,
        futures: list[Any],
        on_done: Callable[[int], None],
        deliver: Callable[[float], None],
    ) -> list[Any]:
        """Wait for all futures, or for the first that fails; results in order."""
        waiting = dict(enumerate(futures))
        guard = _Guard(self._client, self._patience_s)
        try:
            while waiting:
                _wait_for_any(waiting.values())
                deliver(0.0)
                guard.check(self.address)
                for index in [i for i, future in waiting.items() if future.done()]:
                    if futures[index].status != "finished":
                        raise self._failure(futures)
                    del waiting[index]
                    on_done(index)
            deliver(0.0)
            return [future.result() for future in futures]
        except BaseException:
            self._cancel(futures)
            raise

    def _failure(self, futures: list[Any]) -> BaseException:
        """Give the error of the first failed future, in words a user can act on."""
        failed = [f for f in futures if f.done() and f.status != "finished"]
        error = failed[0].exception() if failed[0].status == "error" else None
        if error is None:
            return EngineError(
                f"The Dask scheduler at {self.address} dropped the work of this job: it stopped "
                "or was restarted, or somebody cancelled the work. Once it is back, run the same "
                "command again; finished work is kept."
            )
        if type(error).__name__ != "KilledWorker":
            return error
        return EngineError(
            f"Workers of the Dask cluster at {self.address} died again and again on the same "
            f"task: {error}. Most often they ran out of memory: give workers more memory or "
            "fewer threads, then run the same command again; finished work is kept."
        )

    def _cancel(self, futures: list[Any]) -> None:
        if self._client is not None and self._client.status == "running":
            self._client.cancel(futures, force=True)


class _Guard:
    """Gives up when there have been no workers for too long; the scheduler would wait forever."""

    def __init__(self, client: Any, patience_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
        self._seen_s = self._asked_s = time.monotonic()

    def check(self, address: str) -> None:
        """Raise EngineError when the patience is used up; asks the scheduler now and then."""
        now_s = time.monotonic()
        if now_s - self._asked_s < min(_ASK_S, self._patience_s):
            return
        self._asked_s = now_s
        if self._client.status != "running" or self._client.nthreads():
            self._seen_s = now_s
        elif now_s - self._seen_s > self._patience_s:
            raise EngineError(
                f"The Dask scheduler at {address} lost all its workers and got no new ones for "
                f"{self._patience_s:.0f} s. Start workers and run the same command again; "
                "finished work is kept."
            )


def version_problems(versions: Mapping[str, Any]) -> list[str]:
    """Compare the software of a cluster with this process's.

    Parameters
    ----------
    versions : mapping
        As ``distributed.Client.get_versions`` gives it: ``client``, ``scheduler`` and
        ``workers`` (by address), each with ``host`` and ``packages``.

    Returns
    -------
    list of str
        One entry for each kind of difference; empty when tasks can travel.
    """
    here = versions["client"]
    nodes = {"scheduler": versions["scheduler"]} | {
        f"worker {address}": info for address, info in versions["workers"].items()
    }
    found: dict[str, str] = {}
    for node, info in nodes.items():
        there, own = _python(info), _python(here)
        if there != own:
            found.setdefault("python", f"Python {there} on {node}, {own} here")
        for package in _SAME_VERSION:
            own_version, version = here["packages"].get(package), info["packages"].get(package)
            # The scheduler does no arithmetic; it may go without numpy.
            needless = package == "numpy" and node == "scheduler"
            if own_version is not None and version != own_version and not needless:
                found.setdefault(
                    package, f"{package} {version or 'missing'} on {node}, {own_version} here"
                )
    return list(found.values())


def _python(info: Mapping[str, Any]) -> str:
    return ".".join(str(info["host"]["python"]).split(".")[:2])


def _check_address(address: str) -> None:
    if _ADDRESS.match(address):
        return
    hint = ""
    if address.startswith("ray://") or address == "auto":
        hint = " This looks like the address of a Ray cluster."
    elif address.startswith("http"):
        hint = " This looks like a dashboard; the scheduler usually listens on port 8786."
    raise EngineError(
        f"{address!r} is not the address of a Dask scheduler; it has the form "
        f"tcp://host:8786.{hint}"
    )


def _connect(address: str, timeout_s: float) -> Any:
    """Open a client that does not become the default for other users of Dask here."""
    from distributed import Client

    try:
        # A client that fails to connect leaves its thread behind, so knock first.
        kind = _ask_kind(address, timeout_s)
        if kind != "Scheduler":
            raise EngineError(
                f"What answers at {address} is a Dask {kind.lower()}, not the scheduler. Give the "
                "address that `dask scheduler` printed when it started."
            )
        with _quiet():
            return Client(address, timeout=timeout_s, set_as_default=False, name="distfms")
    except EngineError:
        raise
    except Exception as error:
        # What comes back from something that is not Dask may be any error of the decoder.
        raise EngineError(
            f"No Dask scheduler answers at {address} (tried for {timeout_s:.0f} s; "
            f"{type(error).__name__}: {error}). Start one with `dask scheduler`, or check host "
            "and port; the port is that of the scheduler, not of its dashboard."
        ) from error


def _ask_kind(address: str, timeout_s: float) -> str:
    """Ask whoever listens at a Dask address what it is, in an event loop of its own."""
    from distributed import rpc

    async def ask() -> str:
        async with rpc(address, timeout=timeout_s) as node:
            identity = await asyncio.wait_for(node.identity(), timeout_s)
        return str(identity["type"])

    # In another thread, as this one may be running an event loop (a notebook does).
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask()).result()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what distributed warns of and this module has dealt with itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Mismatched versions found")
        warnings.filterwarnings("ignore", message="Sending large graph of size")
        warnings.filterwarnings(
            "ignore", category=DeprecationWarning, module="(distributed|tornado)"
        )
        yield


def _wait_for_any(futures: Iterable[Any]) -> None:
    """Wait until a future is done, but not long, as events are to be shown meanwhile."""
    from distributed import wait

    try:
        wait(list(futures), timeout=_POLL_S, return_when="FIRST_COMPLETED")
    except TimeoutError:
        return
    except Exception:
        # A cancelled or failed future; the caller looks at each one's status.
        time.sleep(_POLL_S / 10)


def _announce(topic: str, reports: tuple[UnitReport, ...]) -> None:
    """Tell the driver, from a task on a Dask worker, that units are done."""
    from dataclasses import astuple

    from distributed import get_worker

    get_worker().log_event(topic, [(r.index, astuple(r.account)) for r in reports])


def _attempt(fn: Callable[[A], R], policy: RetryPolicy, item: A) -> R:
    limit_blas_threads()
    with deadline(policy.timeout_s):
        return call_with_retry(fn, item, policy=policy, what="A task")[0]
