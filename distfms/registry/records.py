"""The records of a registry and their forms: every form that was ever written can be read."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distfms.errors import SpecError

#: Where the environment has the key that versions are signed with.
SIGNING_KEY = "DISTFMS_SIGNING_KEY"

#: Longest time in seconds for which a lock that is not renewed keeps others out.
LONGEST_LOCK_S = 3600.0


class DamagedError(SpecError):
    """A record, or a file of a version, is not what was written."""


class Record(BaseModel):
    """What every record of a journal holds."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    form: int = 2
    number: Annotated[int, Field(ge=0)]
    created: str = Field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] = Field(
        default_factory=lambda: secrets.token_hex(8)
    )
    """Tells the record from that of another writer."""


class Version(Record):
    """An immutable version of a model.

    Attributes
    ----------
    number : int
        1 for the first.
    created : str
        UTC time.
    files : mapping of str to str
        Name of each file and its sha256.
    facts : mapping
        What its maker wrote down about it, as JSON has it.
    parent : int or None
        The version that it was made to follow.
    """

    files: dict[str, str]
    facts: dict[str, Any]
    parent: int | None


class Change(Record):
    """A change of which version is current, or of which there are."""

    kind: Literal["promote", "rollback", "remove", "repair"]
    version: int | None
    """Current from now on."""
    below: int | None = None
    """Number of the change that a rollback returns to."""
    before: list[int] = []
    """In form 1: versions that were current before, the last one last."""
    removed: list[int]
    """Versions that are gone, or about to be."""
    author: str = ""
    because: str = ""

    @model_validator(mode="after")
    def _descends(self) -> Change:
        if self.below is not None and not 0 < self.below < self.number:
            raise ValueError("it rolls back to a change that is not before it")
        return self


class Lock(Record):
    """Who works on the next version of a model, and until when."""

    owner: str
    until: float
    """Seconds since 1970 by the owner's clock; 0 when the work has ended."""
    seconds: Annotated[float, Field(gt=0, le=LONGEST_LOCK_S)]
    """How long it keeps others out after it was last written."""


R = TypeVar("R", bound=Record)


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": 60.0, **content} if "until" in content else content


#: By form: what makes the next form of a record.
_UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
_FORM = 1 + len(_UPGRADES)


def encode(record: Record, model: str) -> bytes:
    """Return a record as bytes, a version signed if there is a key."""
    content = json.loads(record.model_dump_json())
    if isinstance(record, Version) and (signature := _signature(content, model)):
        content["signature"] = signature
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode(kind: type[R], payload: bytes, model: str, place: object, *, signed: bool = True) -> R:
    """Read a record of any form.

    Raises
    ------
    SpecError
        If a newer distfms wrote it; if it is a version and, with ``signed``, not signed with the
        key that there is.
    ValueError
        If it is damaged.
    """
    content = json.loads(payload)
    form = content.get("form", 1) if isinstance(content, dict) else 0
    if not isinstance(form, int) or form < 1 or "token" not in content:
        raise ValueError("it is not a record")
    if form > _FORM:
        raise SpecError(f"{place} was written by a newer distfms. Upgrade distfms to read it.")
    found, upgraded = content.pop("signature", None), content
    for step in range(form, _FORM):
        upgraded = _UPGRADES[step](upgraded)
    record = kind.model_validate({**upgraded, "form": _FORM})
    if signed and kind is Version and (signature := _signature(content, model)):
        if found is None:
            raise SpecError(
                f"{place} is not signed, and {SIGNING_KEY} is set. If you trust this version, sign "
                f"it with `distfms models sign {model}@NUMBER`; if not, retrain with --anew."
            )
        if not hmac.compare_digest(signature.encode(), json.dumps(found).strip('"').encode()):
            raise SpecError(
                f"{place} is not signed with the key in {SIGNING_KEY}: it was changed, or signed "
                "with another key. Use another version, or the right key."
            )
    return record


def _signature(content: Mapping[str, Any], model: str) -> str:
    """Return the HMAC-SHA256 of a record of a model; empty without a key."""
    key = os.environ.get(SIGNING_KEY, "")
    signed = json.dumps({**content, "model": model}, sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode(), signed.encode(), hashlib.sha256).hexdigest() if key else ""


def author() -> str:
    """Return who is at work: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in containers, where the user has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
