"""CSV: what separates values, which form they have, and whether the first line has names."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from pyarrow import ArrowInvalid
from pydantic import TypeAdapter

from distfms.data.files.formats.base import FORMS, Format, Forms, MisfitError, with_fractions
from distfms.data.files.formats.csv_columns import FACTS, NA, NULLS, Columns, Facts, time_forms
from distfms.data.files.texts import NumberForm, numbers_of, read_times, trimmed

#: Bytes of a file that are parsed at once; the first ones decide about types.
_BLOCK_BYTES = 2**24
#: Bytes that decide about the dialect.
_SNIFFED_BYTES = 2**20
#: Lines above the names of columns that may hold titles.
_MOST_TITLES = 20
#: How pyarrow says that a value has not the type of its column.
_MISFIT = re.compile(r".*column #(\d+): Row #(\d+): CSV conversion error to .*?: (.*)", re.DOTALL)
_REMEDY = ", read the column as text (`data.text`)"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
#: Where the dialect of a file, what its columns can be and how they are read stand in metadata.
_DIALECT = b"dialect"
_FACTS = b"facts"
_COLUMNS = b"columns"


@dataclass(frozen=True)
class Dialect:
    """How a file is written.

    `names` are those of columns where the first line has none, `has_index` is whether the first
    column has no name, `n_titles` the number of lines above that of the names.
    """

    encoding: str = "utf8"
    delimiter: str = ","
    quote: str = '"'
    names: tuple[str, ...] = ()
    has_index: bool = False
    n_titles: int = 0

    def notes(self) -> list[str]:
        """Return what is not as usual."""
        remarks = {
            f"read as {self.encoding}": self.encoding != "utf8",
            f"values are separated by {self.delimiter!r}": self.delimiter not in ",\t",
            f"no line of names; the columns are c1 … c{len(self.names)}": self.names,
            "the first column has no name and is left out": self.has_index,
            f"the names of columns are in line {self.n_titles + 1}": self.n_titles,
        }
        return [text for text, holds in remarks.items() if holds]


_DIALECTS = TypeAdapter(Dialect)


def _schema(stream: Any) -> pa.Schema:
    """Return the columns of a file, and what the texts of each can be read as."""
    head = stream.read(_BLOCK_BYTES)
    is_whole = len(head) < _BLOCK_BYTES
    encoding = _encoding(head)
    text = codecs.getincrementaldecoder(encoding)("ignore").decode(head)
    if not is_whole:
        text = _whole_records(text)
    start = text if len(text) <= _SNIFFED_BYTES else _whole_records(text[:_SNIFFED_BYTES])
    dialect = _sniffed(encoding, start)
    facts, schema = _facts_of(text, start, dialect)
    if not is_whole and stream.seekable():
        facts |= _with_late_times(stream, dialect, facts)
    if dialect.has_index:
        schema = schema.remove(0)
    content = {_DIALECT: _DIALECTS.dump_json(dialect), _FACTS: FACTS.dump_json(facts)}
    return schema.with_metadata(content)


def _facts_of(text: str, start: str, dialect: Dialect) -> tuple[dict[str, Facts], pa.Schema]:
    """Return what the columns of a text can be read as, by the texts of its start, and a schema."""
    table = _table(text, dialect)
    names = table.schema.names
    texts = _table(start, dialect, column_types=dict.fromkeys(names, pa.string()))
    facts: dict[str, Facts] = {}
    for number, name in enumerate(names):
        column = table.column(number)
        sample = column if pa.types.is_string(column.type) else texts.column(number)
        facts[name] = Facts.of(column.type, sample)
    return facts, table.schema


def _with_late_times(stream: Any, dialect: Dialect, facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return facts of times of several forms: all rows may tell which it is."""
    ambiguous = {
        name: column_facts for name, column_facts in facts.items() if len(column_facts.times) > 1
    }
    if not ambiguous:
        return ambiguous
    stream.seek(0)
    types = dict.fromkeys(ambiguous, pa.string())
    for batch in _parsed(stream, dialect, include_columns=list(ambiguous), column_types=types):
        for name, column_facts in ambiguous.items():
            values = pc.unique(batch.column(name))
            values = values.filter(pc.invert(pc.is_in(values, pa.array(NULLS))))
            ambiguous[name] = replace(
                column_facts, times=time_forms(values, column_facts.times) or column_facts.times
            )
    return ambiguous


def _table(text: str, dialect: Dialect, **options: Any) -> pa.Table:
    stream = pa.BufferReader(text.encode())
    return _parsed(stream, replace(dialect, encoding="utf8"), **options).read_all()


def _settled(
    schemas: Sequence[pa.Schema], given: Mapping[str, pa.DataType | None], forms: Forms
) -> tuple[list[pa.Schema], Forms]:
    """Return how the columns of all files are read, by what each can be read as."""
    dialects = [_dialect_of(schema) for schema in schemas]
    facts = [FACTS.validate_json(schema.metadata[_FACTS]) for schema in schemas]
    types = {name: str(kind) for name, kind in given.items() if kind is not None}
    known_forms = replace(forms, types={**forms.types, **types})
    columns = Columns.of(facts, "".join(dialect.delimiter for dialect in dialects), known_forms)
    settled = []
    for schema, file_facts in zip(schemas, facts, strict=True):
        kinds = dict(columns.types)
        for name, fact in file_facts.items():
            is_decided = name in types or name in columns.written
            if kinds[name] == "double" and fact.kinds == ("int64",) and not is_decided:
                # As of a file alone: files that come later do not change the copy.
                kinds[name] = "int64"
        fields = [(name, pa.type_for_alias(kinds[name])) for name in schema.names]
        read_as = replace(columns.forms, numbers=columns.written).of(schema.names)
        content = {_DIALECT: schema.metadata[_DIALECT], _COLUMNS: FORMS.dump_json(read_as)}
        settled.append(pa.schema(fields, content))
    return settled, columns.forms


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    dialect = _dialect_of(schema)
    forms = _forms_of(schema)
    as_text = {*forms.numbers, *forms.times}
    types = {field.name: field.type for field in schema}
    types |= dict.fromkeys(as_text & types.keys(), pa.string())
    options = {"column_types": types, "include_columns": columns}
    first = 1 if dialect.names else dialect.n_titles + 2
    try:
        for batch in _parsed(stream, dialect, forms.decimal, **options):
            arrays = [
                _read(batch.column(name), schema.field(name), forms, (first, dialect))
                for name in columns
            ]
            yield pa.record_batch(arrays, names=list(columns))
            first += batch.num_rows
    except ArrowInvalid as error:
        misfit = _MISFIT.match(str(error))
        if misfit is None:
            raise
        column = schema.field(int(misfit[1]) - dialect.has_index)
        raise MisfitError(
            column.name, column.type, _row(misfit[2], dialect), misfit[3], _REMEDY
        ) from error


def _row(number: Any, dialect: Dialect) -> str:
    counted = "counted from 1" if dialect.names else f"the header is row {dialect.n_titles + 1}"
    return f"row {number} ({counted})"


def _parsed(stream: Any, dialect: Dialect, decimal: str = ".", **options: Any) -> Any:
    """Parse CSV in one thread: only so does pyarrow tell the row of an error.

    Texts are as they stand.
    """
    return pv.open_csv(
        stream,
        pv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            encoding=dialect.encoding,
            column_names=dialect.names or None,
            skip_rows=dialect.n_titles,
        ),
        pv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True
        ),
        pv.ConvertOptions(strings_can_be_null=False, decimal_point=decimal, **options),
    )


def _read(texts: pa.Array, field: pa.Field, forms: Forms, place: tuple[int, Dialect]) -> pa.Array:
    """Return the values of a column; of text, those that are missing are null."""
    if not pa.types.is_string(texts.type):
        return texts
    nulls = [text for text in NULLS if text != NA or field.name not in forms.keeps_na]
    texts = pc.if_else(pc.is_in(texts, pa.array(nulls)), None, texts)
    form = forms.numbers.get(field.name)
    times = forms.times.get(field.name)
    if form is not None:
        values = numbers_of(trimmed(texts), form)
        called = f"{field.type} with decimal {'commas' if form.decimal == ',' else 'points'}"
        called += f" and the unit {form.unit}" if form.unit else ""
    elif times is not None:
        values = read_times(texts, times[0]).cast(field.type)
        called = f"time of the form {times[0]}"
    else:
        return texts
    wrong = pc.and_(texts.is_valid(), values.is_null())
    if wrong.true_count:
        number = pc.index(wrong, True).as_py()
        row = _row(place[0] + number, place[1])
        raise MisfitError(
            field.name, called, row, f"invalid value {texts[number].as_py()!r}", _REMEDY
        )
    return values


def _loosened(schema: pa.Schema, name: str) -> pa.Schema | None:
    """Return how numbers with marks between thousands are read where only late rows have them."""
    forms = _forms_of(schema)
    if not pa.types.is_float64(schema.field(name).type) or name in forms.numbers:
        return with_fractions(schema, name)
    loosened = replace(forms, numbers={**forms.numbers, name: NumberForm(forms.decimal)})
    return schema.with_metadata({**schema.metadata, _COLUMNS: FORMS.dump_json(loosened)})


def notes(schema: pa.Schema) -> list[str]:
    """Return what users should know of how a file is read."""
    forms = _forms_of(schema)
    notes_of_file = _dialect_of(schema).notes()
    if forms.decimal == ",":
        notes_of_file.append("decimal commas")
    for name, times in forms.times.items():
        if times[1:]:
            notes_of_file.append(f"dates of {name!r} are read as {times[0]}; {times[1]} fits, too")
    for name, form in forms.numbers.items():
        if form.unit:
            notes_of_file.append(f"{name!r} holds numbers with the unit {form.unit}")
    return notes_of_file


def _dialect_of(schema: pa.Schema) -> Dialect:
    return _DIALECTS.validate_json(schema.metadata[_DIALECT])


def _forms_of(schema: pa.Schema) -> Forms:
    return FORMS.validate_json(schema.metadata[_COLUMNS])


# --- what a file is like --------------------------------------------------------------------------


def _whole_records(text: str) -> str:
    """Return the whole records that text begins with: a line may end within quotes."""
    content = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    ends = np.flatnonzero(content == ord("\n"))
    n_quotes = np.cumsum(content == ord('"'))[ends]
    outside = ends[n_quotes % 2 == 0]
    ends = outside if len(outside) else ends
    return text[: ends[-1] + 1] if len(ends) else text


def _sniffed(encoding: str, text: str) -> Dialect:
    """Find the dialect of a file by its first records."""
    lines = list(io.StringIO(text, newline=""))
    facts = _facts(text)
    delimiter = facts.get("Delimiter", ",")
    candidates = {*";\t|", delimiter}
    first_lines = lines[: _MOST_TITLES + 1]
    top = next((line for line in first_lines if not candidates.isdisjoint(line)), "")
    if delimiter not in top:
        # Where all numbers have decimal commas, these are more regular than the line of names.
        delimiter = max(";\t|", key=top.count)
        if delimiter in top:
            facts = _facts(text, delimiter)
            delimiter = facts.get("Delimiter", ",")
        else:
            delimiter = ","
    dialect = Dialect(encoding, delimiter)
    if facts.get("Quote") == "'":
        dialect = replace(dialect, quote="'")
    n_titles = _count_titles(lines, dialect)
    if n_titles:
        return replace(_sniffed(encoding, "".join(lines[n_titles:])), n_titles=n_titles)
    rows = csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote)
    first: list[str] = next(rows, [])
    has_numbers = any(map(_NUMBER.match, first))
    if has_numbers and not facts.get("HasHeader", True):
        return replace(dialect, names=tuple(f"c{k + 1}" for k in range(len(first))))
    return replace(dialect, has_index=len(first) > 1 and not first[0])


def _count_titles(lines: Sequence[str], dialect: Dialect) -> int:
    """Count the lines above the names of columns: they are empty, or have a first value alone.

    The names are texts that differ, one for each column of the line that follows.
    """
    rows = csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote)
    n_titles = 0
    for row in rows:
        if any(value.strip() for value in row[1:]):
            break
        n_titles = rows.line_num
    else:
        return 0
    following = next(rows, row)
    are_names = "" not in row and len(set(row)) == len(row) == len(following)
    has_numbers = any(map(_NUMBER.match, row))
    return n_titles if are_names and not has_numbers and n_titles <= _MOST_TITLES else 0


def _facts(text: str, delimiter: str | None = None) -> dict[str, Any]:
    """Return what DuckDB finds in the beginning of a file; nothing where it finds no CSV."""
    import duckdb

    with TemporaryDirectory() as folder, duckdb.connect() as database:
        path = Path(folder) / "head.csv"
        path.write_text(text, encoding="utf8", newline="")
        try:
            delimiter_option = "" if delimiter is None else f", delim='{delimiter}'"
            sniffed = database.execute(
                f"FROM sniff_csv(?, sample_size=-1{delimiter_option})", [str(path)]
            )
        except duckdb.Error:
            return {}
        names = [column[0] for column in sniffed.description]
        return dict(zip(names, sniffed.fetchall()[0], strict=True))


def _encoding(head: bytes) -> str:
    """Return the encoding of text: by its mark, or UTF-8, or else the one of Windows."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf8"


FORMAT = Format(
    "CSV",
    (".csv", ".tsv"),
    _schema,
    _batches,
    settle=_settled,
    loosened=_loosened,
    notes=notes,
    version=6,
)
