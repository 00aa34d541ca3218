"""Columns that look by their least and greatest values as if they told the row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

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
    limits = [file.limits for file in dataset.files if file.n_rows]
    known = (*section.target, section.id, section.weight, section.query, section.time)
    # Files with the same columns share their names.
    kinds = {id(own.names): own.names for own in limits if own is not None}
    names = [n for n in columns if n not in known and all(n in own for own in kinds.values())]
    if None in limits or not names:
        return {}
    places = {own: [there.index(name) for name in names] for own, there in kinds.items()}
    place = "file" if len(limits) > 1 else "row group"
    n_parts, last, whole = 0, np.full(len(names), -np.inf), np.ones(len(names), dtype=bool)
    least, most, rises = -last, last, whole
    for own in limits:
        assert own is not None
        values = own.values[places[id(own.names)]]
        whole = whole & own.whole[places[id(own.names)]]
        ranges = [(values[..., 0].min(axis=1), values[..., 1].max(axis=1))]
        for low, high in ranges if place == "file" else values.transpose(1, 2, 0):
            rises = rises & (low < high) & (last < low)
            least, most = np.minimum(least, low), np.maximum(most, high)
            last, n_parts = high, n_parts + 1
    width, found = most - least + 1, dict[str, str]()
    for number, name in enumerate(names):
        n_rows, is_whole = dataset.n_rows, whole[number] and dataset.n_rows >= MANY
        like_an_id = width[number] > n_rows and LIKE_AN_ID.search(name)
        if n_parts > 1 and rises[number]:
            found[name] = f"rises from {place} to {place}, like a row number or a time"
        elif is_whole and (width[number] == n_rows or like_an_id):
            found[name] = (
                f"may hold a different whole number in each of its {n_rows:,} rows, like an id"
            )
    return found
