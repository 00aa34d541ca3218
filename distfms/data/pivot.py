"""Long judgments to wide ones, for as many objects as fit in memory, sorted by way of files."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distfms.data.columns import as_floats, number_view
from distfms.data.folds import GOLDEN, mix
from distfms.data.write import writing_to
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Duplicates = Literal["error", "keep", "first"]

#: Values of a run that are remembered, to cut the whole into ranges.
_SAMPLES = 64


@dataclass(frozen=True)
class Cells:
    """Judgments ordered by object, then attribute, then place in the source.

    Attributes
    ----------
    ids : pyarrow.Array, length n_objects
        Ascending.
    objects, attributes : ndarray of int64, shape (n,)
        Position of each judgment's object in `ids`, and its attribute's code.
    values : ndarray of float64, shape (n,)
    labels : ndarray of float64, shape (n,), or None
        NaN where there is none.
    workers : ndarray of int64, shape (n,), or None
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
    def from_table(cls, table: pa.Table) -> Cells:
        """Sort long rows with the columns object, attribute, value and maybe label and worker."""
        import pyarrow.compute as pc

        table = table.combine_chunks()
        found = table.column("object").chunk(0).dictionary_encode()
        ascending = pc.sort_indices(found.dictionary)
        rank = np.argsort(number_view(ascending))
        cells = cls(
            ids=found.dictionary.take(ascending),
            objects=rank[number_view(found.indices)],
            attributes=number_view(table.column("attribute").chunk(0)),
            values=number_view(table.column("value").chunk(0)),
        )
        if "label" in table.column_names:
            cells = replace(cells, labels=as_floats(table.column("label").chunk(0)))
        if "worker" in table.column_names:
            workers = table.column("worker").chunk(0).dictionary_encode()
            codes = np.nan_to_num(as_floats(workers.indices), nan=-1.0).astype(np.int64)
            cells = replace(cells, workers=codes, worker_names=workers.dictionary)
        return cells.take(np.lexsort((cells.attributes, cells.objects)))

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


def list_columns(cells: Cells, attributes: Sequence[int]) -> tuple[list[pa.Array], list[pa.Array]]:
    """Return a column of lists for each attribute code, and one of its workers where they are told.

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
    return judged, judges


# --- rows beyond memory -------------------------------------------------------------------------


class SortedRuns:
    """Rows in sorted files below `folder`, read back in ranges of their key.

    Rows of equal key stay in the order in which they came, whatever the number `run_rows` of rows
    that are held before they are sorted and written. The key has no nulls.
    """

    def __init__(self, folder: Path, key: str, run_rows: int) -> None:
        self.n_rows = 0
        self._folder = folder
        self._key = key
        self._run_rows = run_rows
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self._files: list[Path] = []
        self._sample: list[Any] = []

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        self.n_rows += table.num_rows
        self._pending.append(table)
        self._n_pending += table.num_rows
        if self._n_pending >= self._run_rows:
            self._end_run()

    def ranges(self, rows: int) -> Iterator[pa.Table]:
        """Yield all rows by ascending ranges of the key, about `rows` at a time.

        A key is in one range only, and the rows of a range are not sorted.
        """
        if self._pending:
            self._end_run()
        n_ranges = -(-self.n_rows // rows)
        sample = sorted(self._sample)
        cuts = dict.fromkeys(sample[k * len(sample) // n_ranges] for k in range(1, n_ranges))
        starts = [0] * len(self._files)
        for cut in (*cuts, None):
            yield self._range(starts, cut)

    def _end_run(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.concat_tables(self._pending)
        self._pending, self._n_pending = [], 0
        table = table.take(pc.sort_indices(table.column(self._key)))
        # As many rows stand for each value of the sample, also where the last run is short.
        every = np.arange(0, table.num_rows, max(1, self._run_rows // _SAMPLES))
        self._sample += table.column(self._key).take(pa.array(every)).to_pylist()
        path = self._folder / f"{len(self._files):05d}.arrow"
        with writing_to(self._folder), pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
        self._files.append(path)

    def _range(self, starts: list[int], cut: Any) -> pa.Table:
        """Read the rows of each run from its start to the cut, which becomes its start."""
        import pyarrow as pa

        pieces = []
        for number, path in enumerate(self._files):
            with pa.memory_map(str(path)) as handle:
                table = pa.ipc.open_file(handle).read_all()
                keys = table.column(self._key)
                stop = table.num_rows
                if cut is not None:
                    stop = bisect_left(keys, cut, key=lambda value: value.as_py())
                pieces.append(table.slice(starts[number], stop - starts[number]))
                starts[number] = stop
        return pa.concat_tables(pieces)
