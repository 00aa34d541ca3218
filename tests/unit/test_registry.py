import json
import multiprocessing
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from distfms.errors import EngineError, SpecError
from distfms.registry import Lock, Registry
from distfms.registry import journal as locks
from distfms.store import places
from distfms.store.places import locate


def files(number: int) -> dict[str, bytes]:
    return {"model.json": json.dumps(number).encode(), "weights.npz": bytes([number]) * 100}


@pytest.fixture(params=["folder", "memory"])
def registry(request, tmp_path):
    place = tmp_path / "registry" if request.param == "folder" else f"memory://r{tmp_path}"
    return Registry(locate(place))


def filled(registry: Registry, n: int = 3) -> Registry:
    for number in range(1, n + 1):
        parent = number - 1 or None
        registry.add("a", files(number), {"loss": 1 / number, "rows": {"train": number}}, parent)
        registry.promote("a", number, expected=parent)
    return registry


@pytest.mark.parametrize("expected", [None, 1])
def test_a_decision_that_was_based_on_another_version_is_not_carried_out(registry, expected):
    filled(registry, 2)
    version = registry.add("a", files(3), {}, expected)
    with pytest.raises(EngineError, match="version 2 is current now"):
        registry.promote("a", version.number, expected=expected)
    assert registry.last("a").version == 2


def test_unknown_names_and_versions_are_refused(registry):
    with pytest.raises(SpecError, match=r"no model 'a'\. It has none yet"):
        registry.read("a")
    filled(registry)
    with pytest.raises(SpecError, match="no model 'b'"):
        registry.read("b")
    with pytest.raises(SpecError, match=r"'a' has no version 9\. The last ones are 1, 2, 3,"):
        registry.promote("a", 9)
    with pytest.raises(SpecError, match=r"not a model name: .*as in `a-b-c`"):
        registry.read("../a b/c")
    registry.add("c", files(1), {})
    with pytest.raises(SpecError, match="'c' has no current version"):
        registry.read("c")


@pytest.mark.usefixtures("impatient")
def test_an_expired_lock_is_taken_over_and_its_owner_told(registry, monkeypatch):
    filled(registry, 1)
    with registry.locked("a", "night") as renew, ExitStack() as day:
        with monkeypatch.context() as patched:  # as if the process had stood still
            patched.setattr(places, "clock", lambda folder: time.time() + 61)
            day.enter_context(registry.locked("a", "day"))
        with pytest.raises(EngineError, match="night on 'a' has expired, and day has taken it"):
            renew()
        with pytest.raises(EngineError, match="day is working"):
            registry.locked("a", "noon").__enter__()
    with registry.locked("a", "noon"):
        pass


def _hold(registry, name, told):
    with registry.locked(name, "night"):
        told.send(True)
        time.sleep(60)


def test_the_lock_of_a_killed_process_of_this_machine_is_free_at_once(tmp_path):
    registry = filled(Registry(tmp_path), 1)
    context = multiprocessing.get_context("spawn")
    heard, told = context.Pipe()
    process = context.Process(target=_hold, args=(registry, "a", told))
    process.start()
    assert heard.poll(30)
    process.kill()
    process.join()
    began = time.monotonic()
    with registry.locked("a", "day"):
        assert time.monotonic() - began < 5
    # One that came from another machine, where processes have other numbers, may be alive.
    journal = registry.journal("a", Lock)
    lock = Lock(number=3, owner="night", until=time.time() + 60, process="elsewhere 1 1")
    journal.write(lock)
    assert locks._expires(journal, lock) is not None


def test_who_finds_a_lock_held_says_so_and_waits(registry):
    filled(registry, 1)
    noted = []
    night = ExitStack()
    night.enter_context(registry.locked("a", "night"))
    ending = threading.Timer(0.5, night.close)
    ending.start()
    with replace(registry, note=noted.append).locked("a", "day"):
        assert not ending.is_alive()
    assert noted == ["night is working on 'a': waiting for at most 600 s."]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "registry").write_text("a file")
    registry = Registry(tmp_path / "registry")
    with pytest.raises(SpecError, match="a file is where a folder must be"):
        registry.names()
    with pytest.raises(SpecError, match="a file is where a folder must be"):
        registry.add("a", files(1), {})


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path):
    registry = filled(Registry(tmp_path))
    for name, age in (("young", 60), ("old", 90_000)):
        left: Path = tmp_path / "a/files" / name / "model.json"
        left.parent.mkdir()
        left.write_bytes(b"")
        os.utime(left, (time.time() - age,) * 2)
        temporary = tmp_path / f"a/changes/.{name}.tmp"
        temporary.touch()
        os.utime(temporary, (time.time() - age,) * 2)
    gone = registry.files("a", registry.version("a", 1))
    for file in gone.iterdir():
        os.utime(file, (time.time() - 90_000,) * 2)
    registry.gc("a", keep=1)
    assert [p.name for p in tmp_path.glob("a/changes/.*")] == [".young.tmp"]
    assert not (tmp_path / "a/files/old").exists()
    assert (tmp_path / "a/files/young").exists()
    assert not gone.exists()
    assert registry.read("a")[1] == files(3)
    assert registry.read("a", 2)[1] == files(2)
