"""The rows of a batch by part: cross-validation folds and the held-out part, by hashing a key.

The hash is our own: it must give the same folds on every machine, in every process and in every
version of Python and of the libraries, and it must run over whole columns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.rows.columns import ReadRows, fill_numbers, number_view
from distfms.errors import DataError

if TYPE_CHECKING:
    from distfms.data.files.partition import Partition
    from distfms.data.rows.roles import Roles

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BYTE_PRIME = np.uint64(0x00000100000001B3)
_FLOAT_TAG = np.uint64(0xD6E8FEB86659FD93)
_ROW_TAG = np.uint64(0xA0761D6478BD642F)
_FOLD_TAG = np.uint64(0xE7037ED1A0B428DB)


def require_divided(
    n_rows: Sequence[int], key: str | None, place: object, rows: str = "rows"
) -> None:
    """Refuse rows that are too few to learn from, or all in one fold.

    Parameters
    ----------
    n_rows : sequence of int
        Rows of each fold, and of the held-out ones.
    key : str or None
        Column whose values keep rows together.
    place : object
        Where the rows are, for messages.
    rows : str
        What they are called.
    """
    *folds, n_test = n_rows
    n_train = sum(folds)
    together = ""
    if key is not None:
        together = (
            f" {rows.capitalize()} with the same {key!r} stay together: check that it is not the "
            "same in all, or leave it out of the spec."
        )
    if n_train < 2:
        called = rows.removesuffix("s") if n_train == 1 else rows
        raise DataError(
            f"{place} has {n_train} {called} to train on (held out: {n_test}); at least 2 are "
            f"needed. Add {rows}, or lower `data.test`.{together}"
        )
    n_usable = sum(n > 1 for n in folds)
    if key is not None and len(folds) > 1 and n_usable == 1:
        raise DataError(
            f"Only one of {len(folds)} folds has two or more of the {n_train:,} {rows} to train on "
            f"in {place}.{together}"
        )


@dataclass(frozen=True)
class FoldPlan:
    """How rows are divided: `n_folds` folds (0 for none), and a share `test` in [0, 1] held out."""

    n_folds: int = 0
    test: float = 0.0
    seed: int = 0

    @property
    def test_part(self) -> int:
        """Part number of the held-out rows: max(K, 1)."""
        return max(self.n_folds, 1)

    @property
    def n_parts(self) -> int:
        """Number of parts, the held-out rows included: max(K, 1) + 1."""
        return self.test_part + 1


def assign_parts(
    keys: Any | None, *, partition: Partition | None = None, **divided: Any
) -> np.ndarray:
    """Assign each row of a partition to a fold or to the held-out part.

    Parameters
    ----------
    keys : array-like, shape (n,), or None
        Values of the id or query column: rows of equal key go together, whatever file or position
        they are in. Without keys the partition's own key and the row number in the file decide,
        which stay the same when files or folders are added or taken away.
    partition : Partition, optional
        Needed without keys.
    **divided
        As in :class:`FoldPlan`: ``n_folds``, ``test``, ``seed``.

    Returns
    -------
    ndarray of unsigned integers, shape (n,)
        0 … max(K, 1) − 1 for folds, max(K, 1) for held-out rows.

    Raises
    ------
    DataError
        If a key is missing or of a type that cannot be hashed.

    Notes
    -----
    A row is held out when the upper 53 bits of its hash, as a share of 2⁵³, are below `test`;
    its fold comes from a second round of the hash, so the folds are the same for every `test`.
    """
    plan = FoldPlan(**divided)
    if keys is None:
        assert partition is not None
        hashes = row_hashes(partition)
    else:
        hashes = hash_keys(keys)
    hashes = with_seed(hashes, plan.seed)
    upper = mix(hashes + _FOLD_TAG) >> np.uint64(32)
    folds = (upper * np.uint64(plan.test_part)) >> np.uint64(32)
    parts = folds.astype(np.min_scalar_type(plan.n_parts))
    if plan.test > 0:
        held_out = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53 < plan.test
        parts[held_out] = plan.test_part
    return parts


def hash_keys(keys: Any) -> np.ndarray:
    """Hash the values of a column to 64 bits, as uint64 of shape (n,).

    Equal for equal values: of integers of any width, of floats that are whole numbers and those
    integers, of a string however it is stored. Integers: splitmix64 of the two's complement. Other
    floats: splitmix64 of the bits of the float64. Strings and bytes: polynomial of the UTF-8 bytes
    modulo 2⁶⁴, mixed with the length.
    """
    if not len(keys):  # of no type
        return np.zeros(0, dtype=np.uint64)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iub":
        return _hash_integers(keys)
    if isinstance(keys, np.ndarray) and keys.dtype.kind == "f":
        return _hash_floats(keys)
    import pyarrow as pa

    if isinstance(keys, pa.ChunkedArray):
        return np.concatenate([_hash_arrow(chunk) for chunk in keys.chunks])
    return _hash_arrow(keys if isinstance(keys, pa.Array) else pa.array(keys))


def _hash_arrow(keys: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.types as pat

    if keys.null_count:
        raise _missing_key()
    dtype = keys.type
    if pat.is_dictionary(dtype):
        return hash_keys(keys.dictionary)[number_view(keys.indices.cast(pa.int64()))]
    if pat.is_boolean(dtype):
        return _hash_integers(number_view(keys.cast(pa.uint8())))
    if pat.is_temporal(dtype):
        keys = keys.view(pa.int64() if dtype.bit_width == 64 else pa.int32())
    if pat.is_integer(keys.type):
        return _hash_integers(number_view(keys))
    if pat.is_floating(dtype):
        return _hash_floats(number_view(keys))
    if pat.is_decimal(dtype):
        keys = keys.cast(pa.string())
    if pat.is_string_view(dtype) or pat.is_string(keys.type) or pat.is_large_string(dtype):
        keys = keys.cast(pa.large_string())
    elif not (
        pat.is_binary(dtype) or pat.is_large_binary(dtype) or pat.is_fixed_size_binary(dtype)
    ):
        raise DataError(
            f"The column that decides the folds holds {dtype}, which cannot be hashed: name an id "
            "or query column of whole numbers, text or dates."
        )
    keys = keys.cast(pa.large_binary())
    _, offsets, data = keys.buffers()
    offsets = np.frombuffer(offsets, np.int64, len(keys) + 1, 8 * keys.offset)
    return _hash_bytes(np.frombuffer(data or b"", np.uint8), offsets)


def _missing_key() -> DataError:
    return DataError(
        "The id or query column that decides the folds has missing values: fill them, or remove "
        "its role so that the row number decides."
    )


def _hash_integers(keys: np.ndarray) -> np.ndarray:
    """Hash integers and booleans by their 64-bit two's complement."""
    wide = keys.astype(np.uint64) if keys.dtype.kind in "ub" else keys.astype(np.int64)
    return mix(wide.view(np.uint64))


def _hash_floats(keys: np.ndarray) -> np.ndarray:
    """Hash floats; whole numbers as the integers they are (a nullable id may come as float)."""
    wide = keys.astype(np.float64) + 0.0
    if np.isnan(wide).any():
        raise _missing_key()
    whole = (np.floor(wide) == wide) & (np.abs(wide) < 2.0**63)
    hashes = mix(wide.view(np.uint64) ^ _FLOAT_TAG)
    hashes[whole] = _hash_integers(wide[whole].astype(np.int64))
    return hashes


def _hash_bytes(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Hash the byte strings ``data[offsets[i]:offsets[i + 1]]`` by Horner's rule, side by side."""
    lengths = np.diff(offsets)
    # Longest first: the strings that still have a byte are then a leading slice.
    order = np.argsort(-lengths, kind="stable")
    starts = offsets[:-1][order]
    sorted_lengths = lengths[order]
    hashes = np.zeros(len(lengths), dtype=np.uint64)
    longest = int(sorted_lengths[0]) if len(lengths) else 0
    active_at = np.searchsorted(-sorted_lengths, -np.arange(longest), side="left")
    for position, active in enumerate(active_at.tolist()):
        head = hashes[:active]
        head *= _BYTE_PRIME  # wraps modulo 2⁶⁴, as all arithmetic here
        head += data[starts[:active] + position]
    result = np.empty_like(hashes)
    result[order] = hashes
    return mix(result ^ mix(lengths.astype(np.uint64)))


def with_seed(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Return other hashes of the same things, as a seed says."""
    seeded: np.ndarray = mix(hashes ^ mix(np.uint64((seed + int(GOLDEN)) % 2**64)))
    return seeded


def row_hashes(partition: Partition) -> np.ndarray:
    """Hash (key, row number in the file) of the rows of a partition, in its order."""
    first = partition.file_row_offset
    rows = mix(np.arange(first, first + partition.n_rows, dtype=np.uint64) + _ROW_TAG)
    name = np.frombuffer(partition.key.encode(), np.uint8)
    return mix(rows ^ _hash_bytes(name, np.array([0, len(name)])))


def mix(values: Any) -> Any:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection of 64 bits."""
    with np.errstate(over="ignore"):
        z = values + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


# --- the rows of a batch -------------------------------------------------------------------------

# Types whose values need not go through pyarrow's ``to_numpy``, which imports pandas.
_PLAIN = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "double"}


@dataclass(frozen=True)
class RowIndex:
    """The rows of a batch, ordered by part, and within a part as in the file.

    Attributes
    ----------
    partition : Partition
        Where they are.
    part : ndarray of uint8, shape (n,)
        Part of each row, ascending; see :func:`~distfms.data.rows.folds.assign_parts`.
    part_slices : tuple of slice
        Rows of each part; the last part is the held-out one.
    row_ids : ndarray of int64, shape (n,)
        Dataset-wide row numbers, from 0.
    order : ndarray of intp, shape (n,), or None
        Row of the partition for each row of the batch; None for the order of the file.
    weight, id, query : ndarray of shape (n,), or None
        Values of these columns; weights are positive.
    n_weightless : tuple of int
        Rows of weight 0 of each part, which are not among these.
    """

    partition: Partition
    part: np.ndarray
    part_slices: tuple[slice, ...]
    row_ids: np.ndarray
    order: np.ndarray | None
    weight: np.ndarray | None = None
    id: np.ndarray | None = None
    query: np.ndarray | None = None
    n_weightless: tuple[int, ...] = ()

    @cached_property
    def hashes(self) -> np.ndarray:
        """What `row_hashes` says of the rows, shape (n,)."""
        return row_hashes(self.partition)[self.row_ids - self.partition.row_offset]

    @property
    def keys(self) -> np.ndarray:
        """Hashes of ids, which rows that belong together share, or else row numbers, shape (n,)."""
        return self.row_ids.astype(np.uint64) if self.id is None else hash_keys(self.id)

    def draws(self, seed: int) -> np.ndarray:
        """Return other hashes of the rows, the least of which are drawn first, shape (n,)."""
        return with_seed(mix(self.hashes), seed)

    def drawn(self, share: float, seed: int) -> RowIndex:
        """Return a share below 1 of the rows of folds, and all held-out rows."""
        is_held_out = self.part == len(self.part_slices) - 1
        return self.keep(is_held_out | (self.draws(seed) < np.uint64(share * 2.0**64)))

    def of_weight(self) -> RowIndex:
        """Return the rows of positive weight, and count the others."""
        if self.weight is None or self.weight.all():
            return self
        weightless = self.weight == 0
        counts = tuple(int(np.count_nonzero(weightless[rows])) for rows in self.part_slices)
        return replace(self.keep(~weightless), n_weightless=counts)

    def keep(self, mask: np.ndarray) -> RowIndex:
        """Return the rows that are marked."""
        order = np.arange(len(self.part)) if self.order is None else self.order
        names = ("part", "row_ids", "weight", "id", "query")
        arrays = {name: getattr(self, name) for name in names}
        kept = {name: array[mask] for name, array in arrays.items() if array is not None}
        slices = part_slices(kept["part"], len(self.part_slices))
        return replace(self, part_slices=slices, order=order[mask], **kept)


@dataclass(frozen=True)
class PartitionBatch:
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
    return tuple(slice(lo, hi) for lo, hi in pairwise(bounds))


def read_row_index(
    reader: Any, partition: Partition, roles: Roles, folds: FoldPlan | None = None
) -> RowIndex:
    """Read the columns that go with rows, and divide those of positive weight into parts."""
    folds = folds or FoldPlan()
    names = [n for n in (roles.weight, roles.id, roles.query) if n is not None]
    table = reader.read(partition, list(dict.fromkeys(names))) if names else None
    part = _parts(table, partition, roles, folds)
    order = None
    if part.min() != part.max():  # partitions are never empty
        order = np.argsort(part, kind="stable")
        part = part[order]
    rows = np.arange(partition.n_rows) if order is None else order
    index = RowIndex(
        partition=partition,
        part=part,
        part_slices=part_slices(part, folds.n_parts),
        row_ids=rows + partition.row_offset,
        order=order,
        weight=_weights(ReadRows(reader, partition, order), roles.weight, table),
        id=_values(table, roles.id, order),
        query=_values(table, roles.query, order),
    )
    return index.of_weight()


def _parts(table: Any, partition: Partition, roles: Roles, folds: FoldPlan) -> np.ndarray:
    """Assign the rows to parts; nothing is hashed where there is nothing to divide."""
    if folds.test == 1 or (folds.n_folds == 0 and folds.test == 0):
        return np.full(partition.n_rows, folds.test_part if folds.test else 0, dtype=np.uint8)
    keys = None if roles.fold_key is None else table.column(roles.fold_key)
    try:
        return assign_parts(keys, partition=partition, **vars(folds))
    except DataError as error:
        raise DataError(f"In {partition.called}, column {roles.fold_key!r}: {error}") from error


def _weights(rows: ReadRows, name: str | None, table: Any) -> np.ndarray | None:
    """Return the sample weights in batch order, refusing what is no weight."""
    if name is None:
        return None
    weight = np.empty(rows.partition.n_rows)
    if not fill_numbers(table.column(name), weight, rows.order):
        rows.require_summable(name, weight)
        raise rows.lacks(name, np.isnan(weight), "give every row a weight (0 drops it).")
    negative = weight < 0
    if negative.any():
        place, count = rows.describe(negative)
        raise DataError(
            f"The weight column {name!r} of {rows.partition.called} has {count} negative "
            f"{'value' if count == 1 else 'values'} ({place}): weights must be at least 0."
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
