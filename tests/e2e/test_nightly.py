"""The walk-through of jobs/nightly.yaml through the command line: three days and a rollback."""

import json
import runpy
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"


@pytest.fixture
def write_day(tmp_path, monkeypatch):
    """Run the script that writes a day, in a scratch folder, which all commands run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISTFMS_REGISTRY", raising=False)

    def run(day):
        monkeypatch.setattr(sys, "argv", ["nightly_days.py", day])
        runpy.run_path(str(JOBS / "nightly_days.py"))

    return run


def in_place(distfms):
    return json.loads(distfms("models", "list", "--json").out)[0]["current"]


def test_three_days_a_refusal_and_a_rollback(distfms, write_day, tmp_path, look):
    nightly = str(JOBS / "nightly.yaml")
    results = []
    for day in ("1", "2", "3"):
        write_day(day)
        results.append(distfms("retrain", nightly))
    assert [night.code for night in results] == [0, 0, 3]
    assert (
        "Version 1 of 'nightly' is the current model (4 partitions read, 0 from the cache)"
        in results[0].out
    )
    assert (
        "Version 2 of 'nightly' is the current model (4 partitions read, 4 from the cache)"
        in results[1].out
    )
    text = "Refused: bp drifted by"
    assert text in results[2].out
    assert in_place(distfms) == 2
    refused = (tmp_path / "runs" / "nightly" / "latest" / "report.html").read_text()
    assert refused.count(text) == 3  # title, headline and box
    assert "Drift by column" in refused
    look(tmp_path / "runs" / "nightly" / "latest" / "report.html", 3)

    back = distfms("models", "rollback", "nightly")
    assert (back.code, back.out) == (0, "nightly: version 1 is current again.\n")
    assert in_place(distfms) == 1
    predicted = ["predict", "registry:nightly", "days", "--out", "predicted.parquet"]
    assert distfms(*predicted).code == 0

    # The data of the third day are mended, and the next night goes through.
    (tmp_path / "days" / "2026-03-03.parquet").unlink()
    again = distfms("retrain", nightly)
    assert (again.code, again.out.splitlines()[-1][:13]) == (0, "Nothing to do")
    assert in_place(distfms) == 1
