"""The connection of this process to a Ray cluster, one that is there or one started for the job."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from distfms.engine import nodes
from distfms.engine.graph import ATTEMPTS, resumable
from distfms.engine.memory import n_processors
from distfms.errors import EngineError, SpecError
from distfms.spec import check_address

_NO_MODULE = re.compile(r"No module named '([^']+)'")
# Tasks are pickled here and run there, and numpy does the sums: these must be the same.
_SAME_VERSION = ("distfms", "ray", "dask", "cloudpickle", "numpy")
_PROBE_S = 60.0
_ASK_S = 1.0
_SILENCE_S = 60.0
#: Settings of Ray for the processes of a cluster that starts here: agents notice the end of their
#: node by a pipe, however early it ends, and wait less long to tell a head that has ended, too.
_FATE = {
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
    "RAY_gcs_server_request_timeout_seconds": "20",
}

TOKEN_ADVICE = (
    "Set RAY_AUTH_MODE to `token`, and RAY_AUTH_TOKEN_PATH to the file that holds the cluster's "
    "token (or RAY_AUTH_TOKEN to the token)."
)


class RaySession:
    """A connection to a Ray cluster; there is one for each process, shared by its users.

    Parameters
    ----------
    address : str, optional
        ``auto``, ``host:6379`` or ``ray://host:10001`` for a cluster that is there; by default
        what ``RAY_ADDRESS`` names, as it does inside a submitted job, else a cluster of one node
        is started here and stopped by `close`. If this process is connected already, that
        connection is used and left alone.
    workers : int, optional
        Processors of a cluster that is started here.
    timeout_s : float
        How long to wait for an answer from the address, and later from the head.
    on_silence : callable, optional
        Called, in a thread, with a sentence when the head of a cluster that was there before has
        been out of reach for a minute. Ray's calls may then hang where no exception reaches, so
        that a program may want to end; without, nothing is done.

    Raises
    ------
    EngineError
        No Ray cluster answers there, it wants another token, or it runs other software.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        timeout_s: float = 5.0,
        on_silence: Callable[[str], None] | None = None,
    ) -> None:
        import ray

        self.address = address or _address_here()
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._folder = ""
        self._head: tuple[str, int] = ("", 0)
        self._raylet: tuple[str, int] | None = None
        self._worked_s = -math.inf
        self._owns = not ray.is_initialized()
        self.started_here = self._owns and self.address == "local"
        if self._owns:
            self._connect(workers)
        try:
            self._find()
            self._asked_s = self._answered_s = time.monotonic()
            if not self.started_here:
                cluster = f"The Ray cluster at {self.address}"
                nodes.require_same(_SAME_VERSION, self.examine(), cluster)
        except BaseException:
            self.close()
            raise
        if on_silence is not None and self._owns and not self.started_here:
            watch = (self._head, on_silence, self._closed)
            threading.Thread(target=watch_head, args=watch, daemon=True).start()

    @property
    def n_processors(self) -> int:
        """Processors that the cluster has, at least 1."""
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def living_nodes(self) -> list[Mapping[str, Any]]:
        """Return the nodes with processors, in an order that does not change.

        Raises EngineError where there has been none for long: Ray would wait for ever.
        """
        import ray

        while True:
            alive = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
            if alive:
                self._worked_s = time.monotonic()
                return sorted(alive, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))
            if time.monotonic() - self._worked_s > _SILENCE_S:
                raise resumable(
                    f"The Ray cluster at {self.address} has no node with processors. Add one with "
                    "`ray start --address ...`"
                )
            time.sleep(_ASK_S)

    def memory_bytes(self) -> dict[str, int]:
        """Return the memory for tasks and actors of each node, by its id."""
        return {n["NodeID"]: int(n["Resources"].get("memory", 0)) for n in self.living_nodes()}

    def examine(self) -> dict[str, dict[str, str | None]]:
        """Return the versions of software on each node; nodes lost meanwhile are left out."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        living = [node["NodeID"] for node in self.living_nodes()]
        examine = nodes.examiner(_SAME_VERSION)
        task = ray.remote(num_cpus=0, max_retries=ATTEMPTS - 1)(examine)
        seats = [NodeAffinitySchedulingStrategy(node, soft=False) for node in living]
        asked = [task.options(scheduling_strategy=seat).remote() for seat in seats]
        try:
            answers = ray.get(asked, timeout=_PROBE_S)
        except ray.exceptions.RayError as error:
            if set(living) - {node["NodeID"] for node in self.living_nodes()}:
                return self.examine()
            raise explained(error) from error
        named = zip(living, answers, strict=True)
        return {f"node {host} ({node[:8]})": versions for node, (host, versions) in named}

    def check(self) -> None:
        """Raise EngineError when this machine's node, or the head for a while, does not answer.

        Without a head Ray waits for a minute and then ends the whole process. Without its node,
        with which the head ends the job, it ends the process or waits for ever.
        """
        if time.monotonic() - self._asked_s < _ASK_S:
            return
        self._asked_s = time.monotonic()
        if self._raylet is not None and not nodes.knock(*self._raylet, self._timeout_s):
            raise _lost("the raylet of this machine is gone")
        if nodes.knock(*self._head, _ASK_S):
            self._answered_s = time.monotonic()
            self.living_nodes()
        elif time.monotonic() - self._answered_s > self._timeout_s:
            raise _lost("its head is gone")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Raise EngineError, or the work's own error, for what Ray raises."""
        try:
            yield
        except Exception as error:
            self.check()
            raise explained(error) from error.__cause__

    def close(self) -> None:
        """Disconnect, and stop the cluster when it was started here; safe to call twice."""
        import ray

        if self._closed.is_set() or not self._owns:
            return
        try:
            with warnings.catch_warnings(action="ignore"), nodes.quiet_logs("ray"):
                ray.shutdown()
        finally:
            # Not before: with a head that is cut off, Ray's end does not end either.
            self._closed.set()
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _connect(self, workers: int | None) -> None:
        """Connect to a cluster or start one."""
        import ray

        options: dict[str, Any] = {}
        if self.address == "local":
            options = {"num_cpus": workers or n_processors(), "include_dashboard": False}
        elif self.address != "auto":
            host, _, port = self.address.removeprefix("ray://").rpartition(":")
            # Ray would take minutes to say that nobody is there, or no head of a cluster.
            is_there = nodes.knock(host, int(port), self._timeout_s)
            if not is_there or not nodes.speaks_grpc(host, int(port), self._timeout_s):
                raise EngineError(
                    f"No Ray cluster answers at {self.address} (tried for at most "
                    f"{self._timeout_s:.0f} s). Start one with `ray start --head`, or use the "
                    "address that it printed, which usually ends in :6379."
                )
        for name, value in _FATE.items():
            os.environ.setdefault(name, value)
        before = signal.getsignal(signal.SIGTERM)
        try:
            with warnings.catch_warnings(action="ignore"), nodes.quiet_logs("ray"):
                context = ray.init(
                    address=self.address,
                    log_to_driver=False,
                    configure_logging=False,
                    logging_level=logging.ERROR,
                    **options,
                )
        except Exception as error:
            with suppress(Exception):
                ray.shutdown()
            raise _not_connected(self.address, error) from error
        # Ray puts an end of its own in its place; where nothing was set, that stays.
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
        if self.started_here:
            self._folder = context.address_info["session_dir"]

    def _find(self) -> None:
        """Find where the life of the head shows, and that of the node that this process is on."""
        import ray

        context = ray.get_runtime_context()
        is_client = self.address.startswith("ray://")
        address = self.address.removeprefix("ray://") if is_client else context.gcs_address
        host, _, port = address.rpartition(":")
        self._head = (host, int(port))
        for node in [] if is_client else ray.nodes():
            place = (node["NodeManagerAddress"], node["NodeManagerPort"])
            if node["NodeID"] == context.get_node_id() and nodes.knock(*place, self._timeout_s):
                self._raylet = place


def _address_here() -> str:
    """Return what RAY_ADDRESS names, which no spec has checked, or that there is no cluster."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        check_address("ray", address)
    except ValueError as error:
        raise SpecError(f"{error}.") from error
    return address


def watch_head(
    head: tuple[str, int],
    on_silence: Callable[[str], None],
    closed: threading.Event,
    patience_s: float = _SILENCE_S,
) -> None:
    """Call ``on_silence`` with a sentence when the head has been out of reach for too long.

    A head that is killed closes its connections, which the driver notices by itself. One that is
    cut off says nothing, and the driver may hang in a call of Ray's compiled part, which no
    exception reaches and which has no time limit.
    """
    answered_s = time.monotonic()
    while not closed.wait(min(2.0, patience_s / 4)):
        if nodes.knock(*head, 3.0):
            answered_s = time.monotonic()
        elif time.monotonic() - answered_s > patience_s and not closed.is_set():
            on_silence(str(_lost(f"its head at {head[0]}:{head[1]} has been unreachable")))
            return


def explained(error: BaseException) -> BaseException:
    """Return the work's own error for what Ray raised, or one that says what to do."""
    import ray

    cause = error
    while isinstance(cause, ray.exceptions.RayTaskError) and cause.cause is not None:
        cause = cause.cause
    text = str(cause).strip().split("\n")[0][:300]
    missing = _NO_MODULE.search(str(cause))
    travels = (ray.exceptions.RayError, ImportError)
    if missing and (isinstance(cause, travels) or "failed to import" in str(cause)):
        return resumable(
            f"The workers of the Ray cluster lack the module {missing[1]!r} that the work needs. "
            "Install the same packages there"
        )
    if isinstance(cause, ConnectionError) and "ray" in text.lower():
        return _lost(text)
    if not isinstance(cause, ray.exceptions.RayError):
        return cause
    return resumable(
        f"The Ray cluster repeatedly lost the work ({type(cause).__name__}: {text}). Nodes "
        "probably lack memory or disk (see `ray status`): give them more memory or fewer "
        "processors, more shared memory (`ray start --object-store-memory`), or free the disk that "
        "values spill to"
    )


def _lost(reason: str) -> EngineError:
    return resumable(
        f"The connection to the Ray cluster was lost: {reason}. Nodes end for lack of memory, or "
        "are cut off. Start the cluster again if `ray start` had started it"
    )


def _not_connected(address: str, error: Exception) -> EngineError:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if address != "local" and any("token" in str(cause).lower() for cause in causes):
        return EngineError(f"The Ray head at {address} requires a token. {TOKEN_ADVICE}")
    where = "A Ray cluster cannot be started here" if address == "local" else address
    return EngineError(
        f"Connecting to Ray failed: {where}: {type(error).__name__}: "
        f"{' '.join(str(error).split())[:500]}. Check that this is the address that `ray start "
        "--head` printed, that this machine is a node of that cluster (else connect as a client, "
        "ray://host:10001, or use `distfms submit`), and that the same versions are installed."
    )
