"""What a format of files is, and how it refuses content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Format:
    """A format that is converted to Parquet.

    Attributes
    ----------
    name : str
        As users call it.
    suffixes : tuple of str
        Ends of names, in lower case. Files may be gzipped, with ``.gz`` after it; what is opened is
        decompressed.
    schema : callable (stream) -> pyarrow.Schema
        Columns of a file in their order, and the types that its rows suggest: null for a column
        without a value. Its metadata say what `batches` is to know of the file.
    batches : callable (stream, schema, columns) -> iterable of RecordBatch
        The rows of a file in their order, some at a time: of `columns` in this order, with their
        types in `schema`, which has all columns of the file.
    typed : bool
        Whether the file says what is text and what are numbers.
    sparse : bool
        Whether a file may lack a column of the other files; `batches` fills it with nulls.
    notes : callable (schema) -> list of str
        What users should know of how a file is read.
    version : int
        Raised with every change of what the same file is converted to.

    Both callables read from a binary stream and raise `FormatError`, or `MisfitError` for a value
    that has another type than its column. What pyarrow raises is explained by the caller.
    """

    name: str
    suffixes: tuple[str, ...]
    schema: Callable[[Any], pa.Schema]
    batches: Callable[[Any, pa.Schema, Sequence[str]], Iterable[pa.RecordBatch]]
    typed: bool = False
    sparse: bool = False
    notes: Callable[[pa.Schema], list[str]] = lambda schema: []
    version: int = 1

    @property
    def endings(self) -> tuple[str, ...]:
        """Ends of names, of gzipped files too."""
        return tuple(suffix + zipped for suffix in self.suffixes for zipped in ("", ".gz"))


class FormatError(Exception):
    """What is wrong with a file, as the rest of a sentence that begins with its path."""


class MisfitError(FormatError):
    """A value that has another type than its column."""

    def __init__(self, column: str, kind: pa.DataType, where: str, value: str) -> None:
        self.column = column
        super().__init__(
            f"has {value} in column {column!r}, {where}; the column's type, in rows or files "
            f"before, is {kind}. Correct the value or remove the file from the dataset."
        )
