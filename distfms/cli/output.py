"""Standard output and errors that cannot end a command: plain where need be, silent when full."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distfms.errors import DistfmsError

#: What stands in for characters that an output cannot hold.
_PLAIN = {
    "±": "+-", "−": "-", "–": "-", "—": "-", "→": "->", "×": "x", "≤": "<=", "≥": ">=", "≠": "!=",
    "≈": "~", "…": "...", "’": "'", "‘": "'", "“": '"', "”": '"', "²": "^2", "³": "^3", "·": "*",
    "•": "*", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
}  # fmt: skip


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    """Write characters that an encoding lacks in ASCII: a codec's error handler."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    # Others as JSON has them, in which they may stand.
    plain = [
        _PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in characters
    ]
    return "".join(plain), error.end


codecs.register_error("distfms-plain", _in_plain)


@dataclass
class Output:
    """A stream whose first failed write makes all later ones do nothing.

    Work goes on where nobody reads what is printed: a pipe that was closed, a full disk.
    """

    stream: Any
    failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write text; return its length."""
        with self._kept_failure():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        with self._kept_failure():
            self.stream.flush()

    @contextmanager
    def _kept_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            with suppress(OSError, ValueError, AttributeError):
                # What is still held would fail again when Python ends.
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self.stream.fileno())
                os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def lasting_output() -> Iterator[Output]:
    """Let standard output and errors fail without an end to the command; yield the output."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="distfms-plain")
    output, errors = (None if stream is None else Output(stream) for stream in before)
    sys.stdout = output
    sys.stderr = errors
    try:
        yield output or Output(None)
    finally:
        sys.stdout, sys.stderr = before


def require_printed(output: Output) -> None:
    """Refuse to end as if all were well where a command's result is what it could not print.

    A reader that has closed its end of a pipe has had what it wanted.
    """
    failure = output.failure
    if failure is not None and failure.errno != errno.EPIPE:
        raise DistfmsError(
            f"The output could not be written ({failure.strerror}). Write it to another place."
        )
