"""Cross-validation folds and the held-out test part, by hashing a key of each row.

The hash is our own: it must give the same folds on every machine, in every process and in every
version of Python and of the libraries, and it must run over whole columns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import number_view
from distfms.errors import DataError, SpecError

if TYPE_CHECKING:
    from distfms.data.dataset import Partition

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BYTE_PRIME = np.uint64(0x00000100000001B3)
_FLOAT_TAG = np.uint64(0xD6E8FEB86659FD93)
_ROW_TAG = np.uint64(0xA0761D6478BD642F)
_FOLD_TAG = np.uint64(0xE7037ED1A0B428DB)

MAX_FOLDS = 200
"""Most folds; part numbers are stored in one byte."""


@dataclass(frozen=True)
class FoldPlan:
    """How rows are divided: `n_folds` folds (0 for none), and a share `test` in [0, 1] held out.

    A SpecError says that a number is out of range.
    """

    n_folds: int = 0
    test: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_folds < 0 or self.n_folds == 1 or self.n_folds > MAX_FOLDS:
            raise SpecError(
                f"`folds` is {self.n_folds}: choose 0 for none, or 2 to {MAX_FOLDS} folds."
            )
        if not 0.0 <= self.test <= 1.0:
            raise SpecError(f"`test` is {self.test}: choose a share from 0 to 1.")

    @property
    def test_part(self) -> int:
        """Part number of the held-out rows: max(K, 1)."""
        return max(self.n_folds, 1)

    @property
    def n_parts(self) -> int:
        """Number of parts, the held-out one included: max(K, 1) + 1."""
        return self.test_part + 1


def assign_parts(
    keys: Any | None,
    *,
    partition: Partition | None = None,
    n_folds: int,
    test: float,
    seed: int,
) -> np.ndarray:
    """Assign each row of a partition to a fold or to the held-out part.

    Parameters
    ----------
    keys : array-like, shape (n,), or None
        Values of the id or query column: rows of equal key go together, whatever file or position
        they are in. Without keys the file's name in the dataset and the row number in the file
        decide, which stay the same when files or folders are added or taken away.
    partition : Partition, optional
        Needed without keys.
    n_folds, test, seed
        As in :class:`FoldPlan`.

    Returns
    -------
    ndarray of uint8, shape (n,)
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
    plan = FoldPlan(n_folds, test, seed)
    if keys is None:
        assert partition is not None
        hashes = row_hashes(partition)
    else:
        hashes = hash_keys(keys)
    hashes = with_seed(hashes, seed)
    parts = np.zeros(len(hashes), dtype=np.uint8)
    if n_folds:
        upper = mix(hashes + _FOLD_TAG) >> np.uint64(32)
        parts = ((upper * np.uint64(n_folds)) >> np.uint64(32)).astype(np.uint8)
    if test > 0:
        share = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
        parts[share < test] = plan.test_part
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
            "or query column of integers, strings or dates."
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
    starts, lengths = offsets[:-1], np.diff(offsets)
    # Longest first: the strings that still have a byte are then a leading slice.
    order = np.argsort(-lengths, kind="stable")
    starts, sorted_lengths = starts[order], lengths[order]
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
    """Hash (file name, row number in the file) of the rows of a partition, in its order."""
    first = partition.file_row_offset
    rows = mix(np.arange(first, first + partition.n_rows, dtype=np.uint64) + _ROW_TAG)
    name = np.frombuffer(partition.name.encode(), np.uint8)
    return mix(rows ^ _hash_bytes(name, np.array([0, len(name)])))


def mix(values: Any) -> Any:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection of 64 bits."""
    with np.errstate(over="ignore"):
        z = values + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
