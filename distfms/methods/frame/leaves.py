"""Rows in leaves: which of several models a row belongs to, by a few of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.data.rows.batches import RowBatch
from distfms.stats.base import Fields


@dataclass(frozen=True, eq=False)
class Router(Fields):
    """Sends a row to the leaf of the greatest score, of equal ones the first.

    A score is linear in what the values exceed `centre` by; what is missing does not exceed it.
    Levels of a category are told apart by their own indicators, bins of a number with the edges e
    by j x − e₁ − … − eⱼ, clusters with the centres c by c·x − ‖c‖²/2.

    Attributes
    ----------
    names : numpy.ndarray of str, shape (d,)
        Rows of a batch that decide.
    centre : numpy.ndarray of shape (d,)
    weights : numpy.ndarray of shape (L, d)
    offset : numpy.ndarray of shape (L,)
    """

    names: np.ndarray
    centre: np.ndarray
    weights: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    def leaf_of(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the leaf (n,) of each row, from values by name of a batch's row.

        Added up column by column, so that other rows do not change the bits.
        """
        scores = self.offset[:, np.newaxis]
        for name, centre, weights in zip(self.names, self.centre, self.weights.T, strict=True):
            excess = np.asarray(values[str(name)]) - centre
            excess = np.where(np.isnan(excess), 0.0, excess)
            scores = scores + weights[:, np.newaxis] * excess
        return np.asarray(scores.argmax(axis=0))

    def of_batch(self, batch: RowBatch) -> np.ndarray:
        """Return the leaf (n,) of each row of a batch."""
        return self.leaf_of(dict(zip(batch.names, batch.values, strict=True)))


@dataclass(frozen=True, eq=False)
class Leaf:
    """The rows that a router sends to one of its leaves."""

    router: Router
    number: int

    def of_batch(self, batch: RowBatch) -> RowBatch:
        """Return the rows of a batch that are in the leaf."""
        return batch.kept(self.router.of_batch(batch) == self.number)

    def key(self) -> list[object]:
        """Plain values that tell these rows from others."""
        arrays = self.router.to_arrays().values()
        return [self.number, *(array.tolist() for array in arrays)]
