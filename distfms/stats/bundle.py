"""Several statistics of the same rows, computed in one pass and merged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.stats.base import Folded, Statistic, below

SEPARATOR = "/"


@dataclass(frozen=True)
class Bundle:
    """Named per-fold statistics of one partition, or of any merge of partitions.

    Bundles merge when they have the same names.
    """

    members: Mapping[str, Folded[Any]]

    def __getitem__(self, name: str) -> Folded[Any]:
        """Statistic with the given name."""
        return self.members[name]

    def merge(self, other: Bundle) -> Bundle:
        """Merge member by member; a ValueError says that these differ."""
        if self.members.keys() != other.members.keys():
            raise ValueError(f"bundles of {sorted(self.members)} and {sorted(other.members)}")
        return Bundle({name: part.merge(other[name]) for name, part in self.members.items()})

    def scaled(self, factor: float) -> Bundle:
        """Multiply the weight of every row by `factor` > 0 (decay)."""
        return Bundle({name: part.scaled(factor) for name, part in self.members.items()})

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All members' arrays under ``name/…``."""
        return {
            f"{name}{SEPARATOR}{key}": array
            for name, part in self.members.items()
            for key, array in part.to_arrays().items()
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], part_types: Mapping[str, type[Statistic]]
    ) -> Bundle:
        """Inverse of :meth:`to_arrays`; `part_types` are the classes of the members' parts."""
        return cls(
            {
                name: Folded.from_arrays(below(name + SEPARATOR, arrays), part_type)
                for name, part_type in part_types.items()
            }
        )
