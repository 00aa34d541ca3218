"""A registry on storage that fails at one write, or cannot say that it has written."""

import uuid

import pytest

from distfms.errors import EngineError
from distfms.registry import Registry
from distfms.store.places import locate
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
