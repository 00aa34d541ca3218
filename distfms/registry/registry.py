"""The registry: what it answers, and how versions are added, promoted, rolled back and removed."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from distfms.errors import EngineError, SpecError, nearest, plain_name
from distfms.registry.journal import (
    Change,
    DamagedError,
    Journal,
    Lock,
    R,
    Record,
    Version,
    author,
    listed,
    locked,
    writing,
)
from distfms.store import places

#: As the name of a job.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Files that no version has are deleted at this age: somebody may still be writing or reading them.
_ABANDONED_S = 86400.0
#: What a change says of the current version and of those before it.
_STATE = {"version", "below"}
_NOTHING = Change(number=0, kind="remove", version=None, removed=[])

#: What a model's folders hold; others have records that only their writers know more of.
_KINDS: Mapping[str, type[Record]] = {"locks": Lock, "changes": Change, "versions": Version}


@dataclass(frozen=True)
class Registry:
    """Versions of models below a folder or URL; see the module for what is guaranteed.

    Attributes
    ----------
    root : Path or RemotePath
        As `distfms.store.places.locate` returns it; made when first written to.
    note : callable
        Told what is damaged and therefore skipped; by default a warning.
    """

    root: places.Location
    note: Callable[[str], None] = warnings.warn

    # --- reading ---

    def names(self) -> list[str]:
        """Return the names of all models that have versions."""
        found = []
        for name in filter(_NAME.fullmatch, listed(self.root)):
            with suppress(SpecError):  # it is a file
                found += [name] if self.journal(name, Version).numbers() else []
        return found

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, the oldest first; none if there is no such model."""
        gone = self.last(name).removed
        found = self.journal(name, Version).each(self.note)
        return [version for version in found if version.number not in gone]

    def version(self, name: str, number: int | None = None) -> Version:
        """Return a version, or the current one.

        Raises
        ------
        SpecError
            If there is none; it says what there is.
        """
        while True:
            last = self.last(name)
            wanted = last.version if number is None else number
            if wanted is not None and wanted not in last.removed:
                with suppress(FileNotFoundError):
                    return self.journal(name, Version).read(wanted)
            # The current version may have been removed after another was promoted.
            if number is not None or self.last(name).version == wanted:
                break
        known = self.numbers(name, last)
        if not known:
            there = nearest(name, self.names()) or " It has none yet."
            raise SpecError(f"The registry {self.root} has no model {name!r}.{there}")
        last_ones = ", ".join(map(str, known[-10:]))
        raise SpecError(
            f"{name!r} has no {'current version' if wanted is None else f'version {wanted}'}. The "
            f"last ones are {last_ones}, and {name}@{known[-1]} names the last."
        )

    def numbers(self, name: str, last: Change | None = None) -> list[int]:
        """Return the numbers of all versions, ascending; their records may be damaged."""
        gone = (last or self.last(name)).removed
        return [n for n in self.journal(name, Version).numbers() if n not in gone]

    def in_use(self, name: str, last: Change | None = None) -> list[int]:
        """Return the number of the current version, and of the one that a rollback returns to."""
        last = last or self.last(name)
        found = [last, self._beneath(name, last)]
        return [one.version for one in found if one is not None and one.version is not None]

    def last(self, name: str, most: int | None = None) -> Change:
        """Return the last change, or the last up to a number; one without a version without any.

        Damaged ones are passed over.
        """
        return self.journal(name, Change).last(most) or _NOTHING

    def history(self, name: str) -> list[Change]:
        """Return all changes, the first one first."""
        return list(self.journal(name, Change).each(self.note))

    def read(self, name: str, number: int | None = None) -> tuple[Version, dict[str, bytes]]:
        """Read the files of a version, or of the current one, and check them.

        Raises
        ------
        SpecError
            If there is no such version, or a file is not what was added.
        """
        while True:
            found = self.version(name, number)
            folder, payloads = self.files(name, found), dict[str, bytes]()
            with places.reading(folder), suppress(FileNotFoundError):
                for file in found.files:
                    payloads[file] = places.read_regular(folder / file) or b""
            # Another version may be current by now, and this one have been removed.
            lacks = len(payloads) < len(found.files)
            if lacks and self.version(name, number).token != found.token:
                continue
            for file, sha256 in found.files.items():
                if hashlib.sha256(payloads.get(file, b"")).hexdigest() != sha256:
                    raise DamagedError(
                        f"Version {found.number} of {name!r} is damaged: {folder / file} has "
                        "changed since it was added (its sha256 differs). Restore it from a copy "
                        f"of the registry, or roll back with `distfms models rollback {name}`."
                    )
            return found, payloads

    # --- writing ---

    def add(
        self,
        name: str,
        files: Mapping[str, bytes],
        facts: Mapping[str, Any],
        parent: int | None = None,
    ) -> Version:
        """Keep files as the next version, or return the version that holds the same.

        Parameters
        ----------
        name : str
            Of the model: letters, digits, ``.``, ``_`` and ``-``.
        files : mapping of str to bytes
        facts : mapping
            What is worth knowing about it, as JSON has it.
        parent : int, optional
            The version that it follows.
        """
        hashes = {file: hashlib.sha256(files[file]).hexdigest() for file in sorted(files)}
        made = Version(number=0, files=hashes, facts=dict(facts), parent=parent)
        while True:
            for version in self.versions(name):
                if version.files == hashes:
                    with suppress(DamagedError):
                        return self.read(name, version.number)[0]
            if not made.number:
                for file, payload in files.items():
                    with writing(self.root):
                        places.write_whole(self.files(name, made) / file, payload)
            journal = self.journal(name, Version)
            made = made.model_copy(update={"number": journal.next_number()})
            if journal.write(made):
                return made

    def promote(
        self, name: str, number: int, expected: int | str | None = "any", because: str = ""
    ) -> Change:
        """Make a version the current one.

        Parameters
        ----------
        name : str
        number : int
        expected : int, None or "any"
            The current version (None for none) that the decision was based on.
        because : str
            The reason, for the log.

        Raises
        ------
        EngineError
            If another version is current by now.
        SpecError
            If there is no such version, or it is damaged.
        """
        self.read(name, number)

        def change(last: Change) -> dict[str, Any] | None:
            if expected not in ("any", last.version):
                raise EngineError(
                    f"Version {number} of {name!r} is not promoted: it was compared with version "
                    f"{expected}, but version {last.version} is current now. Retrain again."
                )
            self.version(name, number)
            if last.version == number:
                return None
            below = None if last.version is None else last.number
            return {"kind": "promote", "version": number, "below": below}

        return self._change(name, because, change)

    def rollback(self, name: str, because: str = "") -> Change:
        """Make the version current again that was current before the present one.

        Raises
        ------
        SpecError
            If there was none, or it is damaged.
        """

        def change(last: Change) -> dict[str, Any] | None:
            if (found := self._beneath(name, last)) is None:
                self.version(name)
                raise SpecError(
                    f"No version of {name!r} was current before version {last.version}. Promote "
                    f"the one you want: distfms models promote {name}@NUMBER."
                )
            self.read(name, found.version)
            return {"kind": "rollback", **found.model_dump(include=_STATE)}

        return self._change(name, because, change)

    def gc(self, name: str, keep: int, because: str = "") -> list[int]:
        """Remove versions, and files a day old that none has; return the numbers removed.

        Kept are the last ``keep`` of them (at least one, so that numbers are never used again),
        the current one and the one before it.
        """
        journal, gone = self.journal(name, Version), list[int]()
        if not journal.numbers():
            self.version(name)

        def change(last: Change) -> dict[str, Any] | None:
            numbers = self.numbers(name, last)
            kept = {*numbers[-max(keep, 1) :], *self.in_use(name, last)}
            gone[:] = [number for number in numbers if number not in kept]
            return {"kind": "remove", "removed": gone} if gone else None

        # Announced first: from then on nobody promotes what is about to go.
        announced, locks = self._change(name, because, change).removed, self.journal(name, Lock)
        with writing(self.root):
            for places, old in ((journal, announced), (locks, locks.numbers()[:-1])):
                for number in old:
                    places.place(number).unlink(missing_ok=True)
            try:
                used = {journal.read(number).token for number in journal.numbers()}
                self._sweep(self._of(name), used)
            except SpecError as error:  # of which files are the version's is not known
                self.note(f"No files were deleted. {error}")
        return gone

    def _sweep(self, folder: places.Location, used: Set[str]) -> None:
        """Delete files that no version has: of removed ones, and of writers that were killed."""
        now = places.clock(folder)
        for entry in places.files_below(folder):
            if not 0 < entry.modified_s < now - _ABANDONED_S:
                continue
            kind, _, file = entry.name.partition("/")
            if kind == "files" and (token := file.partition("/")[0]) not in used:
                places.remove_tree(folder / kind / token)
            elif places.is_temporary(entry.name):
                entry.place.unlink(missing_ok=True)

    def locked(self, name: str, owner: str) -> AbstractContextManager[Callable[[], None]]:
        """Keep others from working on the next version of a model.

        Where another holds it, its end is waited for, up to ten minutes. The lock is renewed while
        the block runs. If the process is killed, others of its machine take it at once; for those
        of other machines it expires. Yields a function that renews it at once, and raises
        EngineError if it had expired, as where the process or the storage stood still, and another
        has taken it.

        Parameters
        ----------
        name : str
        owner : str
            Shown to whoever is refused.

        Raises
        ------
        EngineError
            If another still holds it.
        """
        return locked(self.journal(name, Lock), name, owner, self.note)

    # --- verifying ---

    def verify(self, name: str) -> list[str]:
        """Check all records of a model and the hashes of all files; return what is wrong.

        Raises
        ------
        SpecError
            If there is no such model.
        EngineError
            If remote storage does not answer.
        """
        problems = list(self._problems(name))
        if not problems and not self.numbers(name):
            self.version(name)
        return problems

    def _problems(self, name: str) -> Iterator[str]:
        versions = self.journal(name, Version)
        for folder in listed(versions.model):
            if folder == "files" or not (versions.model / folder).is_dir():
                continue
            journal = Journal[Any](versions.model, folder, _KINDS.get(folder, Record))
            of_versions = folder == versions.name
            for number in self.numbers(name) if of_versions else journal.numbers():
                try:
                    self.read(name, number) if of_versions else journal.read(number)
                except FileNotFoundError:  # it was removed meanwhile
                    continue
                except SpecError as error:
                    yield str(error)
        current = self.last(name).version
        if current is not None and current not in versions.numbers():
            yield f"Version {current} is current, but its files are gone."

    # --- places ---

    def _of(self, name: str) -> places.Location:
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} is not a model name: {plain_name(name)}.")
        return self.root / name

    def journal(self, name: str, kind: type[R]) -> Journal[R]:
        """Return the records of one kind of a model, in the folder of this name."""
        return Journal(self._of(name), f"{kind.__name__.lower()}s", kind)

    def files(self, name: str, version: Version) -> places.Location:
        """Return the folder that has the files of a version."""
        return self._of(name) / "files" / version.token

    # --- changes ---

    def _beneath(self, name: str, top: Change) -> Change | None:
        """Return what a rollback returns to; versions that are gone are passed over."""
        alive = self.numbers(name, top)
        while top.below is not None:
            top = self.last(name, top.below)
            if top.version in alive:
                return top
        return None

    def _change(
        self, name: str, because: str, change: Callable[[Change], dict[str, Any] | None]
    ) -> Change:
        """Write the change that follows from the last one, which others may write meanwhile."""
        while True:
            # First: what others write meanwhile takes this number.
            number = self.journal(name, Change).next_number()
            last = self.last(name)
            if last.number >= number:
                continue
            wanted = change(last)
            if wanted is None:
                return last
            there = self.journal(name, Version).numbers()
            gone = {*last.removed, *wanted.get("removed", ())}.intersection(there)
            own = {"number": number, "author": author(), "because": because}
            state = last.model_dump(include=_STATE)
            new = Change.model_validate({**state, **wanted, **own, "removed": sorted(gone)})
            if self.journal(name, Change).write(new):
                return new
