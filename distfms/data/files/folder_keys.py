"""Columns that stand in the names of folders, as ``year=2024/region=north/part-0.parquet``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from distfms.errors import DataError
from distfms.store.places import File

#: What Hive and Spark write for a missing value.
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?\d{1,18}")
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}([T _].*)?")


def keys_of(file: File) -> dict[str, str | None]:
    """Return the keys in the names of a file's folders, below the one that is named."""
    keys: dict[str, str | None] = {}
    for folder in file.name.split("/")[1:-1]:
        name, equals, value = folder.partition("=")
        if name and equals:
            keys[unquote(name)] = None if value == _MISSING else unquote(value)
    return keys


def key_types(
    files: Sequence[File], schema: pa.Schema, known: Mapping[str, str]
) -> dict[str, pa.DataType]:
    """Return the columns that the names of folders add to files of a schema.

    Dates are none: they say how old a file is. Raises DataError if a file lacks a key.
    """
    each = [keys_of(file) for file in files]
    types: dict[str, pa.DataType] = {}
    for name in dict.fromkeys(name for keys in each for name in keys):
        if name in schema.names:
            continue
        for keys, file in zip(each, files, strict=True):
            if name not in keys:
                raise DataError(
                    f"The file {file.called} is in no folder {name}=…, unlike others: "
                    "put all files of a dataset in folders with the same keys."
                )
        values = {keys[name] for keys in each} - {None}
        if values and all(_DATE.fullmatch(value or "") for value in values):
            continue
        is_number = all(_INTEGER.fullmatch(value or "") for value in values)
        types[name] = pa.int64() if is_number and known.get(name) != "string" else pa.string()
    return types


def with_keys(
    table: pa.Table,
    keys: Mapping[str, str | None],
    types: Mapping[str, pa.DataType],
    columns: Sequence[str],
    n_rows: int,
) -> pa.Table:
    """Return columns of a table of `n_rows`, and those of the names of its folders."""
    arrays = []
    for name in columns:
        if name in types:
            value = pa.scalar(keys[name], pa.string()).cast(types[name])
            arrays.append(pa.chunked_array([pa.repeat(value, n_rows)], types[name]))
        else:
            arrays.append(table.column(name))
    return pa.table(arrays, names=list(columns))
