"""Finding what is damaged in a registry, and setting it aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distfms.engine import storage
from distfms.errors import SpecError
from distfms.registry.journal import Journal, listed
from distfms.registry.records import Change, DamagedError, Lock, Record, Version
from distfms.registry.registry import Registry

#: What a model's folders hold; others have records that only their writers know more of.
_KINDS: Mapping[str, type[Record]] = {"locks": Lock, "changes": Change, "versions": Version}


@dataclass(frozen=True)
class Finding:
    """What is wrong with a record of a model, or with the files of a version.

    Attributes
    ----------
    problem : str
    journal : Journal
    number : int
        Of the record.
    repairable : bool
        Whether `repair` sets the record aside; not where it only lacks a signature, or a newer
        distfms wrote it.
    """

    problem: str
    journal: Journal[Any]
    number: int
    repairable: bool = True

    @property
    def place(self) -> storage.Location:
        """Place of the record."""
        return self.journal.place(self.number)


def verify(registry: Registry, name: str) -> list[Finding]:
    """Check all records of a model, their signatures, and the hashes of all files.

    Raises
    ------
    SpecError
        If there is no such model.
    EngineError
        If remote storage does not answer.
    """
    found = list(_findings(registry, name))
    if not found and not registry.numbers(name):
        registry.version(name)
    return found


def _findings(registry: Registry, name: str) -> Iterator[Finding]:
    versions = registry.journal(name, Version)
    for folder in listed(versions.model):
        if folder == "files" or not (versions.model / folder).is_dir():
            continue
        journal = Journal[Any](versions.model, folder, _KINDS.get(folder, Record))
        of_versions = folder == versions.name
        for number in registry.numbers(name) if of_versions else journal.numbers():
            try:
                registry.read(name, number) if of_versions else journal.read(number)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            except SpecError as error:
                yield Finding(str(error), journal, number, isinstance(error, DamagedError))
    current = registry.last(name, skip=True).version
    if current is not None and current not in versions.numbers():
        yield Finding(f"Version {current} is current, but its files are gone.", versions, current)


def repair(registry: Registry, name: str, because: str = "") -> list[Finding]:
    """Set aside what is damaged; return what that was.

    Where the current version is among it, the one before it is current again, or none. Files
    stay: a record that is set aside has ``.damaged`` added to its name.
    """
    found = [finding for finding in verify(registry, name) if finding.repairable]
    for finding in found:
        finding.journal.set_aside(finding.number)
    registry.replace_lost(name, because)
    return found
