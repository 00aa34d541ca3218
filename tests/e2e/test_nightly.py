"""The walk-through of jobs/nightly.yaml through the command line: three days and a rollback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"


@pytest.fixture
def command(tmp_path):
    """Runs a command in a scratch folder; returns its exit code and what it said."""

    def run(*arguments):
        environment = {**os.environ, "DISTFMS_REGISTRY": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={k: v for k, v in environment.items() if v},
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    return run


def distfms(command, *arguments):
    return command("-m", "distfms.cli", *arguments)


def in_place(command):
    _, said = distfms(command, "models", "list", "--json")
    return json.loads(said)[0]["in_place"]


def test_three_days_a_refusal_and_a_rollback(command, tmp_path):
    nightly = str(JOBS / "nightly.yaml")
    found = []
    for day in ("1", "2", "3"):
        assert command(str(JOBS / "nightly_days.py"), day)[0] == 0
        found.append(distfms(command, "retrain", nightly))
    assert [code for code, _ in found] == [0, 0, 3]
    assert "Version 1 of 'nightly' is in place (4 partitions read, 0 from the cache)" in found[0][1]
    assert "Version 2 of 'nightly' is in place (4 partitions read, 4 from the cache)" in found[1][1]
    assert "no column drifts by more than 1: found" in found[2][1]
    assert "(bp, mean)" in found[2][1]
    assert in_place(command) == 2
    refused = (tmp_path / "runs" / "nightly" / "latest" / "report.html").read_text()
    assert "Refused; version 2 stays in place" in refused
    assert "What drifted" in refused
    assert refused.count("<svg") >= 2

    code, said = distfms(command, "models", "rollback", "nightly")
    assert (code, said) == (0, "nightly: version 1 is in place again.\n")
    assert in_place(command) == 1
    predicted = ["predict", "registry:nightly", "days", "--out", "predicted.parquet"]
    assert distfms(command, *predicted)[0] == 0

    # The data of the third day are mended, and the next night goes through.
    (tmp_path / "days" / "2026-03-03.parquet").unlink()
    code, said = distfms(command, "retrain", nightly)
    assert (code, said.splitlines()[-1][:13]) == (0, "Nothing to do")
    assert in_place(command) == 1


def test_a_schedule_that_cannot_be_is_refused(command):
    nightly = str(JOBS / "nightly.yaml")
    for wrong in (("--missed", "maybe"), ("--zone", "Mars/Olympus")):
        assert distfms(command, "schedule", nightly, "--cron", "0 3 * * *", *wrong) == (2, "")
