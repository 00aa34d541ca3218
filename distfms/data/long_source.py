"""Reading judgments in long form, checked, from any number of Parquet and CSV files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import as_floats, number_view
from distfms.data.storage import StoredFile, list_files
from distfms.engine.remote import os_error
from distfms.engine.storage import file_entry, open_stream
from distfms.engine.storage_errors import reading, storage_error
from distfms.errors import DataError, DistfmsError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class LongColumns:
    """Names of the columns of a long table.

    Parameters
    ----------
    object, attribute, value : str
    worker : str, optional
    label : str, optional
        Column that holds a label next to the judgments.
    """

    object: str
    attribute: str
    value: str
    worker: str | None = None
    label: str | None = None

    def named(self) -> dict[str, str]:
        """Column name by role, for the roles that are there."""
        roles = {
            "object": self.object,
            "attribute": self.attribute,
            "value": self.value,
            "worker": self.worker,
            "label": self.label,
        }
        return {role: name for role, name in roles.items() if name is not None}


@dataclass(frozen=True)
class TableFile:
    """One Parquet or CSV file.

    Parameters
    ----------
    stored : StoredFile
    """

    stored: StoredFile

    @property
    def path(self) -> str:
        """Path as messages show it."""
        return self.stored.path

    @property
    def is_csv(self) -> bool:
        """Whether the file is read as CSV."""
        return self.path.lower().endswith(_CSV)

    def schema(self) -> pa.Schema:
        """Column names and types; those of a CSV file as inferred from its beginning."""
        with self._opened() as handle:
            if self.is_csv:
                import pyarrow.csv as csv

                return csv.open_csv(self._plain(handle)).schema
            import pyarrow.parquet as pq

            return pq.ParquetFile(handle).schema_arrow

    def batches(
        self, columns: Sequence[str], types: dict[str, pa.DataType], batch_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows in file order, at most ``batch_rows`` at a time."""
        import pyarrow as pa

        with self._opened() as handle:
            if self.is_csv:
                source = self._csv_batches(self._plain(handle), columns, types, batch_rows)
            else:
                import pyarrow.parquet as pq

                source = pq.ParquetFile(handle).iter_batches(batch_rows, columns=list(columns))
            for batch in source:
                yield pa.Table.from_batches([batch]).select(columns)

    def require_unchanged(self) -> None:
        """Refuse a file that is not the one that was listed.

        Raises
        ------
        DataError
        """
        with reading(self.stored.place):
            entry = file_entry(self.stored.place)
        if entry is None or (entry.n_bytes, entry.stamp) != (
            self.stored.n_bytes,
            self.stored.stamp,
        ):
            raise DataError(
                f"The file {self.path} changed while it was converted: convert it again once "
                "nothing writes to it."
            )

    def _csv_batches(
        self, handle: Any, columns: Sequence[str], types: dict[str, pa.DataType], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as csv

        options = csv.ConvertOptions(
            include_columns=list(columns), column_types=types, strings_can_be_null=True
        )
        block = csv.ReadOptions(block_size=min(max(batch_rows * 32, 2**16), 2**26))
        yield from csv.open_csv(handle, read_options=block, convert_options=options)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file; explain what pyarrow says of a broken one, and failures of storage."""
        import pyarrow as pa

        place = self.stored.place
        try:
            with open_stream(place) as handle:
                yield handle
        except DistfmsError:
            raise
        except Exception as error:
            here = isinstance(place, Path)
            if isinstance(error, pa.ArrowException) or (here and isinstance(error, OSError)):
                raise DataError(f"{self.path} cannot be read: {error}") from error
            if here:
                raise
            raise storage_error(place, os_error(error), "read") from error

    def _plain(self, handle: Any) -> Any:
        import pyarrow as pa

        return pa.CompressedInputStream(handle, "gzip") if self.path.endswith(".gz") else handle


def list_tables(
    source: Source, storage_options: Mapping[str, Any] | None = None
) -> tuple[TableFile, ...]:
    """Find the files of a source: files, folders, globs or URLs of Parquet and CSV files.

    Raises
    ------
    DataError
        If there is nothing to read.
    """
    return tuple(TableFile(file) for file in list_files(source, storage_options, _PARQUET + _CSV))


@dataclass(frozen=True)
class LongSource:
    """Checked access to the files of a long table.

    Attributes
    ----------
    files : tuple of TableFile
    columns : LongColumns
    object_type : pyarrow.DataType
        Type of the object column of the first file; the others are cast to it.
    """

    files: tuple[TableFile, ...]
    columns: LongColumns
    object_type: pa.DataType

    @classmethod
    def open(
        cls,
        source: Source,
        columns: LongColumns,
        storage_options: Mapping[str, Any] | None = None,
    ) -> LongSource:
        """Find the files and check that each has the columns.

        Raises
        ------
        DataError
            If a file or a column is missing, or one column is named for two roles.
        """
        roles = columns.named()
        if len(set(roles.values())) < len(roles):
            raise DataError(f"one column is named for two roles: {roles}.")
        files = list_tables(source, storage_options)
        object_type = None
        for file in files:
            schema = file.schema()
            for role, name in roles.items():
                require_column(schema.names, name, role, file.path)
            kind = schema.field(columns.object).type
            object_type = object_type or _decoded(kind)
        assert object_type is not None
        return cls(files, columns, object_type)

    def batches(self, batch_rows: int) -> Iterator[pa.Table]:
        """Yield the rows in source order, checked.

        Yields
        ------
        pyarrow.Table
            Columns are named by role: object, attribute (strings) and value (float64, null where
            it is missing), and where they were named worker (strings) and label (float64).

        Raises
        ------
        DataError
            On a missing object or attribute, or a value that is not a finite number, with file
            and row.
        """
        import pyarrow as pa

        roles = self.columns.named()
        types = dict.fromkeys(roles.values(), pa.string())
        types[self.columns.object] = self.object_type
        for file in self.files:
            first_row = 0
            for table in file.batches(list(roles.values()), types, batch_rows):
                yield self._checked(table.rename_columns(list(roles)), file.path, first_row)
                first_row += table.num_rows
            file.require_unchanged()

    def _checked(self, rows: pa.Table, path: str, first_row: int) -> pa.Table:
        import pyarrow as pa

        columns = {}
        for role, name in self.columns.named().items():
            column = whole(rows.column(role))
            if role in ("object", "attribute"):
                _refuse_null(column, name, path, first_row)
            if role == "object":
                column = self._objects(column, path)
            elif role in ("value", "label"):
                numbers = as_numbers(column, name, path, first_row)
                column = pa.array(numbers, mask=np.isnan(numbers))
            else:
                column = column.cast(pa.string())
            columns[role] = column
        return pa.table(columns)

    def _objects(self, column: pa.Array, path: str) -> pa.Array:
        import pyarrow as pa

        try:
            return column.cast(self.object_type)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {self.columns.object!r} of {path} does not hold {self.object_type} as the "
                f"first file does: {error}"
            ) from error


def require_column(names: Sequence[str], name: str, role: str, where: str) -> None:
    """Refuse a table, called `where`, that has none or several columns of a name."""
    if list(names).count(name) == 1:
        return
    if name in names:
        raise DataError(f"{where} has several columns named {name!r}.")
    raise DataError(f"{where} has no column {name!r} ({role}).{nearest(name, names)}")


def as_numbers(
    column: pa.Array | pa.ChunkedArray, name: str, path: str, first_row: int = 0
) -> np.ndarray:
    """Convert numbers, booleans, or text that holds numbers to float64, missing values to NaN.

    Raises
    ------
    DataError
        If a value is not a number, or infinite; names the row, counted from `first_row`.
    """
    import pyarrow as pa
    import pyarrow.types as pt

    array = whole(column)
    if pt.is_temporal(array.type) or pt.is_nested(array.type):
        raise DataError(f"column {name!r} of {path} holds {array.type}, not numbers.")
    try:
        numbers = as_floats(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, text = _first_not_number(array.to_pylist())
        raise DataError(
            f"column {name!r} of {path} is not numeric: row {first_row + row} (counted from 0) "
            f"holds {text!r}."
        ) from error
    _refuse_first(np.isinf(numbers), f"column {name!r} of {path} is infinite in", first_row)
    return numbers


def _first_not_number(values: list[Any]) -> tuple[int, Any]:
    for row, value in enumerate(values):
        if value is not None and not _is_number(value):
            return row, value
    return 0, values[0] if values else None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _refuse_null(column: pa.Array, name: str, path: str, first_row: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.is_null(column, nan_is_null=True).cast(pa.uint8())
    what = f"column {name!r} of {path} has no value in"
    _refuse_first(number_view(empty) > 0, what, first_row)


def _refuse_first(bad: np.ndarray, what: str, first_row: int) -> None:
    n_bad = int(np.count_nonzero(bad))
    if n_bad:
        row = first_row + int(np.argmax(bad))
        more = f", and in {n_bad - 1} more after it" if n_bad > 1 else ""
        raise DataError(
            f"{what} row {row} (counted from 0){more}: correct it or leave the row out."
        )


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one plain array, dictionaries decoded."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    decoded = _decoded(array.type)
    return array.cast(decoded) if decoded != array.type else array


def _decoded(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as pt

    if pt.is_null(kind):
        # A CSV file without rows tells no type.
        return pa.string()
    return kind.value_type if pt.is_dictionary(kind) else kind
