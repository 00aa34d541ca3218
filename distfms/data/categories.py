"""Levels of categorical columns, found by one pass that merges like any statistic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import as_floats
from distfms.data.roles import Roles, is_categorical
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.dataset import PartitionReader
    from distfms.data.partition import Partition

MAX_LEVELS = 1000
"""Most levels that a column may have by default."""


@dataclass(frozen=True)
class Categories:
    """Sorted levels (by code points) of each categorical column; a mergeable statistic."""

    levels: Mapping[str, tuple[str, ...]]
    max_levels: int = MAX_LEVELS

    def merge(self, other: Categories) -> Categories:
        """Unite the levels of two parts of the data; too many of a column are refused."""
        names = dict.fromkeys((*self.levels, *other.levels))
        united = {
            name: tuple(sorted({*self.levels.get(name, ()), *other.levels.get(name, ())}))
            for name in names
        }
        for name, levels in united.items():
            _check_levels(name, levels, self.max_levels)
        return Categories(united, self.max_levels)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the levels as arrays that need no pickle."""
        arrays = {"max_levels": np.array(self.max_levels)}
        for name, levels in self.levels.items():
            text = "".join(levels).encode()
            arrays[f"text:{name}"] = np.frombuffer(text, dtype=np.uint8)
            ends = np.cumsum([len(level.encode()) for level in levels], dtype=np.int64)
            arrays[f"ends:{name}"] = ends
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Categories:
        """Rebuild from :meth:`to_arrays`."""
        levels = {}
        for key in arrays:
            if key.startswith("ends:"):
                name = key.removeprefix("ends:")
                text = arrays[f"text:{name}"].tobytes()
                bounds = [0, *arrays[key].tolist()]
                pairs = itertools.pairwise(bounds)
                levels[name] = tuple(text[lo:hi].decode() for lo, hi in pairs)
        return cls(levels, int(arrays["max_levels"]))


def categorical_columns(schema: pa.Schema, roles: Roles) -> tuple[str, ...]:
    """Return the features that are categories, in the order of the features."""
    return tuple(name for name in roles.features if is_categorical(schema.field(name).type))


def text_targets(schema: pa.Schema, roles: Roles) -> tuple[str, ...]:
    """Return the targets that are categories."""
    return tuple(name for name in roles.target if is_categorical(schema.field(name).type))


def scan_categories(
    partition: Partition,
    reader: PartitionReader,
    columns: Sequence[str],
    max_levels: int = MAX_LEVELS,
) -> Categories:
    """Find the levels of columns in one partition; too many of a column are refused."""
    levels: dict[str, tuple[str, ...]] = {}
    for table in reader.column_tables(partition.loaded(), columns):
        for name in table.column_names:
            levels[name] = _distinct(table.column(name))
            _check_levels(name, levels[name], max_levels)
    return Categories(levels, max_levels)


def _check_levels(name: str, levels: Sequence[str], max_levels: int) -> None:
    if len(levels) > max_levels:
        raise DataError(
            f"The categorical column {name!r} has more than {max_levels} levels: it looks like an "
            f"identifier or free text. Leave it out with `exclude: [{name}]`, or make it a number "
            "or a coarser category."
        )


def level_codes(column: Any, levels: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return the position of each value of a column of strings among ascending levels.

    Returns
    -------
    codes : ndarray of int32, shape (n,)
        −1 for missing, −2 for values that are no level.
    unknown : list of str
        Values that occur and are no level, ascending.
    """
    position = {level: code for code, level in enumerate(levels)}
    codes, unknown = [np.zeros(0, dtype=np.int32)], set()
    for chunk in column.chunks:
        texts, indices = _encode(chunk)
        known = [-1 if text is None else position.get(text, -2) for text in texts]
        lookup = np.array([*known, -1], dtype=np.int32)
        codes.append(lookup[indices])
        unknown |= {texts[i] for i in np.unique(indices[codes[-1] == -2]).tolist()}
    return np.concatenate(codes), sorted(unknown)


def _encode(chunk: Any) -> tuple[list[str | None], np.ndarray]:
    """Dictionary-encode a chunk: texts, and an index a row (−1 for missing)."""
    import pyarrow as pa
    import pyarrow.types as pat

    encoded = chunk if pat.is_dictionary(chunk.type) else chunk.dictionary_encode()
    texts = encoded.dictionary.cast(pa.string()).to_pylist()
    indices = np.nan_to_num(as_floats(encoded.indices), nan=-1.0).astype(np.int64)
    return texts, indices


def _distinct(column: Any) -> tuple[str, ...]:
    """Return the values that occur, sorted; unused dictionary entries are no levels."""
    found: set[str] = set()
    for chunk in column.chunks:
        texts, indices = _encode(chunk)
        used = (texts[i] for i in np.unique(indices[indices >= 0]).tolist())
        found.update(text for text in used if text is not None)
    return tuple(sorted(found))
