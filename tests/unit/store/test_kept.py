from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from distfms.store import kept as module
from distfms.store.kept import PartialCache, prune
from tests.conformance import engine_tasks as tasks

VALUE = (1, 2, 3)


@pytest.fixture
def cache(tmp_path: Path) -> PartialCache[Any]:
    return PartialCache(tmp_path, tasks.encode, tasks.decode, spec_key="gram-v1")


def get(cache: PartialCache[Any], key: str) -> Any:
    return cache.lookup(key)[0]


def test_round_trip_and_miss(cache: PartialCache[Any], tmp_path: Path) -> None:
    assert get(cache, "a") is None
    n_bytes = cache.put("a", VALUE)
    assert get(cache, "a") == get(pickle.loads(pickle.dumps(cache)), "a") == VALUE
    assert get(cache, "b") is None
    path = cache.path("a")
    assert path.stat().st_size == n_bytes
    relative = path.relative_to(tmp_path)
    assert len(relative.parts) == 3
    assert relative.parts[1] == path.name[:2]
    other = PartialCache(tmp_path, tasks.encode, tasks.decode, spec_key="gram-v")
    assert get(other, "a") is None
    assert other.path("1a") != cache.path("a")  # keys do not run together


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "header", "extend", "other"])
def test_damage_is_detected_and_mended(cache: PartialCache[Any], damage: str) -> None:
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


def test_an_entry_that_cannot_be_decoded_counts_as_damaged(tmp_path: Path) -> None:
    old = PartialCache(tmp_path, lambda text: text.encode(), bytes.decode)
    old.put("a", "not numbers")
    assert PartialCache(tmp_path, tasks.encode, tasks.decode).lookup("a")[1]


def test_prune_drops_what_was_used_least_recently(cache: PartialCache[Any], tmp_path: Path) -> None:
    sizes = {}
    for age, key in enumerate(["new", "old", "older"]):
        sizes[key] = cache.put(key, VALUE)
        os.utime(cache.path(key), (1e9 - age, 1e9 - age))
    get(cache, "older")  # used now
    abandoned, fresh = (cache.path("new").with_name(f".{k}.partial.1-a.tmp") for k in "af")
    for path in (abandoned, fresh):
        path.write_bytes(b"half")
    os.utime(abandoned, (1e9, 1e9))
    assert prune(tmp_path, sizes["new"] + sizes["older"]) == 1
    assert get(cache, "old") is None
    assert get(cache, "new") == get(cache, "older") == VALUE
    assert (abandoned.exists(), fresh.exists()) == (False, True)
    assert prune(tmp_path, 0) == 2
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [fresh.name]


def test_a_cache_is_listed_where_it_may_be_full_and_once_a_day(
    cache: PartialCache[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Any] = []
    before = module.files_below
    monkeypatch.setattr(module, "files_below", lambda f: listed.append(f) or before(f))
    size = cache.put("a", VALUE)
    for number, (added, max_bytes, n_listed) in enumerate(
        [(size, 4 * size, 1), (size, 4 * size, 1), (2 * size, 4 * size, 1), (1, 4 * size, 2)]
    ):
        assert prune(tmp_path, max_bytes, added) == 0, number
        assert len(listed) == n_listed, number
    later = time.time() + 90_000
    monkeypatch.setattr(time, "time", lambda: later)
    prune(tmp_path, 4 * size, 0)
    assert len(listed) == 3
    (tmp_path / ".usage").write_bytes(b"what")
    assert prune(tmp_path, 0, 0) == 1


def test_readers_writers_and_pruning_at_once_never_give_a_wrong_value(tmp_path: Path) -> None:
    cache = PartialCache(tmp_path, encode=str.encode, decode=bytes.decode)
    values = {str(key): str(key) * 2000 for key in range(12)}

    def work(number: int) -> list[bool]:
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
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.partial")) <= 12_000
