"""Copies in Parquet of files in other formats: made once, and again when a file changes.

A column has one type in all files: in formats without types the one that fits all of them, else
that of the first file whose rows suggest any. Whole numbers may be floats in other files, as
`distfms.data.files.footers.check_same_schema` allows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distfms.data.files.content import HEAD_BYTES, other_content
from distfms.data.files.footers import check_same_schema, readable, refuse_duplicate_columns
from distfms.data.files.formats import format_of
from distfms.data.files.formats.base import Format, FormatError, Forms, MisfitError
from distfms.data.files.partition import digest
from distfms.data.files.storage import cache_folder, delete_unused
from distfms.data.files.write import GroupedFile
from distfms.errors import DataError
from distfms.store import places
from distfms.store.places import File, Location

#: Raised with every change of how copies of all formats are made.
_VERSION = "4"
_THREADS = 4
#: Types found in a file, beside the copy; written again as a sign of use, but not at each use.
_TYPES, _USED_S = "types.json", 3600.0


class Types(NamedTuple):
    """Names of a file's columns with those of their types, in order, and the schema's metadata."""

    columns: list[tuple[str, str]]
    metadata: dict[str, str]


@dataclass(frozen=True)
class Copies:
    """Where copies are kept, and how many bytes everything there may take."""

    folder: Location = field(default_factory=lambda: cache_folder() / "copies")
    max_bytes: int = 10 * 2**30
    say: Callable[[str], None] = lambda line: None

    def columns(self, file: File) -> list[str]:
        """Return the names of a file's columns."""
        if format_of(file.path) is not None:
            with places.writing(self.folder):
                return [name for name, _ in self._types(file).columns]
        with opened(file) as stream:
            names: list[str] = pq.ParquetFile(stream).schema_arrow.names
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
        others = [file for file in files if format_of(file.path) is not None]
        forms = forms or Forms()
        if not others:
            return list(files), forms
        with places.writing(self.folder), ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(self._types, others))
            schemas, forms = _schemas(others, found, columns, forms)
            names = [list(columns or schema.names) for schema in schemas]
            copies_at = [
                # Later errors name the copy.
                self._place(file) / _state(schema, own) / f"{file.place.name}.parquet"
                for file, schema, own in zip(others, schemas, names, strict=True)
            ]
            if None in (there := list(pool.map(places.file_entry, copies_at))):
                # Who comes second waits, and has nothing to convert and to say.
                with places.locked_file(copies_at[there.index(None)].parent / ".all.lock"):
                    missing = sum(place is None for place in pool.map(places.file_entry, copies_at))
                    for line in self._converting(others, schemas, missing) if missing else ():
                        self.say(line)
                    list(pool.map(_copy, others, schemas, names, copies_at))
            copies = pool.map(_copy, others, schemas, names, copies_at)
            copy_of = dict(zip((file.path for file in others), copies, strict=True))
        delete_unused(self.folder, {self._place(file).name for file in others}, self.max_bytes)
        return [copy_of.get(file.path, file) for file in files], forms

    def _converting(
        self, files: Sequence[File], schemas: Sequence[pa.Schema], n: int
    ) -> Iterator[str]:
        """Yield what users should know of `n` files that are converted."""
        kinds = " and ".join(sorted({_format(file).name for file in files}))
        yield f"Converting {kinds} to {self.folder}: {n} of {len(files)} files"
        noted: dict[str, list[str]] = {}
        for file, schema in zip(files, schemas, strict=True):
            for text in _format(file).notes(schema):
                noted.setdefault(text, []).append(file.path)
        for text, paths in noted.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            yield f"{paths[0]}{more}: {text}"

    def _place(self, file: File) -> Location:
        form = _format(file)
        version = f"{_VERSION}.{form.version}"
        state = digest(version, str(file.place), str(file.n_bytes), file.stamp)
        return self.folder / f"{form.suffixes[0][1:]}-{state[:16]}"

    def _types(self, file: File) -> Types:
        """Return the columns of a file and the types they suggest; parsed where not known yet."""
        place = self._place(file) / _TYPES
        if (known := places.file_entry(place)) is not None:
            columns, metadata = json.loads(place.read_bytes())
            types = Types([(name, kind) for name, kind in columns], metadata)
            if time.time() - known.modified_s < _USED_S:
                return types
        else:
            _refuse_other_content(file)
            with opened(file) as stream:
                schema = _format(file).schema(stream)
            kinds = map(str, schema.types)
            columns = [
                (name, "timestamp[ns]" if kind.startswith("timestamp") else kind)
                for name, kind in zip(schema.names, kinds, strict=True)
            ]
            told = (schema.metadata or {}).items()
            types = Types(columns, {key.decode(): text.decode() for key, text in told})
        places.write_whole(place, json.dumps(types).encode(), durable=False)
        return types


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


def _state(schema: pa.Schema, names: Sequence[str]) -> str:
    """Return what changes with how columns are read."""
    metadata = sorted((schema.metadata or {}).items())
    return digest(*(str(schema.field(name)) for name in names), repr(metadata))[:8]


def _schemas(
    files: Sequence[File],
    found: Sequence[Types],
    columns: Mapping[str, pa.DataType | None] | None,
    forms: Forms,
) -> tuple[list[pa.Schema], Forms]:
    """Return how each file is read, from what the rows of all files suggest."""
    schemas: dict[int, pa.Schema] = {}
    formats = [_format(file) for file in files]
    for form in dict.fromkeys(formats):
        numbers = [number for number, own in enumerate(formats) if own is form]
        types = [found[number] for number in numbers]
        if form.settle is None:
            settled = _typed(types, columns or {}, form.sparse)
        else:
            suggested = [
                pa.schema(
                    [(name, pa.type_for_alias(kind)) for name, kind in own.columns]
                ).with_metadata(own.metadata)
                for own in types
            ]
            settled, forms = form.settle(suggested, columns or {}, forms)
        schemas |= dict(zip(numbers, settled, strict=True))
    if columns is None:
        for number, file in enumerate(files):
            _check(schemas[number], file)
            check_same_schema(schemas[0], files[0], schemas[number], file)
    return [schemas[number] for number in range(len(files))], forms


def _typed(
    found: Sequence[Types], given: Mapping[str, pa.DataType | None], is_sparse: bool
) -> list[pa.Schema]:
    """Return the schemas of files that say what is text and what are numbers."""
    decided: dict[str, str] = {}
    for types in found:
        decided |= {n: t for n, t in types.columns if decided.get(n, "null") == "null"}
    # A column without any value is one of numbers.
    decided = {name: kind if kind != "null" else "double" for name, kind in decided.items()}
    schemas = []
    for types in found:
        kinds: dict[str, str] = {}
        for name, own in types.columns:
            as_found = {own, decided[name]} == {"int64", "double"} or given.get(name) is not None
            kinds[name] = own if as_found else decided[name]
        if is_sparse:
            kinds |= {name: kind for name, kind in decided.items() if name not in kinds}
        schemas.append(pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()]))
    return schemas


def _check(schema: pa.Schema, file: File) -> None:
    if not len(schema):
        raise DataError(f"There are no columns in {file.path}.")
    refuse_duplicate_columns(schema, file.path)
    if "" in schema.names:
        raise DataError(
            f"Column {schema.names.index('') + 1} of {file.path} has no name: give it one, or "
            "leave it out (pandas writes row numbers so, unless told `index=False`)."
        )


def _copy(file: File, schema: pa.Schema, columns: Sequence[str], place: Location) -> File:
    """Return the copy of a file; it is written where there is none."""
    here = isinstance(place, Path)
    with places.locked_file(place.parent / ".lock"):
        if places.file_entry(place) is None:
            with places.whole_file(place) as temporary:
                _write(file, schema, columns, temporary)
                require_unchanged(file)
                if here and isinstance(file.place, Path):
                    # A copy made again is the same version of the data.
                    os.utime(temporary, ns=(int(file.stamp), int(file.stamp)))
    copy = places.file_entry(place)
    assert copy is not None
    return replace(copy, name=file.name, key=file.key, source=file.path)


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
            yield pa.CompressedInputStream(stream, "gzip") if zipped else stream
        except FormatError as error:
            raise DataError(f"The file {file.path} {error}") from error


def require_unchanged(file: File) -> None:
    """Refuse a file that is not the one that was listed."""
    with places.reading(file.place):
        now = places.file_entry(file.place)
    if now is None or (now.n_bytes, now.stamp) != (file.n_bytes, file.stamp):
        raise DataError(
            f"The file {file.path} changed during the conversion: convert it again when nothing "
            "writes to it."
        )
