"""Named sums over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Sums:
    """Named sums over rows; a mergeable statistic."""

    arrays: Mapping[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def merge(self, later: Sums) -> Sums:
        """Add the sums of other rows; a name that one side lacks counts as nothing there."""
        merged = dict(self.arrays)
        for name, array in later.arrays.items():
            merged[name] = merged[name] + array if name in merged else array
        return Sums(merged)

    def scaled(self, factor: float) -> Sums:
        """Multiply the sums, but not the counts, by `factor`."""
        sums = {}
        for name, array in self.arrays.items():
            is_count = array.dtype.kind in "iu"
            sums[name] = array if is_count else array * factor
        return Sums(sums)
