"""Columns that tell which row it is rather than anything about it: indexes, row numbers, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.partition import Dataset
    from distfms.spec import DataSection

#: Least and greatest value of a column in each row group of a file.
Limits = Sequence[tuple[float, float]]

_INDEX = re.compile(r"__index_level_\d+__")
_LIKE_AN_ID = re.compile(r"(^|[\W_])(id|idx|index|key|row|uid|unnamed)([\W_]|\d|$)", re.IGNORECASE)
#: Rows from which as many whole numbers as rows are no accident.
_MANY = 100


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that pandas wrote the index of a frame to, as the metadata say."""
    try:
        named = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # no JSON
        named = ()
    return tuple(name for name in schema.names if name in named or _INDEX.fullmatch(name))


def index_metadata(schema: pa.Schema) -> dict[str, str] | None:
    """Return metadata that say which columns hold an index, and nothing else."""
    index = index_columns(schema)
    return {"pandas": json.dumps({"index_columns": index})} if index else None


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
    files = dataset.files
    known = (*section.target, section.id, section.weight, section.query, section.time)
    for name in columns:
        of_files = [file.limits.get(name, ()) for file in files if file.n_rows]
        if name in known or not of_files or not all(of_files):
            continue
        if why := _why(name, of_files, dataset.n_rows):
            remarks.append(
                f"The column {name!r} {why}. A model that uses such a column does not generalise: "
                f"exclude it (`exclude: [{name!r}]`), or set it as `data.id` or `data.time`."
            )
    return remarks


def _why(name: str, of_files: Sequence[Limits], n_rows: int) -> str:
    """Return what makes a column look as if it told the row; empty for nothing."""
    ranges = [
        (min(low for low, _ in limits), max(high for _, high in limits)) for limits in of_files
    ]
    parts, place = (ranges, "file") if len(ranges) > 1 else (of_files[0], "row group")
    if len(parts) > 1 and all(low < high for low, high in parts):
        for ordered, how in ((parts, "rises"), (parts[::-1], "falls")):
            if all(own[1] < other[0] for own, other in pairwise(ordered)):
                return f"{how} from {place} to {place}, like a row number or a time"
    width = max(high for _, high in ranges) - min(low for low, _ in ranges) + 1
    whole = isinstance(width, int) and n_rows >= _MANY
    if whole and (width == n_rows or (width > n_rows and _LIKE_AN_ID.search(name))):
        return f"may hold a different whole number in each of its {n_rows:,} rows, like an id"
    return ""
