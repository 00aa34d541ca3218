"""The run folder: files written whole or not at all, a manifest that vouches for them, one writer.

Every file is written under a temporary name, fsynced and renamed. The manifest lists the finished
stages with the sha256 of what they wrote, so that a run that was killed goes on where it stopped.

One writer: a lock keeps a second driver on the same machine out, and dies with its process. Shared
storage may know no locks, so every driver also enters an attempt number and a random token in the
manifest, and looks whether they still stand there before each write (the fence): a driver that was
taken for dead, and comes back, finds another's token and stops. Looking and writing are two steps;
what could slip in between are the bytes of one file, which are the same whoever writes them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from distfms.errors import DistfmsError, EngineError, SpecError
from distfms.stats.base import from_bytes, to_bytes

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1

#: What a file system answers that knows no locks.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


def now() -> str:
    """UTC time, ISO 8601 with seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_atomic(path: Path, payload: bytes) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : Path
        Its folder is made when missing.
    payload : bytes

    Raises
    ------
    EngineError
        If the folder is not writable or the disk is full.
    """
    # Not the process id alone: on shared storage another machine may have the same.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_error(path: Path, error: OSError) -> DistfmsError:
    """Explain a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return EngineError(
            f"The disk is full, or a quota reached: {path} could not be written. What was "
            "finished is kept; free some space, then run the same command again and it goes on "
            "from there."
        )
    return EngineError(
        f"{path} could not be written ({error.strerror or error}). Check the folder's permissions, "
        "then run the same command again and it goes on from there."
    )


def digest(path: Path) -> str:
    """sha256 of a file, or of the names and digests of all files in a folder."""
    result = hashlib.sha256()
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            result.update(f"{file.relative_to(path).as_posix()}:{digest(file)}\n".encode())
        return result.hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def encode(name: str, content: Any) -> bytes:
    """Bytes of a file by the ending of its name: ``.json``, ``.npz`` or text.

    Numbers in JSON are unrounded; NaN and infinities, which JSON has not, become ``null``.
    """
    if name.endswith(".json"):
        text = json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()
    if name.endswith(".npz"):
        return to_bytes(content)
    return str(content).encode()


def plain(value: Any) -> Any:
    """Reduce numpy values and tuples to what JSON can say."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


class RunFolder:
    """One run's folder.

    Parameters
    ----------
    path : Path
        Made when missing.

    Raises
    ------
    SpecError
        If the folder cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._claim: dict[str, Any] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise SpecError(
                f"The output folder {path} cannot be written ({error.strerror or error}). "
                "Choose another with --out or `output:`, or mend its permissions."
            ) from error

    # --- one writer ---

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other drivers on this machine.

        The lock belongs to the process, so a killed driver leaves none behind. Where the storage
        knows no locks, the fence alone keeps drivers apart.

        Raises
        ------
        EngineError
            If another process is writing this run.
        """
        # A lock of the soft kind, the library's way out, would outlive a killed driver.
        lock = FileLock(self.path / ".lock", timeout=0, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise EngineError(
                f"Another process is writing the run {self.path}. Wait for it to end, or choose "
                "another folder with --out."
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise storage_error(self.path / ".lock", error) from error
        try:
            yield
        finally:
            lock.release()

    def claim(self, **entries: Any) -> dict[str, Any]:
        """Take the run over: enter this driver's attempt and token, with other entries.

        From then on every write of this object requires that they still stand in the manifest.

        Raises
        ------
        EngineError
            If the manifest cannot be written.
        """
        self._claim = None
        claim = {
            "attempt": self.manifest().get("attempt", 0) + 1,
            "writer": secrets.token_hex(8),
        }
        content = self.update(**entries, **claim)
        self._claim = claim
        self._remove_temporaries()
        return content

    def require_claim(self) -> None:
        """Check the fence.

        Raises
        ------
        EngineError
            If another driver has claimed the run since.
        """
        if self._claim is None:
            return
        found = self.manifest()
        if any(found.get(key) != value for key, value in self._claim.items()):
            raise EngineError(
                f"Another driver has taken over the run {self.path} (attempt "
                f"{found.get('attempt')}; this one was attempt {self._claim['attempt']}). It goes "
                "on from the stages that were finished; this driver stops here and writes nothing "
                "more."
            )

    def holds_claim(self) -> bool:
        """Whether no other driver has claimed the run since this one did."""
        try:
            self.require_claim()
        except DistfmsError:
            return False
        return True

    def _remove_temporaries(self) -> None:
        """Remove what a killed driver left half-written."""
        for temporary in self.path.rglob(".*.tmp"):
            with suppress(OSError):
                temporary.unlink()

    # --- manifest ---

    def manifest(self) -> dict[str, Any]:
        """Content of the manifest, empty for a new folder.

        Raises
        ------
        SpecError
            If there is a manifest of a later schema, or one that is no JSON.
        """
        return read_manifest(self.path)

    def update(self, **entries: Any) -> dict[str, Any]:
        """Set entries of the manifest and write it.

        Raises
        ------
        EngineError
            If another driver has taken over the run, or the file cannot be written.
        """
        self.require_claim()
        content = {**self.manifest(), **entries}
        write_atomic(self.path / MANIFEST, encode(MANIFEST, content))
        return content

    # --- stages ---

    def finished(self, stage: str) -> bool:
        """Whether a stage is done and all its files are still what it wrote."""
        for entry in self.manifest().get("stages", []):
            if entry["name"] == stage:
                return all(
                    (self.path / name).exists() and digest(self.path / name) == sha
                    for name, sha in entry["files"].items()
                )
        return False

    def write_stage(
        self, stage: str, files: Mapping[str, Any], seconds: float, counts: Mapping[str, int]
    ) -> None:
        """Write a stage's files, then enter it in the manifest.

        Parameters
        ----------
        stage : str
        files : mapping of str to content
            ``None`` for a file or folder that is there already.
        seconds : float
            How long the stage took.
        counts : mapping of str to int
            Partitions read, taken from the cache, and bytes read.

        Raises
        ------
        EngineError
            If another driver has taken over the run, or a file cannot be written.
        """
        for name, content in files.items():
            self.require_claim()
            if content is not None:
                write_atomic(self.path / name, encode(name, content))
        entry = {
            "name": stage,
            "seconds": round(seconds, 3),
            **counts,
            "files": {name: digest(self.path / name) for name in files},
        }
        others = [e for e in self.manifest().get("stages", []) if e["name"] != stage]
        self.update(stages=[*others, entry])

    # --- content ---

    def read_json(self, name: str) -> dict[str, Any]:
        """JSON content of a file of the run."""
        return read_json(self.path / name)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Arrays of a file of the run."""
        return dict(from_bytes((self.path / name).read_bytes()))

    def event(self, event: str, **fields: Any) -> None:
        """Append one line to ``events.jsonl``; a full disk here stops nothing."""
        line = json.dumps(plain({"time": round(time.time(), 3), "event": event, **fields}))
        with suppress(OSError), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run.

    Raises
    ------
    SpecError
        If it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(
            f"There is no {path.name} in {path.parent}. Give the folder of a finished run, such "
            "as runs/NAME/2026-01-31T12-00-00Z-1a2b3c4d."
        ) from error
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path} is damaged ({error}). Remove it and run the job again; the stage that wrote "
            "it is repeated."
        ) from error


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a run folder, empty if it has none."""
    if not (path / MANIFEST).exists():
        return {}
    content = read_json(path / MANIFEST)
    if content.get("schema", 0) > SCHEMA_VERSION:
        raise SpecError(
            f"{path} was written by distfms {content.get('distfms')}, which is newer than this "
            "one. Upgrade distfms to read it."
        )
    return content
