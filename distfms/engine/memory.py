"""How much memory a pass will take, how much there is, and refusing what cannot fit."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from distfms.errors import SpecError

# Interpreter with all that a driver on Ray comes to load, scikit-learn included,
# measured on Linux, rounded up; a local worker takes half of it.
PROCESS_BYTES = 300 * 2**20
# The same of a driver on this machine alone.
LOCAL_BYTES = 250 * 2**20
# Footers, schema and what Arrow keeps of a column beside its values; measured on 10,000 columns.
COLUMN_BYTES = 10 * 2**10
# What the driver keeps of a file and its partition: 5.3 to 6 KiB were seen in
# runs over 5,000 files of a disk, 7 to 8 of 20,000 on object storage.
FILE_BYTES = 6_656
# Above this a cgroup limit means "none" (v1 writes the largest page-aligned number).
_NO_LIMIT = 2**60
# Controller, folder of the groups, and files with limit, usage and what can be taken back, of
# versions 2 and 1.
_MEMORY_GROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"),
)  # fmt: skip


@dataclass(frozen=True)
class MemoryProjection:
    """Bytes that a pass is expected to hold at its peak; see `project`."""

    n_units: int
    workers: int
    units_bytes: int
    values_bytes: int
    processes_bytes: int
    value_bytes: int
    files_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Peak of the pass."""
        return self.processes_bytes + self.files_bytes + self.units_bytes + self.values_bytes


def project(
    n_units: int,
    units_bytes: int,
    value_bytes: int,
    workers: int,
    *,
    processes: bool = False,
    units_per_task: int = 1,
    program_bytes: int = PROCESS_BYTES,
    files_bytes: int = 0,
) -> MemoryProjection:
    """Project the memory of a map-reduce.

    At most ``workers + ⌈log2 n⌉`` values wait in the tree or are being computed; each worker has
    one more for the output of a running merge, and log2 of the units of a task for the subtrees
    that it has finished.

    Parameters
    ----------
    n_units, workers, units_per_task : int
        Units of the pass; tasks at the same time; see `distfms.engine.graph.batch_size`.
    units_bytes : int
        Held of all units that are worked on at the same time.
    value_bytes : int
        Of one (merged) value.
    processes : bool
        Whether workers are processes. Values then also travel pickled, through the driver.
    program_bytes : int
        Interpreter and libraries of each process.
    files_bytes : int
        What the driver keeps of the footers of all files.
    """
    busy = min(workers, n_units)
    waiting = min(n_units, busy + math.ceil(math.log2(n_units)) if n_units > 1 else 1)
    n_values = waiting + busy * (1 + math.ceil(math.log2(units_per_task)))
    return MemoryProjection(
        n_units=n_units,
        workers=workers,
        units_bytes=units_bytes,
        values_bytes=value_bytes * (n_values + (2 * busy if processes else 0)),
        processes_bytes=program_bytes * (1 + (workers if processes else 0)),
        value_bytes=value_bytes,
        files_bytes=files_bytes,
    )


def require(projection: MemoryProjection, available: int | None = None) -> None:
    """Raise SpecError, with the numbers and what would help, for work that cannot fit."""
    limit = available_bytes() if available is None else available
    if projection.total_bytes <= limit:
        return
    detail = (
        f"{counted(projection.n_units, 'unit')} on {counted(projection.workers, 'worker')}; "
        f"units being read {format_bytes(projection.units_bytes)}; "
        f"partial statistics {format_bytes(projection.values_bytes)} "
        f"({format_bytes(projection.value_bytes)} each); "
        f"footers {format_bytes(projection.files_bytes)}; "
        f"programs and libraries {format_bytes(projection.processes_bytes)}; "
        f"peak {format_bytes(projection.total_bytes)}"
    )
    raise SpecError(
        f"This job needs about {format_bytes(projection.total_bytes)} of memory, but "
        f"{format_bytes(limit)} is available ({detail}). Use fewer workers, fewer columns or "
        "folds, or a machine or cluster with more memory."
    )


def available_bytes(root: str | Path = "/") -> int:
    """Return the memory this process may still take.

    The least of what the system has available and what the control groups (version 1 and 2, with
    their parents) leave. ``root`` replaces ``/`` as the parent of ``proc`` and ``sys`` in tests.
    """
    import psutil

    base = Path(root)
    left = (
        _left(folder, *names)
        for controller, group, *names in _MEMORY_GROUPS
        for folder in _with_parents(base / group, _own_cgroup(base, controller))
    )
    return max(0, min(psutil.virtual_memory().available, *left))


def require_room(needed: int, available: int | None, where: str, who: str = "one actor") -> None:
    """Raise SpecError, with the numbers, for actors that do not fit."""
    if available is not None and needed > available:
        raise SpecError(
            f"The state of {who} needs about {format_bytes(needed)} of memory, but {where} has "
            f"{format_bytes(available)} for it. Use fewer actors on one machine, or machines with "
            "more memory."
        )


def n_processors(root: str | Path = "/") -> int:
    """Return the number of processors this process may keep busy.

    Those it may run on, but no more than the control groups (version 1 and 2, with their parents)
    grant it time for.
    """
    base = Path(root)
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _with_parents(base / "sys/fs/cgroup", _own_cgroup(base, controller="")):
        n = _granted(n, *_read(folder / "cpu.max").split()[:2])
    for folder in _with_parents(base / "sys/fs/cgroup/cpu", _own_cgroup(base, controller="cpu")):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        n = _granted(n, *(_read(folder / name).strip() for name in names))
    return n


def _granted(n: int, quota: str = "", period: str = "") -> int:
    """Return ``n``, or what a quota leaves of it; for none there is ``max`` or -1."""
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return n
    return max(1, min(n, math.ceil(int(quota) / int(period))))


def counted(n: int, noun: str) -> str:
    """Write a number of things, such as ``1 file`` or ``1,200 files``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def format_bytes(n_bytes: int) -> str:
    """Write a number of bytes with a binary unit, such as ``1.5 GiB``."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _own_cgroup(base: Path, controller: str) -> str:
    """Return the path of this process's control group; version 2 has an empty controller list."""
    for line in _read(base / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.strip("/")
    return ""


def _with_parents(root: Path, path: str) -> list[Path]:
    """Return the root's and each group's folder; inside a container often only the root exists."""
    folders = [root]
    for part in Path(path).parts:
        folders.append(folders[-1] / part)
    return folders


def _left(folder: Path, limit_name: str, usage_name: str, reclaimable: str) -> float:
    """Limit minus usage of one group; cached file pages can be taken back and do not count."""
    limit, usage = _read(folder / limit_name).strip(), _read(folder / usage_name).strip()
    if not (limit.isdigit() and usage.isdigit()) or int(limit) >= _NO_LIMIT:
        return math.inf
    statistics = _read(folder / "memory.stat").splitlines()
    cached = sum(int(line.split()[1]) for line in statistics if line.split()[:1] == [reclaimable])
    return int(limit) - max(0, int(usage) - cached)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
