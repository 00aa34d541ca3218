"""What a file holds whatever its name says, told by its first bytes, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

#: Bytes of the beginning of a file that tell what it holds.
HEAD_BYTES = 512
PARQUET = b"PAR1"
ENCRYPTED_PARQUET = b"PARE"
ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ARROW = b"ARROW1"
GZIP = b"\x1f\x8b"
_UNPACK = "decompress it, or compress it with gzip and let its name end in .gz"
_EXPORT = "write its table as Parquet or CSV"


class Content(NamedTuple):
    """What files hold that begin so, and what to do about them."""

    signature: bytes
    called: str
    remedy: str


_CONTENTS = (
    Content(PARQUET, "Parquet", "let its name end in .parquet"),
    Content(ENCRYPTED_PARQUET, "encrypted Parquet", "write it without encryption"),
    Content(ARROW, "Arrow", "let its name end in .arrow"),
    Content(GZIP, "data compressed with gzip", "let its name end in .gz, as in .csv.gz"),
    Content(ZIP, "a zip archive, as workbooks are", "name a workbook .xlsx; unpack an archive"),
    Content(
        OLE, "a workbook of old Excel or with a password", "save it as .xlsx, without password"
    ),
    Content(b"\x28\xb5\x2f\xfd", "data compressed with Zstandard", _UNPACK),
    Content(b"BZh", "data compressed with bzip2", _UNPACK),
    Content(b"\xfd7zXZ\x00", "data compressed with xz", _UNPACK),
    Content(b"\x04\x22\x4d\x18", "data compressed with LZ4", _UNPACK),
    Content(b"\xff\x06\x00\x00sNaPpY", "data compressed with Snappy", _UNPACK),
    Content(b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it"),
    Content(b"Rar!", "a RAR archive", "unpack it"),
    Content(b"SQLite format 3\x00", "an SQLite database", _EXPORT),
    Content(b"\x89HDF", "HDF5", _EXPORT),
    Content(b"ORC", "ORC", _EXPORT),
    Content(b"Obj\x01", "Avro", _EXPORT),
    Content(b"%PDF", "a PDF document", _EXPORT),
    Content(b"\x93NUMPY", "a NumPy array", _EXPORT),
    Content(b"\x80\x04\x95", "a Python pickle", _EXPORT),
    Content(b"\x80\x05\x95", "a Python pickle", _EXPORT),
    Content(b"<!doctype html", "a web page", "download the data it is about"),
    Content(b"<html", "a web page", "download the data it is about, or save its table as CSV"),
    Content(b"<?xml", "XML", _EXPORT),
    Content(b"version https://git-lfs", "a pointer of Git LFS", "fetch the file: git lfs pull"),
)
#: Ends of names that are not read, and what to do.
_ENDINGS = {
    ".json": "write one object a line, and let its name end in .jsonl",
    ".txt": "if it is a table of text, let its name end in .csv",
    ".dat": "if it is a table of text, let its name end in .csv",
    ".tab": "let its name end in .tsv",
}


def content_of(head: bytes) -> Content | None:
    """Return what a file holds that begins so; None where no signature tells it."""
    beginning = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for content in _CONTENTS:
        if head.startswith(content.signature) or beginning.startswith(content.signature):
            return content
    return None


def other_content(head: bytes, form: str, signatures: Sequence[bytes]) -> str:
    """Return what is wrong with a file that a format cannot have begun; empty if nothing.

    As the rest of a sentence that begins with the file's name.
    """
    content = content_of(head)
    if content is not None and content.signature not in signatures:
        return f"holds {content.called}, not {form} as its name says: {content.remedy}."
    if signatures and not head.startswith(tuple(signatures)):
        return (
            f"cannot be read as {form}, as which it does not begin: it is damaged or in another "
            "format. Let the name of a table of text end in .csv."
        )
    return ""


def no_parquet(path: str, head: bytes, tail: bytes) -> str:
    """Return what is wrong with a file that is read as Parquet and does not end as such."""
    if tail.endswith(ENCRYPTED_PARQUET) or head.startswith(ENCRYPTED_PARQUET):
        return "holds encrypted Parquet: write it without encryption."
    if head.startswith(PARQUET):
        return (
            "cannot be read as Parquet: it is truncated, as it begins but does not end so. Perhaps "
            "it is still being written; write it again, or remove it from the dataset."
        )
    suffix = PurePath(path).suffix.lower()
    content = content_of(head)
    if content is not None:
        read_as = (
            "Parquet" if suffix in ("", ".parquet", ".pq") else "data that are read by this name"
        )
        return f"holds {content.called}, not {read_as}: {content.remedy}."
    if suffix in _ENDINGS:
        return f"has a name that ends in {suffix}, which tells no format: {_ENDINGS[suffix]}."
    if suffix not in ("", ".parquet", ".pq"):
        return (
            f"is no Parquet, and names that end in {suffix} tell no other format: let the name of "
            "a table of text end in .csv, of Arrow in .arrow, of a workbook in .xlsx, of JSON "
            "lines in .jsonl."
        )
    if head and all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        return "holds text, not Parquet: let the name of a table of text end in .csv."
    return (
        "cannot be read as Parquet: it is truncated, damaged or in another format. Rewrite it or "
        "remove it from the dataset."
    )
