"""Judgments of a block of objects in memory, and what an estimator asks of one block.

Pure: from arrays and nested lists to :class:`~distfms.stats.ragged.Ragged`, and from those to
statistics, averages, predictions and plans. The functions of a block are picklable values, so that
they may run wherever the block is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from distfms.errors import DataError
from distfms.methods.multiselect.model import (
    LinearModel,
    RefitStatistics,
    predict,
    refit_statistics,
)
from distfms.methods.multiselect.plan import AcquisitionPlan, acquisition_plan
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged

#: What may hold the judgments of one object and attribute in a nested list.
_LISTS = (list, tuple, np.ndarray)


@dataclass(frozen=True, eq=False)
class ObjectBlock:
    """Judgments of some objects.

    Attributes
    ----------
    attributes : tuple of Ragged, length d
    n_objects : int
    names : tuple of str, length d, or None
        Names of the attributes where the data name them.
    label, weight : ndarray of shape (n_objects,), or None
    ids : ndarray of shape (n_objects,), or None
        Identifiers of the objects where the data have some.
    """

    attributes: tuple[Ragged, ...]
    n_objects: int
    names: tuple[str, ...] | None = None
    label: np.ndarray | None = None
    weight: np.ndarray | None = None
    ids: np.ndarray | None = None

    def take(self, attributes: np.ndarray | None) -> ObjectBlock:
        """Return the block of some attributes, by position; None for all."""
        if attributes is None:
            return self
        names = None if self.names is None else tuple(self.names[a] for a in attributes)
        return replace(self, attributes=tuple(self.attributes[a] for a in attributes), names=names)


# --- from arrays and lists ----------------------------------------------------------------------


def is_nested(X: Any) -> bool:
    """Tell whether objects × attributes hold lists of judgments rather than numbers.

    Parameters
    ----------
    X : object
        True only for lists, tuples and object arrays with a list, tuple or array in some cell.
    """
    if isinstance(X, np.ndarray):
        return X.dtype == object and X.ndim == 2 and _any_list(X)
    return isinstance(X, (list, tuple)) and _any_list(X)


def _any_list(rows: Any) -> bool:
    return any(isinstance(c, _LISTS) for row in rows if isinstance(row, _LISTS) for c in row)


def from_nested(X: Sequence[Sequence[Any]]) -> ObjectBlock:
    """Read ragged lists: objects × attributes × judgments.

    Parameters
    ----------
    X : sequence of length n of sequences of length d
        Each cell is a sequence of numbers, one number, or None for no judgment; NaN and None
        inside a cell stand for a judgment that was not made.

    Returns
    -------
    ObjectBlock

    Raises
    ------
    DataError
        If objects differ in their number of attributes, or a cell holds something else.
    """
    d = len(X[0])
    for i, row in enumerate(X):
        if len(row) != d:
            raise DataError(f"Object {i} has {len(row)} attributes, but object 0 has {d}.")
    return ObjectBlock(tuple(_nested_attribute(X, a) for a in range(d)), len(X))


def _nested_attribute(X: Sequence[Sequence[Any]], attribute: int) -> Ragged:
    cells: list[Any] = []
    for i, row in enumerate(X):
        cell = row[attribute]
        try:
            cells.append(np.asarray(() if cell is None else cell, dtype=np.float64).ravel())
        except (TypeError, ValueError) as error:
            raise DataError(
                f"The judgments of object {i}, attribute {attribute}, are {cell!r}; they must be "
                "numbers, or a list of numbers."
            ) from error
    return without_missing(Ragged.from_lists(cells))


def without_missing(ragged: Ragged) -> Ragged:
    """Leave out NaN: judgments that were not made.

    Parameters
    ----------
    ragged : Ragged

    Returns
    -------
    Ragged
    """
    content = ragged.content()
    absent = np.isnan(content)
    if not absent.any():
        return ragged
    present_before = np.concatenate([[0], np.cumsum(~absent)])
    return Ragged(content[~absent], present_before[ragged.offsets - ragged.offsets[0]])


def from_array(values: np.ndarray) -> ObjectBlock:
    """Read an array of judgments.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d) or (n, d, k)
        One judgment, or up to k, of each object and attribute; NaN for none.

    Returns
    -------
    ObjectBlock

    Raises
    ------
    DataError
        If it has another number of dimensions.
    """
    if values.ndim not in (2, 3):
        raise DataError(
            f"Judgments have {values.ndim} dimensions; they need 2 (objects, attributes) or 3 "
            "(objects, attributes, judgments)."
        )
    n, d = values.shape[:2]
    table = values.reshape(n, d, -1)
    return ObjectBlock(tuple(Ragged.from_matrix(table[:, a]) for a in range(d)), n)


def from_ragged(attributes: Sequence[Ragged]) -> ObjectBlock:
    """Take judgments as they are kept inside: one `Ragged` per attribute.

    Parameters
    ----------
    attributes : sequence of Ragged, length d ≥ 1

    Returns
    -------
    ObjectBlock

    Raises
    ------
    DataError
        If attributes have different numbers of objects.
    """
    n = attributes[0].n_rows
    for a, ragged in enumerate(attributes):
        if ragged.n_rows != n:
            raise DataError(f"Attribute {a} has {ragged.n_rows} objects, but attribute 0 has {n}.")
    return ObjectBlock(tuple(without_missing(ragged) for ragged in attributes), n)


def check_finite(block: ObjectBlock) -> ObjectBlock:
    """Return the block, refusing infinite judgments.

    Parameters
    ----------
    block : ObjectBlock

    Raises
    ------
    DataError
        Naming the attribute.
    """
    for a, ragged in enumerate(block.attributes):
        n_infinite = int(np.isinf(ragged.content()).sum())
        if n_infinite:
            name = f"number {a}" if block.names is None else repr(block.names[a])
            raise DataError(
                f"The attribute {name} has {n_infinite} infinite judgments; leave them out."
            )
    return block


# --- what is asked of a block -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Summary:
    """A statistic together with the names of the attributes it is of.

    Attributes
    ----------
    names : tuple of str, or None
    value : Statistic
    """

    names: tuple[str, ...] | None
    value: Any

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both sets of objects.

        Raises
        ------
        DataError
            If they are of different attributes.
        """
        if self.names != other.names:
            raise DataError(
                "The partitions hold different attributes: "
                f"{', '.join(self.names or ('unnamed',))} in one, "
                f"{', '.join(other.names or ('unnamed',))} in another."
            )
        return Summary(self.names, self.value.merge(other.value))


@dataclass(frozen=True, eq=False)
class Summarise:
    """Picklable function from a block to the summary of some attributes.

    Attributes
    ----------
    statistic : callable
        From a block to a statistic.
    attributes : ndarray of int, or None
        Positions; None for all.
    """

    statistic: Callable[[ObjectBlock], Any]
    attributes: np.ndarray | None = None

    def __call__(self, block: ObjectBlock) -> Summary:
        """Summarise the block."""
        taken = block.take(self.attributes)
        return Summary(taken.names, self.statistic(taken))


def judgment_statistics(block: ObjectBlock) -> JudgmentStatistics:
    """Summarise judgments and labels of a block, for the estimates that selection works on."""
    return JudgmentStatistics.from_block(block.attributes, _label(block), block.weight)


@dataclass(frozen=True, eq=False)
class AverageStatistics:
    """Picklable function from a block of d attributes to the statistics of a refit.

    Attributes
    ----------
    repeats : ndarray of int, shape (d,)
    """

    repeats: np.ndarray

    def __call__(self, block: ObjectBlock) -> RefitStatistics:
        """Summarise averages and labels of the block."""
        return refit_statistics(block.attributes, _label(block), self.repeats, block.weight)


def _label(block: ObjectBlock) -> np.ndarray:
    if block.label is None:
        raise DataError("The objects have no labels.")
    return block.label


@dataclass(frozen=True, eq=False)
class Averages:
    """Picklable function from a block of d attributes to averages of the first judgments.

    Attributes
    ----------
    repeats : ndarray of int, shape (d,)
        At least 1.
    means : ndarray of shape (d,)
        Taken where an object has no judgment.
    """

    repeats: np.ndarray
    means: np.ndarray

    def __call__(self, block: ObjectBlock) -> np.ndarray:
        """Return the averages, shape (n, d)."""
        out = np.empty((block.n_objects, self.repeats.size))
        for a, ragged in enumerate(block.attributes):
            column = ragged.first(int(self.repeats[a])).means()
            out[:, a] = np.where(np.isnan(column), self.means[a], column)
        return out


@dataclass(frozen=True, eq=False)
class Predictions:
    """Picklable function from a block to predicted labels.

    Attributes
    ----------
    model : LinearModel
        Of the attributes of the block.
    """

    model: LinearModel

    def __call__(self, block: ObjectBlock) -> np.ndarray:
        """Return the predictions, shape (n,)."""
        if not block.attributes:
            return np.full(block.n_objects, self.model.intercept)
        return predict(self.model, block.attributes).values

    def beside_labels(self, block: ObjectBlock) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return labels, predictions and weights, each of shape (n,)."""
        weight = np.ones(block.n_objects) if block.weight is None else block.weight
        return _label(block), self(block), weight


@dataclass(frozen=True, eq=False)
class Plans:
    """Picklable function from a block of d attributes to its acquisition plan.

    Attributes
    ----------
    repeats : ndarray of int, shape (d,)
    costs : ndarray of shape (d,)
    names : tuple of str, length d
    by_position : bool
        Name objects by their position in the block even where they have an id.
    """

    repeats: np.ndarray
    costs: np.ndarray
    names: tuple[str, ...]
    by_position: bool = False

    def __call__(self, block: ObjectBlock) -> BlockPlan:
        """Return the plan of the block."""
        ids = None if self.by_position else block.ids
        counts = np.array([r.counts() for r in block.attributes], dtype=np.int64)
        table = counts.reshape(self.repeats.size, block.n_objects).T
        plan = acquisition_plan(table, self.repeats, self.costs, self.names, ids)
        return BlockPlan(plan, block.n_objects, ids is None)


class BlockPlan(NamedTuple):
    """Acquisition plan of a block.

    Attributes
    ----------
    plan : AcquisitionPlan
    n_objects : int
        Of the block.
    by_position : bool
        Whether objects are named by their position in the block.
    """

    plan: AcquisitionPlan
    n_objects: int
    by_position: bool
