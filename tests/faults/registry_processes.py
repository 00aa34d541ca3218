"""Processes that read and write one registry, for tests that kill them."""

from __future__ import annotations

import os
import random
import re
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distfms.errors import EngineError, SpecError
from distfms.registry import Registry
from distfms.store.places import locate

#: Messages of who was too late.
_LOST = re.compile("is not promoted|has no version|was current before")

#: Of each file; large enough that a torn one would be seen.
N_BYTES = 20_000


def files_of(tag: int) -> dict[str, bytes]:
    """Files that all carry one tag."""
    return {f"{name}.bin": tag.to_bytes(8, "big") * (N_BYTES // 8) for name in "abc"}


def open_here(place: str, options: Mapping[str, Any] | None) -> Registry:
    return Registry(locate(place, options))


def read(place: str, options: Mapping[str, Any] | None, notes: Path) -> None:
    """Read what is in place until the file ``stop`` appears; note how often, and any failure."""
    registry = open_here(place, options)
    n_reads = 0
    seen = set()
    try:
        while not (notes / "stop").exists():
            version, files = registry.read("m")
            tags = {content[i : i + 8] for content in files.values() for i in (0, N_BYTES - 8)}
            assert len(tags) == 1, f"a mix in version {version.number}"
            assert set(files) == {"a.bin", "b.bin", "c.bin"}
            assert version.facts["tag"] == int.from_bytes(tags.pop(), "big")
            n_reads += 1
            seen.add(version.number)
            time.sleep(0.01)  # leaves the processors to the writers, too
        (notes / f"{os.getpid()}.reads").write_text(f"{n_reads} {len(seen)}")
    except BaseException:
        (notes / f"{os.getpid()}.failed").write_text(traceback.format_exc())


def write(place: str, options: Mapping[str, Any] | None, notes: Path, seed: int) -> None:
    """Add, promote, roll back and remove, until killed; note any failure but a lost race."""
    registry = open_here(place, options)
    chance = random.Random(seed)
    try:
        while not (notes / "stop").exists():
            current = registry.version("m")
            tag = chance.randrange(2**48)
            version = registry.add("m", files_of(tag), {"tag": tag}, current.number)
            try:
                registry.promote("m", version.number, expected=current.number)
                if chance.random() < 0.3:
                    registry.rollback("m")
            except (EngineError, SpecError) as error:
                if not _LOST.search(str(error)):
                    raise
            if chance.random() < 0.5:
                registry.gc("m", keep=2)
    except BaseException:
        (notes / f"{os.getpid()}.failed").write_text(traceback.format_exc())
