"""Datasets that distfms can make itself, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from distfms.errors import SpecError, nearest


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset that can be made.

    `target` is the column to predict, `id` that which names the rows; all others are features. The
    keyword-only parameters of `make` are the options, and their defaults say their types. `version`
    is raised whenever the rows change.
    """

    name: str
    description: str
    target: str
    id: str | None
    make: Callable[..., Any]
    version: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """Defaults by name."""
        parameters = signature(self.make).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options, those given in place of the defaults; wrong ones are refused."""
        options = self.options
        for name, value in given.items():
            if name not in options:
                advice = nearest(name, list(options)) if options else " It has none."
                raise SpecError(f"{self.name!r} has no option {name!r}.{advice}")
            kind = type(options[name])
            whole_as_float = kind is float and type(value) is int
            if type(value) is not kind and not whole_as_float:
                raise SpecError(f"option {name!r} is {value!r}; it must be {kind.__name__}.")
            options[name] = kind(value)
        return options


def require(holds: bool, message: str) -> None:
    """Refuse options that make no dataset; the message goes without a full stop."""
    if not holds:
        raise SpecError(message + ".")


def by_name(*entries: CatalogEntry) -> dict[str, CatalogEntry]:
    """Return entries by their names."""
    return {entry.name: entry for entry in entries}
