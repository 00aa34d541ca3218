"""Data in CSV files, gzipped or not: each is converted to Parquet once, and again when it changes.

A column has one type in all files, that of the first file with a value among its first rows; but
whole numbers may be floats in other files, as `distfms.data.footers.check_same_schema` allows.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distfms.data.footers import check_same_schema, refuse_duplicate_columns
from distfms.data.long_form import is_csv, opened, require_unchanged
from distfms.data.partition import digest
from distfms.data.storage import StoredFile, cache_folder, delete_unused
from distfms.data.write import GroupedFile
from distfms.engine.storage import (
    Location,
    file_entry,
    locked_file,
    whole_file,
    write_whole,
    writing,
)
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

#: Raised with every change of what the same CSV is converted to.
_VERSION = "1"
#: Bytes of a file that are parsed at once; the first ones decide about types.
_BLOCK_BYTES = 2**24
_THREADS = 4
#: Types found in a file, beside the copy; written again as a sign of use, but not at each use.
_TYPES, _USED_S = "types.json", 3600.0
#: How pyarrow says that a value has not the type of its column.
_MISFIT = re.compile(r".*column #(\d+): Row #(\d+): CSV conversion error to .*?: (.*)", re.DOTALL)


@dataclass(frozen=True)
class CsvCache:
    """Where CSV files are kept as Parquet, and how many bytes everything there may take."""

    folder: Location = field(default_factory=lambda: cache_folder() / "csv")
    max_bytes: int = 10 * 2**30
    say: Callable[[str], None] = lambda line: None

    def converted(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Return files with copies in Parquet in place of CSV, under the names of the CSV files.

        Raises
        ------
        DataError
            If a file cannot be parsed, a column has no name, the name of another, or is not in all
            files, or a value does not have the type of its column.
        """
        texts = [file for file in files if is_csv(file)]
        if not texts:
            return list(files)
        with writing(self.folder), ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(self._types, texts))
            schemas = _one_type_a_column(texts, found)
            places = [
                # Later errors name the copy.
                self._place(file) / digest(str(schema))[:8] / f"{file.place.name}.parquet"
                for file, schema in zip(texts, schemas, strict=True)
            ]
            missing = [place is None for place in pool.map(file_entry, places)]
            if any(missing):
                self.say(f"Converting CSV to {self.folder}: {sum(missing)} of {len(texts)} files")
            copies = pool.map(_copy, texts, schemas, places)
            copy_of = dict(zip((file.path for file in texts), copies, strict=True))
        delete_unused(self.folder, {self._place(file).name for file in texts}, self.max_bytes)
        return [copy_of.get(file.path, file) for file in files]

    def _place(self, file: StoredFile) -> Location:
        version = digest(_VERSION, str(file.place), str(file.n_bytes), file.stamp)
        return self.folder / f"csv-{version[:16]}"

    def _types(self, file: StoredFile) -> dict[str, str]:
        """Return the types of columns by a file's first rows; parsed where not known yet."""
        place = self._place(file) / _TYPES
        if (known := file_entry(place)) is not None:
            types = dict[str, str](json.loads(place.read_bytes()))
            if time.time() - known.modified_s < _USED_S:
                return types
        else:
            types = _inferred(file)
        write_whole(place, json.dumps(types).encode(), durable=False)
        return types


def _inferred(file: StoredFile) -> dict[str, str]:
    with opened(file) as stream:
        schema = _parsed(stream).schema
    refuse_duplicate_columns(schema, file.path)
    if "" in schema.names:
        raise DataError(
            f"Column {schema.names.index('') + 1} of {file.path} has no name: name it in the first "
            "line, or leave it out (pandas writes row numbers so, unless told `index=False`)."
        )
    if len(schema) == 1 and re.search("[;\t]", schema.names[0]):
        raise DataError(
            f"{file.path} has a single column, {schema.names[0]!r}: separate values by commas."
        )
    types = {column.name: str(column.type) for column in schema}
    return {n: "timestamp[ns]" if t.startswith("timestamp") else t for n, t in types.items()}


def _parsed(stream: Any, types: pa.Schema | None = None) -> Any:
    """Parse CSV in one thread: only so does pyarrow tell the row of an error."""
    import pyarrow.csv as csv

    return csv.open_csv(
        stream,
        csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )


def _one_type_a_column(
    files: Sequence[StoredFile], found: Sequence[dict[str, str]]
) -> list[pa.Schema]:
    """Return the schema of each file, from the types that the first rows of all files suggest."""
    import pyarrow as pa

    decided: dict[str, str] = {}
    for types in found:
        decided |= {n: t for n, t in types.items() if decided.get(n, "null") == "null"}
    # A column without any value is one of numbers; text is binary where it is not UTF-8.
    decided = {n: {"null": "double", "binary": "string"}.get(t, t) for n, t in decided.items()}
    schemas = []
    for file, types in zip(files, found, strict=True):
        numbers = {n for n, t in types.items() if {t, decided[n]} == {"int64", "double"}}
        fields = [
            (name, pa.type_for_alias(types[name] if name in numbers else decided[name]))
            for name in types
        ]
        schemas.append(pa.schema(fields))
        check_same_schema(schemas[0], files[0], schemas[-1], file)
    return schemas


def _copy(file: StoredFile, schema: pa.Schema, place: Location) -> StoredFile:
    """Return the copy of a file; it is written where there is none."""
    here = isinstance(place, Path)
    lock = locked_file(place.with_name(".lock")) if isinstance(place, Path) else nullcontext()
    with lock:
        if file_entry(place) is None:
            with whole_file(place) as temporary:
                _write(file, schema, temporary)
                require_unchanged(file)
                if here and isinstance(file.place, Path):
                    # A copy made again is the same version of the data.
                    os.utime(temporary, ns=(int(file.stamp), int(file.stamp)))
    entry = file_entry(place)
    assert entry is not None
    path = place.as_posix() if isinstance(place, Path) else place.inside
    return replace(file, path=path, n_bytes=entry.n_bytes, stamp=entry.stamp, place=place)


def _write(file: StoredFile, schema: pa.Schema, out: Path) -> None:
    """Write a file as Parquet; whole numbers become floats where a fraction turns up late."""
    import pyarrow as pa

    try:
        with opened(file) as stream, GroupedFile(out) as copy:
            parsed = _parsed(stream, schema)
            copy.write(schema.empty_table())
            for batch in parsed:
                copy.write(pa.Table.from_batches([batch]))
    except DataError as error:
        misfit = _MISFIT.match(str(error.__cause__))
        if misfit is None:
            raise
        place, row, value = int(misfit[1]), misfit[2], misfit[3]
        column = schema.field(place)
        if pa.types.is_int64(column.type):
            _write(file, schema.set(place, column.with_type(pa.float64())), out)
            return
        raise DataError(
            f"The file {file.path} has {value} in column {column.name!r}, row {row} (the header is "
            f"row 1); the column's type, in rows or files before, is {column.type}. Correct the "
            "value or remove the file from the dataset."
        ) from error
