"""What a file holds by its first bytes, where its name says something else."""

from __future__ import annotations

from dataclasses import dataclass

from distfms.engine import storage
from distfms.engine.storage import File
from distfms.errors import DataError

#: How names of locks begin that Excel keeps beside an open workbook.
LOCK_OF_EXCEL = "~$"
#: Bytes that are looked at.
_HEAD_BYTES = 64


@dataclass(frozen=True)
class Content:
    """A sort of content: how it begins, what it is called, what to do with it.

    `formats` are names of formats for which it is right.
    """

    begins: bytes
    called: str
    remedy: str
    formats: tuple[str, ...] = ()


_CONTENTS = (
    Content(b"PAR1", "Parquet", "end its name in .parquet", ("Parquet",)),
    Content(b"PARE", "encrypted Parquet", "decrypt it"),
    Content(b"\x1f\x8b", "content compressed by gzip", "add .gz to its name"),
    Content(
        b"PK\x03\x04", "a workbook or a zip archive", "unpack it, or name it .xlsx", ("Excel",)
    ),
    Content(b"\xd0\xcf\x11\xe0", "an old or encrypted workbook", "save it as .xlsx", ("Excel",)),
    Content(b"\x28\xb5\x2f\xfd", "content compressed by Zstandard", "decompress it, or use gzip"),
    Content(b"BZh", "content compressed by bzip2", "decompress it, or use gzip"),
    Content(b"\xfd7zXZ", "content compressed by xz", "decompress it, or use gzip"),
    Content(b"ARROW1", "Arrow", "end its name in .arrow", ("Arrow",)),
    Content(b"%PDF", "a PDF document", "export the table as CSV"),
    Content(b"SQLite format 3", "a SQLite database", "export the table as CSV or Parquet"),
    Content(b"<!DOCTYPE", "a web page", "download the table itself"),
    Content(b"<html", "a web page", "download the table itself"),
    Content(b"<?xml", "XML", "export the table as CSV"),
    Content(
        b"[{", "a JSON array", "write one object a line, in a file NAME.jsonl", ("JSON lines",)
    ),
    Content(b'{"', "JSON", "end its name in .jsonl, with one object a line", ("JSON lines",)),
)


def refuse_other_content(file: File, form: str) -> None:
    """Raise DataError if a file, uncompressed, does not begin as files of a format do."""
    if LOCK_OF_EXCEL in file.path:
        raise DataError(
            f"The file {file.path} is a lock of Excel, not a table: name the workbook itself."
        )
    with storage.open_stream(file.place) as stream:
        head = stream.read(_HEAD_BYTES)
    compact = head.translate(None, b"\xef\xbb\xbf \t\r\n")
    for content in _CONTENTS:
        is_other = head.startswith(content.begins) or compact.startswith(content.begins)
        if is_other and form not in content.formats:
            raise DataError(
                f"The file {file.path} holds {content.called}, not {form}: {content.remedy}, or "
                "remove it from the dataset."
            )
    is_text = bool(head) and all(byte >= 32 or byte in b"\t\r\n\f" for byte in head)
    if form == "Parquet" and is_text:
        raise DataError(
            f"The file {file.path} holds text, not Parquet: end its name in .csv or .tsv, or "
            "remove it from the dataset."
        )
