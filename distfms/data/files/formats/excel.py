"""Excel: the first sheet of a workbook, whose first line has the names of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from distfms.data.files.formats.base import Format, FormatError


def _table(stream: Any) -> pa.Table:
    import pandas as pd

    try:
        frame = pd.read_excel(stream)
    except ImportError as error:
        raise FormatError("is a workbook: pip install 'distfms[excel]' to read it.") from error
    except (ValueError, KeyError, BadZipFile) as error:
        raise FormatError(f"cannot be read as Excel: {error}.") from error
    return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)


def _schema(stream: Any) -> pa.Schema:
    schema: pa.Schema = _table(stream).schema
    return schema.remove_metadata()


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([schema.field(name) for name in columns])
    yield from _table(stream).select(columns).cast(wanted).to_batches()


FORMAT = Format("Excel", (".xlsx",), _schema, _batches)
