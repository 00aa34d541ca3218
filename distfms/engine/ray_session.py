"""The connection of this process to a Ray cluster: found, checked, started, watched and left."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from distfms.engine import node_probe
from distfms.engine.ray_node import require_node
from distfms.engine.ray_watch import HeadWatch
from distfms.errors import EngineError

_DASK_ADDRESS = re.compile(r"^(tcp|tls|ws|wss|ucx)://")
_RAY_ADDRESS = re.compile(r"^(ray://)?[^\s/:]+:\d+$")
_NO_MODULE = re.compile(r"No module named '([^']+)'")
# Tasks are pickled here and run there, and numpy does the sums: these must be the same.
_SAME_VERSION = ("distfms", "ray", "dask", "cloudpickle", "numpy")
_PROBE_S = 60.0
_ASK_S = 1.0

# How many sessions of this process use the connection that the first of them made.
_n_users = 0


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
    object_store_bytes : int, optional
        Shared memory of a cluster that is started here; default: Ray's.
    timeout_s : float
        How long to wait for an answer from the address.

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
        object_store_bytes: int | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self._open = False
        self._watch: HeadWatch | None = None
        self._timeout_s = timeout_s
        self._asked_s = self._answered_s = time.monotonic()
        asked = address or os.environ.get("RAY_ADDRESS") or "local"
        check_address(asked)
        self._connect(asked, workers, object_store_bytes)
        try:
            self._check_software()
        except BaseException:
            self.close()
            raise

    @property
    def n_processors(self) -> int:
        """Processors that the cluster has, at least 1."""
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def memory_bytes(self) -> dict[str, int]:
        """Give the memory for tasks and actors of each node, in bytes by node id."""
        return {n["NodeID"]: int(n["Resources"].get("memory", 0)) for n in self.living_nodes()}

    def driver_node(self) -> str:
        """Give the id of the node that this process is on (or that serves a ray:// client)."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def probe(self, paths: Sequence[str]) -> None:
        """Check that every node sees these paths as this machine does.

        Raises
        ------
        EngineError
            A node cannot read a path or has another file there; names both.
        """
        local = [os.path.abspath(path) for path in paths if "://" not in path]
        here = node_probe.examine((), local)
        for there in self._examine((), local):
            if problems := node_probe.path_problems(here, there):
                raise node_probe.unseen(f"Node {there['host']} of the Ray cluster", problems)

    def check(self) -> None:
        """Raise EngineError when the head of the cluster has not answered for a while.

        Ray itself waits for a minute and then ends the whole process.
        """
        now_s = time.monotonic()
        if self._head is None or now_s - self._asked_s < _ASK_S:
            return
        if _knock(self._head, _ASK_S):
            now_s = self._answered_s = time.monotonic()
        elif time.monotonic() - self._answered_s > self._timeout_s:
            raise EngineError(
                f"The head of the Ray cluster at {':'.join(map(str, self._head))} is gone. Start "
                "the cluster again, then run the same command again; finished work is kept."
            )
        self._asked_s = time.monotonic()

    def close(self) -> None:
        """Disconnect, and stop the cluster when it was started here; safe to call twice."""
        global _n_users
        if not self._open:
            return
        self._open = False
        if self._shared:
            return
        _n_users -= 1
        try:
            if _n_users == 0:
                import ray

                with quiet():
                    ray.shutdown()
        finally:
            # Not before: with a head that is cut off, Ray's end does not end either.
            if self._watch is not None:
                self._watch.stop()

    def _connect(self, address: str, workers: int | None, store: int | None) -> None:
        global _n_users
        import ray

        self.address = address
        self._shared = ray.is_initialized() and _n_users == 0
        if ray.is_initialized():
            self._require_same_cluster(address)
        else:
            _begin(address, workers, store, self._timeout_s)
        _n_users += 0 if self._shared else 1
        self._open = True
        self._head = _head_of(address)
        self._answered_s = time.monotonic()
        if self._head is not None and address != "local" and not self._shared:
            self._watch = HeadWatch(self._head)

    def _require_same_cluster(self, address: str) -> None:
        import ray

        if address in ("local", "auto") or address.startswith("ray://"):
            return
        connected = ray.get_runtime_context().gcs_address
        if _canonical(address) != _canonical(connected):
            raise EngineError(
                f"This process is connected to the Ray cluster at {connected} already and cannot "
                f"use the one at {address} too. Call ray.shutdown() first, or use another process."
            )

    def living_nodes(self) -> list[Mapping[str, Any]]:
        """Give the nodes with processors, in an order that does not change."""
        import ray

        alive = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        if not alive:
            raise EngineError(
                f"The Ray cluster at {self.address} has no node with processors. Add one with "
                "`ray start --address ...`, then run the same command again."
            )
        return sorted(alive, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))

    def _check_software(self) -> None:
        here = node_probe.examine(_SAME_VERSION, ())
        if problems := software_problems(here, self._examine(_SAME_VERSION, ())):
            raise EngineError(
                f"The Ray cluster at {self.address} does not run the same software as this "
                f"machine: {'; '.join(problems)}. Install the same versions there (or here) and "
                "restart the cluster."
            )

    def _examine(self, packages: Sequence[str], paths: Sequence[str]) -> list[dict[str, Any]]:
        """Run the probe on every node."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.cloudpickle.register_pickle_by_value(node_probe)
        try:
            task = ray.remote(num_cpus=0, max_retries=2)(node_probe.examine)
            asked = [
                task.options(
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                ).remote(packages, paths)
                for node in self.living_nodes()
            ]
        finally:
            ray.cloudpickle.unregister_pickle_by_value(node_probe)
        try:
            return ray.get(asked, timeout=_PROBE_S)
        except ray.exceptions.GetTimeoutError as error:
            raise EngineError(
                f"A node of the Ray cluster at {self.address} did not start a worker within "
                f"{_PROBE_S:.0f} s. See `ray status` and the logs of its nodes."
            ) from error
        except ray.exceptions.RayError as error:
            raise explained(error) from error


def software_problems(here: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Compare the software of nodes with this process's.

    Parameters
    ----------
    here, nodes
        As `node_probe.examine` gives it.

    Returns
    -------
    list of str
        One entry for each kind of difference; empty when tasks can travel.
    """
    found: dict[str, str] = {}
    for node in nodes:
        there, own = (info["python"].rpartition(".")[0] for info in (node, here))
        if there != own:
            found.setdefault("python", f"Python {there} on node {node['host']}, {own} here")
        for package, version in here["packages"].items():
            other = node["packages"].get(package)
            # distfms may be run here from its sources, without being installed.
            if version is not None and other != version:
                found.setdefault(
                    package,
                    f"{package} {other or 'missing'} on node {node['host']}, {version} here",
                )
    return list(found.values())


def check_address(address: str) -> None:
    """Raise EngineError unless the text has the form of a Ray address."""
    if address in ("auto", "local") or _RAY_ADDRESS.match(address):
        return
    hint = ""
    if _DASK_ADDRESS.match(address):
        hint = " This looks like the address of a Dask scheduler: for it, set kind: dask."
    elif address.startswith("http"):
        hint = (
            " This looks like the dashboard, where jobs are submitted (`distfms submit`); the "
            "cluster itself usually listens on port 6379."
        )
    raise EngineError(
        f"{address!r} is not the address of a Ray cluster; it has the form host:6379 or "
        f"ray://host:10001, or is auto.{hint}"
    )


def explained(error: BaseException) -> BaseException:
    """Turn what Ray raises into the work's own error, or one that says what to do."""
    import ray

    cause: BaseException = error
    while isinstance(cause, ray.exceptions.RayTaskError) and cause.cause is not None:
        cause = cause.cause
    missing = _NO_MODULE.search(str(cause))
    travels = (ray.exceptions.RayError, ImportError)
    if missing and (isinstance(cause, travels) or "failed to import" in str(cause)):
        return EngineError(
            f"The workers of the Ray cluster lack the module {missing[1]!r} that the work needs. "
            "Install the same packages there as here, then run the same command again."
        )
    if not isinstance(cause, ray.exceptions.RayError):
        return cause
    text = str(cause).strip().split("\n")[0][:300]
    full = ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError
    if isinstance(cause, full):
        return EngineError(
            f"A node of the Ray cluster has no room for the work's values ({type(cause).__name__}: "
            f"{text}). Give nodes more shared memory (`ray start --object-store-memory`), or free "
            "the disk that they spill to, then run the same command again; finished work is kept."
        )
    if isinstance(cause, ray.exceptions.OutOfMemoryError):
        advice = "Give nodes more memory or fewer processors, or make partitions smaller"
    elif isinstance(cause, (ray.exceptions.WorkerCrashedError, ray.exceptions.RayActorError)):
        advice = "Most often workers ran out of memory: give nodes more, or fewer processors"
    else:
        advice = "See `ray status` and the logs of its nodes"
    return EngineError(
        f"The Ray cluster lost the work again and again ({type(cause).__name__}: {text}). "
        f"{advice}, then run the same command again; finished work is kept."
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what Ray warns of while it starts, connects and stops."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _begin(address: str, workers: int | None, store: int | None, timeout_s: float) -> None:
    """Connect to a cluster or start one."""
    import ray

    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": logging.ERROR,
    }
    if address == "local":
        options |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": store}
    else:
        address = _require_cluster(address, timeout_s)
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet(), _own_handler_of(signal.SIGTERM):
            ray.init(address=address, **options)
    except Exception as error:
        with suppress(Exception):
            ray.shutdown()
        raise _not_connected(address, error) from error
    finally:
        logger.setLevel(level)


@contextmanager
def _own_handler_of(number: signal.Signals) -> Iterator[None]:
    """Keep what this process does on a signal; Ray puts an end of its own in its place.

    Where nothing was set, Ray's stays: it stops the cluster that was started here.
    """
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


def _not_connected(address: str, error: Exception) -> EngineError:
    text = str(error)
    if "Version mismatch" in text or ("version" in text.lower() and "Python" in text):
        return EngineError(
            f"The Ray cluster at {address} does not run the same software as this machine: "
            f"{' '.join(text.split())}. Install the same versions there (or here) and restart it."
        )
    if type(error).__name__ == "AuthenticationError" or "Unauthenticated" in text:
        return _wrong_token(address)
    where = "A Ray cluster cannot be started here" if address == "local" else f"{address}"
    return EngineError(
        f"Connecting to Ray failed: {where}: {type(error).__name__}: {text.strip()[:500]}."
    )


def _wrong_token(address: str) -> EngineError:
    return EngineError(
        f"The Ray cluster at {address} asks for a token, and this process has none or another. "
        "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN) to the cluster's "
        "token, then run the same command again."
    )


def _require_cluster(address: str, timeout_s: float) -> str:
    """Ask at the address before Ray does, which would take minutes to say that nobody is there."""
    if address == "auto":
        address = _found_here()
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not _knock((host, int(port)), timeout_s):
        raise EngineError(
            f"No Ray cluster answers at {address} (tried for at most {timeout_s:.0f} s). Start "
            "one with `ray start --head`, or check host and port."
        )
    answer = _ask(f"{host}:{port}", timeout_s, client=address.startswith("ray://"))
    if answer == "token":
        raise _wrong_token(address)
    if answer == "other":
        raise EngineError(
            f"What answers at {address} is not the head of a Ray cluster. Give the address that "
            "`ray start --head` printed when it started; it usually ends in :6379."
        )
    if not address.startswith("ray://"):
        require_node(address, timeout_s)
    return address


def _found_here() -> str:
    """Give the address of the cluster that runs on this machine."""
    from ray._private import services

    try:
        address = services.get_ray_address_from_environment("auto", None)
    except Exception:
        address = None
    if not address:
        raise EngineError(
            "No Ray cluster was found on this machine (address auto). Start one with `ray start "
            "--head`, give its address, or leave the address out to start one for this job."
        )
    return address


def _ask(address: str, timeout_s: float, *, client: bool) -> str:
    """Ask who listens: ``ray``, ``token`` (it wants another one), or ``other``."""
    try:
        import grpc  # type: ignore[import-untyped]
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
    except ImportError:
        return "ray"  # a later release without these: Ray will say itself, only later
    channel = init_grpc_channel(address)
    try:
        if client:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
            return "ray"
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        stub.GetClusterId(gcs_service_pb2.GetClusterIdRequest(), timeout=timeout_s)
    except grpc.FutureTimeoutError:
        return "other"
    except grpc.RpcError as error:
        wrong = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
        return "token" if error.code() in wrong else "other"
    except Exception as error:
        # Without any token, the channel's own check may refuse before anything is sent.
        return "token" if "token" in str(error).lower() else "other"
    finally:
        channel.close()
    return "ray"


def _head_of(address: str) -> tuple[str, int] | None:
    """Give host and port at which the head's life can be seen."""
    import ray

    text = address
    if not address.startswith("ray://"):
        text = ray.get_runtime_context().gcs_address or ""
    host, _, port = text.removeprefix("ray://").rpartition(":")
    return (host, int(port)) if port.isdigit() else None


def _canonical(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    own = {socket.gethostname(), "127.0.0.1"}
    with suppress(OSError):
        own.add(socket.gethostbyname(socket.gethostname()))
    return ("this machine" if host in own else host), int(port)


def _knock(target: tuple[str, int], timeout_s: float) -> bool:
    """Say whether somebody accepts connections."""
    try:
        with socket.create_connection(target, timeout=timeout_s):
            return True
    except OSError:
        return False


def dask_on_ray() -> Any:
    """Import Dask-on-Ray without letting it change ``dask.persist`` for everybody; gives it."""
    import dask
    from dask.base import DaskMethodsMixin

    before = dask.persist, DaskMethodsMixin.persist
    first = "ray.util.dask" not in sys.modules
    import ray.util.dask as module

    if first:
        dask.persist, DaskMethodsMixin.persist = before
    return module
