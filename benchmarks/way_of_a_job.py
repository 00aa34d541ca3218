"""The way of a job through the package, and what small fits take, of one or more checkouts.

Each figure comes from a process that starts cold:

- of two of the jobs in ``jobs``, which run with one worker: the package's files and functions that
  run (with bodies of modules and classes, and comprehensions of one function counted once), the
  calls from one of its files into another (through libraries too), the deepest stack, of the
  package's own frames alone, and how often ``manifest.json`` is opened to be read;
- of an estimator of every method, on small data in memory: the least processor time of a fit
  after the first, and the peak memory of the process;
- of the embedded job of every method: processor time and peak memory of ``distfms run``.

Run with ``OMP_NUM_THREADS=1 python benchmarks/way_of_a_job.py [CHECKOUT ...]``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

WALKED = ("sequence-breast-cancer", "landmarks-digits")
WHOLE = (*WALKED, "multiselect-digits", "attribute-efficient-digits")
FITS = ("GroupSequencer", "LandmarkRegressor", "FeatureMultiSelector", "AttributeEfficientRidge")

#: Rows of the printed table: figure → text.
LABELS = {
    "files": "files",
    "functions": "functions",
    "crossings": "calls that cross a file",
    "depth": "deepest own stack, frames",
    "manifest": "manifest.json opened to be read",
    "cpu_ms": "processor time, ms",
    "peak_mib": "peak memory, MiB",
}


# --- measured in a process each ---------------------------------------------------------------


class Way:
    """What the frames of a package do, in all threads."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}{os.sep}"
        self._codes: dict[CodeType, bool] = {}
        self.functions: set[tuple[str, str]] = set()
        self.crossings = self.depth = 0
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take an event of the interpreter; see `sys.setprofile`."""
        if event != "call" or not self._counts(frame.f_code):
            return
        caller: FrameType | None = frame.f_back
        depth, calls_from = 1, None
        while caller is not None:
            if self._counts(caller.f_code):
                calls_from = calls_from or caller.f_code.co_filename
                depth += 1
            caller = caller.f_back
        with self._lock:
            self.functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
            self.depth = max(self.depth, depth)
            self.crossings += calls_from not in (None, frame.f_code.co_filename)

    def _counts(self, code: CodeType) -> bool:
        """Whether code is of the package; a generator that goes on counts as called again."""
        known = self._codes.get(code)
        if known is None:
            known = self._codes[code] = code.co_filename.startswith(self._package)
        return known


def run(command: list[str]) -> None:
    """Run a command of the package in this process."""
    from distfms.cli import main

    try:
        main(command)
    except SystemExit as stop:
        if stop.code:
            raise


def job_command(name: str, scratch: str) -> list[str]:
    """Return the command of one of the jobs of the checkout in use."""
    import distfms

    spec = Path(distfms.__file__).parents[1] / "jobs" / f"{name}.yaml"
    return ["run", str(spec), "--set", f"output={scratch}", "--set", "engine.workers=1"]


def walk(name: str, scratch: str) -> dict[str, float]:
    """Follow a job."""
    import distfms

    way, opened = Way(Path(distfms.__file__).parent), [0]

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("manifest.json"):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            opened[0] += not flags & (os.O_WRONLY | os.O_RDWR)

    command = job_command(name, scratch)
    sys.addaudithook(count)
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        run(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {
        "files": len({file for file, _ in way.functions}),
        "functions": len(way.functions),
        "crossings": way.crossings,
        "depth": way.depth,
        "manifest": opened[0],
    }


def whole(name: str, scratch: str) -> dict[str, float]:
    """Run a job as users do."""
    run(job_command(name, scratch))
    return {"cpu_ms": 1000 * time.process_time(), "peak_mib": _peak()}


def fit(name: str, scratch: str) -> dict[str, float]:
    """Fit an estimator to small data in memory, five times after a first."""
    import numpy as np

    import distfms

    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 12))
    y = X @ rng.normal(size=12) + np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    options: dict[str, Any] = {
        "GroupSequencer": {"folds": 5},
        "LandmarkRegressor": {"folds": 5, "landmarks": 50, "metric": "none"},
        "FeatureMultiSelector": {"folds": 5, "budget": 12},
        "AttributeEfficientRidge": {"attributes_per_example": 4},
    }[name]
    rows: Any = X
    if name == "FeatureMultiSelector":
        rows = X[:, :, None] + rng.normal(size=(500, 12, 2))
    taken = []
    for _ in range(6):
        start = time.process_time()
        getattr(distfms, name)(**options).fit(rows, y)
        taken.append(time.process_time() - start)
    return {"cpu_ms": 1000 * min(taken[1:]), "peak_mib": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


MEASURED = {"walk": walk, "whole": whole, "fit": fit}


# --- the table --------------------------------------------------------------------------------


def measure(checkout: Path, what: str, name: str) -> dict[str, float]:
    """Measure one thing in a process that imports the package from a checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        figures = Path(scratch) / "figures.json"
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--measure", what, name, scratch]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        if result.returncode or not figures.exists():
            raise SystemExit(f"{what} of {name} in {checkout} failed:\n{result.stderr}")
        measured: dict[str, float] = json.loads(figures.read_text())
        return measured


def main() -> None:
    """Print a table with a column for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("checkouts", nargs="*", type=Path, help="by default that of this script")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--repeats", type=int, default=3, help="of what takes time; the least counts"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        what, name, scratch = arguments.measure
        sys.stdout = sys.stderr
        measured = MEASURED[what](name, f"{scratch}/runs")
        Path(scratch, "figures.json").write_text(json.dumps(measured))
        return
    checkouts = [path.resolve() for path in arguments.checkouts] or [Path(__file__).parents[1]]
    print("| what | of |" + "".join(f" {path} |" for path in checkouts))
    print("|---|---|" + "---|" * len(checkouts))
    tasks = [("walk", name, 1) for name in WALKED]
    tasks += [("fit", name, arguments.repeats) for name in FITS]
    tasks += [("whole", name, arguments.repeats) for name in WHOLE]
    for what, name, repeats in tasks:
        # Round by round, so that load is shared by all checkouts.
        rounds = [[measure(path, what, name) for path in checkouts] for _ in range(repeats)]
        for key in rounds[0][0]:
            least = [min(one[place][key] for one in rounds) for place in range(len(checkouts))]
            shown = f"| {LABELS[key]} | {name} |"
            print(shown + "".join(f" {value:,.0f} |" for value in least), flush=True)


if __name__ == "__main__":
    main()
