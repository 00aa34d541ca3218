"""Bounds of what compressed files, of which a few bytes may stand for a disk, expand to."""

from __future__ import annotations

import io
from typing import Any
from zipfile import BadZipFile, ZipFile

import pyarrow as pa

from distfms.data.files.formats.base import FormatError

#: Bytes that a file may expand to in any case, and how many times its size beyond. Tables of text
#: expand 2 to 20 times, those of few different rows up to 100 times.
_FREE_BYTES = 2**28
_MOST_TIMES = 200


def require_bounded(n_bytes: int, n_compressed: int) -> None:
    """Refuse what expands beyond all that tables do.

    Raises
    ------
    FormatError
    """
    if n_bytes > max(_FREE_BYTES, _MOST_TIMES * n_compressed):
        raise FormatError(
            f"expands to more than {_MOST_TIMES} times its {n_compressed:,} bytes, as no table "
            "does. If it is the right file, decompress it first."
        )


def require_bounded_zip(content: bytes) -> None:
    """Refuse a zip archive, as of a workbook, whose members expand so; see `require_bounded`."""
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            n_bytes = sum(member.file_size for member in archive.infolist())
    except BadZipFile:  # of another format, or damaged: that is for its reader to say
        return
    require_bounded(n_bytes, len(content))


class Unzipped(io.RawIOBase):
    """A gzipped file of a size as it is decompressed; see `require_bounded`."""

    def __init__(self, stream: Any, n_compressed: int) -> None:
        self._stream = pa.CompressedInputStream(stream, "gzip")
        self._n_compressed = n_compressed
        self._n_read = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; all that is left where `size` is negative."""
        if size < 0:
            return b"".join(iter(lambda: self.read(2**24), b""))
        piece: bytes = self._stream.read(size)
        self._n_read += len(piece)
        require_bounded(self._n_read, self._n_compressed)
        return piece
