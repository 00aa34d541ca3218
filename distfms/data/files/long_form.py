"""Judgments in long form: read from files, checked, and made one row per object."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from distfms.data.files.formats.copies import Copies, opened, require_unchanged
from distfms.data.rows.columns import as_floats, number_view
from distfms.data.rows.folds import GOLDEN, mix
from distfms.engine.storage import File
from distfms.errors import DataError, nearest
from distfms.spec import LongForm

Duplicates = Literal["error", "keep", "first"]

_LABEL_ROWS = 2**20


@dataclass(frozen=True)
class LongSource:
    """Checked access to some columns of files.

    `roles` are column names by role (object, attribute, value, worker, label); objects are cast to
    `object_type`. What is read of a file, by its path, is its copy in Parquet or itself.
    """

    files: tuple[File, ...]
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
            raise DataError(f"one column is named for two roles: {named}.")
        for file in files:
            columns = copies.columns(file)
            for role, name in named.items():
                _require_column(columns, name, role, file.path)
        types = dict.fromkeys(named.values(), pa.string()) | {named["object"]: object_type}
        read = copies.converted(files, types)
        if object_type is None:
            with opened(read[0]) as stream:
                schema = pq.ParquetFile(stream).schema_arrow
            object_type = _decoded(schema.field(named["object"]).type)
        by_path = {file.path: copy for file, copy in zip(files, read, strict=True)}
        return cls(tuple(files), named, object_type, by_path)

    def batches(self, batch_rows: int) -> Iterator[pa.Table]:
        """Yield the rows in source order, checked; errors name file and row.

        Columns are named by role: object, attribute and worker (strings), value and label (float64,
        null where it is missing).
        """
        columns = list(self.roles.values())
        for file in self.files:
            first_row = 0
            with opened(self.read[file.path]) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(batch_rows, columns=columns):
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
                number_view(empty) > 0, f"column {name!r} of {path} has no value in", first_row
            )
        kind = self.object_type if role == "object" else pa.string()
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"column {name!r} of {path} does not hold {kind}, unlike the first file: {error}"
            ) from error


@dataclass(frozen=True)
class Labels:
    """Labels of objects from a table of their own."""

    ids: pa.Array
    values: np.ndarray

    @classmethod
    def read(
        cls, files: Sequence[File], form: LongForm, copies: Copies, object_type: pa.DataType
    ) -> Labels:
        """Read them from files; rows without a label are as good as absent."""
        roles = {"object": form.object, "label": form.label}
        table = LongSource.open(files, roles, copies, object_type)
        rows = pa.concat_tables(table.batches(_LABEL_ROWS))
        counts = pc.value_counts(rows.column("object"))
        twice = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            raise DataError(
                f"object {twice[0]['values']} has more than one row in the labels {form.labels}."
            )
        rows = rows.drop_null()
        return cls(whole(rows.column("object")), as_floats(whole(rows.column("label"))))

    def look_up(self, ids: pa.Array) -> np.ndarray:
        """Return the labels of objects, float64 of shape (n,), NaN where there is none."""
        at = pc.index_in(ids, self.ids).fill_null(-1)
        return np.append(self.values, np.nan)[number_view(at)]

    def n_others(self, objects: Sequence[pa.Array]) -> int:
        """Return how many labels are of none of these objects."""
        known = pc.is_in(self.ids, pa.chunked_array(objects))
        return len(self.ids) - (pc.sum(known).as_py() or 0)


# --- columns ------------------------------------------------------------------------------------


def _require_column(names: Sequence[str], name: str, role: str, where: str) -> None:
    """Refuse a table that has none or several columns of a name."""
    if name not in names:
        raise DataError(f"{where} has no column {name!r} ({role}).{nearest(name, names)}")
    if list(names).count(name) > 1:
        raise DataError(f"{where} has several columns named {name!r}.")


def _as_numbers(array: pa.Array, name: str, path: str, first_row: int) -> np.ndarray:
    """Convert numbers, booleans, or text that holds numbers to float64, missing values to NaN."""
    if pt.is_temporal(array.type) or pt.is_nested(array.type):
        raise DataError(f"column {name!r} of {path} holds {array.type}, not numbers.")
    try:
        numbers = as_floats(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, text = next((r, t) for r, t in enumerate(array.to_pylist()) if not _is_number(t))
        raise DataError(
            f"column {name!r} of {path} is not numeric: row {first_row + row} (counted from 0) "
            f"holds {text!r}."
        ) from error
    _refuse_first(np.isinf(numbers), f"column {name!r} of {path} is infinite in", first_row)
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
        more = f", and in {n_bad - 1} more after it" if n_bad > 1 else ""
        raise DataError(
            f"{what} row {row} (counted from 0){more}: correct it or leave the row out."
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
    return kind.value_type if pt.is_dictionary(kind) else kind


# --- rows of objects ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """Judgments ordered by object, then attribute, then place in the source.

    Attributes
    ----------
    ids : pyarrow.Array, length n_objects
        Ascending.
    objects, attributes : ndarray of int32, shape (n,)
        Position of each judgment's object in `ids`, and its attribute's code.
    values : ndarray of float64, shape (n,)
    labels : ndarray of float64, shape (n,), or None
        NaN where there is none.
    workers : ndarray of int32, shape (n,), or None
        Position of each judgment's worker in `worker_names`, −1 for unknown.
    """

    ids: pa.Array
    objects: np.ndarray
    attributes: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None = None
    workers: np.ndarray | None = None
    worker_names: pa.Array | None = None

    @classmethod
    def from_table(cls, table: pa.Table, ids: pa.Array) -> Cells:
        """Sort long rows with the columns object, attribute, value and maybe label and worker.

        Objects and attributes are positions.
        """
        columns = {name: whole(table.column(name)) for name in table.column_names}
        objects, attributes, values = (
            number_view(columns[role]) for role in ("object", "attribute", "value")
        )
        cells = cls(ids, objects, attributes, values)
        if "label" in columns:
            cells = replace(cells, labels=as_floats(columns["label"]))
        if "worker" in columns:
            workers = columns["worker"].dictionary_encode()
            codes = number_view(workers.indices.fill_null(-1))
            cells = replace(cells, workers=codes, worker_names=workers.dictionary)
        return cells.take(np.lexsort((attributes, objects)))

    def take(self, rows: np.ndarray) -> Cells:
        """Return some judgments, by position or mask; the objects stay."""
        return replace(
            self,
            objects=self.objects[rows],
            attributes=self.attributes[rows],
            values=self.values[rows],
            labels=None if self.labels is None else self.labels[rows],
            workers=None if self.workers is None else self.workers[rows],
        )

    def places(self) -> np.ndarray:
        """Return the position of each judgment within its (object, attribute) cell, from 0."""
        first = ~_repeats(self.objects, self.attributes)
        starts = np.flatnonzero(first)
        return np.arange(len(first)) - starts[np.cumsum(first) - 1]


def _repeats(*keys: np.ndarray) -> np.ndarray:
    """Mark the positions where all keys are those of the position before."""
    repeated = np.zeros(len(keys[0]), dtype=bool)
    repeated[1:] = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    return repeated


def drop_duplicates(cells: Cells, names: Sequence[str], policy: Duplicates) -> tuple[Cells, int]:
    """Deal with a worker's second judgment of one attribute of one object.

    Returns the cells, and how many such judgments there are (``keep``) or were dropped (``first``).
    A missing worker is nobody's second judgment; `names` are the attributes by code.
    """
    if cells.workers is None or cells.worker_names is None:
        return cells, 0
    order = np.lexsort((cells.workers, cells.attributes, cells.objects))
    duplicate = np.zeros(len(order), dtype=bool)
    duplicate[order] = _repeats(
        *(k[order] for k in (cells.workers, cells.attributes, cells.objects))
    )
    duplicate &= cells.workers >= 0
    n_duplicates = int(np.count_nonzero(duplicate))
    if n_duplicates == 0 or policy == "keep":
        return cells, n_duplicates
    if policy == "error":
        row = int(np.argmax(duplicate))
        raise DataError(
            f"rater {cells.worker_names[cells.workers[row]].as_py()!r} judged attribute "
            f"{names[cells.attributes[row]]!r} of object {cells.ids[cells.objects[row]].as_py()!r} "
            "more than once: choose `duplicates: first` to keep the first, or `keep` for all."
        )
    return cells.take(~duplicate), n_duplicates


def mean_label(cells: Cells, attribute: int) -> np.ndarray:
    """Return the mean judgment of one attribute of each object, NaN where there is none."""
    own = cells.attributes == attribute
    n_objects = len(cells.ids)
    totals = np.bincount(cells.objects[own], weights=cells.values[own], minlength=n_objects)
    counts = np.bincount(cells.objects[own], minlength=n_objects)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def column_label(cells: Cells, attribute: int | None, name: str) -> np.ndarray:
    """Return the label of each object that stands next to its judgments, NaN where there is none.

    Only judgments of `attribute`, unless None, carry the label. Two labels of one object are
    refused.
    """
    assert cells.labels is not None
    own = ~np.isnan(cells.labels)
    if attribute is not None:
        own &= cells.attributes == attribute
    objects, labels = cells.objects[own], cells.labels[own]
    found = np.full(len(cells.ids), np.nan)
    found[objects] = labels
    other = found[objects] != labels
    if other.any():
        row = int(np.argmax(other))
        raise DataError(
            f"object {cells.ids[objects[row]].as_py()!r} has two labels in column {name!r}: "
            f"{labels[row]:g} and {found[objects[row]]:g}."
        )
    return found


def draw_judgments(cells: Cells, names: Sequence[str], most: int, seed: int) -> Cells:
    """Keep at most `most` judgments of a cell, drawn at random and left in source order.

    The choice depends on seed, object, attribute and place in the cell only, so it is the same
    however the objects are divided.
    """
    places = cells.places()
    ids = [str(name) for name in cells.ids.to_pylist()]
    tickets = _hashes(ids, seed)[cells.objects]
    tickets ^= _scramble(_hashes(names, seed + 1))[cells.attributes]
    with np.errstate(over="ignore"):
        tickets = _scramble(tickets + places.astype(np.uint64) * GOLDEN)
    drawn = np.empty_like(places)
    # Cells are contiguous in both orders, so the k-th place of a cell is its k-th ticket.
    drawn[np.lexsort((tickets, cells.attributes, cells.objects))] = places
    return cells.take(drawn < most)


def _hashes(names: Sequence[str], seed: int) -> np.ndarray:
    key = str(seed).encode()
    digests = [hashlib.blake2b(n.encode(), digest_size=8, key=key).digest() for n in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").copy()


def _scramble(values: np.ndarray) -> np.ndarray:
    """Return splitmix64's bijection without its first addition."""
    with np.errstate(over="ignore"):
        return mix(values - GOLDEN)


def list_columns(cells: Cells, attributes: Sequence[int]) -> list[pa.Array]:
    """Return a column of lists for each attribute code, then those of their workers if told.

    Lists are empty where nothing was judged.
    """
    by_attribute = np.argsort(cells.attributes, kind="stable")
    codes, objects = cells.attributes[by_attribute], cells.objects[by_attribute]
    values, workers = pa.array(cells.values[by_attribute]), None
    if cells.workers is not None and cells.worker_names is not None:
        known = cells.workers[by_attribute]
        workers = cells.worker_names.take(pa.array(known, mask=known < 0))
    judged, judges = [], []
    for attribute in attributes:
        start, stop = np.searchsorted(codes, [attribute, attribute + 1]).tolist()
        counts = np.bincount(objects[start:stop], minlength=len(cells.ids))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        judged.append(pa.ListArray.from_arrays(offsets, values[start:stop]))
        if workers is not None:
            judges.append(pa.ListArray.from_arrays(offsets, workers[start:stop]))
    return judged + judges
