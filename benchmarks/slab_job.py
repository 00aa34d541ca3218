"""Whole jobs in slabs of columns, from Parquet to model: time and memory against the statement.

Multi-selection (Full, a budget of judgments), on synthetic Parquet data with as many attributes as
asked for. Each line is a fresh process with its actors: seconds of the stages, peak resident
memory of the driver and of the largest actor, programs and libraries included, beside what was
stated before the job began, and a digest of what was chosen, which must be the same in one
process, on local actors and on two Ray nodes of this machine.

With the local engine the threads that compute statistics are in the driver's process, so that what
it holds is compared with both statements together; on Ray they are processes of their own.

Run with ``OMP_NUM_THREADS=1 python benchmarks/slab_job.py`` for a small one, and with ``--d 20000
--rows 4000 --kind ray`` for what one process cannot do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed_greedy import memory_bytes, two_nodes

from distfms.engine.memory import format_bytes
from distfms.methods.frame import slab_search
from distfms.runs.driver import run_job
from distfms.runs.job_spec import JobSpec, build_spec
from distfms.runs.prepare import prepare
from distfms.runs.projection import PROCESS_BYTES

N_FACTORS = 20
N_FILES = 4
MIB = 2**20
#: What one process may take: for the work to be done in one, and in slabs (from 2,000 columns on).
WHOLE_BYTES, SLABS_BYTES = 2**60, 64 * MIB
#: Of each Ray node: room for the partial statistics of a few slabs.
OBJECT_STORE_BYTES = 2 * 2**30


# --- data ---------------------------------------------------------------------------------------


def write_data(folder: Path, d: int, n_rows: int) -> None:
    """Attributes with common factors and noise of their own; a label of a twentieth of them."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((N_FACTORS, d)) * 0.9 ** np.arange(N_FACTORS)[:, None]
    weights = np.where(rng.random(d) < 0.05, rng.standard_normal(d), 0.0)
    for number in range(N_FILES):
        n = n_rows * (number + 1) // N_FILES - n_rows * number // N_FILES
        values = rng.standard_normal((n, N_FACTORS)) @ loadings + rng.standard_normal((n, d))
        target = values @ weights
        target += target.std() * rng.standard_normal(n)
        columns = [_judgments(values[:, j], rng) for j in range(d)]
        names = [f"x{j:05d}" for j in range(d)]
        table = pa.table([*columns, target], names=[*names, "y"])
        pq.write_table(
            table, folder / f"part-{number}.parquet", use_dictionary=False, compression="zstd",
            write_statistics=False,
        )  # fmt: skip


def _judgments(values: np.ndarray, rng: np.random.Generator) -> pa.Array:
    """Return two judgments of each value."""
    judgments = (values[:, None] + rng.standard_normal((len(values), 2))).ravel()
    offsets = np.arange(0, 2 * len(values) + 1, 2, dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, judgments)


def make_spec(args: argparse.Namespace, address: str | None) -> JobSpec:
    """Write the spec of one line."""
    engine: dict[str, Any] = {"kind": args.kind, "workers": args.workers, "cache": False}
    if address is not None:
        engine["address"] = address
    return build_spec(
        {
            "name": "slabs",
            "method": "multiselect",
            "data": {"path": str(args.data), "target": "y", "folds": 0, "test": 0.2},
            "multiselect": {"budget": args.steps, "psd": "none", "baselines": ["scoring"]},
            "engine": engine,
            "output": str(args.output),
        }
    )


# --- measuring ----------------------------------------------------------------------------------


class Watch:
    """Peak memory of the processes below this one, by what they are.

    Actors are what a local pool has started, or what Ray calls an actor; all other processes of
    Ray that run our code are workers.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, dict[int, int]] = {"actor": {}, "worker": {}}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def most(self, what: str) -> int:
        """Peak of the largest process of a kind, in bytes."""
        return max(self.peaks[what].values(), default=0)

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            for pid, title in _descendants():
                what = _kind(title)
                if what:
                    peak = _status(pid, "VmHWM")
                    self.peaks[what][pid] = max(peak, self.peaks[what].get(pid, 0))


def _kind(title: str) -> str | None:
    if title.startswith("ray::"):
        return "actor" if "Actor" in title else "worker"
    return "actor" if "spawn_main" in title or "forkserver" in title else None


def _descendants() -> Iterator[tuple[int, str]]:
    """Find number and title of every process below this one."""
    parents, titles = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            titles[int(entry.name)] = title
    for pid in titles:
        above = parents[pid]
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            yield pid, titles[pid]


def _status(pid: int, what: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith(what + ":")), 0)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One line of the table, in this process."""
    slab_search.ONE_PROCESS_BYTES = WHOLE_BYTES if args.form == "whole" else SLABS_BYTES
    with cluster(args.kind) as address:
        spec = make_spec(args, address)
        prepared = prepare(spec)
        stated = prepared.projection(args.workers)
        job = prepared.job
        with Watch() as watch:
            folder = run_job(spec).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    selection = json.loads((folder / "selection.json").read_text())
    seconds = {entry["name"]: entry["seconds"] for entry in manifest["stages"]}
    statistics = sum(s for name, s in seconds.items() if name.startswith("statistics"))
    slabs = job.form.slabs
    return {
        "statistics_s": statistics,
        "select_s": seconds["select"],
        "rest_s": sum(seconds.values()) - statistics - seconds["select"],
        "driver": memory_bytes("VmHWM"),
        "worker": watch.most("worker"),
        "actor": watch.most("actor"),
        "stated_driver": PROCESS_BYTES + (slabs.driver_bytes if slabs else 0),
        "stated_pass": stated.memory.total_bytes,
        "stated_actor": _actor_bytes(slabs, args.workers) if slabs else 0,
        "n_slabs": slabs.n_slabs if slabs else 1,
        "digest": hashlib.sha256(json.dumps(selection["repeats"]).encode()).hexdigest()[:12],
    }


def _actor_bytes(slabs: slab_search.SlabForm, workers: int) -> int:
    """Bytes of the actor with the most slabs."""
    return PROCESS_BYTES + slabs.shard_bytes * -(-slabs.n_slabs // workers)


@contextmanager
def cluster(kind: str) -> Iterator[str | None]:
    """Two Ray nodes on this machine, if that is wanted."""
    with two_nodes(OBJECT_STORE_BYTES) if kind == "ray" else nullcontext() as address:
        yield address


def line_in_its_own_process(args: argparse.Namespace, **changes: Any) -> dict[str, Any]:
    """Measure one line."""
    given = {**vars(args), **changes}
    command = [sys.executable, __file__, "--one"]
    for name in ("d", "rows", "steps", "kind", "workers", "form", "data", "output"):
        command += [f"--{name}", str(given[name])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d", type=int, nargs="+", default=[2500], help="attributes")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=30, help="budget")
    parser.add_argument("--kind", choices=["local", "ray", "both"], default="local")
    parser.add_argument("--workers", type=int, default=2, help="workers, and actors")
    parser.add_argument("--form", choices=["slabs", "whole", "both"], default="both")
    parser.add_argument("--folder", type=Path, help="for scratch files; default: a temporary one")
    parser.add_argument("--one", action="store_true", help="only this process's line, as JSON")
    parser.add_argument("--data", type=Path, help="with --one: the Parquet files")
    parser.add_argument("--output", type=Path, help="with --one: where the run goes")
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.one:
        print(json.dumps(measure(args)))
        return
    print(f"{os.cpu_count()} processors, {args.workers} workers; peak MiB (stated MiB)")
    print(
        "     d  where         slabs  stat. s  select s  rest s          driver"
        "   worker           actor  chosen"
    )
    for d in args.d:
        with tempfile.TemporaryDirectory(dir=args.folder, prefix="slabs-") as scratch:
            compare(args, d, Path(scratch))


def compare(args: argparse.Namespace, d: int, scratch: Path) -> None:
    """Print the lines of one size."""
    data = scratch / "data"
    write_data(data, d, args.rows)
    kinds = ["local", "ray"] if args.kind == "both" else [args.kind]
    modes = [("slabs", kind) for kind in kinds] if args.form != "whole" else []
    if args.form != "slabs":
        modes.insert(0, ("whole", "local"))
    digests = set()
    for form, kind in modes:
        output = scratch / f"{form}-{kind}"
        found = line_in_its_own_process(args, d=d, form=form, kind=kind, data=data, output=output)
        digests.add(found["digest"])
        where = "one process" if form == "whole" else f"{kind} actors"
        # Local statistics are computed by threads of the driver.
        stated = max(found["stated_driver"], 0 if kind == "ray" else found["stated_pass"])
        print(
            f"{d:6}  {where:12} {found['n_slabs']:6}  {found['statistics_s']:7.1f}  "
            f"{found['select_s']:8.1f}  {found['rest_s']:6.1f}  "
            f"{_against(found['driver'], stated)}  {found['worker'] / MIB:7.0f} "
            f"{_against(found['actor'], found['stated_actor'])}  {found['digest']}",
            flush=True,
        )
    assert len(digests) <= 1, "what is chosen depends on who holds the columns"
    files = sum(file.stat().st_size for file in data.iterdir())
    print(f"  data: {args.rows:,} rows, {format_bytes(files)} of Parquet", flush=True)


def _against(found: int, stated: int) -> str:
    return f"{found / MIB:6.0f} ({stated / MIB:5.0f})"


if __name__ == "__main__":
    main()
