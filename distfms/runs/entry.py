"""What a Ray cluster runs for a submitted job: ``python entry.py SPEC``.

The file is also copied next to a submitted spec, so at its top it needs nothing but the standard
library: it can then say what the cluster lacks.
"""

import argparse
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

_PYTHON = (3, 11)

#: Dependencies that a job does without: those of comparisons, estimators and the command line.
_NOT_NEEDED = {"dask-ml", "pandas", "typer"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job on the cluster that this process belongs to.

    Parameters
    ----------
    arguments : sequence of str, optional
        Of the command line.

    Returns
    -------
    int
        Exit code, as of ``distfms run``.
    """
    parser = argparse.ArgumentParser(
        prog="entry.py", description=(main.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("spec", help="job spec (YAML or JSON)")
    parser.add_argument("--engine", default="ray", help="where to run (default: ray)")
    parser.add_argument("--address", help="of the cluster (default: the one this process is in)")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--log",
        default=os.environ.get("DISTFMS_LOG") or "text",
        help="format of standard output: text for people, or json, one event per line",
    )
    given = parser.parse_args(arguments)
    problem = lacking()
    if problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 2
    from distfms import __version__
    from distfms.errors import DistfmsError

    sets = [*_engine(given.engine, given.address), *given.sets]
    greeting = f"distfms {__version__}, Python {platform.python_version()}"
    try:
        run_spec(given.spec, sets, given.log, say, complain, greeting=greeting)
    except DistfmsError as error:
        complain(f"Error: {error}")
        return error.exit_code
    return 0


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
            "that has distfms installed (cluster/Dockerfile builds one), or install them there."
        )
    return ""


def _is_here(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _engine(kind: str, address: "str | None") -> list:
    if kind == "ray" and address is None:
        address = "auto"
    return [f"engine.kind={kind}"] + ([f'engine.address="{address}"'] if address else [])


def run_spec(
    spec: str,
    sets: Sequence[str],
    log: str,
    say: Callable[[str], None],
    complain: Callable[[str], None],
    *,
    out: "str | None" = None,
    greeting: str = "",
) -> None:
    """Run a spec as a command does: with a log, and an orderly end when it is told to stop."""
    from distfms.runs.driver import run_job
    from distfms.runs.events import open_log
    from distfms.runs.finished import headline
    from distfms.runs.interrupts import end_at_once, orderly_end
    from distfms.runs.job_spec import load_spec

    with orderly_end(complain), open_log(log, say) as (tell, progress):
        if greeting:
            tell(greeting)
        loaded = load_spec(spec, sets, out)
        result = run_job(loaded, out=out, say=tell, progress=progress, on_silence=end_at_once)
    tell(headline(result.folder))
    tell(f"Report: {result.folder / 'report.html'}")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def complain(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
