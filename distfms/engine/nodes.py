"""What a node of a cluster says about itself, and what it lacks.

This module is pickled by value to nodes that may lack distfms or have another version of it, so
`examine` uses the standard library only.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from distfms.errors import EngineError

#: Has all nodes of a cluster examine packages and paths; returns what each says by its name.
ExamineNodes = Callable[[Sequence[str], Sequence[str]], Mapping[str, Mapping[str, Any]]]


def examine(packages: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    """Return host, Python, versions of packages and sizes of local paths.

    A version is None where a package is missing; a size is -1 for a folder, None for what cannot be
    read.
    """
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "sizes": {path: _size_of(path) for path in paths},
    }


#: Paths that a node is asked for at once.
_BATCH = 1_000


@contextmanager
def by_value() -> Iterator[None]:
    """Pickle this module by value while the context is open."""
    import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def require_software(packages: Sequence[str], examine_nodes: ExamineNodes, cluster: str) -> None:
    """Raise EngineError unless Python and packages are the same on all nodes as here."""
    here = examine(packages, ())
    found: dict[str, str] = {}
    for name, node in examine_nodes(packages, ()).items():
        there, own = (info["python"].rpartition(".")[0] for info in (node, here))
        if there != own:
            found.setdefault("python", f"Python {there} on {name}, {own} here")
        for package, version in here["packages"].items():
            other = node["packages"].get(package)
            # distfms may be run here from its sources, without being installed.
            if version is not None and other != version:
                text = f"{package} {other or 'missing'} on {name}, {version} here"
                found.setdefault(package, text)
    if found:
        raise EngineError(
            f"{cluster} does not run the same software as this machine: "
            f"{'; '.join(found.values())}. Install the same versions there (or here) and restart "
            "the cluster."
        )


def require_paths(paths: Sequence[str], examine_nodes: ExamineNodes) -> None:
    """Raise EngineError unless all nodes see the local paths as this machine does.

    They are asked in batches: a worker answers nobody else while it looks.
    """
    local = [os.path.abspath(path) for path in paths if "://" not in path]
    for start in range(0, len(local), _BATCH):
        _require_paths(local[start : start + _BATCH], examine_nodes)


def _require_paths(local: Sequence[str], examine_nodes: ExamineNodes) -> None:
    here = examine((), local)
    for name, node in examine_nodes((), local).items():
        problems = []
        for path, size in here["sizes"].items():
            found = node["sizes"][path]
            if found is None:
                problems.append(f"{path} cannot be read")
            elif found != size and size is not None:
                problems.append(f"{path} is another file ({found} bytes, {size} here)")
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise EngineError(
                f"{name[0].upper()}{name[1:]} sees other input than this machine: "
                f"{'; '.join(problems[:3])}{more}. Put the input on storage that all nodes share "
                "(a network file system, or object storage such as s3://) under the same path. "
                "Embedded data and converted judgments are cached: where the job runs, set "
                "DISTFMS_CACHE to a folder that all nodes share."
            )


def knock(host: str, port: int, timeout_s: float) -> bool:
    """Return whether somebody accepts connections; the kernel does, however busy a head is."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def speaks_grpc(host: str, port: str, timeout_s: float) -> bool:
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


def _size_of(path: str) -> int | None:
    """Return the size of a readable file, -1 for a readable folder, else None."""
    if not os.access(path, os.R_OK):
        return None
    return -1 if os.path.isdir(path) else os.path.getsize(path)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
