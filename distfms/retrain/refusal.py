"""Files that a gate has refused, and those that somebody has accepted since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from distfms.errors import SpecError, nearest
from distfms.registry import Record, Registry
from distfms.store.places import File

#: In place of the version of a file that is gone.
GONE = "gone"


class Refusal(Record):
    """Files that have drifted: name → version, and whether somebody has accepted it."""

    files: dict[str, tuple[str, bool]] = Field(default_factory=dict)

    @classmethod
    def read(cls, registry: Registry, name: str) -> Refusal:
        """Read the last record of a model."""
        return registry.log(name, cls).last() or cls(number=0)

    def write(self, registry: Registry, name: str, files: dict[str, tuple[str, bool]]) -> Refusal:
        """Write the next record, unless it would say the same."""
        log = registry.log(name, Refusal)
        new = Refusal(number=log.next_number(), files=self.files | files)
        if new.files != self.files:
            log.create(new)
        return new

    @property
    def accepted(self) -> set[str]:
        """Names of files that somebody has accepted as they are, or as gone."""
        return {name for name, (_, is_accepted) in self.files.items() if is_accepted}

    def accept(
        self,
        registry: Registry,
        name: str,
        files: Sequence[File],
        named: Sequence[str],
        before: Sequence[Mapping[str, Any]] = (),
    ) -> Refusal:
        """Accept files by their names in the data, or parts of their paths.

        Also those that the current model has learned from and that are gone: `before` are its
        inputs.
        """
        files_to_accept = {file["name"]: (GONE, True) for file in before}
        files_to_accept |= {file.name: (file.version, True) for file in files}
        accepted = dict[str, tuple[str, bool]]()
        for path in named:
            matching = {
                file: version
                for file, version in files_to_accept.items()
                if f"/{path}/" in f"/{file}/"
            }
            if not matching:
                hint = nearest(path, files_to_accept)
                raise SpecError(f"There is no file {path!r} to accept.{hint}")
            accepted |= matching
        return self.write(registry, name, accepted)
