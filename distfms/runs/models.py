"""Models by their names: the registry that is meant, and what a version of a run's model holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from distfms.engine.remote import is_url
from distfms.engine.storage import locate
from distfms.registry import VARIABLE, Registry
from distfms.runs.storage_options import expanded
from distfms.spec import expand_variables


def open_registry(
    named: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    default: str = "runs/registry",
) -> Registry:
    """Return the registry at a path or URL, else the environment's, else the default."""
    place = expand_variables(os.fspath(named or os.environ.get(VARIABLE) or default))
    return Registry(locate(place, expanded(storage_options or {}) if is_url(place) else None))
