"""What a Ray cluster runs for a submitted job: ``python entry.py [run | retrain] SPEC``.

The file is also copied next to a submitted spec, so at its top it needs nothing but the standard
library: it can then say what the cluster lacks.
"""

import platform
import re
import sys
from collections.abc import Sequence
from importlib import metadata

_PYTHON = (3, 11)

#: Dependencies that a job does without: those of comparisons and estimators.
_NOT_NEEDED = {"dask-ml", "pandas"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a job on the cluster that this process belongs to, and exit as distfms does.

    The arguments are those of ``distfms run``, or ``retrain`` and those of ``distfms retrain``; the
    engine is Ray unless they name another.
    """
    problem = lacking()
    if problem:
        print(f"Error: {problem}", file=sys.stderr)
        sys.exit(2)
    from distfms.cli import main as command

    words = list(sys.argv[1:] if arguments is None else arguments)
    address = [] if "--address" in words else ["--address", "auto"]
    engine = [] if "--engine" in words else ["--engine", "ray", *address]
    verb = words.pop(0) if words[:1] in (["run"], ["retrain"]) else "run"
    command([verb, *engine, *words])


def lacking() -> str:
    """Return what this Python lacks for a job; empty if nothing."""
    if sys.version_info < _PYTHON:
        return (
            f"the cluster runs Python {platform.python_version()}; distfms needs "
            f"{_PYTHON[0]}.{_PYTHON[1]} or later. Use an image with a newer Python."
        )
    missing = []
    for requirement in metadata.requires("distfms") or ():
        name = re.split(r"[^\w.-]", requirement)[0]
        if "extra ==" not in requirement and name not in _NOT_NEEDED and not _is_here(name):
            missing.append(name)
    if missing:
        return (
            f"the cluster's Python ({sys.executable}) lacks {', '.join(missing)}. Use an image "
            "with distfms installed (cluster/Dockerfile builds one), or install them there."
        )
    return ""


def _is_here(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
