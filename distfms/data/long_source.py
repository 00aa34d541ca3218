"""Reading judgments in long form, checked, from any number of Parquet and CSV files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.errors import DataError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")
#: A CSV row of three fields has at least so many bytes.
_SHORTEST_CSV_ROW = 6

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
    path : str
        As messages show it.
    system : fsspec file system
    """

    path: str
    system: Any

    @property
    def is_csv(self) -> bool:
        """Whether the file is read as CSV."""
        return self.path.lower().endswith(_CSV)

    def schema(self) -> pa.Schema:
        """Column names and types; those of a CSV file as inferred from its beginning."""
        with _reading(self.path), self.system.open(self.path, "rb") as handle:
            if self.is_csv:
                import pyarrow.csv as csv

                return csv.open_csv(self._plain(handle)).schema
            import pyarrow.parquet as pq

            return pq.ParquetFile(handle).schema_arrow

    def rows_bound(self) -> int:
        """Upper bound of the number of rows without reading them."""
        if self.path.lower().endswith(".gz"):
            return 2**62
        if self.is_csv:
            return int(self.system.size(self.path)) // _SHORTEST_CSV_ROW + 1
        import pyarrow.parquet as pq

        with _reading(self.path), self.system.open(self.path, "rb") as handle:
            return pq.ParquetFile(handle).metadata.num_rows

    def batches(
        self, columns: Sequence[str], types: dict[str, pa.DataType], batch_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows in file order, at most ``batch_rows`` at a time."""
        import pyarrow as pa

        with _reading(self.path), self.system.open(self.path, "rb") as handle:
            if self.is_csv:
                source = self._csv_batches(self._plain(handle), columns, types, batch_rows)
            else:
                import pyarrow.parquet as pq

                source = pq.ParquetFile(handle).iter_batches(batch_rows, columns=list(columns))
            for batch in source:
                yield pa.Table.from_batches([batch]).select(columns)

    def _csv_batches(
        self, handle: Any, columns: Sequence[str], types: dict[str, pa.DataType], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as csv

        options = csv.ConvertOptions(
            include_columns=list(columns), column_types=types, strings_can_be_null=True
        )
        block = csv.ReadOptions(block_size=min(max(batch_rows * 32, 2**16), 2**26))
        yield from csv.open_csv(handle, read_options=block, convert_options=options)

    def _plain(self, handle: Any) -> Any:
        import pyarrow as pa

        return pa.CompressedInputStream(handle, "gzip") if self.path.endswith(".gz") else handle


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what pyarrow says of a broken file into a DataError that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def list_files(source: Source) -> tuple[TableFile, ...]:
    """Find the files of a source.

    Parameters
    ----------
    source : path or sequence of paths
        Files, folders, globs, or fsspec URLs of these.

    Returns
    -------
    tuple of TableFile
        In name order within each folder or glob, else in the order given.

    Raises
    ------
    DataError
        If there is nothing to read.
    """
    import fsspec

    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    files: list[TableFile] = []
    for item in given:
        system, path = fsspec.core.url_to_fs(os.fspath(item))
        if system.isdir(path):
            names = [n for n in sorted(system.find(path)) if n.lower().endswith(_PARQUET + _CSV)]
            names = [n for n in names if not PurePath(n).name.startswith((".", "_"))]
        elif any(character in path for character in "*?["):
            names = sorted(system.glob(path))
        else:
            names = [path] if system.exists(path) else []
        if not names:
            raise DataError(f"{item}: no such file, or a folder without Parquet or CSV files.")
        files += [TableFile(name, system) for name in names]
    return tuple(files)


@dataclass(frozen=True)
class Judgments:
    """A batch of long rows after checking; rows without a value are left out.

    Parameters
    ----------
    objects : pyarrow.Array
        (n,)
    attribute_names : tuple of str
        The batch's attributes.
    attributes : ndarray of int32
        (n,) index into ``attribute_names``.
    values : ndarray of float64
        (n,), finite.
    workers : pyarrow.Array, optional
        (n,)
    labels : ndarray of float64, optional
        (n,), NaN where there is none.
    n_read, n_without_value : int
        Rows read, and those left out.
    """

    objects: pa.Array
    attribute_names: tuple[str, ...]
    attributes: np.ndarray
    values: np.ndarray
    workers: pa.Array | None
    labels: np.ndarray | None
    n_read: int
    n_without_value: int


@dataclass(frozen=True)
class LongSource:
    """Checked access to the files of a long table.

    Parameters
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
    def open(cls, source: Source, columns: LongColumns) -> LongSource:
        """Find the files and check that each has the columns.

        Raises
        ------
        DataError
            If a file or a column is missing, or one column is named for two roles.
        """
        roles = columns.named()
        if len(set(roles.values())) < len(roles):
            raise DataError(f"one column is named for two roles: {roles}.")
        files = list_files(source)
        object_type = None
        for file in files:
            schema = file.schema()
            for role, name in roles.items():
                require_column(schema.names, name, role, file.path)
            kind = schema.field(columns.object).type
            object_type = object_type or _decoded(kind)
        assert object_type is not None
        return cls(files, columns, object_type)

    def rows_bound(self) -> int:
        """Upper bound of the number of rows."""
        return sum(file.rows_bound() for file in self.files)

    def object_batches(self, batch_rows: int) -> Iterator[pa.Array]:
        """Yield the object column only."""
        name = self.columns.object
        for file in self.files:
            for table in file.batches([name], {name: self.object_type}, batch_rows):
                yield self._objects(table.column(name), file.path, 0)

    def batches(self, batch_rows: int) -> Iterator[Judgments]:
        """Yield the rows in source order, checked.

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
                by_role = {role: table.column(name) for role, name in roles.items()}
                yield self._checked(by_role, file.path, first_row)
                first_row += table.num_rows

    def _checked(self, columns: dict[str, Any], path: str, first_row: int) -> Judgments:
        import pyarrow as pa

        objects = self._objects(columns["object"], path, first_row)
        _refuse_null(columns["attribute"], self.columns.attribute, path, first_row)
        encoded = _single(columns["attribute"]).cast(pa.string()).dictionary_encode()
        attributes = encoded.indices.to_numpy().astype(np.int32, copy=False)
        values = as_numbers(columns["value"], self.columns.value, path, first_row)
        labels, workers = None, None
        if "label" in columns:
            labels = as_numbers(columns["label"], str(self.columns.label), path, first_row)
        if "worker" in columns:
            workers = _single(columns["worker"]).cast(pa.string())
        n_read, missing = len(values), np.isnan(values)
        if missing.any():
            kept = ~missing
            mask = pa.array(kept)
            objects, attributes, values = objects.filter(mask), attributes[kept], values[kept]
            workers = None if workers is None else workers.filter(mask)
            labels = None if labels is None else labels[kept]
        return Judgments(
            objects=objects,
            attribute_names=tuple(encoded.dictionary.to_pylist()),
            attributes=attributes,
            values=values,
            workers=workers,
            labels=labels,
            n_read=n_read,
            n_without_value=n_read - len(values),
        )

    def _objects(self, column: pa.ChunkedArray, path: str, first_row: int) -> pa.Array:
        import pyarrow as pa

        _refuse_null(column, self.columns.object, path, first_row)
        try:
            return _single(column).cast(self.object_type)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {self.columns.object!r} of {path} does not hold {self.object_type} as the "
                f"first file does: {error}"
            ) from error


def require_column(names: Sequence[str], name: str, role: str, where: str) -> None:
    """See that a table has a column.

    Parameters
    ----------
    names : sequence of str
        The table's columns.
    name, role, where : str
        The column wanted, what for, and the table.

    Raises
    ------
    DataError
        If it has none or several of that name; tells the nearest name.
    """
    if list(names).count(name) == 1:
        return
    if name in names:
        raise DataError(f"{where} has several columns named {name!r}.")
    raise DataError(f"{where} has no column {name!r} ({role}).{nearest(name, names)}")


def as_numbers(column: pa.ChunkedArray, name: str, path: str, first_row: int = 0) -> np.ndarray:
    """Convert a column to float64, missing values to NaN.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Numbers, booleans, or text that holds numbers.
    name, path : str
        For messages.
    first_row : int
        Row number in the file of the first value.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    DataError
        If a value is not a number, or infinite.
    """
    import pyarrow as pa
    import pyarrow.types as pt

    array = _single(column)
    if pt.is_temporal(array.type) or pt.is_nested(array.type):
        raise DataError(f"column {name!r} of {path} holds {array.type}, not numbers.")
    try:
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
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


def _refuse_null(column: pa.ChunkedArray, name: str, path: str, first_row: int) -> None:
    import pyarrow.compute as pc

    empty = pc.is_null(column, nan_is_null=True)
    if pc.any(empty).as_py():
        mask = _single(empty).to_numpy(zero_copy_only=False)
        _refuse_first(mask, f"column {name!r} of {path} has no value in", first_row)


def _refuse_first(bad: np.ndarray, what: str, first_row: int) -> None:
    n_bad = int(np.count_nonzero(bad))
    if n_bad:
        row = first_row + int(np.argmax(bad))
        more = f", and in {n_bad - 1} more after it" if n_bad > 1 else ""
        raise DataError(
            f"{what} row {row} (counted from 0){more}: correct it or leave the row out."
        )


def _single(column: pa.ChunkedArray) -> pa.Array:
    """One plain array, dictionaries decoded."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    decoded = _decoded(array.type)
    return array.cast(decoded) if decoded != array.type else array


def _decoded(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as pt

    if pt.is_null(kind):
        # A CSV file without rows tells no type.
        return pa.string()
    return kind.value_type if pt.is_dictionary(kind) else kind
