"""The run folder: files written whole or not at all, a manifest that vouches for them, one writer.

A file is written under a temporary name, fsynced and renamed, or put as one object (see
:mod:`distfms.store.places`). The manifest lists the finished steps with the sha256 of what they
wrote, so that a run that was killed can be resumed.

One writer: a lock keeps a second driver on the same machine out, and dies with its process. Shared
and object storage may know no locks, so every driver also enters itself in the log of owners, where
its number is the attempt, and looks whether it is still the last one before it writes what a step
returns or the manifest (the fence): a driver that was taken for dead, and comes back, finds
another's record and stops. As long as it is, the manifest is what this driver last wrote, and is
not read again. What a step itself writes on the way (the files of a plan, saved states of a pool)
has no fence: its bytes are the same whoever writes them. Looking and writing are two steps. What
could slip in between is one file, whose bytes are the same too, or one manifest, which the owner
replaces by its own. Of two drivers one is the last: the other stops at its next write, never both,
and no step that the manifest names lacks its files. At worst the manifest forgets a step, which is
then done again.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distfms.errors import DistfmsError, EngineError, SpecError
from distfms.stats.base import to_bytes
from distfms.stats.codec import chunks
from distfms.store import places
from distfms.store.log import Log, Record
from distfms.store.places import Location
from distfms.store.remote import OBJECT_STORAGE, RemotePath

MANIFEST = "manifest.json"
#: What was read, file by file.
INPUTS = "inputs.json"
#: Log of the drivers that have written to the run; the last one may.
OWNERS = ".owners"
#: Link to the last finished run, among the runs of a job.
LATEST = "latest"
#: Form of all files of a run; those of another are not read.
SCHEMA_VERSION = 1


class StageEntry(BaseModel):
    """A finished step; may hold counts as well."""

    model_config = ConfigDict(extra="allow")

    name: str
    files: dict[str, str]
    """The sha256 of each file, or folder, that it wrote."""
    notes: list[str] = []
    """What it told the user."""


class Manifest(BaseModel):
    """What ``manifest.json`` has to hold; methods enter more."""

    model_config = ConfigDict(extra="allow")

    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA_VERSION
    distfms: str = ""
    method: str = ""
    identity: str = ""
    status: str = ""
    created: str = ""
    attempt: int = 0
    passes: int = 0
    """How often the data were read."""
    stages: list[StageEntry] = []
    notes: list[str] = []
    inputs_sha256: str = ""
    """Of `INPUTS`."""

    def content(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def files(self) -> dict[str, str]:
        """Return the sha256 of all files that finished steps wrote."""
        return {name: sha for stage in self.stages for name, sha in stage.files.items()}


def read_manifest(folder: Location) -> Manifest | None:
    """Read the manifest of a run folder, None if it has none."""
    with places.reading(folder / MANIFEST):
        try:
            payload = places.read_regular(folder / MANIFEST) or b""
        except (FileNotFoundError, NotADirectoryError):
            return None
    return parse_manifest(folder, payload)


def parse_manifest(folder: Location, payload: bytes) -> Manifest:
    """Parse the content of a run's manifest; see `read_manifest`."""
    try:
        manifest = Manifest.model_validate(json.loads(payload))
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            entry = ".".join(map(str, error.errors()[0]["loc"])) or "it"
            reason = f"{entry}: {error.errors()[0]['msg']}"
        raise SpecError(
            f"{folder / MANIFEST} is damaged ({reason}), so this run cannot be used. Delete "
            f"the whole folder {folder}, or name another with --out, and run the job again."
        ) from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise SpecError(
            f"{folder} was written by distfms {manifest.distfms} in a form that this version does "
            "not read. Use that version, or run the job again in another folder."
        )
    return manifest


def each_run(
    base: Location, ending: str = "", say: Callable[[str], None] = lambda line: None
) -> Iterator[tuple[Location, Manifest]]:
    """Yield the runs below a folder whose names have an ending, with their manifests, last first.

    Damaged ones, of which `say` is told, and what is no run, are passed over.
    """
    with places.reading(base):
        for path, payload in places.read_each(base, MANIFEST, ending):
            try:
                yield path, parse_manifest(path, payload)
            except SpecError as error:
                say(f"Note: skipping the run {path}. {error}")


def now() -> str:
    """UTC time, ISO 8601 with seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_atomic(path: Location, payload: bytes) -> None:
    """Write a file whole or not at all, and explain why it could not be."""
    with places.writing(path):
        places.write_whole(path, payload)


def digest(path: Location) -> str:
    """Return the sha256 of a file, or of the names and digests of all files in a folder."""
    if isinstance(path, RemotePath):
        with suppress(FileNotFoundError, IsADirectoryError):
            return hashlib.sha256(path.read_bytes()).hexdigest()
    elif not path.is_dir():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    result = hashlib.sha256()
    entries = places.files_below(path)
    if isinstance(path, RemotePath) and not entries:
        raise FileNotFoundError(errno.ENOENT, f"{path} does not exist")
    for entry in entries:
        result.update(f"{entry.name}:{digest(entry.place)}\n".encode())
    return result.hexdigest()


def encode(name: str, content: Any) -> bytes:
    """Bytes of a file by the ending of its name: ``.json``, ``.npz`` or text.

    Numbers in JSON are unrounded; NaN and infinities, which JSON does not have, become ``null``.
    """
    if name.endswith(".json"):
        return encode_json(content)
    if name.endswith(".npz"):
        return to_bytes(content)
    return str(content).encode()


def encode_json(content: Any) -> bytes:
    """Return the bytes of a JSON file."""
    return to_json(content, indent=1) + b"\n"


def to_json(content: Any, indent: int | None = None) -> bytes:
    """Return JSON; numpy values are those of Python, NaN and infinities ``null``."""
    written: bytes = pydantic_core.to_json(
        content, indent=indent, inf_nan_mode="null", fallback=_of_numpy
    )
    return written


def _of_numpy(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else dict(value)


class RunFolder:
    """One run's folder, made when missing; a SpecError says that it cannot be written."""

    def __init__(self, path: Location) -> None:
        self.path = path
        self._owners = Log(path / OWNERS, Record)
        self._owner: Record | None = None
        self._manifest = Manifest()  # as this driver wrote it, once it is the owner
        try:
            places.check_writable(path)
        except OSError as error:
            advice = "choose another place with --out or `output:`"
            raise places.unwritable(path, error, "The output folder", advice) from error

    # --- one writer ---

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other drivers on this machine.

        The lock belongs to the process, so a killed driver leaves none behind. Where the storage
        knows no locks, as object storage, the fence alone keeps drivers apart: the later one takes
        the run over.
        """
        busy = (
            f"Another process is writing the run {self.path}. Wait until it ends, or choose "
            "another folder with --out."
        )
        with places.locked_file(self.path / ".lock", busy):
            yield

    def claim(self, **entries: Any) -> Manifest:
        """Take the run over: enter this driver as its owner, and entries of the manifest.

        From then on every write of this object requires that no other has done so.
        """
        manifest = read_manifest(self.path) or Manifest()
        with places.writing(self.path):
            while not self._owners.create(owner := Record(number=self._owners.next_number())):
                continue
        self._owner = owner
        self._manifest = manifest
        content = self.update(**entries, attempt=owner.number)
        self._remove_temporaries()
        return content

    def require_claim(self) -> None:
        """Check the fence: no other driver has claimed the run, and the folder is there."""
        if self._owner is None:
            return
        last = self._owners.last()
        if last is None:
            raise EngineError(
                f"The run folder {self.path} was removed while the job was running. Run the same "
                "command again to start over."
            )
        if last != self._owner:
            raise EngineError(
                f"Another driver has taken over the run {self.path} (attempt {last.number}; this "
                f"one was attempt {self._owner.number}). It resumes after the finished steps; this "
                "driver stops and writes nothing more."
            )

    def holds_claim(self) -> bool:
        """Whether this driver has claimed the run, and no other since."""
        try:
            self.require_claim()
        except DistfmsError:
            return False
        return self._owner is not None

    def _remove_temporaries(self) -> None:
        """Remove what a killed driver left half-written; object storage keeps nothing of it."""
        if isinstance(self.path, RemotePath) and self.path.protocol in OBJECT_STORAGE:
            return
        for entry in places.files_below(self.path):
            if places.is_temporary(entry.name):
                with suppress(OSError):
                    entry.place.unlink()

    # --- manifest ---

    def manifest(self) -> Manifest:
        """Return the manifest, an empty one for a new folder; see `read_manifest`."""
        return self._manifest if self._owner else read_manifest(self.path) or Manifest()

    def update(self, **entries: Any) -> Manifest:
        """Set entries of the manifest and write it, if the fence allows."""
        self.require_claim()
        payload = encode_json({**self.manifest().content(), **entries})
        write_atomic(self.path / MANIFEST, payload)
        self._manifest = parse_manifest(self.path, payload)
        return self._manifest

    # --- files ---

    def is_intact(self, entry: StageEntry) -> bool:
        """Return whether the files of a finished step are what it wrote."""
        with places.reading(self.path):
            try:
                return entry.files == {name: digest(self.path / name) for name in entry.files}
            except FileNotFoundError:
                return False

    def write_files(self, files: Mapping[str, Any]) -> dict[str, str]:
        """Write files, if the fence allows; return the sha256 of each.

        Content ``None`` stands for a file or folder that is there already.
        """
        self.require_claim()
        return {name: self._write(name, content) for name, content in files.items()}

    def _write(self, name: str, content: Any) -> str:
        if content is None:
            with places.reading(self.path / name):
                return digest(self.path / name)
        sha256 = hashlib.sha256()
        place = self.path / name
        pieces = chunks(content) if name.endswith(".step") else [encode(name, content)]
        with (
            places.writing(place),
            places.whole_file(place) as temporary,
            temporary.open("wb") as stream,
        ):
            for piece in pieces:
                stream.write(piece)
                sha256.update(piece)
        return sha256.hexdigest()


def parse_json(path: Location, payload: bytes) -> dict[str, Any]:
    """Parse the content of a JSON file of a run."""
    try:
        content = json.loads(payload)
        if not isinstance(content, dict):
            raise ValueError("it is not a mapping")
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"{path} is damaged ({error}). Delete it and run the job again, for a run with --out "
            f"{path.parent}; the step that wrote it is repeated."
        ) from error
    return content
