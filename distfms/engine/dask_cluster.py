"""Work on an existing Dask cluster."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from distfms.engine import nodes
from distfms.engine.base import ActorPool, Executor
from distfms.engine.dask_pool import DaskPool
from distfms.engine.graph import USUAL, Graph, Partial, RetryPolicy, UnitReport, Watch
from distfms.errors import EngineError

# Tasks are pickled here and run there, and numpy does the sums: these must be the same.
_SAME_VERSION = ("distfms", "dask", "distributed", "cloudpickle", "numpy")
# Those that distributed gives a level and a handler; others inherit them.
_LOGGERS = ("distributed", "distributed.client")
_POLL_S = 1.0


class DaskExecutor(Executor):
    """Runs work on a Dask cluster that is already there, such as ``tcp://host:8786``.

    Values stay on the workers; the driver receives the root of the graph, and what leaves report.
    Lost workers are the scheduler's business, which runs their tasks again elsewhere; where it has
    none left, a job waits ``patience_s`` for new ones. The BLAS of a worker process stays at one
    thread after it ran one of our tasks.
    Raises EngineError where no scheduler answers, or it has no workers, or of other versions.
    """

    name = "dask"

    def __init__(self, address: str, *, timeout_s: float = 5.0, patience_s: float = 60.0) -> None:
        self.address = address
        self._patience_s = patience_s
        self.client: Any = _connect(address, timeout_s)
        try:
            self._require_workers(timeout_s)
            self.workers = self.actors = sum(self.client.nthreads().values())
        except BaseException:
            self.close()
            raise

    def compute(
        self, graph: Graph, *, watch: Watch | None = None, retry: RetryPolicy = USUAL
    ) -> Partial[Any]:
        """Run a graph and return its root; see `Executor.compute`."""
        tasks, reports = _with_reports(graph)
        with _quiet():
            with self.asking():
                futures = self.client.get(tasks, [graph.root, *reports], sync=False)
            try:
                return self._follow(futures, watch)
            finally:
                # The scheduler then drops what is under way. To cancel it was seen to break the
                # connection of the client (`assert ts.who_wants` in distributed's scheduler).
                for future in futures:
                    future.release()

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run any graph of Dask; see `Executor.get`."""
        return self.client.get(dsk, keys, **options)

    def probe(self, paths: Sequence[str]) -> None:
        """Check that every host sees these paths as this machine does; see `Executor.probe`."""
        nodes.require_paths(paths, self._examine_hosts)

    def pool(self, n_actors: int | None = None, **options: Any) -> ActorPool:
        """Open a pool on the workers; see `Executor.pool`."""
        return DaskPool(self, self.actors if n_actors is None else n_actors, **options)

    def living(self) -> Mapping[str, int]:
        """Return address and threads of the workers, once there are some."""
        seen_s = time.monotonic()
        while True:
            with self.asking():
                threads: Mapping[str, int] = self.client.nthreads()
            if threads:
                return threads
            seen_s = self._require_life(seen_s)
            time.sleep(_POLL_S)

    def memory_bytes(self) -> list[int]:
        """Return the memory limits of the workers, 0 for none."""
        with self.asking():
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return [worker["memory_limit"] or 0 for worker in workers.values()]

    def available_bytes(self) -> int | None:
        """Return the sum of the workers' memory limits, None when one has none."""
        limits = self.memory_bytes()
        return sum(limits) if limits and all(limits) else None

    def close(self) -> None:
        """Disconnect; the cluster stays."""
        client, self.client = self.client, None
        if client is not None:
            with _quiet():
                client.close()

    def _require_workers(self, timeout_s: float) -> None:
        try:
            self.client.wait_for_workers(1, timeout=timeout_s)
        except TimeoutError as error:
            raise EngineError(
                f"The Dask scheduler at {self.address} has no workers. Start some with "
                f"`dask worker {self.address}` and run the same command again."
            ) from error
        cluster = f"The Dask cluster at {self.address}"
        nodes.require_software(_SAME_VERSION, self._examine, cluster)

    def _examine_hosts(self, packages: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
        """Have one worker of every host say what it has."""
        with self.asking():
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        of_host = {about["host"]: address for address, about in workers.items()}
        return self._examine(packages, paths, list(of_host.values()))

    def _examine(
        self, packages: Sequence[str], paths: Sequence[str], workers: list[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Have every worker, or some, say what it has; by its name."""
        with self.asking(), _quiet(), nodes.by_value():
            found: Mapping[str, Any] = self.client.run(
                nodes.examine, packages, paths, workers=workers
            )
        return {f"Dask worker {key} on {there['host']}": there for key, there in found.items()}

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Raise EngineError for whatever the client raises when its scheduler is gone."""
        try:
            yield
        except Exception as error:
            if self.client.status == "running" and not isinstance(error, OSError):
                raise
            raise self._gone() from error

    def _gone(self) -> EngineError:
        return EngineError(
            f"The Dask scheduler at {self.address} dropped the work of this job: it stopped, was "
            "restarted, or cancelled the work. Once it is back, run the same command again; "
            "finished work is kept."
        )

    def _follow(self, futures: Sequence[Any], watch: Watch | None) -> Partial[Any]:
        """Return the root, which is the first; hand on what leaves report; raise a failure."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        asked = {}
        for future in futures:
            # Waits for what was finished and is lost with its worker, until it is done again.
            gathering = self.client.gather(future, asynchronous=True)
            loop = self.client.loop.asyncio_loop
            answer = asyncio.run_coroutine_threadsafe(gathering, loop)
            asked[answer] = future
            answer.add_done_callback(done.put)
        seen_s = time.monotonic()
        while asked:
            try:
                answer = done.get(timeout=_POLL_S)
            except queue.Empty:
                seen_s = self._require_life(seen_s)
                continue
            future = asked.pop(answer)
            try:
                value = answer.result()
            except (Exception, asyncio.CancelledError) as error:
                raise self._failure(future, error) from error.__cause__
            if future is futures[0]:
                root: Partial[Any] = value
            elif watch is not None:
                for report in value:
                    watch(report)
        return root

    def _require_life(self, seen_s: float) -> float:
        """Raise EngineError when there have been no workers for long; else when there were some.

        The scheduler would wait for ever, and so would a client that is closing.
        """
        if self.client.status in ("closing", "closed"):
            raise self._gone()
        try:
            if self.client.status != "running" or self.client.nthreads():
                return time.monotonic()
        except OSError:
            return seen_s  # the connection broke just now: the futures will say so
        if time.monotonic() - seen_s > self._patience_s:
            raise EngineError(
                f"The Dask scheduler at {self.address} lost all its workers and got no new ones "
                f"for {self._patience_s:.0f} s. Start workers and run the same command again; "
                "finished work is kept."
            )
        return seen_s

    def _failure(self, future: Any, error: BaseException) -> BaseException:
        """Return what went wrong with a future in words a user can act on."""
        if future.status != "error":
            return self._gone()
        if type(error).__name__ != "KilledWorker":
            return error
        return EngineError(
            f"Workers of the Dask cluster at {self.address} died repeatedly on the same task: "
            f"{error}. They probably ran out of memory: give workers more memory or fewer threads, "
            "then run the same command again; finished work is kept."
        )


def _with_reports(graph: Graph) -> tuple[dict[Any, Any], list[Any]]:
    """Return the graph's tasks with one more for each leaf, which returns its reports."""
    tasks: dict[Any, Any] = dict(graph.tasks)
    reports: dict[Any, Any] = {}
    for leaf in graph.leaves:
        reports[leaf] = ("distfms-report", leaf)
        tasks[reports[leaf]] = (_reports, leaf)
    for key, (task, *needed) in graph.tasks.items():
        # A merge also waits for the reports of its leaves: they would be last in Dask's order,
        # and hold the values of all leaves until then.
        if told := [reports[other] for other in needed if other in reports]:
            tasks[key] = (task, *needed, *told)
    return tasks, list(reports.values())


def _reports(leaf: Partial[Any]) -> tuple[UnitReport, ...]:
    return leaf.reports


def _connect(address: str, timeout_s: float) -> Any:
    """Open a client that does not become the default for other users of Dask here."""
    from distributed import Client
    from distributed.utils import LoopRunner

    try:
        # A client that fails to connect leaves its thread and a traceback behind, so ask first.
        kind = LoopRunner().run_sync(_kind_of_server, address, timeout_s)
        if kind != "Scheduler":
            raise ConnectionError(f"a Dask {kind.lower()} answers")
        with _quiet():
            return Client(address, timeout=timeout_s, set_as_default=False, name="distfms")
    except Exception as error:
        # What comes back from something that is not Dask may be any error of the decoder.
        raise EngineError(
            f"No Dask scheduler answers at {address} (tried for {timeout_s:.0f} s; "
            f"{type(error).__name__}: {error}). Start one with `dask scheduler`, or check host and "
            "port: use the port of the scheduler, not that of its dashboard or a worker."
        ) from error


async def _kind_of_server(address: str, timeout_s: float) -> str:
    """Return what answers: ``Scheduler``, ``Worker`` or ``Nanny``."""
    from distributed.core import rpc

    async with asyncio.timeout(timeout_s), rpc(address, timeout=timeout_s) as server:
        return str((await server.identity())["type"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what distributed warns of and logs and this module has dealt with itself."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Mismatched versions found")
            warnings.filterwarnings("ignore", message="Sending large graph of size")
            warnings.filterwarnings(
                "ignore", category=DeprecationWarning, module="(distributed|tornado)"
            )
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
