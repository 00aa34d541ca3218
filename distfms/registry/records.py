"""What a registry writes down of a model."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any, Literal

from pydantic import model_validator

from distfms.store.log import Record


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

    kind: Literal["promote", "rollback", "remove"]
    version: int | None
    """Current from now on."""
    below: int | None = None
    """Number of the change that a rollback returns to."""
    removed: list[int]
    """Versions that are gone, or about to be."""
    author: str = ""
    because: str = ""

    @model_validator(mode="after")
    def _descends(self) -> Change:
        if self.below is not None and not 0 < self.below < self.number:
            raise ValueError("it rolls back to a change that is not before it")
        return self


def author() -> str:
    """Return who is at work: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in containers, where the user has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
