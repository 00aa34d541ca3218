"""What a driver does for a job over 5,000 to 20,000 wide files on object storage and 100 nodes.

The driver is real: a job of `sequence` lists, opens and reads footers, makes and schedules the
graph for ``--workers`` and keeps its run, all by way of a storage that counts requests. The nodes
are simulated: their tasks run in the driver's process, one after the other, and in place of reading
each partition they get the statistics of the first, which are merged, kept and loaded as always.
Their processor time is told apart; what they hold is in the driver's memory here.

Each number of files is a process that runs the job twice, the second time with all that the first
has kept. Requests are those of the storage's methods: one for each file listed in a folder's
thousand, looked at, written, and for each range read. Those of reading a partition are counted for
the first one, and multiplied. Then: whether anything grows faster than the files.

Run with ``python benchmarks/simulated_files.py [--files 5000 10000 20000]``; minutes, and 4 GB of
scratch for the packs of the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from distfms.engine.graph import UnitRunner
from distfms.engine.local import LocalExecutor
from distfms.methods.frame.rows import SummaryReader
from distfms.runs import context, driver
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare

COLUMNS, ROWS = 500, 40
PARTS = ("open", "pass", "workers", "rest")
LISTED = 1_000


class Meter:
    """Processor seconds and requests of the part that is at work."""

    def __init__(self) -> None:
        self.part, self.since = "rest", time.process_time()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.requests: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        before = self._turn(part)
        try:
            yield
        finally:
            self._turn(before)

    def _turn(self, part: str) -> str:
        now, before = time.process_time(), self.part
        self.seconds[before] += now - self.since
        self.part, self.since = part, now
        return before

    def count(self, verb: str, n: int = 1) -> None:
        self.requests[self.part, verb] += n

    def metered(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self.within(part):
                return function(*args, **options)

        return call


METER = Meter()


class Counted(LocalFileSystem):
    """Object storage: a folder of this machine whose requests are counted."""

    protocol = "memory"
    root = ""
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        inside = str(path).removeprefix("memory:").lstrip("/")
        return f"{cls.root}/{inside.removeprefix(cls.root.lstrip('/')).lstrip('/')}".rstrip("/")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        METER.count("look")
        return self._described(path)

    def _described(self, path: str) -> dict[str, Any]:
        found = super().info(path)
        return {**found, "ETag": f"{found['ino']}-{found['mtime']}"}

    def find(self, path: str, maxdepth: Any = None, withdirs: bool = False, **options: Any) -> Any:
        found = [os.path.join(at, name) for at, _, names in os.walk(self._strip_protocol(path))
                 for name in names]  # fmt: skip
        METER.count("list", 1 + len(found) // LISTED)
        return {name: self._described(name) for name in sorted(found)}

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        found = super().ls(path, detail=False)
        METER.count("list", 1 + len(found) // LISTED)
        return [self._described(name) for name in found] if detail else found

    def cat_file(self, path: str, **options: Any) -> bytes:
        METER.count("get")
        return Path(self._strip_protocol(path)).read_bytes()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        METER.count("put")
        place = Path(self._strip_protocol(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb" if mode == "create" else "wb") as stream:
            stream.write(value)

    def put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **options: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes(), mode)

    def rm_file(self, path: str) -> None:
        METER.count("delete")
        os.unlink(self._strip_protocol(path))

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        METER.count("look")
        stream = open(self._strip_protocol(path), mode)  # noqa: SIM115
        read = stream.read

        class Ranges:
            """The stream, whose reads are requests."""

            size = os.fstat(stream.fileno()).st_size

            def read(self, n: int = -1) -> bytes:
                METER.count("get")
                return read(n)

            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

        return Ranges()


class Nodes(LocalExecutor):
    """Workers of other machines, whose tasks are done here one by one."""

    def __init__(self, workers: int) -> None:
        super().__init__(1)
        self.workers = workers


def job(workers: int) -> dict[str, Any]:
    """Run the job; return what it took, by part."""
    METER.__init__()  # type: ignore[misc]
    spec = build_spec(
        {
            "name": "wide",
            "method": "sequence",
            "data": {"path": "memory://data", "target": "y", "folds": 0},
            "sequence": {"model": "linear", "baselines": []},
            "output": "memory://runs",
        }
    )
    wall = time.perf_counter()
    with METER.within("open"):
        prepared = prepare(spec)
    opened_bytes = psutil.Process().memory_info().rss
    setattr(driver, "make_executor", lambda *_: Nodes(workers))  # noqa: B010
    projected = prepared.projection(workers)
    driver.run_prepared(prepared)
    METER._turn("rest")
    return {
        "seconds": dict(METER.seconds),
        "requests": {f"{part} {verb}": n for (part, verb), n in METER.requests.items()},
        "wall": time.perf_counter() - wall,
        "opened": opened_bytes,
        "files_projected": projected.files_bytes,
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def measure(n_files: int, workers: int, folder: str) -> dict[str, Any]:
    """Make files that are one, and run the job over them twice."""
    data = Path(folder) / "data"
    data.mkdir()
    X = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    table = pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS - 1)}, "y": X.sum(axis=1)})
    pq.write_table(table, data / "00000.parquet")
    for number in range(1, n_files):
        os.link(data / "00000.parquet", data / f"{number:05d}.parquet")
    Counted.root = folder
    fsspec.register_implementation("memory", Counted, clobber=True)
    read, of_first = SummaryReader.__call__, list[Any]()

    def summarise(self: Any, partition: Any) -> Any:
        if not of_first:
            of_first.append(read(self, partition))
            found = {verb: n for (part, verb), n in METER.requests.items() if part == "reading"}
            of_first.append(found)
        return of_first[0]

    SummaryReader.__call__ = METER.metered("reading", summarise)  # type: ignore[method-assign]
    context.map_reduce = METER.metered("pass", context.map_reduce)  # type: ignore[attr-defined]
    for name in ("run", "join"):
        setattr(UnitRunner, name, METER.metered("workers", getattr(UnitRunner, name)))
    start = psutil.Process().memory_info().rss
    found = {what: job(workers) for what in ("first", "again")}
    return {**found, "start": start, "of_partition": of_first[1]}


def report(found: dict[int, dict[str, Any]]) -> None:
    """Print tables, and what grows faster than the files.

    Memory is what opening the files has added, and the peak of the process.
    """
    for what in ("first", "again"):
        print(f"\n{what}: processor seconds, requests (listed, looked, read, written), MiB")
        head = "".join(f"{part:>24}" for part in PARTS)
        print(f"{'files':>8}{head}{'opened':>9}{'peak':>7}{'wall s':>8}")
        for n, of in found.items():
            run = of[what]
            cells = ""
            for part in PARTS:
                seconds = run["seconds"].get(part, 0.0)
                if part == "workers":
                    seconds += run["seconds"].get("reading", 0.0)
                verbs = [
                    run["requests"].get(f"{part} {v}", 0) for v in ("list", "look", "get", "put")
                ]
                cells += f"{seconds:8.1f} {'/'.join(map(str, verbs)):>15}"
            opened, peak = (run["opened"] - of["start"]) / 2**20, run["peak"] / 2**20
            print(f"{n:8}{cells}{opened:9.0f}{peak:7.0f}{run['wall']:8.0f}")
    first, *_, last = [*found, *found]
    print(f"\na partition is read by {found[last]['of_partition']} requests of its worker")
    for what in ("first", "again"):
        for part in PARTS:
            few, many = (found[n][what]["seconds"].get(part, 0.0) for n in (first, last))
            if few > 0.5:
                ratio = many / few / (last / first)
                print(f"{what}, {part}: {ratio:.2f} times as much a file at {last} as at {first}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", nargs="+", type=int, default=[5_000, 10_000, 20_000])
    parser.add_argument("--workers", type=int, default=1_600, help="on 100 nodes")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.files[0], args.workers, args.measure)))
        return
    found = {}
    for n in args.files:
        with tempfile.TemporaryDirectory() as folder:
            own = ["--files", str(n), "--workers", str(args.workers), "--measure", folder]
            result = subprocess.run(
                [sys.executable, __file__, *own], stdout=subprocess.PIPE, check=True
            )
            found[n] = json.loads(result.stdout.splitlines()[-1])
    report(found)


if __name__ == "__main__":
    main()
