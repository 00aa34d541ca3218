"""Passes over the rows: moments and norms, a sample, and rows in the order of learning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Partition
from distfms.data.rows.batches import RowBatch
from distfms.data.rows.folds import mix
from distfms.errors import DataError
from distfms.methods.attribute_efficient.draws import LARGEST_VALUE, Draws
from distfms.methods.attribute_efficient.pairs import LEAST_FOLDS, Pairs, inner_folds
from distfms.methods.frame.read import sample_share
from distfms.methods.frame.rows import RowCounts, RowSource, SummaryReader
from distfms.stats.comoments import Moments

#: Most bytes of the rows that are put in order together; part of the result.
WINDOW_BYTES = 2**28


#: Rows, targets, and which of them in which order.
Ordered = tuple[np.ndarray, np.ndarray, np.ndarray]


def statistics_reader(
    source: RowSource, draws: Draws | None = None, n_rows: int = 0
) -> SummaryReader:
    """Return the reader of moments of features and the target, norms of rows, and counts.

    With `draws`, also of moments of what is ``observed`` of the rows, of its ``pairs`` by inner
    fold, and of a sample of the rows. Inner folds are the folds where there are some, else rows are
    divided by their keys; `n_rows` are there to be sampled.
    """
    if draws is None:
        return SummaryReader(source, "second moments", _summary)
    summarise = partial(_with_pairs, draws, source.section.folds >= LEAST_FOLDS)
    reader = SummaryReader(source, "pairs", summarise, {"draws": draws.key()})
    # Values that are not drawn of a row have no say in which rows are sampled.
    share = sample_share(n_rows, source.plan.n_features)
    return reader.sampled(share, by_values=False)


def _summary(batch: RowBatch, part: int) -> dict[str, Any]:
    rows = batch.part_slices[part]
    refuse_far(batch, rows)
    lengths = np.sqrt(np.nansum(batch.features[:, rows] ** 2, axis=0))
    return {
        "moments": Moments.from_block(batch.values[:, rows]),
        "norms": Moments.from_block(lengths[None]),
        "counts": RowCounts.from_block(batch, part),
    }


def _with_pairs(draws: Draws, on_folds: bool, batch: RowBatch, part: int) -> dict[str, Any]:
    summary = _summary(batch, part)
    rows = batch.part_slices[part]
    keys = batch.rows.keys[rows]  # hashes of ids, or numbers of rows
    drawn = draws.observe(batch.features[:, rows], keys)
    observed = np.vstack([drawn, batch.target[:1, rows]])
    pairs = Pairs({})
    if part < len(batch.part_slices) - 1:
        inner = np.full(len(keys), part) if on_folds else inner_folds(keys)
        pairs = Pairs.of(observed, inner)
    return {**summary, "observed": Moments.from_block(observed), "pairs": pairs}


def refuse_far(batch: RowBatch, rows: slice) -> None:
    """Refuse some rows if they hold values whose squares cannot be summed up."""
    largest = np.fmax.reduce(np.abs(batch.values[:, rows]), axis=1, initial=0.0)
    if (largest > LARGEST_VALUE).any():
        column = int(np.argmax(largest))
        raise DataError(
            f"The column {batch.names[column]!r} has values up to {largest[column]:.3g}, and those "
            f"beyond {LARGEST_VALUE:g} are too large to be squared: look for damaged values, or "
            "divide the column by a constant."
        )


def first_phase_reader(source: RowSource, draws: Draws) -> SummaryReader:
    """Return the reader of moments of what is observed of the rows of the first phase."""
    summarise = partial(_of_first_phase, draws)
    return SummaryReader(source, "first phase", summarise, {"draws": draws.key()})


def _of_first_phase(draws: Draws, batch: RowBatch, part: int) -> dict[str, Any]:
    rows = batch.part_slices[part]
    refuse_far(batch, rows)
    keys = batch.rows.keys[rows]
    return {"observed": draws.first_moments(batch.features[:, rows], keys)}


# --- rows to learn from -------------------------------------------------------------------------


#: Training rows that are put in order together: rows (n, d), targets, folds, and keys. A key, the
#: hash of a row's id or its number in the data, decides its place.
Window = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def row_bytes(n_attributes: int) -> int:
    """Return what a row of a window takes in memory."""
    return 8 * (n_attributes + 3)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows in the order of learning; picklable.

    A missing value is taken for `fill` (d,); `seed` decides which partitions share a window, and
    `keep` whether windows stay in memory.
    """

    source: RowSource
    partitions: tuple[Partition, ...]
    fill: np.ndarray
    seed: int
    keep: bool
    _kept: dict[int, Window] = field(default_factory=dict, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}}

    @property
    def n_bytes(self) -> int:
        """Bytes of all rows in memory."""
        return row_bytes(len(self.fill)) * sum(partition.n_rows for partition in self.partitions)

    def ordered(self, key: int, fold: int) -> Iterator[Ordered]:
        """Iterate over the rows without a fold, in random order within windows drawn at random."""
        windows = self.windows()
        hashes = mix(np.uint64(key) ^ np.arange(len(windows), dtype=np.uint64))
        for number in np.argsort(hashes).tolist():
            rows, target, part, keys = self.window(number, windows[number])
            order = np.argsort(mix(mix(np.uint64(key)) ^ keys), kind="stable")
            yield rows, target, order[part[order] != fold]

    def of_fold(self, fold: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Iterate over rows and targets of a fold."""
        for number, partitions in enumerate(self.windows()):
            rows, target, part, _ = self.window(number, partitions)
            yield rows[part == fold], target[part == fold]

    def windows(self) -> list[list[Partition]]:
        """Divide the partitions into windows."""
        hashes = mix(np.arange(len(self.partitions), dtype=np.uint64) ^ mix(np.uint64(self.seed)))
        windows: list[list[Partition]] = []
        room = 0
        for place in np.argsort(hashes).tolist():
            partition = self.partitions[place]
            n_bytes = row_bytes(len(self.fill)) * partition.n_rows
            if not windows or n_bytes > room:
                windows.append([])
                room = WINDOW_BYTES
            windows[-1].append(partition)
            room -= n_bytes
        return windows

    def window(self, number: int, partitions: Sequence[Partition]) -> Window:
        """Read a window, or return it where it was kept."""
        if number in self._kept:
            return self._kept[number]
        pieces: list[Window] = []
        for partition in partitions:
            pieces += self.source.each_batch(partition, self._read)
        rows, target, part, keys = map(np.concatenate, zip(*pieces, strict=True))
        window = rows, target, part, keys
        if self.keep:
            self._kept[number] = window
        return window

    def _read(self, source: RowSource, partition: Partition) -> Window:
        batch = source.read(partition)
        train = slice(0, batch.part_slices[-1].start)  # the held-out rows come last
        values = np.array(batch.features[:, train].T, order="C")  # of no buffer
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.fill, values)
        target = batch.target[0, train].copy()
        return values, target, batch.rows.part[train], batch.rows.keys[train]
