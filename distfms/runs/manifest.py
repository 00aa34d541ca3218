"""The manifest of a run: who wrote it, what it depends on, and the stages that are finished."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distfms.engine.storage import Location, read_regular, reading
from distfms.errors import SpecError

MANIFEST = "manifest.json"
#: Link to the last finished run, among the runs of a job.
LATEST = "latest"
SCHEMA_VERSION = 2
#: The models of earlier runs cannot be read.
FIRST_READABLE = 2


class StageEntry(BaseModel):
    """A finished stage; may hold counts as well."""

    model_config = ConfigDict(extra="allow")

    name: str
    files: dict[str, str]
    """The sha256 of each file, or folder, that it wrote."""


class Manifest(BaseModel):
    """What ``manifest.json`` has to hold; methods enter more."""

    model_config = ConfigDict(extra="allow")

    schema_version: Annotated[int, Field(alias="schema")] = 0
    distfms: str = ""
    method: str = ""
    form: Annotated[int, Field(alias="model_form", ge=1)] = 1
    """Form of the model's files; see `Method.upgrades`."""
    identity: str = ""
    status: str = ""
    created: str = ""
    attempt: int = 0
    writer: str = ""
    """Token of the driver that has claimed the run."""
    stages: list[StageEntry] = []
    notes: list[str] = []
    inputs: list[dict[str, Any]] = []

    def content(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def files(self) -> dict[str, str]:
        """Return the sha256 of all files that finished stages wrote."""
        return {name: sha for stage in self.stages for name, sha in stage.files.items()}


def read_manifest(folder: Location) -> Manifest | None:
    """Read the manifest of a run folder, None if it has none."""
    with reading(folder / MANIFEST):
        try:
            payload = read_regular(folder / MANIFEST) or b""
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
            where = ".".join(map(str, error.errors()[0]["loc"])) or "it"
            reason = f"{where}: {error.errors()[0]['msg']}"
        raise SpecError(
            f"{folder / MANIFEST} is damaged ({reason}), so this run cannot be used. Delete "
            f"the whole folder {folder}, or name another with --out, and run the job again."
        ) from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise SpecError(
            f"{folder} was written by distfms {manifest.distfms}, which is newer than this one. "
            "Upgrade distfms to read it."
        )
    return manifest
