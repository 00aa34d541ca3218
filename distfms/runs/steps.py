"""Steps of a run that are remembered: what an earlier attempt has finished is loaded, not done.

The manifest lists the finished steps in order, with the sha256 of their files and what they told.
An attempt asks for its steps in the same order. As long as a step's files are what the manifest
vouches for, its value is read; from the first step that is not there, or not whole, all are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from distfms.engine.memory import counted
from distfms.errors import EngineError
from distfms.runs.events import Recorder
from distfms.runs.folder import RunFolder, StageEntry, encode, parse_json
from distfms.stats import codec
from distfms.store.places import Location, absolute, open_binary, reading
from distfms.store.remote import RemotePath

T = TypeVar("T")

#: Folder, within that of the run, of values that only the run itself reads.
_VALUES = "statistics"
_ENDING = ".step"


@dataclass
class Told:
    """What a step says while it is done."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    entries: dict[str, Any] = field(default_factory=dict)


class Steps:
    """The steps of one attempt.

    Parameters
    ----------
    run : RunFolder or None
        None where nothing is kept, as in memory.
    record : Recorder
    notes : sequence of str
        Told before the first step.

    Attributes
    ----------
    loaded : list of str
        Names of steps that were found finished.
    entries : list of StageEntry
        Finished steps, in order.
    """

    def __init__(self, run: RunFolder | None, record: Recorder, notes: Sequence[str] = ()) -> None:
        self.run = run
        self.record = record
        self.loaded: list[str] = []
        self.entries: list[StageEntry] = []
        self._earlier = [] if run is None else list(run.manifest().stages)
        #: Files for users, where nothing is kept: name → content.
        self.content: dict[str, Any] = {}
        #: What steps have entered in the manifest.
        self.accounts: dict[str, Any] = {}
        self._first_notes = list(notes)
        self._now: Told | None = None

    # --- asking ---

    def step(self, name: str, make: Callable[[], T], file: str | None = None) -> T:
        """Return the value of a step; see :class:`distfms.methods.frame.contract.Run`."""
        file = file or f"{_VALUES}/{name}{_ENDING}"
        values: list[Any] = []

        def files() -> Mapping[str, Any]:
            values.append(make())
            return {file: values[0]}

        if self.files(name, files):
            return _settled(file, values[0])
        return self._read(file)

    def files(self, name: str, make: Callable[[], Mapping[str, Any]]) -> bool:
        """Write what `make` returns, file by file, unless that was done; return whether it was now.

        Content None stands for a file or folder that is there already.
        """
        if self._now is not None:
            raise RuntimeError(f"the step {name!r} is asked for within {self._now.name!r}")
        if any(entry.name == name for entry in self.entries):
            raise RuntimeError(f"the step {name!r} is asked for twice")
        if self._is_finished(name):
            self.entries.append(self._earlier[len(self.entries)])
            self.loaded.append(name)
            return False
        self._earlier = []
        self.record.event("stage", stage=name)
        start = time.perf_counter()
        self._now = Told(name)
        try:
            content = make()
            news = self._now
        finally:
            self._now = None
        seconds = time.perf_counter() - start
        self.enter(news, content, seconds)
        line = f"  {name}: {seconds:.1f} s{_counted(news.counts)}"
        self.record.event("stage_done", line, stage=name, seconds=seconds, **news.counts)
        self.record.flush()
        return True

    # --- what steps say ---

    @property
    def now(self) -> Told:
        """What the present step says."""
        if self._now is None:
            raise RuntimeError("notes and counts belong in a step")
        return self._now

    @property
    def notes(self) -> list[str]:
        """All that was told so far, each text once."""
        texts = [text for entry in self.entries for text in entry.notes]
        current = [] if self._now is None else self._now.notes
        return list(dict.fromkeys([*self._first_notes, *texts, *current]))

    @property
    def passes(self) -> int:
        """How often the finished steps have read the data."""
        counts = [(entry.model_extra or {}).get("n_passes", 0) for entry in self.entries]
        return sum(counts)

    def note(self, text: str) -> None:
        """Tell the user something."""
        now = self.now
        if text not in self.notes:
            now.notes.append(text)
            self.record.note(text)

    # --- files ---

    @property
    def in_memory(self) -> bool:
        """Whether no other process sees what is kept."""
        run = self.run
        return run is None or (isinstance(run.path, RemotePath) and run.path.protocol == "memory")

    def place(self, name: str) -> Location | None:
        """Return the file with the value of a step."""
        if self.run is None or self.in_memory:
            return None
        return absolute(self.run.path) / f"{_VALUES}/{name}{_ENDING}"

    def _is_finished(self, name: str) -> bool:
        """Return whether the next finished step is this one, and whole."""
        number = len(self.entries)
        if number >= len(self._earlier):
            return False
        entry = self._earlier[number]
        if entry.name != name:
            raise EngineError(
                f"The run has the finished step {entry.name!r} where {name!r} was asked for. "
                "Another version of distfms may have begun it: name a new folder with --out."
            )
        assert self.run is not None
        return self.run.is_intact(entry)

    def _read(self, file: str) -> Any:
        assert self.run is not None
        place = self.run.path / file
        with reading(place):
            if file.endswith(_ENDING):
                with open_binary(place) as stream:
                    return codec.load(stream)
            return parse_json(place, place.read_bytes()) if file.endswith(".json") else None

    def enter(self, news: Told, content: Mapping[str, Any], seconds: float) -> None:
        """Write the files of a step that is done, then name it in the manifest."""
        digests = {} if self.run is None else self.run.write_files(content)
        entry = StageEntry(
            name=news.name,
            seconds=round(seconds, 3),  # type: ignore[call-arg]
            **news.counts,
            files=digests,
            notes=news.notes,
        )
        self.entries.append(entry)
        self.accounts |= news.entries
        if self.run is None:
            for name, payload in content.items():
                if not name.endswith(_ENDING):
                    self.content[name] = payload
            return
        stages = [stage.model_dump(exclude_defaults=True) for stage in self.entries]
        self.run.update(stages=stages, notes=self.notes, passes=self.passes, **news.entries)


def _settled(file: str, value: Any) -> Any:
    if file.endswith(_ENDING):
        return codec.settled(value)
    return parse_json(Path(file), encode(file, value)) if file.endswith(".json") else None


def _counted(counts: Mapping[str, int]) -> str:
    if "n_read" not in counts:
        return ""
    cached = f", {counts['n_cached']} from the cache" if counts.get("n_cached") else ""
    return f" ({counted(counts['n_read'], 'partition')} read{cached})"
