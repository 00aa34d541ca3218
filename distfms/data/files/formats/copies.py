"""Copies in Parquet of files in other formats: made once, and again when a file changes.

A column has one type in all files: in formats without types the one that fits all of them, else
that of the first file whose rows suggest any. Whole numbers may be floats in other files, as
`distfms.data.files.footers.check_same_schema` allows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distfms.data.files.content import HEAD_BYTES, other_content
from distfms.data.files.footers import (
    check_same_schema,
    readable,
    refuse_duplicate_columns,
    with_types,
)
from distfms.data.files.formats import format_of
from distfms.data.files.formats.base import Format, FormatError, Forms, MisfitError
from distfms.data.files.formats.expansion import Unzipped
from distfms.data.files.storage import cache_folder
from distfms.data.files.write import GroupedFile
from distfms.errors import DataError
from distfms.store import places
from distfms.store.kept import MAX_BYTES, are_kept, kept_files, kept_value, prune
from distfms.store.places import File, Location

#: What copies of all formats are made with: the first is raised with every change of how.
_MADE_WITH = [3, pa.__version__, version("duckdb")]
_THREADS = 4
_KIND = "copies"
_COPY = "rows.parquet"


@dataclass(frozen=True)
class Copies:
    """Where copies are kept, and how many bytes everything there may take."""

    folder: Location = field(default_factory=cache_folder)
    max_bytes: int = MAX_BYTES
    say: Callable[[str], None] = lambda line: None

    def columns(self, file: File) -> list[str]:
        """Return the names of a file's columns."""
        if format_of(file.path) is not None:
            with places.writing(self.folder):
                names: list[str] = self._suggested(file).names
                return names
        with opened(file) as stream:
            names = pq.ParquetFile(stream).schema_arrow.names
        return names

    def converted(
        self,
        files: Sequence[File],
        columns: Mapping[str, pa.DataType | None] | None = None,
        forms: Forms | None = None,
    ) -> tuple[list[File], Forms]:
        """Return files with copies in place of those that are not Parquet, under the same names.

        Parameters
        ----------
        files : sequence of File
        columns : mapping of str to pyarrow.DataType or None, optional
            The only columns to copy, which all files have. A type holds in formats without types;
            None is the one that the rows suggest.
        forms : Forms, optional
            How text is read in formats without types, as far as that is known.

        Returns
        -------
        files : list of File
        forms : Forms
            How text is read in all files.

        Raises
        ------
        DataError
            If a file cannot be parsed, a column has no name, the name of another, or is not in all
            files, or a value does not have the type of its column.
        """
        foreign = [file for file in files if format_of(file.path) is not None]
        forms = forms or Forms()
        if not foreign:
            return list(files), forms
        with places.writing(self.folder), ThreadPoolExecutor(_THREADS) as pool:
            suggested = list(pool.map(self._suggested, foreign))
            schemas, forms = _schemas(foreign, suggested, columns, forms)
            conversions = []
            for file, schema in zip(foreign, schemas, strict=True):
                conversions.append(_Conversion(file, schema, tuple(columns or schema.names)))
            missing = [
                conversion
                for conversion in conversions
                if not are_kept(self.folder, _KIND, conversion.dependencies)
            ]
            if missing:
                kinds = sorted({_format(conversion.file).name for conversion in missing})
                count = f"{len(missing)} of {len(foreign)} files"
                self.say(f"Converting {' and '.join(kinds)} to Parquet: {count}")
            copies = list(pool.map(self._copy, conversions))
            if missing:
                prune(self.folder, self.max_bytes)
            for line in _notes(conversions):
                self.say(line)
        copy_of = {copy.source: copy for copy in copies}
        return [copy_of.get(file.path, file) for file in files], forms

    def _copy(self, conversion: _Conversion) -> File:
        """Return the copy of a file; it is written where there is none."""
        folder = kept_files(self.folder, _KIND, conversion.dependencies, conversion.write)
        copy = places.file_entry(folder / _COPY)
        assert copy is not None
        file = conversion.file
        return replace(copy, name=file.name, key=file.key, source=file.path)

    def _suggested(self, file: File) -> pa.Schema:
        """Return the columns of a file and the types that its rows suggest."""
        make = partial(_suggested_types, file)
        kept = kept_value(self.folder, "types", state_of(file), make)
        return pa.ipc.read_schema(pa.py_buffer(kept))


def _suggested_types(file: File) -> bytes:
    """Return the schema of a file as Arrow writes it."""
    _refuse_other_content(file)
    with opened(file) as stream:
        schema = _format(file).schema(stream)
    times = [column.name for column in schema if pa.types.is_timestamp(column.type)]
    typed = with_types(schema, dict.fromkeys(times, pa.timestamp("ns")))
    content: bytes = typed.serialize().to_pybytes()
    return content


def state_of(file: File) -> list[Any]:
    """Return all that what a file is converted to depends on, but how its columns are read."""
    form = format_of(file.path)
    of_form = [] if form is None else [form.name, form.version]
    of_file = [str(file.place), file.sheet, file.n_bytes, file.stamp, file.state]
    return [*_MADE_WITH, *of_form, *of_file]


@dataclass(frozen=True)
class _Conversion:
    """Some columns of a file, and how they are read."""

    file: File
    schema: pa.Schema
    columns: tuple[str, ...]

    @property
    def dependencies(self) -> list[Any]:
        """All that the copy depends on."""
        fields = [str(self.schema.field(name)) for name in self.columns]
        metadata = sorted((self.schema.metadata or {}).items())
        return [*state_of(self.file), fields, repr(metadata)]

    def write(self, folder: Path) -> None:
        """Write the copy to a folder."""
        copy = folder / _COPY
        _write(self.file, self.schema, self.columns, copy)
        require_unchanged(self.file)
        if isinstance(self.file.place, Path):
            # A copy made again is the same version of the data.
            os.utime(copy, ns=(int(self.file.stamp), int(self.file.stamp)))


def _notes(conversions: Sequence[_Conversion]) -> Iterator[str]:
    """Yield what users should know of how files are read, each time that they are."""
    noted: dict[str, list[str]] = {}
    for conversion in conversions:
        for text in _format(conversion.file).notes(conversion.schema):
            noted.setdefault(text, []).append(conversion.file.path)
    for text, paths in noted.items():
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{others}: {text}"


def _refuse_other_content(file: File) -> None:
    """Refuse a file that begins as no file of its format does."""
    form = _format(file)
    with opened(file) as stream:
        fault = other_content(stream.read(HEAD_BYTES), form.name, form.signatures)
        if fault:
            raise FormatError(fault)


def _format(file: File) -> Format:
    form = format_of(file.path)
    assert form is not None
    return form


def _schemas(
    files: Sequence[File],
    suggested_types: Sequence[pa.Schema],
    columns: Mapping[str, pa.DataType | None] | None,
    forms: Forms,
) -> tuple[list[pa.Schema], Forms]:
    """Return how each file is read, from what the rows of all files suggest."""
    schemas: dict[int, pa.Schema] = {}
    formats = [_format(file) for file in files]
    for form in dict.fromkeys(formats):
        numbers = [number for number, file_format in enumerate(formats) if file_format is form]
        suggested = [suggested_types[number] for number in numbers]
        if form.settle is None:
            settled = _typed(suggested, columns or {}, form.sparse)
        else:
            settled, forms = form.settle(suggested, columns or {}, forms)
        schemas |= dict(zip(numbers, settled, strict=True))
    if columns is None:
        for number, file in enumerate(files):
            _check(schemas[number], file)
            check_same_schema(schemas[0], files[0], schemas[number], file)
    return [schemas[number] for number in range(len(files))], forms


def _typed(
    suggested: Sequence[pa.Schema], given: Mapping[str, pa.DataType | None], is_sparse: bool
) -> list[pa.Schema]:
    """Return the schemas of files that say what is text and what are numbers."""
    decided: dict[str, pa.DataType] = {}
    for column in chain(*suggested):
        if decided.get(column.name, pa.null()) == pa.null():
            decided[column.name] = column.type
    for name, kind in decided.items():
        if kind == pa.null():
            decided[name] = pa.float64()  # a column without any value is one of numbers
    schemas = []
    for schema in suggested:
        types = dict(decided)
        for column in schema:
            are_numbers = {column.type, decided[column.name]} == {pa.int64(), pa.float64()}
            if are_numbers or given.get(column.name) is not None:
                types[column.name] = column.type
        settled = with_types(schema, types)
        if is_sparse:
            others = [pa.field(*item) for item in types.items() if item[0] not in schema.names]
            settled = pa.schema([*settled, *others], schema.metadata)
        schemas.append(settled)
    return schemas


def _check(schema: pa.Schema, file: File) -> None:
    if not len(schema):
        raise DataError(f"There are no columns in {file.path}.")
    refuse_duplicate_columns(schema, file.path)
    if "" in schema.names:
        raise DataError(
            f"Column {schema.names.index('') + 1} of {file.path} has no name: give it one, or "
            "leave it out (pandas writes row numbers without a name, unless `index=False`)."
        )


def _write(file: File, schema: pa.Schema, columns: Sequence[str], out: Path) -> None:
    """Write a file as Parquet; numbers of another form may turn up late."""
    try:
        with opened(file) as stream, GroupedFile(out) as copy:
            copy.write(pa.schema([schema.field(name) for name in columns]).empty_table())
            for batch in _format(file).batches(stream, schema, columns):
                copy.write(pa.Table.from_batches([batch]))
    except DataError as error:
        misfit = error.__cause__
        if not isinstance(misfit, MisfitError):
            raise
        loosened = _format(file).loosened(schema, misfit.column)
        if loosened is None:
            raise
        _write(file, loosened, columns, out)


@contextmanager
def opened(file: File) -> Iterator[Any]:
    """Open a file; explain what is wrong with it, and failures of storage."""
    form = format_of(file.path)
    called = "Parquet" if form is None else form.name
    with (
        places.reading(file.place),
        readable(file.path, called),
        places.open_stream(file.place) as stream,
    ):
        zipped = form is not None and file.path.lower().endswith(".gz")
        try:
            yield Unzipped(stream, file.n_bytes) if zipped else stream
        except FormatError as error:
            raise DataError(f"The file {file.path} {error}") from error


def require_unchanged(file: File) -> None:
    """Refuse a file that is not the one that was listed."""
    with places.reading(file.place):
        now = places.file_entry(file.place)
    if now is None or state_of(replace(now, sheet=file.sheet)) != state_of(file):
        raise DataError(
            f"The file {file.path} changed while it was converted: run the job again when nothing "
            "writes to it."
        )
