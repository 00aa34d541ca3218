"""What the command line and the entry point of clusters print when they are asked for JSON."""

import json
import re

import pytest

from tests.e2e.jobs import content, judgments_job, stage
from tests.unit.runs.test_events import KEYS, table


@pytest.fixture
def spec(judgments, tmp_path):
    (tmp_path / "job.yaml").write_text(judgments_job(judgments, tmp_path / "runs").to_yaml())
    return tmp_path / "job.yaml"


EVENTS = table()


def parsed(text):
    """Lines as they are described to people."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line) == KEYS
        level, fields = EVENTS[line["event"]]
        always, _, sometimes = fields.partition("…")
        assert line["level"] == level
        assert set(re.findall(r"\w+", always)) <= set(line["fields"])
        assert set(line["fields"]) <= set(re.findall(r"\w+", always + sometimes))
    return lines


def kept_events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_run_prints_events(spec, tmp_path, distfms):
    done = distfms("run", spec, "--out", tmp_path / "r", "--log", "json")
    assert (done.code, done.err) == (0, "")
    lines = parsed(done.out)
    manifest = content(tmp_path / "r", "manifest.json")
    stages = {line["stage"]: line["fields"] for line in lines if line["event"] == "stage_done"}
    assert list(stages) == [entry["name"] for entry in manifest["stages"]]
    for key in ("n_read", "n_cached", "bytes_read"):
        assert stages["statistics"][key] == stage(manifest, "statistics")[key]
    assert stages["select"]["n_candidates"] == stage(manifest, "select")["n_candidates"]
    selection = content(tmp_path / "r", "selection.json")
    assert selection["n_candidates"] == stages["select"]["n_candidates"]
    begin = next(line for line in lines if line["event"] == "begin")
    assert begin["run"] == "r"
    assert begin["fields"]["engine"] == "local"
    # Nothing is said twice.
    said = [line["fields"]["text"] for line in lines if line["event"] == "message"]
    assert not [text for text in said if text.startswith(("Note", "Writing", "statistics"))]
    assert said[-1].startswith("Report: ")
    notes = [line["fields"]["text"] for line in lines if line["event"] == "note"]
    assert notes == manifest["notes"]
    kept = kept_events(tmp_path / "r")
    shown = [line["event"] for line in lines if line["event"] not in ("message", "unit")]
    assert [event["event"] for event in kept] == shown
