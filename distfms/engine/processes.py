"""Which process something was done by, and whether it is still alive."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def own_mark() -> str:
    """Return what names this process among all that ever were; empty where no system tells."""
    return _mark(os.getpid())


def is_dead(mark: str) -> bool:
    """Whether a mark is that of a process of this machine, or container, that has ended."""
    place, _, number = mark.rpartition(" ")[0].rpartition(" ")
    return bool(number) and place == _here() and mark != _mark(int(number))


def _mark(number: int) -> str:
    """Return place, number and start of a process; numbers are used again, starts are not."""
    try:
        status = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if status[0] in "ZX" else f"{_here()} {number} {status[19]}"


def _here() -> str:
    """Return the boot of this machine and the namespace that numbers processes here."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""
