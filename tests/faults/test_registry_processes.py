"""A registry read and written by many processes, of which writers are killed at any moment."""

import itertools
import multiprocessing
import random
import time
import uuid

import pytest

from tests.faults.registry_processes import files_of, open_here, read, write


def disturbed(place, options, notes, *, seconds, readers, pause=(0.05, 0.4)):
    """Let readers and writers work, kill writers at random; return reads and kills."""
    context = multiprocessing.get_context("forkserver")
    preload = ["tests.faults.registry_processes", *(["s3fs"] if options else [])]
    context.set_forkserver_preload(preload)
    registry = open_here(place, options)
    registry.add("m", files_of(1), {"tag": 1})
    registry.promote("m", 1)
    chance = random.Random(0)
    n_kills = 0

    def begin(target, *arguments):
        process = context.Process(target=target, args=(place, options, notes, *arguments))
        process.start()
        return process

    reading = [begin(read) for _ in range(readers)]
    writing = [begin(write, seed) for seed in range(2)]
    start_s = time.monotonic()
    # Longer where the machine has other work: writers have to get somewhere before they are killed.
    while time.monotonic() < start_s + seconds or len(registry.history("m")) < 5:
        assert time.monotonic() < start_s + seconds + 60
        time.sleep(chance.uniform(*pause))
        at = chance.randrange(2)
        writing[at].kill()  # one that failed has noted why
        writing[at].join()
        writing[at] = begin(write, 1000 + n_kills)
        n_kills += 1
    (notes / "stop").touch()
    for process in [*reading, *writing]:
        process.join(60)
        assert process.exitcode == 0
    failed = [path.read_text() for path in notes.glob("*.failed")]
    assert not failed, failed[0]
    counts = [tuple(map(int, p.read_text().split())) for p in notes.glob("*.reads")]
    assert len(counts) == readers
    return registry, counts, n_kills


def require_sound(registry):
    """Every change follows from the one before it; what is listed can be read."""
    history = registry.history("m")
    assert [change.number for change in history] == list(range(1, len(history) + 1))
    numbered = {change.number: change for change in history}
    for before, after in itertools.pairwise(history):
        if after.kind == "promote":
            assert after.below == before.number
        elif after.kind == "rollback":
            below = [before]
            while below[-1].below:
                below.append(numbered[below[-1].below])
            assert (after.version, after.below) in [(c.version, c.below) for c in below[1:]]
        else:
            assert (after.version, after.below) == (before.version, before.below)
            assert before.version not in after.removed
    for version in registry.versions("m"):
        assert registry.read("m", version.number)[1] == files_of(version.facts["tag"])
    removed = registry.gc("m", keep=1)
    left = {version.number for version in registry.versions("m")}
    assert left.isdisjoint(removed)
    assert len(left) <= 3


def test_readers_see_whole_versions_while_writers_are_killed(tmp_path):
    (tmp_path / "notes").mkdir()
    registry, counts, n_kills = disturbed(
        str(tmp_path / "registry"), None, tmp_path / "notes", seconds=2, readers=3
    )
    assert n_kills >= 3
    assert min(n_reads for n_reads, _ in counts) >= 1
    assert max(n_versions for _, n_versions in counts) >= 2
    require_sound(registry)


@pytest.mark.slow
def test_the_same_on_object_storage(s3, tmp_path):
    (tmp_path / "notes").mkdir()
    place = f"{s3.bucket(f'registry-{uuid.uuid4().hex[:8]}')}/models"
    registry, counts, n_kills = disturbed(
        place, s3.options, tmp_path / "notes", seconds=60, readers=4, pause=(1, 5)
    )
    assert n_kills > 8
    assert min(n_reads for n_reads, _ in counts) >= 5
    require_sound(registry)
