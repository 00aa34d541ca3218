"""Formats of files that are converted to Parquet: one module each, and one line in `FORMATS`."""

from functools import cache

from distfms.data.files.formats import arrow, csv, excel, json_lines
from distfms.data.files.formats.base import Format

#: In a folder the first format that has any files is the one that is read; Parquet comes before.
FORMATS: tuple[Format, ...] = (csv.FORMAT, json_lines.FORMAT, arrow.FORMAT, excel.FORMAT)


@cache
def format_of(path: str) -> Format | None:
    """Return the format of a file by the end of its name; None for Parquet."""
    file, sheet = excel.divided(path)
    if sheet:
        return excel.of_sheet(sheet)
    name = file.lower()
    return next((form for form in FORMATS if name.endswith(form.endings)), None)
