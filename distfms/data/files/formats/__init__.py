"""Formats of files that are converted to Parquet: one module each, and one line in `FORMATS`."""

from distfms.data.files.formats import arrow, csv, excel, json_lines
from distfms.data.files.formats.base import Format

#: In a folder the first format that has any files is the one that is read; Parquet comes before.
FORMATS: tuple[Format, ...] = (csv.FORMAT, json_lines.FORMAT, arrow.FORMAT, excel.FORMAT)


def format_of(path: str) -> Format | None:
    """Return the format of a file by the end of its name; None for Parquet."""
    name = path.lower()
    return next((form for form in FORMATS if name.endswith(form.endings)), None)
