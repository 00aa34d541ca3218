"""Long judgments to wide ones, of as many objects as fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from distfms.data.columns import as_floats, number_view
from distfms.data.folds import GOLDEN, mix
from distfms.data.long_source import whole
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Duplicates = Literal["error", "keep", "first"]


@dataclass(frozen=True)
class Cells:
    """Judgments ordered by object, then attribute, then place in the source.

    Attributes
    ----------
    ids : pyarrow.Array, length n_objects
        Ascending.
    objects, attributes : ndarray of int32, shape (n,)
        Position of each judgment's object in `ids`, and its attribute's code.
    values : ndarray of float64, shape (n,)
    labels : ndarray of float64, shape (n,), or None
        NaN where there is none.
    workers : ndarray of int32, shape (n,), or None
        Position of each judgment's worker in `worker_names`, −1 for unknown.
    """

    ids: pa.Array
    objects: np.ndarray
    attributes: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None = None
    workers: np.ndarray | None = None
    worker_names: pa.Array | None = None

    @classmethod
    def from_table(cls, table: pa.Table, ids: pa.Array) -> Cells:
        """Sort long rows with the columns object, attribute, value and maybe label and worker.

        Objects and attributes are positions.
        """
        columns = {name: whole(table.column(name)) for name in table.column_names}
        objects, attributes, values = (
            number_view(columns[role]) for role in ("object", "attribute", "value")
        )
        cells = cls(ids, objects, attributes, values)
        if "label" in columns:
            cells = replace(cells, labels=as_floats(columns["label"]))
        if "worker" in columns:
            workers = columns["worker"].dictionary_encode()
            codes = number_view(workers.indices.fill_null(-1))
            cells = replace(cells, workers=codes, worker_names=workers.dictionary)
        return cells.take(np.lexsort((attributes, objects)))

    def take(self, rows: np.ndarray) -> Cells:
        """Return some judgments, by position or mask; the objects stay."""
        return replace(
            self,
            objects=self.objects[rows],
            attributes=self.attributes[rows],
            values=self.values[rows],
            labels=None if self.labels is None else self.labels[rows],
            workers=None if self.workers is None else self.workers[rows],
        )

    def places(self) -> np.ndarray:
        """Return the position of each judgment within its (object, attribute) cell, from 0."""
        first = ~_repeats(self.objects, self.attributes)
        starts = np.flatnonzero(first)
        return np.arange(len(first)) - starts[np.cumsum(first) - 1]


def _repeats(*keys: np.ndarray) -> np.ndarray:
    """Mark the positions where all keys are those of the position before."""
    repeated = np.zeros(len(keys[0]), dtype=bool)
    repeated[1:] = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    return repeated


def drop_duplicates(cells: Cells, names: Sequence[str], policy: Duplicates) -> tuple[Cells, int]:
    """Deal with a worker's second judgment of one attribute of one object.

    Returns the cells, and how many such judgments there are (``keep``) or were dropped (``first``).
    A missing worker is nobody's second judgment; `names` are the attributes by code.
    """
    if cells.workers is None or cells.worker_names is None:
        return cells, 0
    order = np.lexsort((cells.workers, cells.attributes, cells.objects))
    duplicate = np.zeros(len(order), dtype=bool)
    duplicate[order] = _repeats(
        *(k[order] for k in (cells.workers, cells.attributes, cells.objects))
    )
    duplicate &= cells.workers >= 0
    n_duplicates = int(np.count_nonzero(duplicate))
    if n_duplicates == 0 or policy == "keep":
        return cells, n_duplicates
    if policy == "error":
        row = int(np.argmax(duplicate))
        raise DataError(
            f"rater {cells.worker_names[cells.workers[row]].as_py()!r} judged attribute "
            f"{names[cells.attributes[row]]!r} of object {cells.ids[cells.objects[row]].as_py()!r} "
            "more than once: choose `duplicates: first` to keep the first, or `keep` for all."
        )
    return cells.take(~duplicate), n_duplicates


def mean_label(cells: Cells, attribute: int) -> np.ndarray:
    """Return the mean judgment of one attribute of each object, NaN where there is none."""
    own = cells.attributes == attribute
    n_objects = len(cells.ids)
    totals = np.bincount(cells.objects[own], weights=cells.values[own], minlength=n_objects)
    counts = np.bincount(cells.objects[own], minlength=n_objects)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def column_label(cells: Cells, attribute: int | None, name: str) -> np.ndarray:
    """Return the label of each object that stands next to its judgments, NaN where there is none.

    Only judgments of `attribute`, unless None, carry the label. Two labels of one object are
    refused.
    """
    assert cells.labels is not None
    own = ~np.isnan(cells.labels)
    if attribute is not None:
        own &= cells.attributes == attribute
    objects, labels = cells.objects[own], cells.labels[own]
    found = np.full(len(cells.ids), np.nan)
    found[objects] = labels
    other = found[objects] != labels
    if other.any():
        row = int(np.argmax(other))
        raise DataError(
            f"object {cells.ids[objects[row]].as_py()!r} has two labels in column {name!r}: "
            f"{labels[row]:g} and {found[objects[row]]:g}."
        )
    return found


def draw_judgments(cells: Cells, names: Sequence[str], most: int, seed: int) -> Cells:
    """Keep at most `most` judgments of a cell, drawn at random and left in source order.

    The choice depends on seed, object, attribute and place in the cell only, so it is the same
    however the objects are divided.
    """
    places = cells.places()
    ids = [str(name) for name in cells.ids.to_pylist()]
    tickets = _hashes(ids, seed)[cells.objects]
    tickets ^= _scramble(_hashes(names, seed + 1))[cells.attributes]
    with np.errstate(over="ignore"):
        tickets = _scramble(tickets + places.astype(np.uint64) * GOLDEN)
    drawn = np.empty_like(places)
    # Cells are contiguous in both orders, so the k-th place of a cell is its k-th ticket.
    drawn[np.lexsort((tickets, cells.attributes, cells.objects))] = places
    return cells.take(drawn < most)


def _hashes(names: Sequence[str], seed: int) -> np.ndarray:
    key = str(seed).encode()
    digests = [hashlib.blake2b(n.encode(), digest_size=8, key=key).digest() for n in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").copy()


def _scramble(values: np.ndarray) -> np.ndarray:
    """Return splitmix64's bijection without its first addition."""
    with np.errstate(over="ignore"):
        return mix(values - GOLDEN)


def list_columns(cells: Cells, attributes: Sequence[int]) -> list[pa.Array]:
    """Return a column of lists for each attribute code, then those of their workers if told.

    Lists are empty where nothing was judged.
    """
    import pyarrow as pa

    by_attribute = np.argsort(cells.attributes, kind="stable")
    codes, objects = cells.attributes[by_attribute], cells.objects[by_attribute]
    values, workers = pa.array(cells.values[by_attribute]), None
    if cells.workers is not None and cells.worker_names is not None:
        known = cells.workers[by_attribute]
        workers = cells.worker_names.take(pa.array(known, mask=known < 0))
    judged, judges = [], []
    for attribute in attributes:
        start, stop = np.searchsorted(codes, [attribute, attribute + 1]).tolist()
        counts = np.bincount(objects[start:stop], minlength=len(cells.ids))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        judged.append(pa.ListArray.from_arrays(offsets, values[start:stop]))
        if workers is not None:
            judges.append(pa.ListArray.from_arrays(offsets, workers[start:stop]))
    return judged + judges
