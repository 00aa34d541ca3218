"""CSV: what separates values, which form they have, and whether the first line has names."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
from pyarrow import ArrowInvalid

from distfms.data.files.formats.base import Format, MisfitError

#: Bytes of a file that are parsed at once; the first ones decide about types.
_BLOCK_BYTES = 2**24
#: Bytes that decide about the dialect.
_SNIFFED_BYTES = 2**20
#: How pyarrow says that a value has not the type of its column.
_MISFIT = re.compile(r".*column #(\d+): Row #(\d+): CSV conversion error to .*?: (.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
_WITH_COMMA, _COMMA = re.compile(r"[+-]?\d*(,\d+)?$"), re.compile(r"[+-]?\d*,\d+$")
_POINT, _LEADING_ZERO = re.compile(r"[+-]?\d*\.\d+$"), re.compile(r"0\d+$")
#: Where the dialect of a file stands in the metadata of its schema.
_DIALECT = b"dialect"
#: Forms of dates and times that are no numbers, besides those of ISO 8601.
_TIMES = [
    f"{date}{time}"
    for time in ("", " %H:%M", " %H:%M:%S")
    for date in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d %b %Y")
]


@dataclass(frozen=True)
class Dialect:
    """How a file is written.

    `names` are those of columns where the first line has none, `has_index` is whether the first
    column has no name, `times` are formats of dates that all values of a sample have.
    """

    encoding: str = "utf8"
    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    names: tuple[str, ...] = ()
    has_index: bool = False
    times: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return what is not as usual."""
        told = {
            f"read as {self.encoding}": self.encoding != "utf8",
            f"values are separated by {self.delimiter!r}": self.delimiter not in ",\t",
            "decimal commas": self.decimal != ".",
            f"no line of names; the columns are c1 … c{len(self.names)}": self.names,
            "the first column has no name and is left out": self.has_index,
            f"dates are read as {'; '.join(self.times)} fits, too": self.times[1:],
        }
        return [text for text, holds in told.items() if holds]


def _schema(stream: Any) -> pa.Schema:
    head = stream.read(_BLOCK_BYTES)
    if len(head) == _BLOCK_BYTES:
        head = head[: head.rfind(b"\n") + 1] or head
    dialect, sample = _sniffed(head)
    schema: pa.Schema = _parsed(pa.BufferReader(head), dialect).schema
    for at, field in enumerate(schema):
        if pa.types.is_int64(field.type) and any(map(_LEADING_ZERO.match, sample[at])):
            schema = schema.set(at, field.with_type(pa.string()))
    if dialect.has_index:
        schema = schema.remove(0)
    return schema.with_metadata({_DIALECT: json.dumps(asdict(dialect))})


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    dialect = _dialect_of(schema)
    try:
        yield from _parsed(stream, dialect, column_types=schema, include_columns=columns)
    except ArrowInvalid as error:
        misfit = _MISFIT.match(str(error))
        if misfit is None:
            raise
        column = schema.field(int(misfit[1]) - dialect.has_index)
        where = f"row {misfit[2]} ({'counted from 1' if dialect.names else 'the header is row 1'})"
        raise MisfitError(column.name, column.type, where, misfit[3]) from error


def _parsed(stream: Any, dialect: Dialect, **options: Any) -> Any:
    """Parse CSV in one thread: only so does pyarrow tell the row of an error."""
    return pv.open_csv(
        stream,
        pv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            encoding=dialect.encoding,
            column_names=dialect.names or None,
        ),
        pv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True
        ),
        pv.ConvertOptions(
            strings_can_be_null=True,
            decimal_point=dialect.decimal,
            timestamp_parsers=[pv.ISO8601, *dialect.times[:1]],
            **options,
        ),
    )


def notes(schema: pa.Schema) -> list[str]:
    """Return what users should know of how a file is read."""
    return _dialect_of(schema).notes()


def _dialect_of(schema: pa.Schema) -> Dialect:
    stored: dict[str, Any] = json.loads(schema.metadata[_DIALECT])
    lists: Any = {key: tuple(stored[key]) for key in ("names", "times")}
    return Dialect(**{**stored, **lists})


# --- what a file is like --------------------------------------------------------------------------


def _sniffed(head: bytes) -> tuple[Dialect, list[list[str]]]:
    """Find the dialect of a file by its beginning; return the texts of columns there, too."""
    encoding = _encoding(head)
    lines = head[:_SNIFFED_BYTES].decode(encoding, "ignore").splitlines(keepends=True)
    if len(head) > _SNIFFED_BYTES:
        lines.pop()  # it is not whole
    facts, top = _facts("".join(lines)), lines[0] if lines else ""
    if facts.get("Delimiter", ",") not in top:
        # Where all numbers have decimal commas, these are more regular than the line of names.
        delimiter = max(";\t|", key=top.count)
        is_there = delimiter in top
        facts = _facts("".join(lines), delimiter) if is_there else {**facts, "Delimiter": ","}
    dialect = Dialect(encoding, facts.get("Delimiter", ","))
    if facts.get("Quote") == "'":
        dialect = replace(dialect, quote="'")
    rows = list(csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote))
    first, width = rows[0] if rows else [], len(rows[0]) if rows else 0
    if not facts.get("HasHeader", True) and any(map(_NUMBER.match, first)):
        dialect = replace(dialect, names=tuple(f"c{k}" for k in range(1, width + 1)))
    else:
        rows, dialect = rows[1:], replace(dialect, has_index=width > 1 and not first[0])
    whole = [row for row in rows if len(row) == width]
    sample = [[text for text in column if text] for column in zip(*whole, strict=True)]
    sample = sample or [[] for _ in range(width)]
    if dialect.delimiter != ",":
        commas, points = (
            sum(any(map(form.match, column)) for column in sample if all(map(number.match, column)))
            for form, number in ((_COMMA, _WITH_COMMA), (_POINT, _NUMBER))
        )
        dialect = replace(dialect, decimal="," if commas > points else ".")
    return replace(dialect, times=_times(sample)), sample


def _facts(text: str, delimiter: str | None = None) -> dict[str, Any]:
    """Return what DuckDB finds in the beginning of a file; nothing where it finds no CSV."""
    import duckdb

    with TemporaryDirectory() as folder, duckdb.connect() as own:
        path = Path(folder) / "head.csv"
        path.write_text(text, encoding="utf8", newline="")
        try:
            given = "" if delimiter is None else f", delim='{delimiter}'"
            found = own.execute(f"FROM sniff_csv(?, sample_size=-1{given})", [str(path)])
        except duckdb.Error:
            return {}
        names = [column[0] for column in found.description]
        return dict(zip(names, found.fetchall()[0], strict=True))


def _encoding(head: bytes) -> str:
    """Return the encoding of text: by its mark, or UTF-8, or else the one of Windows."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf8"


def _times(sample: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the formats that the dates of all columns with dates have."""
    found = set[tuple[str, ...]]()
    for column in sample:
        fits = [form for form in _TIMES if column and all(_has_form(form, t) for t in column)]
        found |= {tuple(fits)} if fits else set()
    return max(found, key=lambda forms: -len(forms)) if found else ()


def _has_form(form: str, text: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


FORMAT = Format("CSV", (".csv", ".tsv"), _schema, _batches, notes=notes, version=2)
