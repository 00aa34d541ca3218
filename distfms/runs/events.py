"""The lines of ``events.jsonl``: what a run has done, and when."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from distfms.engine.store import Location, write_whole


class EventLog:
    """A text file of one line an event.

    A line is appended at once where files can be. On remote storage, where most cannot, lines wait
    in memory and the file is put whole by `flush`; what a killed driver had not flushed is lost.
    That lines cannot be written stops nothing.

    Parameters
    ----------
    path : Path or RemotePath
    """

    def __init__(self, path: Location) -> None:
        self._path = path
        self._written: bytes | None = None
        self._lines: list[str] = []

    @property
    def waiting(self) -> bool:
        """Whether there are lines that only memory has."""
        return bool(self._lines)

    def add(self, line: str) -> None:
        """Add a line."""
        if not isinstance(self._path, Path):
            self._lines.append(line)
            return
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def flush(self) -> None:
        """Put what waits, after what earlier drivers have left."""
        with suppress(OSError):
            if self._written is None:
                self._written = self._left()
            content = self._written + "".join(f"{line}\n" for line in self._lines).encode()
            write_whole(self._path, content)
            self._written, self._lines = content, []

    def _left(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
