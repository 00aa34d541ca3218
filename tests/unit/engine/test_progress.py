from __future__ import annotations

import io
from typing import Any

from distfms.engine.progress import BarProgress, LineProgress, open_progress, tee


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def unit(done: int, cached: int = 0) -> dict[str, Any]:
    return {"event": "unit", "done": done, "total": 9, "cached": cached, "bytes": done * 1024}


def test_the_stream_decides() -> None:
    with open_progress("Reading", io.StringIO()) as plain, open_progress("R", Terminal()) as bar:
        assert isinstance(plain, LineProgress)
        assert isinstance(bar, BarProgress)


def test_a_line_every_few_seconds_and_the_last_one() -> None:
    stream = io.StringIO()
    now = iter([0.0, 1.0, 4.9, 5.0, 6.0, 11.0, 11.5])
    with LineProgress("Reading", stream, interval_s=5.0, clock=lambda: next(now)) as progress:
        progress({"event": "pass_started", "total": 9})
        for done in (1, 2, 3, 4, 5):
            progress(unit(done, cached=done // 3))
        progress(unit(9, cached=1))
    assert stream.getvalue().splitlines() == [
        "Reading: 3/9, 1 cached, 3.0 KiB read",
        "Reading: 5/9, 1 cached, 5.0 KiB read",
        "Reading: 9/9, 1 cached, 9.0 KiB read",
    ]


def test_what_went_wrong_is_said_at_once() -> None:
    stream = io.StringIO()
    with LineProgress("Reading", stream) as progress:
        progress({"event": "cache_unwritable", "error": "OSError: full"})
        progress({"event": "cache_corrupt", "key": "u1"})
        progress({"event": "retry", "key": "u2", "n_retries": 2})
        progress({"event": "worker_lost", "n_losses": 1})
        progress({"event": "pass_finished", "total": 9, "computed": 9, "cached": 0, "bytes": 1})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert "OSError: full" in lines[0]
    assert "u1" in lines[1]
    assert "u2" in lines[2]


def test_the_bar_shows_counts() -> None:
    stream = Terminal()
    with open_progress("Reading", stream) as progress:
        progress({"event": "pass_started", "total": 9})
        progress({"event": "cache_unwritable", "error": "disk [full]"})
        progress(unit(9))
        progress.close()
    text = stream.getvalue()
    assert "Reading" in text
    assert "9/9, 9.0 KiB read" in text
    assert "disk [full]" in text


def test_tee_calls_each_in_order() -> None:
    seen: list[str] = []
    tee(lambda e: seen.append("a"), lambda e: seen.append("b"))({"event": "unit"})
    assert seen == ["a", "b"]
