import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest

from distfms.data.files.storage import cache_folder
from distfms.store import kept
from distfms.store.kept import PartialCache, are_kept, kept_files, kept_value, prune
from distfms.store.places import files_below, locate
from distfms.store.remote import RemotePath
from tests.conformance import engine_tasks as tasks

VALUE = (1, 2, 3)


@pytest.fixture
def cache(tmp_path):
    return PartialCache(tmp_path, tasks.encode, tasks.decode, spec_key="gram-v1")


def get(cache, key):
    return cache.lookup(key)[0]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "header", "extend", "other"])
def test_damage_is_detected_and_mended(cache, damage):
    cache.put("a", VALUE)
    cache.put("b", (9,))
    path = cache.path("a")
    raw = path.read_bytes()
    damaged = {
        "flip": raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:],
        "truncate": raw[:-1],
        "empty": b"",
        "header": bytes([raw[0] ^ 1]) + raw[1:],
        "extend": raw + b"0",
        "other": cache.path("b").read_bytes(),
    }
    path.write_bytes(damaged[damage])
    assert cache.lookup("a") == (None, True)
    cache.put("a", VALUE)
    assert get(cache, "a") == VALUE


def test_an_entry_that_cannot_be_decoded_counts_as_damaged(tmp_path):
    old = PartialCache(tmp_path, lambda text: text.encode(), bytes.decode)
    old.put("a", "not numbers")
    assert PartialCache(tmp_path, tasks.encode, tasks.decode).lookup("a")[1]


def test_prune_drops_what_was_used_least_recently(cache, tmp_path):
    sizes = {}
    for age, key in enumerate(["new", "old", "older"]):
        sizes[key] = cache.put(key, VALUE)
        os.utime(cache.path(key), (1e9 - age, 1e9 - age))
    get(cache, "older")  # used now
    abandoned, fresh = (cache.path("new").with_name(f".{k}.kept.1-a.tmp") for k in "af")
    for path in (abandoned, fresh):
        path.write_bytes(b"half")
    os.utime(abandoned, (1e9, 1e9))
    assert prune(tmp_path, sizes["new"] + sizes["older"]) == 1
    assert get(cache, "old") is None
    assert get(cache, "new") == get(cache, "older") == VALUE
    assert (abandoned.exists(), fresh.exists()) == (False, True)
    assert prune(tmp_path, 0) == 2
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [fresh.name]


def test_a_value_is_made_once_for_all_it_depends_on(tmp_path):
    made = []

    def value(*dependencies):
        def make():
            made.append(dependencies)
            return repr(dependencies).encode()

        return kept_value(tmp_path, "types", dependencies, make)

    assert value(1, "a.csv") == value(1, "a.csv") == b"(1, 'a.csv')"
    assert value(2, "a.csv") != value(1, "a.csv")
    assert made == [(1, "a.csv"), (2, "a.csv")]
    for place in (tmp_path / "types").iterdir():
        place.write_bytes(place.read_bytes()[:-1])
    assert value(1, "a.csv") == b"(1, 'a.csv')"
    assert len(made) == 3


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_files_appear_whole_or_not_at_all_whatever_others_do(tmp_path, monkeypatch, storage):
    root = locate(tmp_path if storage == "folder" else f"memory://kept{tmp_path}")
    n_made = []
    write = RemotePath.put

    def put(place, content):
        prune(root, 0)
        with suppress(ZeroDivisionError):  # another writer
            kept_files(root, "copies", [1], lambda folder: 1 / 0)
        write(place, content)

    def make(folder):
        n_made.append(1)
        (folder / "data").mkdir()
        (folder / "data/a").write_text("first")
        if len(n_made) == 1:
            raise RuntimeError("killed")
        (folder / "b").write_text("second")
        os.utime(folder / "b", (1e9, 1e9))  # as of the file that it is made from
        prune(root, 0)

    monkeypatch.setattr(RemotePath, "put", put)

    with pytest.raises(RuntimeError):
        kept_files(root, "copies", [1], make)
    assert not are_kept(root, "copies", [1])
    place = kept_files(root, "copies", [1], make)
    assert kept_files(root, "copies", [1], make) == place
    assert [e.name for e in files_below(place) if e.place.name != ".whole"] == ["b", "data/a"]
    (place / ".whole").unlink()  # as of a writer, or a pruning, that was killed
    assert kept_files(root, "copies", [1], make) == place
    assert len(n_made) == 3


def test_files_stay_for_a_day_after_their_last_use(tmp_path):
    places = [kept_files(tmp_path, "copies", [n], lambda p: (p / "a").touch()) for n in range(3)]
    for days, place in enumerate(places):
        then = time.time() - (days + 0.5) * 86_400
        (place / "a").write_bytes(bytes(100))
        for file in place.iterdir():
            os.utime(file, (then, then))
    assert kept_files(tmp_path, "copies", [1], lambda p: None) == places[1]  # used now
    assert prune(tmp_path, 0) == 1
    assert [place.exists() for place in places] == [True, True, False]


def test_what_is_used_while_others_are_listed_is_not_pruned(tmp_path, monkeypatch):
    place = kept_files(tmp_path, "copies", [], lambda folder: (folder / "a").touch())
    then = time.time() - 2 * 86_400
    for file in place.iterdir():
        os.utime(file, (then, then))
    listed = kept._entries(tmp_path)
    monkeypatch.setattr(kept, "_entries", lambda folder: listed)
    assert are_kept(tmp_path, "copies", [])
    prune(tmp_path, 0)
    assert (place / "a").exists()


def test_a_folder_that_is_pruned_does_not_come_back_empty(tmp_path, monkeypatch):
    place = kept_files(tmp_path, "copies", [], lambda folder: (folder / "a").touch())
    entry = SimpleNamespace(modified_s=0)
    monkeypatch.setattr(kept, "file_entry", lambda mark: shutil.rmtree(place) or entry)
    assert are_kept(tmp_path, "copies", []) == (place / "a").exists()


def test_readers_writers_and_pruning_at_once_never_give_a_wrong_value(tmp_path):
    cache = PartialCache(tmp_path, encode=str.encode, decode=bytes.decode)
    values = {str(key): str(key) * 2000 for key in range(12)}

    def work(number):
        right = []
        for turn in range(60):
            key = str((number * 7 + turn) % len(values))
            right.append(cache.lookup(key) in ((None, False), (values[key], False)))
            cache.put(key, values[key])
            if turn % 5 == number:
                prune(tmp_path, max_bytes=12_000)
        return right

    with ThreadPoolExecutor(5) as pool:
        assert all(all(right) for right in pool.map(work, range(5)))
    prune(tmp_path, max_bytes=12_000)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kept")) <= 12_000


def test_only_what_is_kept_is_pruned(tmp_path, monkeypatch):
    """A folder that the user has named may hold other things."""
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path))
    foreign = [tmp_path / "project/.git/config", tmp_path / "project/data/a.kept"]
    for path in foreign:
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100))
        os.utime(path, (1e9, 1e9))
    kept_value(cache_folder(), "types", [1], lambda: b"value")
    assert prune(cache_folder(), 0) == 1
    assert all(path.exists() for path in foreign)
