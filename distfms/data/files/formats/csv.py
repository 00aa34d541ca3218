"""CSV, separated by commas, with the names of columns in the first line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from distfms.data.files.formats.base import Format, FormatError, MisfitError

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of a file that are parsed at once; the first ones decide about types.
_BLOCK_BYTES = 2**24
#: How pyarrow says that a value has not the type of its column.
_MISFIT = re.compile(r".*column #(\d+): Row #(\d+): CSV conversion error to .*?: (.*)", re.DOTALL)


def _schema(stream: Any) -> pa.Schema:
    schema: pa.Schema = _parsed(stream).schema
    if len(schema) == 1 and re.search("[;\t]", schema.names[0]):
        raise FormatError(f"has a single column, {schema.names[0]!r}: separate values by commas.")
    return schema


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import ArrowInvalid

    try:
        yield from _parsed(stream, column_types=schema, include_columns=columns)
    except ArrowInvalid as error:
        misfit = _MISFIT.match(str(error))
        if misfit is None:
            raise
        column, where = schema.field(int(misfit[1])), f"row {misfit[2]} (the header is row 1)"
        raise MisfitError(column.name, column.type, where, misfit[3]) from error


def _parsed(stream: Any, **options: Any) -> Any:
    """Parse CSV in one thread: only so does pyarrow tell the row of an error."""
    import pyarrow.csv as csv

    return csv.open_csv(
        stream,
        csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        convert_options=csv.ConvertOptions(strings_can_be_null=True, **options),
    )


FORMAT = Format("CSV", (".csv",), _schema, _batches)
