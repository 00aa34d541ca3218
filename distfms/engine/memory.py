"""How much memory and how many processors there are, and refusing what does not fit."""

from __future__ import annotations

import math
import os
from pathlib import Path

from distfms.errors import SpecError

# Footers, schema and what Arrow keeps of a column beside its values; measured on 10,000 columns.
COLUMN_BYTES = 10 * 2**10
# Above this a cgroup limit means "none" (v1 writes the largest page-aligned number).
_NO_LIMIT = 2**60
# Controller, folder of the groups, and files with limit, usage and what can be taken back, of
# versions 2 and 1.
_MEMORY_GROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"),
)  # fmt: skip


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


def require_room(actor_bytes: int, n_actors: int, available: int | None, where: str) -> None:
    """Raise SpecError, with the numbers, for actors that do not fit beside one another."""
    needed = actor_bytes * n_actors
    if available is not None and needed > available:
        who = "one actor" if n_actors == 1 else f"{n_actors} actors"
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
