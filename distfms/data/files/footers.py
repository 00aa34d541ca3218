"""Footers of Parquet files: row groups, schemas, and what is wrong with a file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from pyarrow import ArrowException, ArrowInvalid, ArrowNotImplementedError, fs

from distfms.data.files.content import HEAD_BYTES, PARQUET, no_parquet
from distfms.data.files.storage import current_state
from distfms.data.rows.roles import index_columns, index_metadata, is_list, plain_type
from distfms.errors import DataError, DistfmsError
from distfms.store.places import File, reading
from distfms.store.remote import os_error

# Footers are small reads, dominated by latency on remote stores; on a disk more threads only leave
# more memory in pieces.
_FOOTER_THREADS = 16
_LOCAL_THREADS = 2
# What is read of a file's end in one go, as pyarrow does.
_TAIL_BYTES = 64 * 2**10
# Numbers that a column may hold in different files.
_NUMBERS = {"int64", "double"}
# How pyarrow says that content is damaged.
_CONTENT = re.compile(
    "deserializ|thrift|corrupt|ompress|flate|unexpected end|eof|page|magic|crypt", re.IGNORECASE
)


def read_footers(filesystem: Any, files: Sequence[File]) -> list[tuple[File, pa.Schema]]:
    """Read the footers of files, several at a time, in the order of the files.

    Equal schemas, and names of columns, are one object.
    """
    shared: dict[Any, Any] = {}

    def read(file: File) -> tuple[File, pa.Schema]:
        return _read_footer(filesystem, file, shared)

    if len(files) == 1:
        return [read(files[0])]
    most = _LOCAL_THREADS if isinstance(filesystem, fs.LocalFileSystem) else _FOOTER_THREADS
    with ThreadPoolExecutor(min(most, len(files) or 1)) as pool:
        return list(pool.map(read, files))


def _read_footer(filesystem: Any, file: File, shared: dict[Any, Any]) -> tuple[File, pa.Schema]:
    with reading(file.place), readable(stored_name(file)):
        footer = _footer_of(filesystem, file.path)
        if not footer.endswith(PARQUET):
            head = _head_of(filesystem, file.path)
            fault = no_parquet(file.path, head, footer)
            raise DataError(f"The file {file.path} {fault}")
        with _parse(footer) as parquet:
            # Unlike the bare Parquet schema, this one knows dictionaries and fixed-size lists.
            metadata = parquet.metadata
            schema = parquet.schema_arrow
    schema = schema.with_metadata(index_metadata(schema))
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    lists: list[int] = []
    if any(map(pat.is_nested, schema.types)):
        # pyarrow's two objects refer to one another: they stay until a whole collection of garbage.
        parts = metadata.schema
        lists = [c for c in range(len(parts)) if parts.column(c).max_repetition_level]
    sizes = [(g.num_rows, _decoded_bytes(g, lists), g.total_byte_size) for g in groups]
    read = replace(
        file,
        row_groups=np.array(sizes, dtype=np.int64).reshape(-1, 3),
        footer=_footer_digest(footer),
    )
    return read, shared.setdefault(schema.serialize().to_pybytes(), schema)


def _decoded_bytes(group: Any, lists: Sequence[int]) -> int:
    """Return about the bytes of a row group as float64, or of its encoded values if that is more.

    `lists` are the columns that may have other than a value a row.
    """
    flat = group.num_rows * (group.num_columns - len(lists))
    n_values = flat + sum(group.column(c).num_values for c in lists)
    return max(group.total_byte_size, 8 * n_values)


def is_stored(filesystem: Any, path: str, version: str) -> bool:
    """Return whether a file has the :attr:`File.version` that it had when it was listed.

    Its footer is read again only where its size, stamp or time of change is another.
    """
    seen = _seen(path, version)
    state = current_state(filesystem, path)
    if seen.state != state:
        size, stamp, _ = state
        footer = _footer_digest(_footer_of(filesystem, path))
        if f"{size}:{stamp}:{footer}" != version:
            return False
        seen.state = state
    return True


def parsed_footer(filesystem: Any, path: str, version: str) -> pq.FileMetaData:
    """Return the footer of a file of a version, None of any other; parsed once by a process."""
    kept = _parsed(path, version)
    with kept.lock:
        if kept.metadata is None:
            footer = _footer_of(filesystem, path)
            if version.endswith(_footer_digest(footer)):
                kept.metadata = _parse(footer).metadata
        return kept.metadata


@dataclass(eq=False)
class _Known:
    """What a process knows of one version of a file."""

    lock: Any = field(default_factory=Lock)
    state: Any = None
    metadata: Any = None


# Parsed footers take about 1 kB for each column of each row group.
_seen = lru_cache(maxsize=2**12)(lambda path, version: _Known())
_parsed = lru_cache(maxsize=4)(lambda path, version: _Known())


def _footer_digest(footer: bytes) -> str:
    return hashlib.sha256(footer).hexdigest()[:32]


def _footer_of(filesystem: Any, path: str) -> bytes:
    """Read the end of a file from its footer on; of what is no Parquet file, just the end."""
    with filesystem.open_input_file(path) as source:
        size = source.size()
        tail = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > len(tail) and length <= size and tail[-4:] == b"PAR1":
            return source.read_at(length, size - length)
        return tail[-length:]


def _head_of(filesystem: Any, path: str) -> bytes:
    with filesystem.open_input_file(path) as source:
        head: bytes = source.read(HEAD_BYTES)
    return head


def _parse(footer: bytes) -> pq.ParquetFile:
    return open_parquet(pa.BufferReader(footer))


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file: pages with checksums are verified, and no time is out of range.

    Times of 96 bits, as old writers have them, are read to the microsecond: those before 1678 and
    after 2262 would be others as nanoseconds of 64 bits.
    """
    return pq.ParquetFile(
        source, page_checksum_verification=True, coerce_int96_timestamp_unit="us", **options
    )


def stored_name(file: Any) -> str:
    """Name what is read of a file, or of a partition: the file itself, or its copy."""
    return f"{file.source} (its copy in Parquet)" if file.source else str(file.path)


@contextmanager
def readable(path: str, form: str = "Parquet") -> Iterator[None]:
    """Turn pyarrow's errors about broken files of a form into a DataError that names the file.

    Trouble with the store itself (the network, say) passes through: it is worth a retry.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(
            f"The file {path} was removed while the job was running, or a worker does not see it. "
            "Restore it, or put the data on storage that all workers share (a network file system, "
            "or object storage such as s3://; of copies, by DISTFMS_CACHE), then "
            "run the job again."
        ) from error
    except PermissionError as error:
        raise DataError(
            f"The file {path} is not readable by this user: fix its permissions."
        ) from error
    except (ArrowInvalid, ArrowNotImplementedError, OSError) as error:
        # Trouble with the store is worth a retry.
        if isinstance(error, OSError) and not _CONTENT.search(str(error)):
            raise
        why = str(error).partition("\n")[0].rstrip(". ")
        raise DataError(
            f"The file {path} cannot be read as {form}: it is truncated, damaged or in another "
            f"format ({why}). Rewrite it or remove it from the dataset."
        ) from error
    except (ArrowException, DistfmsError, MemoryError):
        raise
    except UnicodeDecodeError as error:
        # So Python calls encodings of a byte a character.
        encoding = "UTF-8 or Windows-1252" if error.encoding == "charmap" else error.encoding
        raise DataError(
            f"The file {path} holds the byte 0x{error.object[error.start]:02x}, which is not valid "
            f"in {encoding}: save it again as UTF-8."
        ) from error
    except Exception as error:
        # The clients of remote storage have errors of their own.
        raise os_error(error) from error


def refuse_duplicate_columns(schema: pa.Schema, path: str) -> None:
    """Refuse two columns of one name, neither of which can be addressed."""
    names = schema.names
    if len(set(names)) < len(names):
        name = next(n for i, n in enumerate(names) if n in names[:i])
        raise DataError(
            f"The column name {name!r} occurs {names.count(name)} times in {path}: "
            "rename the columns so that each name is unique."
        )


def settled_types(
    filesystem: Any,
    footers: Sequence[tuple[File, pa.Schema]],
    kinds: Mapping[str, pa.DataType] | None = None,
) -> dict[str, pa.DataType]:
    """Return how columns are read that have other types in some files.

    A column without a value in some files, of whatever type (null, or floats, as pandas writes
    it), has that of the other files, or of `kinds`; whole numbers are floats where any file has
    these, as pandas writes them where some are missing.
    """
    by_name: dict[str, dict[str, pa.DataType]] = {}
    for schema in {id(schema): schema for _, schema in footers}.values():
        for column in schema:
            by_name.setdefault(column.name, {})[_logical_type(column.type)] = column.type
    for name, kind in (kinds or {}).items():
        by_name.get(name, {}).setdefault(_logical_type(kind), kind)
    settled = {}
    for name, types in by_name.items():
        if len(types) == 1:
            continue
        valued = dict(types)
        for text, kind in types.items():
            if pat.is_null(kind.value_type if is_list(kind) else kind):
                del valued[text]
        if len(valued) > 1 and valued.keys() != _NUMBERS:
            valued = {
                text: kind
                for text, kind in valued.items()
                if _has_values(filesystem, footers, name, text)
            } or valued
        if valued.keys() == _NUMBERS:
            settled[name] = pa.float64()
        elif len(valued) == 1:
            settled[name] = plain_type(*valued.values())
    return settled


def _has_values(
    filesystem: Any, footers: Sequence[tuple[File, pa.Schema]], name: str, kind: str
) -> bool:
    """Return whether any file with a column of a type has a value of it, or may have one."""
    files = [
        file
        for file, schema in footers
        if name in schema.names and _logical_type(schema.field(name).type) == kind
    ]
    return not files or any(_may_have_values(filesystem, file, name) for file in files)


def _may_have_values(filesystem: Any, file: File, name: str) -> bool:
    with readable(stored_name(file)):
        metadata = parsed_footer(filesystem, file.path, file.version)
    if metadata is None:
        return True
    paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    if name not in paths:  # nested
        return True
    place = paths.index(name)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(place).statistics
        if statistics is None or statistics.null_count != group.num_rows:
            return True
    return False


def with_types(schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema with other types of some columns."""
    fields = [
        column.with_type(types[column.name]) if column.name in types else column
        for column in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def check_same_schema(schema: pa.Schema, first: File, other: pa.Schema, file: File) -> None:
    """Refuse a file whose columns or types differ from the first one's; their order may.

    Whole numbers and floats of 64 bits are alike: pandas writes floats where whole numbers are
    missing. A file without the index of another is another's equal.
    """
    if other is schema or schema.equals(other):
        return
    refuse_duplicate_columns(other, file.called)
    expected = _column_types(schema)
    types = _column_types(other)
    index = {*index_columns(schema), *index_columns(other)}
    for name in (*expected, *types):
        kinds = {expected.get(name), types.get(name)}
        if len(kinds) == 1 or kinds == _NUMBERS or (name in index and None in kinds):
            continue
        if name not in types:
            difference = f"lacks the column {name!r}"
        elif name not in expected:
            difference = f"has the extra column {name!r}"
        else:
            difference = f"has {types[name]} in column {name!r} instead of {expected[name]}"
        raise DataError(
            f"The file {file.called} {difference}, unlike {first.called}: all files of a dataset "
            "must have the same columns and types. Convert the file or remove it from the dataset."
        )


def _column_types(schema: pa.Schema) -> dict[str, str]:
    """Return the type of each column, with encodings of one logical type made alike."""
    return {field.name: _logical_type(field.type) for field in schema}


def _logical_type(dtype: pa.DataType) -> str:
    """Name a type; how strings are stored (dictionary, 64-bit offsets, views) does not matter."""
    dtype = plain_type(dtype)
    if pat.is_dictionary(dtype):
        return f"dictionary<{_logical_type(dtype.value_type)}>"
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return f"list<{_logical_type(dtype.value_type)}>"
    return str(dtype)


def describe_schema(schema: pa.Schema) -> str:
    """Return a schema as text for fingerprints, with the logical types alone."""
    return ";".join(f"{name}:{dtype}" for name, dtype in _column_types(schema).items())
