"""Which rows of a partition a batch holds, in which order, and what goes with each of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import (
    describe_rows,
    fill_numbers,
    number_view,
    refuse_missing,
    require_summable,
)
from distfms.data.folds import FoldPlan, assign_parts
from distfms.errors import DataError

if TYPE_CHECKING:
    from distfms.data.dataset import Partition, PartitionReader
    from distfms.data.roles import Roles


# Types whose values need not go through pyarrow's ``to_numpy``, which imports pandas.
_PLAIN = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "double"}


@dataclass(frozen=True)
class RowIndex:
    """The rows of a batch, ordered by part, and within a part as in the file.

    Attributes
    ----------
    part : ndarray of uint8, shape (n,)
        Part of each row, ascending; see :func:`~distfms.data.folds.assign_parts`.
    part_slices : tuple of slice
        Rows of each part; the last part is the held-out one.
    row_ids : ndarray of int64, shape (n,)
        Dataset-wide row numbers, from 0.
    order : ndarray of intp, shape (n,), or None
        Row of the partition for each row of the batch; None for the order of the file.
    weight, id, query : ndarray of shape (n,), or None
        Values of these columns; weights are ≥ 0.
    """

    part: np.ndarray
    part_slices: tuple[slice, ...]
    row_ids: np.ndarray
    order: np.ndarray | None
    weight: np.ndarray | None = None
    id: np.ndarray | None = None
    query: np.ndarray | None = None

    def keep(self, mask: np.ndarray) -> RowIndex:
        """Return the rows that are marked."""
        order = np.arange(len(self.part)) if self.order is None else self.order
        part = self.part[mask]
        return RowIndex(
            part=part,
            part_slices=part_slices(part, len(self.part_slices)),
            row_ids=self.row_ids[mask],
            order=order[mask],
            weight=None if self.weight is None else self.weight[mask],
            id=None if self.id is None else self.id[mask],
            query=None if self.query is None else self.query[mask],
        )


@dataclass(frozen=True)
class Batch:
    """Rows of one partition; what is read of them is in the subclasses."""

    rows: RowIndex

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.rows.part)

    @property
    def weight(self) -> np.ndarray | None:
        """Sample weights, shape (n,)."""
        return self.rows.weight

    @property
    def part_slices(self) -> tuple[slice, ...]:
        """Rows of each part."""
        return self.rows.part_slices

    @property
    def row_ids(self) -> np.ndarray:
        """Dataset-wide row numbers, shape (n,)."""
        return self.rows.row_ids


def part_slices(part: np.ndarray, n_parts: int) -> tuple[slice, ...]:
    """Return the rows of each of `n_parts` parts, from ascending part numbers."""
    bounds = np.searchsorted(part, np.arange(n_parts + 1)).tolist()
    return tuple(slice(lo, hi) for lo, hi in itertools.pairwise(bounds))


def read_row_index(
    reader: PartitionReader,
    partition: Partition,
    roles: Roles,
    folds: FoldPlan | None = None,
) -> RowIndex:
    """Read the columns that go with rows, and divide the rows into parts."""
    folds = folds or FoldPlan()
    names = [n for n in (roles.weight, roles.id, roles.query) if n is not None]
    table = reader.read(partition, list(dict.fromkeys(names))) if names else None
    part = _parts(table, partition, roles, folds)
    order = None
    if part.min() != part.max():  # partitions are never empty
        order = np.argsort(part, kind="stable")
        part = part[order]
    rows = np.arange(partition.n_rows) if order is None else order
    return RowIndex(
        part=part,
        part_slices=part_slices(part, folds.n_parts),
        row_ids=rows + partition.row_offset,
        order=order,
        weight=_weights(reader, partition, roles.weight, table, order),
        id=_values(table, roles.id, order),
        query=_values(table, roles.query, order),
    )


def _parts(table: Any, partition: Partition, roles: Roles, folds: FoldPlan) -> np.ndarray:
    """Assign the rows to parts; nothing is hashed where there is nothing to divide."""
    if folds.test == 1 or (folds.n_folds == 0 and folds.test == 0):
        return np.full(partition.n_rows, folds.test_part if folds.test else 0, dtype=np.uint8)
    keys = None if roles.fold_key is None else table.column(roles.fold_key)
    try:
        return assign_parts(
            keys, partition=partition, n_folds=folds.n_folds, test=folds.test, seed=folds.seed
        )
    except DataError as error:
        raise DataError(f"In {partition.path}, column {roles.fold_key!r}: {error}") from error


def _weights(
    reader: PartitionReader,
    partition: Partition,
    name: str | None,
    table: Any,
    order: np.ndarray | None,
) -> np.ndarray | None:
    """Return the sample weights in batch order, refusing what is no weight."""
    if name is None:
        return None
    weight = np.empty(partition.n_rows)
    if not fill_numbers(table.column(name), weight, order):
        require_summable(reader, partition, name, weight, order)
        advice = "give every row a weight (0 drops it)."
        raise refuse_missing(reader, partition, name, np.isnan(weight), order, advice)
    negative = weight < 0
    if negative.any():
        where, count = describe_rows(reader, partition, negative, order)
        raise DataError(
            f"The weight column {name!r} of {partition.path} has {count} negative "
            f"{'value' if count == 1 else 'values'} ({where}): weights must be at least 0."
        )
    return weight


def _values(table: Any, name: str | None, order: np.ndarray | None) -> np.ndarray | None:
    if name is None:
        return None
    column = table.column(name)
    if str(column.type) in _PLAIN and not column.null_count:
        values = np.concatenate([number_view(chunk) for chunk in column.chunks])
    else:
        values = column.to_numpy()
    return values if order is None else values[order]
