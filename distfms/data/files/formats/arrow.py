"""Arrow files, which pandas and R call Feather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from distfms.data.files.content import ARROW
from distfms.data.files.formats.base import Format, FormatError
from distfms.data.rows.roles import plain_type


def _schema(stream: Any) -> pa.Schema:
    return pa.schema([(field.name, _plain(field)) for field in pa.ipc.open_file(stream).schema])


def _plain(field: pa.Field) -> pa.DataType:
    """Return the type of a column without encoding."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_nested(kind):
        raise FormatError(f"has {kind} in column {field.name!r}: write such columns as Parquet.")
    return pa.float64() if pa.types.is_decimal(kind) else plain_type(kind)


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    file = pa.ipc.open_file(stream)
    selected = pa.schema([schema.field(name) for name in columns])
    for number in range(file.num_record_batches):
        yield file.get_batch(number).select(columns).cast(selected)


FORMAT = Format("Arrow", (".arrow", ".feather"), _schema, _batches, signatures=(ARROW,))
