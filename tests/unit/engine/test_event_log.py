from __future__ import annotations

import ast
import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import distfms
from distfms.engine.event_log import EVENTS, JsonLog, open_log
from distfms.errors import DataError, SpecError

KEYS = ["time", "level", "event", "run", "stage", "fields"]
ROOT = Path(distfms.__file__).parents[1]


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def unit(done: int, total: int = 9) -> dict[str, Any]:
    return {"event": "unit", "done": done, "total": total, "cached": 0, "bytes": 7}


def test_every_line_has_the_same_keys() -> None:
    stream = io.StringIO()
    with JsonLog(stream) as log:
        log.say("  Reads 5 rows\n")
        log({"event": "begin", "run": "r1", "attempt": 1})
        log({"event": "stage", "stage": "select"})
        log({"event": "retry", "key": "u", "n_retries": 2})
        log({"event": "stage_done", "stage": "select", "seconds": 1.5})
        log({"event": "not known yet", "path": Path("a"), "text": "zwölf\n"})
        log({"event": "failed", "error": "no"})
    found = lines(stream)
    assert all(list(line) == KEYS for line in found)
    told = [(line["level"], line["event"], line["run"], line["stage"]) for line in found]
    assert told == [
        ("info", "message", None, None),
        ("info", "begin", "r1", None),
        ("info", "stage", "r1", "select"),
        ("warning", "retry", "r1", "select"),
        ("info", "stage_done", "r1", "select"),
        ("info", "not known yet", "r1", None),
        ("error", "failed", "r1", None),
    ]
    assert found[0]["fields"] == {"text": "Reads 5 rows"}
    assert found[3]["fields"] == {"key": "u", "n_retries": 2}
    assert found[5]["fields"] == {"path": "a", "text": "zwölf\n"}
    assert datetime.fromisoformat(found[0]["time"]).tzinfo is not None
    assert found[0]["time"].endswith("Z")


def test_frequent_events_now_and_then_and_the_last() -> None:
    stream, now = io.StringIO(), iter([0.0, 1.0, 4.9, 5.0, 6.0, 7.0, 13.0])
    log = JsonLog(stream, interval_s=5.0, clock=lambda: next(now))
    for done in (1, 2, 3, 4, 9):
        log(unit(done))
    for step in (1, 2):
        log({"event": "pool_step", "step": step, "seconds": 0.1})
    assert [line["fields"].get("done") or line["fields"]["step"] for line in lines(stream)] == [
        1, 4, 9, 1, 2,
    ]  # fmt: skip


def test_an_error_is_told_once() -> None:
    stream = io.StringIO()
    with pytest.raises(DataError), JsonLog(stream):
        raise DataError("no such column")
    (line,) = lines(stream)
    assert (line["event"], line["fields"]) == ("failed", {"error": "no such column"})
    log = JsonLog(stream)
    log({"event": "failed", "error": "told"})
    with pytest.raises(DataError), log:
        raise DataError("told")
    with pytest.raises(KeyboardInterrupt), JsonLog(stream):
        raise KeyboardInterrupt
    errors = [line["fields"].get("error") for line in lines(stream)]
    assert errors == ["no such column", "told", None]
    last = lines(stream)[-1]
    assert (last["level"], last["event"], last["fields"]) == ("warning", "interrupted", {})


def test_kinds_of_logs(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    with open_log("text", said.append) as (say, progress):
        say("hello")
        progress(unit(9))
    with open_log("json", said.append) as (say, progress):
        say("hello")
        progress(unit(9))
    assert said == ["hello"]
    out, err = capsys.readouterr()
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["message", "unit"]
    assert err == "Reading: 9/9, 7 B read\n"
    with pytest.raises(SpecError, match=r"'xml'.*DISTFMS_LOG.*text, json"), open_log("xml", print):
        pass


def test_every_event_there_is_is_listed() -> None:
    """Whatever the sources emit has its level and its fields in the table, and nothing else has."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "distfms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys = {k.value: v for k, v in zip(node.keys, node.values, strict=True)
                        if isinstance(k, ast.Constant)}  # fmt: skip
                kind = keys.pop("event", None)
                fields = set(keys)
            elif isinstance(node, ast.Call):
                keywords = {word.arg: word.value for word in node.keywords if word.arg}
                method = getattr(node.func, "attr", None)
                emits = method == "emit" and "event" in keywords
                records = method == "event" and node.args
                kind = keywords.pop("event", None) if emits else node.args[0] if records else None
                fields = set(keywords)
            else:
                continue
            if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                found.setdefault(kind.value, set()).update(fields)
    # The driver's spread their fields, and a line for people is no dictionary.
    assert set(found) | {"message"} == set(EVENTS)
    for kind, fields in found.items():
        assert fields <= set(EVENTS[kind].fields), kind


def test_the_table_for_people_is_the_table() -> None:
    text = (ROOT / "cluster" / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    for kind, about in EVENTS.items():
        fields = ", ".join("…" if name == "…" else f"`{name}`" for name in about.fields)
        assert rows[kind] == f"{about.level} | {about.text} | {fields}", kind
