"""The registry: what it answers, and how versions are added, promoted, rolled back and removed."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from distfms.errors import EngineError, SpecError, nearest, plain_name
from distfms.registry.records import Change, Version, author
from distfms.spec import expand_variables, expanded
from distfms.store import places
from distfms.store.log import DamagedError, Log, R, Record
from distfms.store.remote import is_url

#: Where the environment names a registry.
VARIABLE = "DISTFMS_REGISTRY"

#: As the name of a job.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What a change says of the current version and of those before it.
_STATE = {"version", "below"}
_NOTHING = Change(number=0, kind="remove", version=None, removed=[])


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
        names = []
        for name in filter(_NAME.fullmatch, places.names_in(self.root)):
            with suppress(SpecError):  # it is a file
                if self.log(name, Version).numbers():
                    names.append(name)
        return names

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, the oldest first; none if there is no such model."""
        removed = self.last(name).removed
        versions = self.log(name, Version).each(self.note)
        return [version for version in versions if version.number not in removed]

    def version(self, name: str, number: int | None = None) -> Version:
        """Return a version, or the current one.

        Raises
        ------
        SpecError
            If there is none; it says what there is.
        """
        while True:
            last = self.last(name)
            sought = last.version if number is None else number
            if sought is not None and sought not in last.removed:
                with suppress(FileNotFoundError):
                    return self.log(name, Version).read(sought)
            # The current version may have been removed after another was promoted.
            if number is not None or self.last(name).version == sought:
                break
        numbers = self.numbers(name, last)
        if not numbers:
            hint = nearest(name, self.names()) or " It has none yet."
            raise SpecError(f"The registry {self.root} has no model {name!r}.{hint}")
        listed = ", ".join(map(str, numbers[-10:]))
        missing = "current version" if sought is None else f"version {sought}"
        raise SpecError(
            f"{name!r} has no {missing}. The last ones are {listed}, and {name}@{numbers[-1]} "
            "names the last."
        )

    def numbers(self, name: str, last: Change | None = None) -> list[int]:
        """Return the numbers of all versions, ascending; their records may be damaged."""
        last = last or self.last(name)
        return [n for n in self.log(name, Version).numbers() if n not in last.removed]

    def in_use(self, name: str, last: Change | None = None) -> list[int]:
        """Return the number of the current version, and of the one that a rollback returns to."""
        last = last or self.last(name)
        changes = [last, self._beneath(name, last)]
        return [c.version for c in changes if c is not None and c.version is not None]

    def last(self, name: str, most: int | None = None) -> Change:
        """Return the last change, or the last up to a number; one without a version without any.

        Damaged ones are passed over.
        """
        return self.log(name, Change).last(most) or _NOTHING

    def history(self, name: str) -> list[Change]:
        """Return all changes, the first one first."""
        return list(self.log(name, Change).each(self.note))

    def read(self, name: str, number: int | None = None) -> tuple[Version, dict[str, bytes]]:
        """Read the files of a version, or of the current one, and check them.

        Raises
        ------
        SpecError
            If there is no such version, or a file is not what was added.
        """
        while True:
            version = self.version(name, number)
            folder = self.files(name, version)
            payloads: dict[str, bytes] = {}
            with places.reading(folder), suppress(FileNotFoundError):
                for file in version.files:
                    payloads[file] = places.read_regular(folder / file) or b""
            # Another version may be current by now, and this one have been removed.
            is_whole = len(payloads) == len(version.files)
            if is_whole or self.version(name, number).token == version.token:
                break
        for file, sha256 in version.files.items():
            if hashlib.sha256(payloads.get(file, b"")).hexdigest() != sha256:
                raise DamagedError(
                    f"Version {version.number} of {name!r} is damaged: {folder / file} has changed "
                    "since it was added (its sha256 differs). Restore it from a copy of the "
                    f"registry, or roll back with `distfms models rollback {name}`."
                )
        return version, payloads

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
        if (same := self._same(name, hashes)) is not None:
            return same
        version = Version(number=0, files=hashes, facts=dict(facts), parent=parent)
        log = self.log(name, Version)
        with self._writing():
            for file, payload in files.items():
                places.write_whole(self.files(name, version) / file, payload)
            while True:
                version = version.model_copy(update={"number": log.next_number()})
                if log.create(version):
                    return version
                if (same := self._same(name, hashes)) is not None:
                    return same

    def _same(self, name: str, hashes: Mapping[str, str]) -> Version | None:
        """Return a version with files of these hashes that is whole."""
        for version in self.versions(name):
            if version.files == hashes:
                with suppress(DamagedError):
                    return self.read(name, version.number)[0]
        return None

    def promote(
        self,
        name: str,
        number: int,
        expected: int | Literal["any"] | None = "any",
        because: str = "",
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
            earlier = self._beneath(name, last)
            if earlier is None:
                self.version(name)
                raise SpecError(
                    f"No version of {name!r} was current before version {last.version}. Promote "
                    f"the one you want: distfms models promote {name}@NUMBER."
                )
            self.read(name, earlier.version)
            return {"kind": "rollback", **earlier.model_dump(include=_STATE)}

        return self._change(name, because, change)

    def gc(self, name: str, keep: int, because: str = "") -> list[int]:
        """Remove versions with their files; return their numbers.

        Kept are the last ``keep`` of them (at least one, so that numbers are never used again),
        the current one and the one before it.
        """
        log = self.log(name, Version)
        removed: list[int] = []
        if not log.numbers():
            self.version(name)

        def change(last: Change) -> dict[str, Any] | None:
            numbers = self.numbers(name, last)
            kept = {*numbers[-max(keep, 1) :], *self.in_use(name, last)}
            removed[:] = [number for number in numbers if number not in kept]
            return {"kind": "remove", "removed": removed} if removed else None

        # Announced first: from then on nobody promotes what is about to go.
        announced = self._change(name, because, change).removed
        with self._writing():
            for number in announced:
                with suppress(FileNotFoundError, SpecError):  # without it, its files are not known
                    places.remove_tree(self.files(name, log.read(number)))
                log.place(number).unlink(missing_ok=True)
        return removed

    def require_writable(self, name: str) -> None:
        """Raise SpecError or EngineError where nothing can be added to a model."""
        with self._writing():
            places.check_writable(self._model(name))

    # --- verifying ---

    def verify(self, name: str) -> list[str]:
        """Check all records of a model and the hashes of all files; return what is wrong.

        What killed writers have left, and writers at work have not finished, is noted.

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
        for place in self._unfinished(name):
            self.note(f"{place} belongs to no version. Delete it, unless it is being added now.")
        return problems

    def _problems(self, name: str) -> Iterator[str]:
        model = self._model(name)
        for folder in places.names_in(model):
            if folder in ("files", "versions") or not (model / folder).is_dir():
                continue
            log = Log(model / folder, Change if folder == "changes" else Record)
            for number in log.numbers():
                try:
                    log.read(number)
                except SpecError as error:
                    yield str(error)
        for number in self.numbers(name):
            try:
                self.read(name, number)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            except SpecError as error:
                yield str(error)
        current = self.last(name).version
        if current is not None and current not in self.log(name, Version).numbers():
            yield f"Version {current} is current, but its files are gone."

    def _unfinished(self, name: str) -> Iterator[places.Location]:
        """Yield folders and files that no record knows, of records that can be read."""
        model = self._model(name)
        log = self.log(name, Version)
        tokens = set[str]()
        try:
            for number in log.numbers():
                tokens.add(log.read(number).token)
        except (FileNotFoundError, SpecError):  # of which files are the version's is not known
            return
        for token in places.names_in(model / "files"):
            if token not in tokens:
                yield model / "files" / token
        for entry in places.files_below(model):
            if places.is_temporary(entry.name):
                yield entry.place

    # --- places ---

    def _model(self, name: str) -> places.Location:
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} is not a model name: {plain_name(name)}.")
        return self.root / name

    def log(self, name: str, kind: type[R]) -> Log[R]:
        """Return the records of one kind of a model, in the folder of this name."""
        remedy = (
            "Restore it from a copy of the registry, or promote another version: distfms models "
            f"promote {name}@NUMBER."
        )
        return Log(self._model(name) / f"{kind.__name__.lower()}s", kind, remedy)

    def files(self, name: str, version: Version) -> places.Location:
        """Return the folder that has the files of a version."""
        return self._model(name) / "files" / version.token

    # --- changes ---

    def _beneath(self, name: str, top: Change) -> Change | None:
        """Return what a rollback returns to; versions that are gone are passed over."""
        numbers = self.numbers(name, top)
        while top.below is not None:
            top = self.last(name, top.below)
            if top.version in numbers:
                return top
        return None

    def _change(
        self, name: str, because: str, change: Callable[[Change], dict[str, Any] | None]
    ) -> Change:
        """Write the change that follows from the last one, which others may write meanwhile."""
        log = self.log(name, Change)
        while True:
            # First: what others write meanwhile takes this number.
            number = log.next_number()
            last = self.last(name)
            if last.number >= number:
                continue
            entries = change(last)
            if entries is None:
                return last
            gone = {*last.removed, *entries.get("removed", ())}
            numbers = self.log(name, Version).numbers()
            state = last.model_dump(include=_STATE) | entries
            state["removed"] = sorted(gone.intersection(numbers))
            record = Change(number=number, author=author(), because=because, **state)
            with self._writing():
                if log.create(record):
                    return record

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Explain why the registry cannot be written."""
        try:
            yield
        except OSError as error:
            advice = f"name another with --registry or {VARIABLE}"
            raise places.unwritable(self.root, error, "The registry's folder", advice) from error


def open_registry(
    named: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    default: str = "runs/registry",
) -> Registry:
    """Return the registry at a path or URL, else the environment's, else the default."""
    place = expand_variables(os.fspath(named or os.environ.get(VARIABLE) or default))
    options = expanded(storage_options or {}) if is_url(place) else None
    return Registry(places.locate(place, options))
