"""Workbooks: the table in the fullest sheet or a named one, below titles if there are any."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pyarrow as pa

from distfms.data.files.content import OLE, ZIP
from distfms.data.files.formats.base import Format, FormatError
from distfms.data.files.formats.csv_columns import NULLS
from distfms.data.files.formats.expansion import require_bounded_zip

#: A row of a sheet: values of its cells, None for empty ones.
Row = list[Any]
#: Rows above the names of columns that may hold titles.
_MOST_TITLES = 20
#: The day of number 0, which comes as a time.
_DAY_0 = datetime.date(1899, 12, 31)
_MOST_WHOLE = 2.0**53
_TIMES = {datetime.date, datetime.datetime, datetime.time}
_NOTES = b"notes"


@dataclass(frozen=True)
class Sheet:
    """A sheet: its name, its rows without empty ones around them, and the number of the first."""

    name: str
    rows: list[Row]
    first_row: int

    @property
    def n_values(self) -> int:
        """Number of cells that are not empty."""
        return sum(value is not None for row in self.rows for value in row)


def _sheets(stream: Any) -> list[Sheet]:
    """Return the sheets of a workbook that hold anything."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise FormatError("is a workbook: pip install 'distfms[excel]' to read it.") from error
    try:
        content = stream.read()
        require_bounded_zip(content)
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(content))
        named = [workbook.get_sheet_by_name(name) for name in workbook.sheet_names]
        tables = [(sheet.name, sheet.to_python(skip_empty_area=False)) for sheet in named]
    except CalamineError as error:
        raise FormatError(
            f"cannot be read as a workbook ({error}). Remove its password if it has one, and save "
            "it again as .xlsx, or as CSV."
        ) from error
    sheets = []
    for name, cells in tables:
        rows = [list(map(_value, row)) for row in cells]
        filled = [number for number, row in enumerate(rows) if any_value(row)]
        if filled:
            sheets.append(Sheet(name, rows[filled[0] : filled[-1] + 1], filled[0] + 1))
    return sheets


def any_value(cells: Sequence[Any]) -> bool:
    """Return whether a cell is not empty."""
    return any(value is not None for value in cells)


def _value(cell: Any) -> Any:
    """Return what a cell holds; None for nothing."""
    return None if isinstance(cell, str) and not cell.strip() else cell


def _table(stream: Any, named: str) -> pa.Table:
    sheets = _sheets(stream)
    if not sheets:
        raise FormatError("has no sheet with a table in it. Remove it from the dataset.")
    candidates = [sheet for sheet in sheets if named in ("", sheet.name)]
    others = ", ".join(repr(sheet.name) for sheet in sheets)
    if not candidates:
        raise FormatError(
            f"names a sheet that is empty or not in the workbook; choose from {others}."
        )
    sheet = max(candidates, key=lambda candidate: candidate.n_values)
    names, n_above = _header(sheet)
    notes = []
    if len(candidates) > 1:
        another = next(other.name for other in candidates if other is not sheet)
        notes.append(
            f"of the sheets {others}, {sheet.name!r} is read, which has the most values; to read "
            f"another, name it after the path, as in #{another}"
        )
    row_of_names = sheet.first_row - 1 + n_above
    if row_of_names > 1:
        notes.append(f"the names of columns are in row {row_of_names}")
    columns = {}
    for number, name in names.items():
        columns[name] = _array([row[number] for row in sheet.rows[n_above:]])
    return pa.table(columns).replace_schema_metadata({_NOTES: "\n".join(notes)})


# --- names of columns -----------------------------------------------------------------------------


def _header(sheet: Sheet) -> tuple[dict[int, str], int]:
    """Return the names of the columns by their numbers, and how many rows end with them.

    The names are in the first row of texts that has one for each column with values below, but for
    a first column that counts the rows; or in two rows, the first of which has gaps, as merged
    cells leave them.
    """
    for number in range(min(_MOST_TITLES, len(sheet.rows) - 1)):
        row = sheet.rows[number]
        below = sheet.rows[number + 1 :]
        used = _used(below)
        texts = [row[k] for k in used]
        if not _are_texts(texts):
            break
        if None not in texts:
            return _named(sheet, used, texts), number + 1
        if len(used) > 2 and None not in texts[1:]:
            first_column = [values[used[0]] for values in below]
            if _counts(first_column):
                return _named(sheet, used[1:], texts[1:]), number + 1
        second = [below[0][k] for k in used]
        joined = None if _are_names(second) else _two_levels(texts, second)
        if joined is not None and len(below) > 1:
            return _named(sheet, used, joined), number + 2
    raise FormatError(
        f"has no row with a name for each column above the values of the sheet {sheet.name!r}. "
        "Give every column a name of its own, in one row."
    )


def _used(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of the columns that have a value."""
    columns = enumerate(zip(*rows, strict=True))
    return [number for number, values in columns if any_value(values)]


def _are_texts(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _are_names(values: Sequence[Any]) -> bool:
    """Return whether values name columns: texts that all differ."""
    return _are_texts(values) and None not in values and len(set(values)) == len(values)


def _counts(values: Sequence[Any]) -> bool:
    """Return whether values are the numbers of rows."""
    n_values = len(values)
    return list(values) in (list(range(n_values)), list(range(1, n_values + 1)))


def _two_levels(above: Sequence[Any], below: Sequence[Any]) -> list[str] | None:
    """Return names from two rows of texts; None if the second does not complete the first.

    A gap in the first has the text before it where the second has one.
    """
    if not _are_texts(below):
        return None
    names = []
    last = None
    for first, second in zip(above, below, strict=True):
        if first is None and second is None:
            return None
        last = last if first is None else first
        names.append(" ".join(text.strip() for text in (last, second) if text is not None))
    return names


def _named(sheet: Sheet, numbers: Sequence[int], texts: Sequence[str]) -> dict[int, str]:
    """Return names by columns; two of the same are refused."""
    names = {number: text.strip() for number, text in zip(numbers, texts, strict=True)}
    listed = list(names.values())
    twice = [name for name in listed if listed.count(name) > 1]
    if twice:
        raise FormatError(
            f"has the column {twice[0]!r} twice in the sheet {sheet.name!r}. Rename one of them."
        )
    return names


# --- values ---------------------------------------------------------------------------------------


def _array(values: Sequence[Any]) -> pa.Array:
    """Return the values of a column: texts where any is one, else times, truths or numbers."""
    kept = [None if isinstance(value, str) and value in NULLS else value for value in values]
    kinds = {type(value) for value in kept if value is not None}
    if not kinds:
        return pa.nulls(len(kept))
    if kinds == {bool}:
        return pa.array(kept, pa.bool_())
    if kinds <= {bool, int, float}:
        return _numbers(kept)
    if kinds <= _TIMES and kinds != {datetime.time}:
        return pa.array([_time(value) for value in kept], pa.timestamp("us"))
    return pa.array([_text(value) for value in kept], pa.string())


def _numbers(values: Sequence[Any]) -> pa.Array:
    """Return numbers, whole ones if all are."""
    numbers = [None if value is None else float(value) for value in values]
    for number in numbers:
        if number is not None and not (number.is_integer() and abs(number) < _MOST_WHOLE):
            return pa.array(numbers, pa.float64())
    return pa.array(numbers, pa.float64()).cast(pa.int64())


def _time(value: Any) -> datetime.datetime | None:
    if value is None or isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.time):
        return datetime.datetime.combine(_DAY_0, value)
    return datetime.datetime.combine(value, datetime.time())


def _text(value: Any) -> str | None:
    """Return a value as a cell shows it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# --- format ---------------------------------------------------------------------------------------


def _schema(stream: Any, sheet: str = "") -> pa.Schema:
    schema: pa.Schema = _table(stream, sheet).schema
    return schema


def _batches(
    stream: Any, schema: pa.Schema, columns: Sequence[str], sheet: str = ""
) -> Iterator[pa.RecordBatch]:
    selected = pa.schema([schema.field(name) for name in columns])
    yield from _table(stream, sheet).select(columns).cast(selected).to_batches()


def notes(schema: pa.Schema) -> list[str]:
    """Return what users should know of how a workbook is read."""
    text = (schema.metadata or {}).get(_NOTES, b"").decode()
    return text.split("\n") if text else []


FORMAT = Format(
    "Excel",
    (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
    _schema,
    _batches,
    notes=notes,
    signatures=(ZIP, OLE),
    version=2,
)


def divided(path: str) -> tuple[str, str]:
    """Divide ``book.xlsx#sheet`` into path and sheet, which is empty where none is named."""
    match = re.fullmatch(r"(.*\.(?:xls[xmb]?|ods))#(.+)", path, re.IGNORECASE | re.DOTALL)
    return (match[1], match[2]) if match else (path, "")


@cache
def of_sheet(name: str) -> Format:
    """Return the format of workbooks of which one sheet is read."""
    schema = partial(_schema, sheet=name)
    return replace(FORMAT, schema=schema, batches=partial(_batches, sheet=name))
