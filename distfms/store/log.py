"""Logs: numbered records, each created once and whole, or refused.

A record is a file of its own, `00000005.json`. Of two writers that create the same number one is
refused (`create_whole`); thus the last record says how things stand, and a reader sees them before
or after a change. What a killed writer has left torn is passed over.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from distfms.errors import SpecError
from distfms.store import places
from distfms.store.places import Location

#: The form of records; those of another are not read.
_FORM = 1
_RECORD = re.compile(r"(\d{8})\.json")


class DamagedError(SpecError):
    """A record, or a file that one vouches for, is not what was written."""


class Record(BaseModel):
    """What every record of a log holds."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    form: int = _FORM
    number: Annotated[int, Field(ge=0)]
    created: str = Field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] = Field(
        default_factory=lambda: secrets.token_hex(8)
    )
    """Tells the record from that of another writer."""

    def encoded(self) -> bytes:
        """Return it as bytes."""
        content = self.model_dump(mode="json")
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Log(Generic[R]):
    """Records of one kind, in a folder.

    `remedy` says what to do about a damaged one.
    """

    folder: Location
    kind: type[R]
    remedy: str = "Restore it from a copy."

    def place(self, number: int) -> Location:
        """Return the place of a record."""
        return self.folder / f"{number:08d}.json"

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending, damaged or not."""
        names = places.names_in(self.folder)
        return [int(name[:8]) for name in names if _RECORD.fullmatch(name)]

    def next_number(self) -> int:
        """Return the number after the last."""
        return 1 + max(self.numbers(), default=0)

    def create(self, record: R) -> bool:
        """Write a record unless there is one of its number; return whether it is written."""
        return places.create_whole(self.place(record.number), record.encoded())

    def read(self, number: int) -> R:
        """Read a record.

        Raises
        ------
        FileNotFoundError
            If there is none.
        SpecError
            If it has another form, or (DamagedError) is damaged.
        """
        place = self.place(number)
        if not 0 < number < 10**8:
            raise FileNotFoundError(f"there is no record {place.name[:20]}")
        with places.reading(place):
            payload = places.read_regular(place)
        try:
            return self._decoded(payload or b"", number)
        except SpecError:
            raise
        except (ValueError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
        raise DamagedError(f"{place} is damaged ({reason}). {self.remedy}")

    def _decoded(self, payload: bytes, number: int) -> R:
        content = json.loads(payload)
        if not isinstance(content, dict) or not {"form", "token"} <= content.keys():
            raise ValueError("it is not a record")
        if content["form"] != _FORM:
            raise SpecError(
                f"{self.place(number)} was written by another version of distfms, in a form that "
                "this one does not read. Use that version, or name another place."
            )
        record = self.kind.model_validate(content)
        if record.number != number:
            raise ValueError(f"it has the number {record.number}")
        return record

    def last(self, most: int | None = None) -> R | None:
        """Return the last record that is not damaged, or the last up to a number; None without."""
        for number in reversed(self.numbers()):
            if most is None or number <= most:
                with suppress(FileNotFoundError, DamagedError):
                    return self.read(number)
        return None

    def each(self, note: Callable[[str], None]) -> Iterator[R]:
        """Yield the records that can be used, the first one first; note the others."""
        for number in self.numbers():
            try:
                yield self.read(number)
            except FileNotFoundError:  # it may be removed while others are read
                continue
            except SpecError as error:
                note(f"Skipping a record. {error}")
