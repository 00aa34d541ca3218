"""Columns that look by their least and greatest values as if they told the row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from distfms.data.files.partition import Dataset
from distfms.data.rows.roles import index_columns
from distfms.spec import DataSection

LIKE_AN_ID = re.compile(r"(^|[\W_])(id|idx|index|key|row|uid|unnamed)([\W_]|\d|$)", re.IGNORECASE)
# Rows from which as many whole numbers as rows are no accident.
MANY = 100


def row_remarks(dataset: Dataset, section: DataSection, columns: Sequence[str]) -> list[str]:
    """Say which index is passed over, and which of the columns that are read may betray the row.

    Known are the least and greatest value of every row group, where the footers have them.
    """
    left = [name for name in index_columns(dataset.schema) if name not in columns]
    remarks = [
        f"The column {name!r} is the index of a pandas frame and is not used. To use it, name it "
        "in `features`."
        for name in left
        if not any(fnmatchcase(name, pattern) for pattern in section.exclude)
    ]
    return [*remarks, *(row_remark(*own) for own in betraying(dataset, section, columns).items())]


def row_remark(name: str, why: str) -> str:
    """Say what to do about a column that may betray the row."""
    return (
        f"The column {name!r} {why}. A model that uses such a column does not generalise: "
        f"exclude it (`exclude: [{name!r}]`), or set it as `data.id` or `data.time`."
    )


def betraying(dataset: Dataset, section: DataSection, columns: Sequence[str]) -> dict[str, str]:
    """Return which of the columns look by their footers as if they told the row, and why."""
    found, files = dict[str, str](), dataset.files
    known = (*section.target, section.id, section.weight, section.query, section.time)
    for name in columns:
        of_files = [file.limits.get(name, ()) for file in files if file.n_rows]
        if name in known or not of_files or not all(of_files):
            continue
        if why := _why(name, of_files, dataset.n_rows):
            found[name] = why
    return found


def _why(name: str, of_files: Sequence[Sequence[tuple[float, float]]], n_rows: int) -> str:
    """Return what makes a column look as if it told the row; empty for nothing."""
    ranges = [
        (min(low for low, _ in limits), max(high for _, high in limits)) for limits in of_files
    ]
    parts, place = (ranges, "file") if len(ranges) > 1 else (of_files[0], "row group")
    wide = len(parts) > 1 and all(low < high for low, high in parts)
    if wide and all(own[1] < other[0] for own, other in pairwise(parts)):
        return f"rises from {place} to {place}, like a row number or a time"
    width = max(high for _, high in ranges) - min(low for low, _ in ranges) + 1
    whole = isinstance(width, int) and n_rows >= MANY
    if whole and (width == n_rows or (width > n_rows and LIKE_AN_ID.search(name))):
        return f"may hold a different whole number in each of its {n_rows:,} rows, like an id"
    return ""
