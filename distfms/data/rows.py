"""Which rows of a partition a batch holds, in which order, and what goes with each of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import (
    describe_rows,
    fill_numbers,
    number_view,
    refuse_infinite,
    refuse_missing,
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
        Rows of each part, ``part_slices[p]``; the last part is the held-out one.
    row_ids : ndarray of int64, shape (n,)
        Dataset-wide row numbers, from 0;
        :meth:`~distfms.data.dataset.ParquetDataset.row_names` turns them into file and row.
    order : ndarray of intp, shape (n,), or None
        Row of the partition for each row of the batch; None for the order of the file.
    weight : ndarray of float64, shape (n,), or None
        Sample weight.
    id, query, time : ndarray, shape (n,), or None
        Values of these columns, numbers as they are, everything else as objects.
    """

    part: np.ndarray
    part_slices: tuple[slice, ...]
    row_ids: np.ndarray
    order: np.ndarray | None
    weight: np.ndarray | None = None
    id: np.ndarray | None = None
    query: np.ndarray | None = None
    time: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.part)

    def keep(self, mask: np.ndarray) -> RowIndex:
        """Return the rows that are marked.

        Parameters
        ----------
        mask : ndarray of bool, shape (n,)

        Returns
        -------
        RowIndex
        """
        order = np.arange(self.n_rows) if self.order is None else self.order
        part = self.part[mask]
        chosen = {
            name: None if value is None else value[mask]
            for name in ("weight", "id", "query", "time")
            for value in (getattr(self, name),)
        }
        return replace(
            self,
            part=part,
            part_slices=part_slices(part, len(self.part_slices)),
            row_ids=self.row_ids[mask],
            order=order[mask],
            **chosen,
        )


def part_slices(part: np.ndarray, n_parts: int) -> tuple[slice, ...]:
    """Return the rows of each part.

    Parameters
    ----------
    part : ndarray of int, shape (n,)
        Ascending.
    n_parts : int

    Returns
    -------
    tuple of slice, length n_parts
    """
    bounds = np.searchsorted(part, np.arange(n_parts + 1)).tolist()
    return tuple(slice(lo, hi) for lo, hi in itertools.pairwise(bounds))


def read_row_index(
    reader: PartitionReader,
    partition: Partition,
    roles: Roles,
    folds: FoldPlan | None = None,
) -> RowIndex:
    """Read the columns that go with rows and divide the rows into parts.

    Parameters
    ----------
    reader : PartitionReader
    partition : Partition
    roles : Roles
        Weight, id, query and time are read if named.
    folds : FoldPlan, optional
        Without one all rows are part 0.

    Returns
    -------
    RowIndex

    Raises
    ------
    DataError
        If a weight is negative or not finite, or a fold key is missing.
    """
    folds = folds or FoldPlan()
    names = [n for n in (roles.weight, roles.id, roles.query, roles.time) if n is not None]
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
        time=_values(table, roles.time, order),
    )


def _parts(table: Any, partition: Partition, roles: Roles, folds: FoldPlan) -> np.ndarray:
    """Assign the rows to parts; nothing is hashed where there is nothing to divide."""
    if folds.n_folds == 0 and folds.test == 0:
        return np.zeros(partition.n_rows, dtype=np.uint8)
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
        missing, infinite = np.isnan(weight), np.isinf(weight)
        if infinite.any():
            raise refuse_infinite(reader, partition, name, infinite, order)
        advice = "give every row a weight (0 takes a row out)."
        raise refuse_missing(reader, partition, name, missing, order, advice)
    negative = weight < 0
    if negative.any():
        where, count = describe_rows(reader, partition, negative, order)
        raise DataError(
            f"The weight column {name!r} of {partition.path} has {count} negative "
            f"{'value' if count == 1 else 'values'} ({where}): weights must be 0 or more."
        )
    return weight


def _values(table: Any, name: str | None, order: np.ndarray | None) -> np.ndarray | None:
    """Return the values of a column in batch order."""
    if name is None:
        return None
    column = table.column(name)
    if str(column.type) in _PLAIN and not column.null_count:
        values = np.concatenate([number_view(chunk) for chunk in column.chunks])
    else:
        values = column.to_numpy()
    return values if order is None else values[order]
