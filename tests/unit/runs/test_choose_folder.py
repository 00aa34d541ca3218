"""Which run folder a job takes."""

import json
import os

import pytest

from distfms.errors import SpecError
from distfms.runs.finished import open_run
from distfms.runs.folder import SCHEMA_VERSION
from distfms.runs.job_folder import choose_folder
from distfms.store.places import remove_tree

IDENTITY = "0123456789abcdef"

#: Manifests that no distfms has written, and what is said of them.
DAMAGED = {
    "cut off": (b"{", "Expecting property name"),
    "text for stages": (b'{"stages": "none"}', "stages: Input should be a valid list"),
    "stage without files": (b'{"stages": [{"name": "x"}]}', "stages.0.files: Field required"),
    "nested deeply": (b"[" * 100_000, "recursion"),
    "no text": (b"\xff\xfe\x00", "codec can't decode"),
    "another form": (b'{"schema": 99, "distfms": "9.0"}', "written by distfms 9.0 in a form"),
}


@pytest.fixture
def runs(tmp_path):
    def add(name, **content):
        name = name if name.count("-") > 2 else f"{name}-{IDENTITY[:8]}"
        (tmp_path / "job" / name).mkdir(parents=True)
        manifest = {"schema": SCHEMA_VERSION, "identity": IDENTITY, "status": "failed", **content}
        (tmp_path / "job" / name / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path / "job" / name

    return add


def choose(tmp_path, name="job", out=None, say=pytest.fail):
    return choose_folder(out, tmp_path / name, IDENTITY, say)


def test_the_latest_unfinished_one(runs, tmp_path):
    assert choose(tmp_path, "none").name.endswith("-01234567")
    runs("2026-01-01")
    expected = runs("2026-01-02")
    runs("2026-01-03", status="done")
    runs("2026-01-04", identity="other")
    (tmp_path / "job" / f"2026-01-06-{IDENTITY[:8]}" / "manifest.json").mkdir(parents=True)
    pipe = runs("2026-01-08") / "manifest.json"
    pipe.unlink()
    os.mkfifo(pipe)
    (runs("2026-01-07-fedcba98") / "manifest.json").write_text("not looked at")
    assert choose(tmp_path) == expected


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_run_is_in_nobodys_way(runs, tmp_path, damage):
    payload, reason = DAMAGED[damage]
    expected = runs("2026-01-01")
    damaged = runs("2026-01-02")
    notes = []
    (damaged / "manifest.json").write_bytes(payload)
    assert choose(tmp_path, say=notes.append) == expected
    assert len(notes) == 1
    assert notes[0].startswith(f"Note: skipping the run {damaged}. {damaged}")
    for use in (lambda: choose(tmp_path, out=damaged), lambda: open_run(damaged)):
        with pytest.raises(SpecError, match=reason):
            use()
    if damage != "another form":
        assert f"Delete the whole folder {damaged}" in notes[0]
        remove_tree(damaged)
        assert choose(tmp_path, out=damaged) == damaged


def test_names_ascend_also_within_a_second(runs, tmp_path):
    names = []
    for identity in ("9999", "5555", "1111"):
        path = choose_folder(None, tmp_path / "job", identity, pytest.fail)
        names.append(runs(path.name, identity=identity, status="done").name)
    assert names == sorted(names)
    # A folder without a manifest is not taken either.
    (tmp_path / "none" / choose(tmp_path, "none").name).mkdir(parents=True)
    assert not choose(tmp_path, "none").exists()
