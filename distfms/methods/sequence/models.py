"""At which prefixes of a sequence models are fitted, what they offer, and linear ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from distfms.stats.base import Fields

#: Number of groups up to which every prefix is one, and what each is multiplied by for the next.
_EACH, _STEP = 10, 1.125


@dataclass(frozen=True)
class Ladder:
    """Prefixes with models of their own; the whole sequence is always one of them.

    `prefixes` are numbers of groups, ``all``, or ``auto``: 1 to 12, 14, 16, 18, 20, 22, …, each
    1.125 times the one before. With `costs` they are the longest that each of these affords.
    """

    prefixes: Literal["auto", "all"] | tuple[int, ...] = "auto"
    costs: tuple[float, ...] | None = None

    def ends_at(self, length: int, n_groups: int, spent: float, cost: float) -> bool:
        """Return whether a prefix of so many groups, with its cost and that of the next, is one."""
        if self.costs is None:
            return length in self.numbers(n_groups)
        within = np.array(self.costs) * (1 + 1e-12)
        return bool(((within >= spent) & (within < spent + cost)).any())

    def of_path(self, spent: np.ndarray) -> list[int]:
        """Return the numbers of groups of the prefixes of a sequence, from their costs (K,)."""
        n_groups, costs = len(spent), np.diff(spent, append=np.inf)
        steps = enumerate(zip(spent, costs, strict=True), 1)
        return [k for k, (s, c) in steps if k == n_groups or self.ends_at(k, n_groups, s, c)]

    def numbers(self, n_groups: int) -> list[int]:
        """Return the numbers of groups, of so many in all."""
        if self.prefixes == "all":
            return list(range(1, n_groups + 1))
        if self.prefixes != "auto":
            return sorted({n for n in self.prefixes if n < n_groups} | {n_groups})
        found, rung = [], 1
        while rung < n_groups:
            found.append(rung)
            rung = rung + 1 if rung < _EACH else round(_STEP * rung)
        return [*found, n_groups]


class PrefixModels(Protocol):
    """Models of some prefixes of one sequence, M of them, the first that of no group.

    What they return are scores: what the family's mean response makes a prediction of.
    """

    kind: ClassVar[str]
    #: What missing values are taken for.
    gaps: ClassVar[str]

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
    gaps: ClassVar[str] = "replaced with the training mean"
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
