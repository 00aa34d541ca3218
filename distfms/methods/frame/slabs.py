"""Columns in slabs: the same search in one process and with the columns spread over actors.

A search keeps a state for each slab, a run of columns that is cut the same way whoever holds it.
Each step tells all slabs what was chosen last, in a few numbers for each chosen column, and every
slab answers with its best candidates, among which the driver picks. As each slab does the same
operations on an actor as in the driver's process, the result is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.stats.codec import load
from distfms.store.places import Location, open_binary

Arrays = Mapping[str, np.ndarray]
#: Where the arrays of a slab are.
Place = Location | Arrays

#: Columns of a slab. It decides about the last bits of a result, and so depends on nothing.
SLAB_COLUMNS = 2048


@dataclass(frozen=True)
class StoredMatrix:
    """Rows of a matrix in the file of a slab's step, for an actor on any node to load."""

    location: Place
    name: str

    def load(self) -> np.ndarray:
        """Read the array."""
        return load_arrays(self.location)[self.name]


def load_arrays(place: Place) -> dict[str, np.ndarray]:
    """Read the arrays of a slab, on an actor, into memory of their own."""
    if isinstance(place, Mapping):
        return {name: array.copy() for name, array in place.items()}
    with open_binary(place) as stream:
        arrays: dict[str, np.ndarray] = load(stream)["slab"]
    return arrays
