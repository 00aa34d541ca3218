"""A registry on storage that fails at one write, or cannot say that it has written."""

import errno
import itertools
import uuid
from pathlib import Path

import pytest

from distfms.engine.storage import locate
from distfms.errors import DistfmsError, EngineError
from distfms.registry import Registry
from tests.remote_systems import FaultyFileSystem, registered

OLD, NEW = (dict.fromkeys(("model", "weights"), tag * 3) for tag in (b"old", b"new"))
#: Two files, the version, the change.
N_WRITES = 4


@pytest.fixture
def registry():
    with registered("memory", FaultyFileSystem):
        FaultyFileSystem.reset()
        registry = Registry(locate(f"memory://{uuid.uuid4().hex}"))
        renew(registry, OLD)
        yield registry
        FaultyFileSystem.reset()


def renew(registry, files):
    number = registry.last("m").version
    registry.promote("m", registry.add("m", files, {}, number).number, expected=number)


@pytest.mark.parametrize("failing", range(N_WRITES))
@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_in_place_stays_until_all_is_written(registry, failing, lasting):
    FaultyFileSystem.reset(failing=failing + (not lasting), lasting=lasting)
    with pytest.raises(EngineError, match="the storage has failed"):
        renew(registry, NEW)
    assert FaultyFileSystem.n_puts == failing + 1
    assert registry.read("m")[1] == OLD
    # Whatever was finished is not written again: a version that was added is found.
    FaultyFileSystem.reset()
    renew(registry, NEW)
    assert FaultyFileSystem.n_puts == (1 if failing == N_WRITES - 1 else N_WRITES)
    assert registry.read("m")[1] == NEW
    assert [version.number for version in registry.versions("m")] == [1, 2]


def test_an_answer_that_was_lost_is_found_out(registry, monkeypatch):
    """The client puts once more, and is told that there is an object: its own."""
    put = FaultyFileSystem.pipe_file

    def lost(self, path, value, **options):
        put(self, path, value, **options)
        if options.get("mode") == "create":
            raise FileExistsError(path)

    monkeypatch.setattr(FaultyFileSystem, "pipe_file", lost)
    renew(registry, NEW)
    assert registry.read("m")[1] == NEW
    assert len(registry.history("m")) == 2
    assert len(registry.versions("m")) == 2


@pytest.mark.parametrize("failing", range(N_WRITES))
def test_a_full_disk_leaves_what_is_in_place_and_nothing_half_written(
    tmp_path, monkeypatch, failing
):
    registry, n_writes = Registry(tmp_path), 0
    renew(registry, OLD)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    write = Path.write_bytes

    def full(path, content):
        nonlocal n_writes
        n_writes += 1
        if n_writes > failing:
            write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(EngineError, match="The disk is full"):
        renew(registry, NEW)
    assert n_writes == failing + 1
    assert registry.read("m")[1] == OLD
    now = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(now) == len(files) + failing
    assert not [path for path in now if path.suffix == ".tmp"]
    monkeypatch.undo()
    renew(registry, NEW)
    assert registry.read("m")[1] == NEW


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        *itertools.product(("versions", "changes", "files"), (0, 1, 100, -1)),
        ("files", None),  # gone
    ],
)
def test_a_torn_file_is_never_taken_for_whole(tmp_path, kind, length):
    registry = Registry(tmp_path)
    renew(registry, OLD)
    renew(registry, {**NEW, "model": b"new" * 100})
    version = registry.version("m")
    torn = {
        "versions": tmp_path / "m/versions/00000002.json",
        "changes": tmp_path / "m/changes/00000002.json",
        "files": registry.files("m", version) / "model",
    }[kind]
    torn.write_bytes(torn.read_bytes()[:length])
    if length is None:
        torn.unlink()
    with pytest.raises(DistfmsError, match="damaged") as refused:
        registry.read("m")
    assert refused.value.exit_code == 2
    assert str(torn) in str(refused.value)
    # What the message advises.
    if kind != "files":
        torn.unlink()
    if kind != "changes":
        registry.rollback("m")
    assert registry.read("m")[1] == OLD
