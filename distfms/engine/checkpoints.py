"""Checkpoints of a pool's states, on disk or on remote storage, checked by hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distfms.engine.remote import RemotePath
from distfms.engine.storage import Entry, Location, files_below, locate, write_whole
from distfms.errors import EngineError

_FORMAT = "distfms-checkpoint-1"
_KEPT = 2


class CheckpointFolder:
    """The last two checkpoints of one pool.

    A checkpoint is one file for each shard and a manifest with their hashes, written last; every
    file is written whole or not at all. A checkpoint without manifest does not count.

    Parameters
    ----------
    folder : path, URL or RemotePath
        Made on first write.
    key : str
        What the states depend on; checkpoints under another key are not looked at.
    n_shards : int
        Shards of the pool; checkpoints with another number of shards are not looked at.
    """

    def __init__(self, folder: str | Path | RemotePath, key: str, n_shards: int) -> None:
        self._folder = locate(folder)
        self._identity = {"format": _FORMAT, "key": key, "n_shards": n_shards}
        self._digests: dict[int, list[str]] = {}
        self._forget_others()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Steps of the checkpoints there are, the latest first."""
        return tuple(sorted(self._digests, reverse=True))

    def write(self, number: int, payloads: Sequence[bytes]) -> int:
        """Save one payload for each shard as the checkpoint of a step; gives the bytes written.

        Raises
        ------
        EngineError
            The folder cannot be written; earlier checkpoints stay.
        """
        try:
            for shard, payload in enumerate(payloads):
                write_whole(self._file(number, shard), payload)
            digests = [hashlib.sha256(payload).hexdigest() for payload in payloads]
            manifest = self._identity | {"number": number, "sha256": digests}
            write_whole(self._manifest(number), json.dumps(manifest, sort_keys=True).encode())
        except OSError as error:
            self._remove(number)
            raise EngineError(
                f"The checkpoint of step {number} cannot be written to {self._folder} "
                f"({type(error).__name__}: {error}). Make room there, then run the same command "
                "again; it goes on from the checkpoint before."
            ) from error
        self._digests[number] = digests
        for old in self.numbers[_KEPT:]:
            self.drop(old)
        return sum(len(payload) for payload in payloads)

    def read(self, number: int, shard: int) -> bytes | None:
        """Give a shard's payload of a checkpoint, None when it is not as it was written."""
        try:
            payload = self._file(number, shard).read_bytes()
        except OSError:
            return None
        digest = hashlib.sha256(payload).hexdigest()
        return payload if digest == self._digests[number][shard] else None

    def drop(self, number: int) -> None:
        """Forget a checkpoint and delete its files."""
        del self._digests[number]
        self._remove(number)

    def _remove(self, number: int) -> None:
        # The manifest first: what is left of a deletion cut short does not count.
        start = f"step-{number:010d}-"
        with contextlib.suppress(OSError):
            self._manifest(number).unlink(missing_ok=True)
            for entry in files_below(self._folder):
                if entry.name.startswith((start, f".{start}")):
                    entry.place.unlink(missing_ok=True)

    def _file(self, number: int, shard: int) -> Location:
        return self._folder / f"step-{number:010d}-shard-{shard:06d}.state"

    def _manifest(self, number: int) -> Location:
        return self._folder / f"step-{number:010d}.json"

    def _forget_others(self) -> None:
        """Find what belongs to this pool; delete what a killed driver left half done."""
        for entry in self._listed():
            if re.fullmatch(r"step-\d+\.json", entry.name):
                found = _read_manifest(entry.place)
                if self._identity.items() <= found.items():
                    self._digests[found["number"]] = found["sha256"]
            elif re.fullmatch(r"\.step-.*\.tmp", entry.name):
                with contextlib.suppress(OSError):
                    entry.place.unlink()

    def _listed(self) -> list[Entry]:
        try:
            return files_below(self._folder)
        except OSError as error:
            raise EngineError(
                f"The checkpoints in {self._folder} cannot be listed ({error}). Check that the "
                "storage can be reached, then run the same command again."
            ) from error


def _read_manifest(path: Location) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
