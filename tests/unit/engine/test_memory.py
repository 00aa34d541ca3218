from __future__ import annotations

import os
from pathlib import Path

import pytest

from distfms.engine.memory import (
    PROCESS_BYTES,
    available_bytes,
    counted,
    format_bytes,
    n_processors,
    project,
    require,
)
from distfms.errors import SpecError

GIB = 2**30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", "MemTotal: 99 kB\nMemAvailable:    8388608 kB\n")
    return tmp_path


def test_values_waiting_are_bounded_by_the_depth_of_the_tree() -> None:
    p = project(n_units=1024, largest_unit_bytes=100, value_bytes=7, workers=4)
    assert p.values_bytes == 7 * (4 + 10 + 4)
    assert p.units_bytes == 2 * 100 * 4
    assert p.processes_bytes == PROCESS_BYTES
    assert p.total_bytes == PROCESS_BYTES + 800 + 126


def test_more_rows_take_hardly_more_memory() -> None:
    small = project(100, 10**8, 10**6, 2).total_bytes
    large = project(100_000, 10**8, 10**6, 2).total_bytes
    assert large - small == 10**6 * (17 - 7)


def test_workers_without_work_hold_nothing() -> None:
    p = project(n_units=1, largest_unit_bytes=100, value_bytes=7, workers=16)
    assert (p.units_bytes, p.values_bytes) == (200, 14)


def test_the_driver_counts_after_the_pass_not_on_top() -> None:
    p = project(4, 100, 7, 1, driver_bytes=10_000)
    assert p.total_bytes == PROCESS_BYTES + 10_007


def test_processes_add_interpreters() -> None:
    p = project(64, 0, 0, 3, processes=True)
    assert p.total_bytes == 4 * PROCESS_BYTES


def test_projection_counts_what_batches_hold() -> None:
    alone = project(1024, 100, 7, 4)
    assert project(1024, 100, 7, 4, units_per_task=8).values_bytes == alone.values_bytes + 7 * 4 * 3


def test_lines_give_the_numbers() -> None:
    text = "\n".join(project(1000, 64 * 2**20, 8 * 2**20, 2).lines())
    assert "1,000 units on 2 workers" in text
    assert "256.0 MiB" in text
    assert "8.0 MiB each" in text


def test_require_refuses_with_numbers() -> None:
    p = project(1000, GIB, GIB, 2)
    require(p, p.total_bytes)
    with pytest.raises(SpecError, match=r"about 18\.3 GiB .* 18\.0 GiB is available .*workers"):
        require(p, 18 * GIB)


def test_system_memory_alone(machine: Path) -> None:
    assert available_bytes(machine) == 8 * GIB


def test_unknown_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    require(project(1, 1, 1, 1), None)


def test_cgroup_2_limit_of_a_parent_counts(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/pod/box\n")
    root = machine / "sys/fs/cgroup"
    write(root / "pod/box/memory.max", "max\n")
    write(root / "pod/box/memory.current", f"{GIB}\n")
    write(root / "pod/memory.max", f"{4 * GIB}\n")
    write(root / "pod/memory.current", f"{3 * GIB}\n")
    write(root / "pod/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    assert available_bytes(machine) == 2 * GIB


def test_cgroup_1_limit(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    folder = machine / "sys/fs/cgroup/memory"
    write(folder / "memory.limit_in_bytes", "9223372036854771712\n")
    write(folder / "memory.usage_in_bytes", "5\n")
    write(folder / "job/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(folder / "job/memory.usage_in_bytes", f"{GIB}\n")
    assert available_bytes(machine) == GIB


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("", 8)]
)
def test_processor_time_that_cgroup_2_grants(
    machine: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(machine / "proc/self/cgroup", "0::/pod/box\n")
    write(machine / "sys/fs/cgroup/pod/cpu.max", quota + "\n")
    write(machine / "sys/fs/cgroup/pod/box/cpu.max", "max 100000\n")
    assert n_processors(machine) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3)])
def test_processor_time_that_cgroup_1_grants(
    machine: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(machine / "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n")
    write(machine / "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", quota + "\n")
    write(machine / "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    assert n_processors(machine) == expected


def test_overdrawn_limit_is_zero(machine: Path) -> None:
    write(machine / "sys/fs/cgroup/memory.max", "100\n")
    write(machine / "sys/fs/cgroup/memory.current", "200\n")
    assert available_bytes(machine) == 0


def test_this_machine() -> None:
    found = available_bytes()
    assert found is None or found > 0


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * GIB, "3.0 GiB"), (2**42, "4.0 TiB")],
)
def test_format_bytes(n_bytes: int, text: str) -> None:
    assert format_bytes(n_bytes) == text


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1200, "1,200 files")]
)
def test_counted(n: int, text: str) -> None:
    assert counted(n, "file") == text


def test_refusal_is_one_paragraph() -> None:
    with pytest.raises(SpecError) as refused:
        require(project(10, 2**20, 2**20, 2), available=2**20)
    assert "  " not in str(refused.value)
    assert "\n" not in str(refused.value)
