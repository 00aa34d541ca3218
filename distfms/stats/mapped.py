"""Co-moments whose matrices are mapped files, for columns whose products exceed memory.

Their rows are worked on some at a time by the operations of `CoMoments`, so that values have the
bits that they would have in memory.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distfms.stats.comoments import CoMoments

#: Numbers of a matrix that are in memory at a time.
BLOCK_VALUES = 2**21
#: Ends the names of mapped files.
SUFFIX = ".mapped"
_MATRICES = ("comoment", "pair_weight", "cross", "cross_columns")


def mapped_room(shape: tuple[int, ...], folder: str | os.PathLike[str]) -> np.memmap:
    """Return zeros in a new file of a folder, which is removed with the array."""
    handle, name = tempfile.mkstemp(SUFFIX, dir=folder)
    os.close(handle)
    array = np.memmap(name, dtype=np.float64, mode="w+", shape=shape)
    weakref.finalize(array, Path(name).unlink, missing_ok=True)
    return array


def room_like(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return room for float64 where an array is: in memory, or in the folder of its file."""
    if not isinstance(array, np.memmap):
        return np.empty(shape)
    return mapped_room(shape, Path(str(array.filename)).parent)


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Cut the rows of a matrix into blocks of about `BLOCK_VALUES` numbers."""
    step = max(1, BLOCK_VALUES // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


@dataclass(frozen=True, eq=False)
class MappedCoMoments(CoMoments):
    """Co-moments of all columns in mapped files."""

    def part(self, rows: slice) -> CoMoments:
        """Return some rows of the matrices."""
        arrays: dict[str, Any] = {}
        for name in _MATRICES:
            matrix = getattr(self, name)
            if matrix is not None:
                arrays[name] = np.asarray(matrix[rows])
        if self.pair_weight is not None:
            arrays["observed"] = self.observed_weight
        arrays |= {"start": rows.start, "unit": self.unit}
        return CoMoments(self.n_samples, self.weight, self.mean, **arrays)

    def merge(self, later: CoMoments) -> CoMoments:
        """Co-moments of the rows of data of both; see `CoMoments.merge`."""
        if not later.n_samples:
            return self
        if not self.n_samples:
            return later
        assert isinstance(later, MappedCoMoments)
        merged = Assembly(Path(str(self.comoment.filename)).parent)  # type: ignore[attr-defined]
        for rows in row_blocks(self.n_columns, self.n_columns):
            merged.add(self.part(rows).merge(later.part(rows)))
        return merged.value()


class Assembly:
    """Puts rows of co-moments together, in mapped files of a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder
        self._matrices: dict[str, np.memmap] = {}
        self._last = CoMoments.empty(0)

    def add(self, part: CoMoments) -> None:
        """Write some rows of the matrices."""
        for name in _MATRICES:
            rows = getattr(part, name)
            if rows is None:
                continue
            if name not in self._matrices:
                shape = part.n_columns, part.n_columns
                self._matrices[name] = mapped_room(shape, self._folder)
            self._matrices[name][part.rows] = rows
        self._last = part

    def value(self) -> MappedCoMoments:
        """Return the co-moments, all of whose rows were added."""
        last = self._last
        observed = None if last.pair_weight is None else last.observed_weight
        matrices: dict[str, Any] = dict(self._matrices)
        return MappedCoMoments(
            last.n_samples, last.weight, last.mean, observed=observed, unit=last.unit, **matrices
        )
