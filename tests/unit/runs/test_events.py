"""Events as they are shown: a bar, lines for people, JSON for collectors of logs."""

import ast
import io
import json
import re
from pathlib import Path

import pytest

import distfms
from distfms.errors import DataError, SpecError
from distfms.runs.events import LEVELS, Recorder, TextLog, open_log
from distfms.runs.folder import RunFolder
from distfms.store.places import locate

KEYS = ["time", "level", "event", "run", "stage", "fields"]
ROOT = Path(distfms.__file__).parents[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def unit(done, cached=0):
    n_bytes = done * 1024
    return {"event": "unit", "done": done, "total": 9, "cached": cached, "bytes": n_bytes}


def parsed(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# --- for people ---------------------------------------------------------------------------------


def test_a_line_every_few_seconds_and_the_last_one(monkeypatch):
    stream = io.StringIO()
    now = iter([0.0, 0.0, 1.0, 4.9, 5.0, 6.0, 11.0])
    monkeypatch.setattr("distfms.runs.events.monotonic", now.__next__)
    log = TextLog(stream)
    for done in (1, 2, 3, 4, 5):
        log(unit(done, cached=done // 3))
    log(unit(9, cached=1))
    assert stream.getvalue().splitlines() == [
        "Reading: 4/9, 1 cached, 4.0 KiB read",
        "Reading: 9/9, 1 cached, 9.0 KiB read",
    ]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["plain", "terminal"])
def test_what_went_wrong_is_said_at_once(stream):
    log = TextLog(stream)
    log({"event": "cache_unwritable", "error": "disk [full]"})
    log({"event": "retry", "key": "u2", "n_retries": 2})
    log({"event": "pass_finished", "total": 9, "computed": 9, "cached": 0, "bytes": 1})
    log(unit(9))
    log.close()
    text = stream.getvalue()
    assert "disk [full]" in text
    assert "u2 succeeded after retries: 2" in text
    assert "9/9, 9.0 KiB read" in text


# --- JSON ---------------------------------------------------------------------------------------


def test_an_error_is_told_once():
    stream = io.StringIO()
    with pytest.raises(DataError), open_log("json", print, stream=stream):
        raise DataError("no such column")
    with open_log("json", print, stream=stream) as (*_, log):
        log({"event": "failed", "error": "told"})
        log.end(DataError("told"))
    with pytest.raises(KeyboardInterrupt), open_log("json", print, stream=stream):
        raise KeyboardInterrupt
    assert [(line["level"], line["event"], line["fields"]) for line in parsed(stream)] == [
        ("error", "failed", {"error": "no such column"}),
        ("error", "failed", {"error": "told"}),
        ("warning", "interrupted", {}),
    ]


@pytest.mark.parametrize(
    ("kind", "quiet", "said", "out", "err"),
    [
        ("text", False, ["result", "more"], [], ["Reading: 9/9, 9.0 KiB read"]),
        ("text", True, ["result"], [], []),
        ("json", False, [], ["message", "message", "stage", "unit"], []),
        ("json", True, [], ["message", "stage", "unit"], []),
    ],
)
def test_kinds_of_logs(capsys, kind, quiet, said, out, err):
    lines = []
    with open_log(kind, lines.append, quiet) as (tell, say, display):
        tell("result")
        say("more")
        display({"event": "stage", "stage": "select"})
        display(unit(9))
    found = capsys.readouterr()
    assert lines == said
    assert [json.loads(line)["event"] for line in found.out.splitlines()] == out
    assert found.err.splitlines() == err


def test_other_kinds_of_logs_are_refused():
    with pytest.raises(SpecError, match=r"DISTFMS_LOG.*'xml'.*text, json"), open_log("xml", print):
        pass


# --- the run ------------------------------------------------------------------------------------


def test_events_of_later_attempts_follow_earlier_ones_where_files_cannot_be_appended_to(tmp_path):
    place = locate(f"memory://events{tmp_path}")
    for kind in ("stopped", "resumed"):
        folder = RunFolder(place)
        folder.claim()
        with Recorder(folder, print, lambda event: None) as record:
            record.event(kind)
            record.flush()
            record.event("end")
    lines = (place / "events.jsonl").read_bytes().splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    assert kinds == ["stopped", "end", "resumed", "end"]


def test_of_many_passes_few_ends_are_shown():
    shown = []
    record = Recorder(None, print, shown.append)
    for number in range(50):
        record.iteration(unit(9))
        record.iteration({"event": "note", "text": str(number)})
    assert sum(event["event"] == "unit" for event in shown) < 5
    assert sum(event["event"] == "note" for event in shown) == 50


# --- the table for people -----------------------------------------------------------------------


def _emitted():
    """Kinds of events in the sources, with the fields that are written out there."""
    for path in (ROOT / "distfms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                fields = {getattr(key, "value", None): value for key, value in
                          zip(node.keys, node.values, strict=True)}  # fmt: skip
                kind = fields.pop("event", None)
            elif isinstance(node, ast.Call):
                fields = {word.arg: word.value for word in node.keywords if word.arg}
                method = getattr(node.func, "attr", None)
                kind = node.args[0] if method in ("event", "_event") and node.args else None
            else:
                continue
            if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                yield kind.value, {name for name in fields if name}


def table():
    """Level and fields of each event, as the table for people has them."""
    text = (ROOT / "cluster" / "README.md").read_text().partition("## Metrics")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .* \|(.*)\|$", text, re.MULTILINE)
    return {kind: (level, fields.replace("`", "")) for kind, level, fields in rows}


def test_the_table_of_events_is_true():
    rows = {k: (level, set(re.findall(r"\w+", fields))) for k, (level, fields) in table().items()}
    emitted = list(_emitted())
    for kind, fields in emitted:
        assert fields <= rows[kind][1], kind
    assert set(rows) == {"message", *(kind for kind, _ in emitted)}
    assert {kind: level for kind, (level, _) in rows.items() if level != "info"} == LEVELS
