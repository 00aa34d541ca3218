"""What a format of files is, and how it refuses content."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from distfms.data.files.texts import NumberForm


@dataclass(frozen=True)
class Forms:
    """How text in files without types is read: the same in all files of a dataset.

    Attributes
    ----------
    types : mapping of str to str
        The type of each column.
    decimal : str
        The decimal mark; empty where nothing tells it.
    numbers : mapping of str to NumberForm
        Columns of text that is read as numbers.
    times : mapping of str to tuple of str
        Forms, as of ``strptime``, that fit all times of a column; the first one is taken.
    keeps_na : tuple of str
        Columns of text in which ``NA`` is no missing value.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    decimal: str = ""
    numbers: Mapping[str, NumberForm] = field(default_factory=dict)
    times: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_na: tuple[str, ...] = ()

    def of(self, names: Collection[str]) -> Forms:
        """Return the forms of some columns."""
        return replace(
            self,
            types={},
            numbers={name: form for name, form in self.numbers.items() if name in names},
            times={name: forms for name, forms in self.times.items() if name in names},
            keeps_na=tuple(name for name in self.keeps_na if name in names),
        )

    def beside(self, other: Forms) -> Forms:
        """Return these forms, and those of other columns."""
        return replace(
            self,
            types={**other.types, **self.types},
            decimal=self.decimal or other.decimal,
            numbers={**other.numbers, **self.numbers},
            times={**other.times, **self.times},
            keeps_na=self.keeps_na + other.keeps_na,
        )


#: Forms to and from JSON and what it holds.
FORMS = TypeAdapter(Forms)


def with_fractions(schema: pa.Schema, name: str) -> pa.Schema | None:
    """Return a schema with floats in place of a column's whole numbers; None if it has none."""
    number = schema.names.index(name)
    if not pa.types.is_int64(schema.field(number).type):
        return None
    return schema.set(number, schema.field(number).with_type(pa.float64()))


#: See :attr:`Format.settle`.
Settle = Callable[
    [Sequence[pa.Schema], Mapping[str, pa.DataType | None], Forms], tuple[list[pa.Schema], Forms]
]


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
    settle : callable (schemas, given, forms) -> list of Schema, optional
        Of files that do not say what is text and what are numbers: how the columns of all files are
        read, from what the rows of each suggest, the types `given` to some columns, and the forms
        that are known; and all forms.
    sparse : bool
        Whether a file may lack a column of the other files; `batches` fills it with nulls.
    loosened : callable (schema, name) -> Schema or None
        How a file is read where a column has turned out to hold more than its first rows suggest:
        None where its values are at fault.
    signatures : tuple of bytes
        What its files begin with, one of these; empty for text.
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
    settle: Settle | None = None
    sparse: bool = False
    loosened: Callable[[pa.Schema, str], pa.Schema | None] = with_fractions
    signatures: tuple[bytes, ...] = ()
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

    def __init__(
        self, column: str, kind: pa.DataType | str, where: str, value: str, remedy: str = ""
    ) -> None:
        self.column = column
        super().__init__(
            f"has {value} in column {column!r}, {where}; the column's type, in rows or files "
            f"before, is {kind}. Correct the value{remedy} or remove the file from the dataset."
        )
