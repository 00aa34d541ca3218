"""What a node of a cluster says about itself, and what it lacks."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from distfms.errors import EngineError


def examiner(packages: Sequence[str]) -> Callable[[], tuple[str, dict[str, str | None]]]:
    """Return a function that says the host, and its versions of Python and of packages.

    It travels by value, as a function within another does, and needs the standard library only:
    a node may lack distfms, or have another version of it. What is missing has the version None.
    """

    def examine() -> tuple[str, dict[str, str | None]]:
        import platform
        from importlib import metadata

        versions: dict[str, str | None] = {"Python": platform.python_version().rpartition(".")[0]}
        for name in packages:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        return platform.node(), versions

    return examine


def require_same(
    packages: Sequence[str], on_nodes: Mapping[str, Mapping[str, str | None]], cluster: str
) -> None:
    """Raise EngineError unless Python and packages are the same on all nodes as here."""
    _, versions = examiner(packages)()
    differences: dict[str, str] = {}
    for name, there in on_nodes.items():
        for package, version in versions.items():
            # distfms may be run here from its sources, without being installed.
            if version is not None and there[package] != version:
                text = f"{package} {there[package] or 'missing'} on {name}, {version} here"
                differences.setdefault(package, text)
    if differences:
        raise EngineError(
            f"{cluster} does not run the same software as this machine: "
            f"{'; '.join(differences.values())}. Install the same versions there (or here) and "
            "restart the cluster."
        )


def knock(host: str, port: int, timeout_s: float) -> bool:
    """Return whether somebody accepts connections; the kernel does, however busy a head is."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def speaks_grpc(host: str, port: int, timeout_s: float) -> bool:
    """Return whether a gRPC server answers, as Ray's do; Ray would wait for one for minutes."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True  # Ray knows the certificates
    import grpc  # type: ignore[import-untyped]

    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return False
    return True


@contextmanager
def quiet_logs(*names: str) -> Iterator[None]:
    """Keep back what loggers say that is dealt with here."""
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
