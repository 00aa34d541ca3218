"""Which run folder a job goes on in."""

import json

import pytest

from distfms.engine.storage import remove_tree
from distfms.runs import driver
from distfms.runs.driver import _unfinished_or_new
from distfms.runs.folder import SCHEMA_VERSION

IDENTITY = "0123456789abcdef"


@pytest.fixture
def runs(tmp_path):
    def add(name, **content):
        (tmp_path / name).mkdir()
        manifest = {"schema": SCHEMA_VERSION, "identity": IDENTITY, "status": "failed", **content}
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path / name

    return add


def test_the_latest_unfinished_one(runs, tmp_path):
    assert _unfinished_or_new(tmp_path / "none", IDENTITY).name.endswith("-01234567")
    runs("2026-01-01")
    wanted = runs("2026-01-02")
    runs("2026-01-03", status="done")
    runs("2026-01-04", identity="other")
    (runs("2026-01-05") / "manifest.json").write_text("{")
    (tmp_path / "2026-01-06" / "manifest.json").mkdir(parents=True)
    assert _unfinished_or_new(tmp_path, IDENTITY) == wanted


def test_a_run_that_is_removed_meanwhile_is_passed_over(runs, tmp_path, monkeypatch):
    first, last = runs("2026-01-01"), runs("2026-01-03", status="done")
    gone, seen, goes_on = runs("2026-01-02"), [], driver._goes_on

    def removing(path, content, identity):
        seen.append(path)
        remove_tree(gone)
        return goes_on(path, content, identity)

    monkeypatch.setattr(driver, "_goes_on", removing)
    assert _unfinished_or_new(tmp_path, IDENTITY) == first
    assert seen == [last, first]
