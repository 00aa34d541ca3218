"""Whole jobs whose cluster loses its head: how a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.jobs import stage
from tests.faults.cases import CASES, contents, manifest
from tests.faults.disturbance import nothing_half_written
from tests.ray_here import run_script

Expected = Callable[[str], dict[str, bytes]]

# Nodes start and are missed slowly, the more so on a machine that has other work.
LIMIT_S = 600.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60.0)]


@pytest.mark.parametrize("kind", ["multiselect", "blocks"])
def test_head_gone_under_the_command_line(kind: str, undisturbed: Expected, tmp_path: Path) -> None:
    CASES[kind].write(tmp_path / "data")
    found = run_script("head_lost_under_a_job", str(tmp_path), kind, limit_s=LIMIT_S)
    first, second = found["first"], found["second"]
    assert first["code"] == 1
    error = first["error"][first["error"].index("Error: ") :]
    assert "is gone. Start the cluster again, then run the same command again" in error
    assert error.count("\n") == 1
    # Another cluster goes on from there.
    assert second["code"] == 0, second["error"]
    assert "Resuming" in second["said"]
    (run,) = (tmp_path / "runs" / "small").glob("20*")
    done = stage(manifest(run), "statistics" if kind == "multiselect" else "chosen")
    if kind == "multiselect":
        n_read = len(second["reads"][0])
        assert second["reads"] == [[1] * n_read, [1, 1, 1, 1]]
        assert 1 <= n_read <= 4 - (len(first["reads"][0]) - 1) + 1
        assert (done["n_read"], done["n_cached"]) == (n_read, 4 - n_read)
    else:
        # The blocks are not read again; the search begins anew, with twelve choices and the first.
        assert first["reads"] == [[1, 1, 1, 1]] * 3
        assert second["reads"] == [[1, 1, 1, 1]] * 2
        assert second["pools"] == [{"n_steps": 13, "n_built": 3}]
    assert contents(run) == undisturbed(kind)
    nothing_half_written(tmp_path / "runs", run)
