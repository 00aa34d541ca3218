"""What models of the prefixes of a sequence offer, and linear ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from distfms.stats.base import Fields


class PrefixModels(Protocol):
    """Models of some prefixes of one sequence, M of them, the first that of no group.

    What they return are scores: what the family's mean response makes a prediction of.
    """

    kind: ClassVar[str]

    def __len__(self) -> int: ...

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row."""

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the scores (n, M, P) of rows by all models, from all their features (D, n)."""

    def score(self, number: int, columns: Sequence[int], values: np.ndarray) -> np.ndarray:
        """Return the scores (n, P) by one model, from values (n, u) of the columns it reads."""

    def only(self, numbers: Sequence[int] | np.ndarray) -> Self:
        """Return some of the models."""

    def joined(self, others: Sequence[Any]) -> Self:
        """Return these models and then those of others of the same data."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all there is to store, as named arrays."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of `to_arrays`."""


@dataclass(frozen=True, eq=False)
class LinearModels(Fields):
    """Linear models; a missing value is taken for the training mean.

    Attributes
    ----------
    coefficients : numpy.ndarray of shape (M, D, P)
        In original units.
    intercept : numpy.ndarray of shape (M, P)
    fill : numpy.ndarray of shape (D,)
        The training means.
    """

    kind: ClassVar[str] = "linear"
    coefficients: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray

    def __len__(self) -> int:
        return len(self.intercept)

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row."""
        return int(self.intercept.shape[1])

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the scores (n, M, P) of rows, from their features (D, n)."""
        n_models, n_features, n_outputs = self.coefficients.shape
        flat = self.coefficients.transpose(1, 0, 2).reshape(n_features, -1)
        filled = np.where(np.isnan(features), self.fill[:, np.newaxis], features)
        return np.asarray((filled.T @ flat).reshape(-1, n_models, n_outputs) + self.intercept)

    def score(self, number: int, columns: Sequence[int], values: np.ndarray) -> np.ndarray:
        """Return the scores (n, P) by one model, from values (n, u) of the columns it reads."""
        own = list(columns)
        if np.isnan(values).any():
            values = np.where(np.isnan(values), self.fill[own], values)
        return np.asarray(values @ self.coefficients[number][own] + self.intercept[number])

    def only(self, numbers: Sequence[int] | np.ndarray) -> LinearModels:
        """Return some of the models."""
        return LinearModels(self.coefficients[numbers], self.intercept[numbers], self.fill)

    def joined(self, others: Sequence[LinearModels]) -> LinearModels:
        """Return these models and then those of others of the same data."""
        coefficients = np.concatenate([own.coefficients for own in (self, *others)])
        intercept = np.concatenate([own.intercept for own in (self, *others)])
        return LinearModels(coefficients, intercept, self.fill)
