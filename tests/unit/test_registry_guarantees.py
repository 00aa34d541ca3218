"""What a registry keeps when records are damaged, clocks are wrong, or somebody writes to it."""

import json
import os

import pytest

from distfms.errors import SpecError
from distfms.registry import Change, Registry, Version
from distfms.store import places
from tests.unit.test_registry import files, filled

DAMAGES = [b"{", b"[]", b"", b"\xff", b'{"number": Infinity}', "no token", "a pipe"]


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


@pytest.fixture
def noted():
    return []


@pytest.fixture
def registry(tmp_path, noted):
    return filled(Registry(tmp_path / "registry", noted.append))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [Version, Change])
def test_a_damaged_record_is_passed_over_and_named(registry, noted, kind, damage):
    filled(Registry(registry.root.parent / "other"))
    (registry.root.parent / "other/a").rename(registry.root / "other")
    place = registry.log("a", kind).place(3)
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
        place = registry.log("a", Version).place(1)
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
    place = registry.log("a", Version).place(3)
    place.write_text(json.dumps({**json.loads(place.read_text()), "form": 99}))
    with pytest.raises(SpecError, match="written by another version of distfms"):
        registry.read("a")
    assert registry.last("a").version == 3


@pytest.mark.parametrize("number", [0, -1, 10**8, int("9" * 300)])
def test_no_such_number(registry, number):
    with pytest.raises(SpecError, match="has no version"):
        registry.version("a", number)
