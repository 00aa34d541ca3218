"""Models by their names: which registry is meant, and what ``registry:NAME@version`` stands for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distfms.engine.remote import is_url
from distfms.engine.storage import locate
from distfms.errors import SpecError
from distfms.spec import expand_variables, expanded

if TYPE_CHECKING:
    from distfms.registry import Registry

PREFIX = "registry:"
_MODEL = re.compile(r"([^@]+)(?:@([0-9]{1,8}))?")


def open_registry(
    named: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    default: str = "runs/registry",
) -> Registry:
    """Return the registry at a path or URL, else the environment's, else the default."""
    from distfms.registry import VARIABLE, Registry

    place = expand_variables(os.fspath(named or os.environ.get(VARIABLE) or default))
    return Registry(locate(place, expanded(storage_options or {}) if is_url(place) else None))


def parse_model(text: str) -> tuple[str, int | None]:
    """Return name and version of ``NAME`` or ``NAME@version``; no version for the current one."""
    match = _MODEL.fullmatch(text.removeprefix(PREFIX))
    if match is None:
        raise SpecError(
            f"{text[:100]!r} names no model. Write NAME, or NAME@3 for its third version."
        )
    return match[1], int(match[2]) if match[2] else None


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested mappings as one with dotted names."""
    found = dict[str, Any]()
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}.{inner}": one for inner, one in flat(value).items()}
        else:
            found[key] = value
    return found
