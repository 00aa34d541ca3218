"""What a registry keeps when records are damaged, clocks are wrong, or somebody writes to it."""

import json
import os
import time
from contextlib import nullcontext

import pytest

from distfms.errors import EngineError, SpecError
from distfms.registry import Registry
from distfms.registry import journal as registry_journal
from distfms.registry.journal import Change, Journal, Lock, Version
from distfms.store import places
from distfms.store.places import locate
from tests.unit.test_registry import files, filled

DAMAGES = [b"{", b"[]", b"", b"\xff", b'{"until": Infinity}', "no token", "a pipe"]


def spoil(place, damage):
    if damage == "no token":
        content = json.loads(place.read_bytes())
        del content["token"]
        damage = json.dumps(content).encode()
    place.unlink()
    if damage == "a pipe":
        os.mkfifo(place)
    else:
        place.write_bytes(damage)
        os.utime(place, (0, 0))  # a lock of which nothing else is known holds for a minute


@pytest.fixture
def noted():
    return []


@pytest.fixture
def registry(tmp_path, noted):
    return filled(Registry(tmp_path / "registry", noted.append))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [Version, Change, Lock])
def test_a_damaged_record_is_passed_over_and_named(registry, noted, kind, damage):
    filled(Registry(registry.root.parent / "other"))
    (registry.root.parent / "other/a").rename(registry.root / "other")
    with registry.locked("a", "night"):
        pass
    place = registry.journal("a", kind).place(3 if kind is not Lock else 1)
    spoil(place, damage)
    assert registry.names() == ["a", "other"]
    good = [1, 2] if kind is Version else [1, 2, 3]
    assert [v.number for v in registry.versions("a")] == good
    assert (str(place) in "".join(noted)) == (kind is Version)
    assert registry.read("a", 2)[1] == files(2)
    if kind is Version:
        with pytest.raises(SpecError, match=r"00000003.json is damaged .*models promote a@"):
            registry.read("a")
    (problem,) = registry.verify("a")
    assert str(place) in problem
    assert registry.last("a").version == (2 if kind is Change else 3)
    assert registry.rollback("a").version == (1 if kind is Change else 2)
    # Numbers are not used again.
    assert registry.history("a")[-1].number == 4
    assert registry.add("a", files(7), {}).number == 4


@pytest.mark.parametrize("damaged", ["version", "file", "gone"])
def test_the_only_version_is_damaged(tmp_path, noted, damaged):
    registry = filled(Registry(tmp_path, noted.append), 1)
    place = registry.files("a", registry.version("a")) / "weights.npz"
    if damaged != "file":
        place = registry.journal("a", Version).place(1)
    payload = bytearray(place.read_bytes())
    payload[20] ^= 1
    place.write_bytes(payload)
    if damaged == "gone":
        place.unlink()
    else:
        with pytest.raises(SpecError, match="is damaged"):
            registry.promote("a", 1)
    assert len(registry.verify("a")) == 1
    version = registry.add("a", files(1), {})
    registry.promote("a", version.number, expected=1)
    assert registry.read("a")[1] == files(1)


def test_a_damaged_version_is_not_promoted(registry):
    place = registry.files("a", registry.version("a", 1)) / "model.json"
    place.write_bytes(b"other")
    with pytest.raises(SpecError, match="Version 1 of 'a' is damaged"):
        registry.promote("a", 1)
    assert registry.last("a").version == 3
    # The same files are a version of their own then.
    assert registry.add("a", files(1), {}).number == 4


@pytest.mark.usefixtures("impatient")
def test_the_lock_outlasts_a_hiccup_of_the_storage(registry, monkeypatch):
    write, failed = Journal.write, []

    def fails(journal, record, **options):
        if journal.kind is Lock and options and len(failed) < 2:
            failed.append(SpecError("Read-only file system"))
            raise failed[-1]
        return write(journal, record, **options)

    monkeypatch.setattr(Journal, "write", fails)
    monkeypatch.setattr(registry_journal, "LOCK_S", 0.8)
    with registry.locked("a", "night") as renew:
        time.sleep(1.2)
        assert len(failed) == 2
        with pytest.raises(EngineError, match="night is working"):
            registry.locked("a", "day").__enter__()
        failed.clear()
        renew()


@pytest.mark.usefixtures("impatient")
def test_clocks_that_are_wrong(registry, monkeypatch):
    token = registry.root / "a/files/being-added"
    token.mkdir()
    (token / "model.json").touch()
    now = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + 2 * 86_400)
        registry.gc("a", keep=3)
        assert token.exists()
        night = registry.locked("a", "night")
        night.__enter__()
    with pytest.raises(EngineError, match=r"its lock expires at 20\d\d-\d\d-\d\d \d\d:"):
        registry.locked("a", "day").__enter__()
    night.gen.close()
    journal = registry.journal("a", Lock)
    # Its owner was killed; then the clock was set back, and the times of files are ahead with it.
    # Where the storage knows no times, the owner's clock has to do.
    for told, ahead, holds in (
        (True, 30 * 86_400, False),
        (True, -61, False),
        (False, 30 * 86_400, False),
        (False, -1, False),
        (False, 50, True),
    ):
        if not told:
            monkeypatch.setattr(places, "file_entry", lambda place: None)
        journal.write(Lock(number=1, owner="night", until=now() + ahead, seconds=60), again=True)
        os.utime(journal.place(1), (now() + ahead,) * 2)
        kept_out = pytest.raises(EngineError, match="night is") if holds else nullcontext()
        with kept_out, registry.locked("a", "day"):
            pass
        journal.place(2).unlink(missing_ok=True)


def test_each_change_is_written_once_and_says_who_and_why(tmp_path):
    registry = filled(Registry(tmp_path), 2)
    for number in range(120):
        registry.promote("a", 1 + number % 2, because="a trial")
    history = registry.history("a")
    assert len(history) == 122
    assert {change.because for change in history[2:]} == {"a trial"}
    assert all("@" in change.author for change in history)
    sizes = {entry.n_bytes for entry in places.files_below(tmp_path / "a/changes")}
    assert max(sizes) < min(sizes) + 20


def test_a_record_of_another_form_is_left_alone(registry):
    place = registry.journal("a", Version).place(3)
    place.write_text(json.dumps({**json.loads(place.read_text()), "form": 99}))
    with pytest.raises(SpecError, match="written by another version of distfms"):
        registry.read("a")
    assert registry.last("a").version == 3


@pytest.mark.parametrize("number", [0, -1, 10**8, int("9" * 300)])
def test_no_such_number(registry, number):
    with pytest.raises(SpecError, match="has no version"):
        registry.version("a", number)


def test_the_same_on_object_storage(noted):
    registry = filled(Registry(locate("memory://guarantees"), noted.append))
    registry.journal("a", Change).place(3).put(b"{")
    assert len(registry.verify("a")) == 1
    assert registry.last("a").version == 2
    assert registry.promote("a", 3).number == 4
    assert noted == []
