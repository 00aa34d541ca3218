"""Judgments in long form: read from files, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distfms.data.files.footers import open_parquet
from distfms.data.files.formats.copies import Copies, opened, require_unchanged
from distfms.data.rows.columns import as_floats, number_view
from distfms.data.rows.roles import plain_type
from distfms.errors import DataError, nearest
from distfms.store.places import File


@dataclass(frozen=True)
class LongSource:
    """Checked access to some columns of files.

    `roles` are column names by role (object, attribute, value, worker, label); objects are cast to
    `object_type`. What is read of a file, by its path, is its copy in Parquet or itself.
    """

    roles: Mapping[str, str]
    object_type: pa.DataType
    read: Mapping[str, File]

    @classmethod
    def open(
        cls,
        files: Sequence[File],
        roles: Mapping[str, str | None],
        copies: Copies,
        object_type: pa.DataType | None = None,
    ) -> LongSource:
        """Check that each file has the columns; the first one decides about objects."""
        named = {role: name for role, name in roles.items() if name is not None}
        if len(set(named.values())) < len(named):
            listed = ", ".join(f"{role}: {name}" for role, name in named.items())
            raise DataError(f"`data.long` names one column for two roles: {listed}.")
        for file in files:
            columns = copies.columns(file)
            for role, name in named.items():
                _require_column(columns, name, role, file.path)
        types: dict[str, pa.DataType | None] = dict.fromkeys(named.values(), pa.string())
        types[named["object"]] = object_type
        for role in named.keys() & {"value", "label"}:
            types[named[role]] = None  # by all rows: decimal commas, units
        read, _ = copies.converted(files, types)
        if object_type is None:
            with opened(read[0]) as stream:
                schema = open_parquet(stream).schema_arrow
            object_type = _decoded(schema.field(named["object"]).type)
        by_path = {file.path: copy for file, copy in zip(files, read, strict=True)}
        return cls(named, object_type, by_path)

    def batches(self, file: File, batch_rows: int) -> Iterator[pa.Table]:
        """Yield the rows of a file in their order, checked; errors name file and row.

        Columns are named by role: object, attribute and worker (strings), value and label (float64,
        null where it is missing).
        """
        first_row = 0
        with opened(self.read[file.path]) as stream:
            batches = open_parquet(stream).iter_batches(
                batch_rows, columns=list(self.roles.values())
            )
            for batch in batches:
                table = pa.Table.from_batches([batch])
                checked = {
                    role: self._checked(role, whole(table.column(name)), file.path, first_row)
                    for role, name in self.roles.items()
                }
                yield pa.table(checked)
                first_row += table.num_rows
        require_unchanged(file)

    def _checked(self, role: str, column: pa.Array, path: str, first_row: int) -> pa.Array:
        name = self.roles[role]
        if role in ("value", "label"):
            numbers = _as_numbers(column, name, path, first_row)
            return pa.array(numbers, mask=np.isnan(numbers))
        if role in ("object", "attribute"):
            empty = pc.is_null(column, nan_is_null=True).cast(pa.uint8())
            _refuse_first(
                number_view(empty) > 0, f"The column {name!r} of {path} has no value in", first_row
            )
        kind = self.object_type if role == "object" else pa.string()
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"The column {name!r} of {path} cannot be read as {kind}, its type in the first "
                f"file: {error}"
            ) from error


# --- columns ------------------------------------------------------------------------------------


def _require_column(names: Sequence[str], name: str, role: str, where: str) -> None:
    """Refuse a table that has none or several columns of a name."""
    if name not in names:
        raise DataError(
            f"{where} has no column {name!r} (`data.long`, {role}).{nearest(name, names)}"
        )
    if list(names).count(name) > 1:
        raise DataError(f"{where} has several columns named {name!r}: rename all but one.")


def _as_numbers(array: pa.Array, name: str, path: str, first_row: int) -> np.ndarray:
    """Convert numbers, booleans, or text that holds numbers to float64, missing values to NaN."""
    if pt.is_temporal(array.type) or pt.is_nested(array.type):
        raise DataError(
            f"The column {name!r} of {path} holds {array.type}, not numbers: name another."
        )
    try:
        numbers = as_floats(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, text = next((r, t) for r, t in enumerate(array.to_pylist()) if not _is_number(t))
        raise DataError(
            f"The column {name!r} of {path} is not numeric: row {first_row + row} (counted from 0) "
            f"holds {text!r}. Correct it or leave the row out."
        ) from error
    _refuse_first(np.isinf(numbers), f"The column {name!r} of {path} is infinite in", first_row)
    return numbers


def _is_number(text: Any) -> bool:
    try:
        pa.scalar(text).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _refuse_first(bad: np.ndarray, what: str, first_row: int) -> None:
    n_bad = int(np.count_nonzero(bad))
    if n_bad:
        row = first_row + int(np.argmax(bad))
        count = f", and in {n_bad - 1} more after it" if n_bad > 1 else ""
        raise DataError(
            f"{what} row {row} (counted from 0){count}: correct it or leave the row out."
        )


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return one plain array, dictionaries decoded."""
    array = column.combine_chunks()
    decoded = _decoded(array.type)
    return array.cast(decoded) if decoded != array.type else array


def _decoded(kind: pa.DataType) -> pa.DataType:
    if pt.is_null(kind):
        # A column without any value.
        return pa.string()
    return plain_type(kind.value_type if pt.is_dictionary(kind) else kind)
