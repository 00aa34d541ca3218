import os
from types import SimpleNamespace

import psutil
import pytest

from distfms.engine.memory import available_bytes, counted, format_bytes, n_processors

GIB = 2**30


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GIB))
    return tmp_path


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("", {}, 8 * GIB),
        (
            "0::/pod/box",  # the limit of a parent counts
            {
                "pod/box/memory.max": "max",
                "pod/box/memory.current": GIB,
                "pod/memory.max": 4 * GIB,
                "pod/memory.current": 3 * GIB,
                "pod/memory.stat": f"anon 1\ninactive_file {GIB}",
            },
            2 * GIB,
        ),
        (
            "5:cpu,cpuacct:/\n4:memory:/job\n0::/",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": 5,
                "memory/job/memory.limit_in_bytes": 2 * GIB,
                "memory/job/memory.usage_in_bytes": GIB,
            },
            GIB,
        ),
        ("", {"memory.max": 100, "memory.current": 200}, 0),  # overdrawn
    ],
    ids=["none", "cgroup 2", "cgroup 1", "overdrawn"],
)
def test_memory_that_cgroups_leave(machine, group, files, expected):
    if group:
        write(machine / "proc/self/cgroup", f"{group}\n")
    for name, content in files.items():
        write(machine / "sys/fs/cgroup" / name, f"{content}\n")
    assert available_bytes(machine) == expected


ONE = "5:cpu,cpuacct:/job\n4:memory:/job\n"
TWO = "0::/pod/box\n"


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        (TWO, {"pod/cpu.max": "150000 100000"}, 2),
        (TWO, {"pod/cpu.max": "50000 100000"}, 1),
        (TWO, {"pod/cpu.max": ""}, 8),
        (ONE, {"cpu/job/cpu.cfs_quota_us": -1, "cpu/job/cpu.cfs_period_us": 100_000}, 8),
        (ONE, {"cpu/job/cpu.cfs_quota_us": 300_000, "cpu/job/cpu.cfs_period_us": 100_000}, 3),
    ],
)
def test_processor_time_that_cgroups_grant(machine, monkeypatch, group, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(machine / "proc/self/cgroup", group)
    write(machine / "sys/fs/cgroup/pod/box/cpu.max", "max 100000\n")
    for name, content in files.items():
        write(machine / "sys/fs/cgroup" / name, f"{content}\n")
    assert n_processors(machine) == expected


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_bytes(1023), "1023 B"),
        (format_bytes(1536), "1.5 KiB"),
        (format_bytes(2**42), "4.0 TiB"),
        (counted(1, "file"), "1 file"),
        (counted(1200, "file"), "1,200 files"),
    ],
)
def test_sizes_and_numbers(written, text):
    assert written == text
