"""What a node of a cluster says about itself, and what it lacks.

On Ray this module is pickled by value, to nodes that may lack distfms or have another version of
it, so `examine` uses the standard library only.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from distfms.errors import EngineError


def examine(packages: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    """Give host, Python and package versions (None when missing) and sizes of paths.

    Parameters
    ----------
    packages : sequence of str
        Names of distributions.
    paths : sequence of str
        Local paths to look for.

    Returns
    -------
    dict
        ``host``, ``python``, ``packages`` (name → version or None), ``sizes`` (path → bytes,
        -1 for a folder, None when it cannot be read).
    """
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "sizes": {path: size_of(path) for path in paths},
    }


def path_problems(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Compare the paths of two examinations; one entry for each path that differs."""
    problems = []
    for path, size in here["sizes"].items():
        found = there["sizes"][path]
        if found is None:
            problems.append(f"{path} cannot be read")
        elif found != size and size is not None:
            problems.append(f"{path} is another file ({found} bytes, {size} here)")
    return problems


def unseen(where: str, problems: Sequence[str]) -> EngineError:
    """Give the error for input that workers cannot see."""
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return EngineError(
        f"{where} does not see the input as this machine does: {'; '.join(problems[:3])}{more}. "
        "Put the input on storage that all nodes share (a network file system, or object storage "
        "such as s3://) under the same path. Embedded data and converted judgments are in a cache: "
        "set DISTFMS_CACHE, where the job runs, to a folder that all nodes share."
    )


def size_of(path: str) -> int | None:
    """Give the size of a readable file, -1 for a readable folder, else None."""
    if not os.access(path, os.R_OK):
        return None
    return -1 if os.path.isdir(path) else os.path.getsize(path)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
