"""What the command line and the entry point of clusters print when they are asked for JSON."""

import json
import re

import pytest

from distfms.cli import entry
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


def enter(*arguments):
    """Exit code of the entry point of clusters."""
    with pytest.raises(SystemExit) as ended:
        entry.main([str(argument) for argument in arguments])
    return ended.value.code


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


def test_entry_prints_events_where_the_variable_says_so(spec, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DISTFMS_LOG", "json")
    given = [spec, "--engine", "local", "--set", f'output="{tmp_path}"']
    assert enter(*given) == 0
    lines = parsed(capsys.readouterr().out)
    assert [line["event"] for line in lines].count("done") == 1
    assert enter(*given, "--set", "data.target=nothing") == 2
    out, err = capsys.readouterr()
    last = parsed(out)[-1]
    assert (last["level"], last["event"]) == ("error", "failed")
    assert err == f"Error: {last['fields']['error']}\n"
