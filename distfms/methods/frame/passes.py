"""Passes over rows: sums at what a message says, such as a loss and its gradient at weights.

The weights go out, one set of sums comes back from each partition, and the sums are added along
the fixed tree of the partitions, so that a fit has the same bits wherever its rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from distfms.data.files.partition import Dataset, Partition
from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import available_bytes, format_bytes, n_processors
from distfms.methods.frame.contract import PartialReader, Run
from distfms.stats.base import Bundle, Folded, merge_tree
from distfms.stats.sums import Sums

#: Passes that a job is taken to make, for the question whether actors pay.
_PASSES_GUESSED = 100
#: Most shards; their partitions are a power of two, whose sums are added before they travel.
_MOST_SHARDS = 64


class RowReader(Protocol):
    """Picklable: what passes read of a partition, and what they add up over its rows."""

    def read(self, partition: Partition) -> Any:
        """Return the rows of a partition, in memory of their own; a worker keeps them."""

    def sums(self, rows: Any, message: Any) -> Sums:
        """Return sums over rows at what the message says, such as the weights of a model."""


@dataclass(frozen=True)
class PassReader(PartialReader):
    """Reads the sums of one pass."""

    reader: RowReader
    message: Any

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and add up."""
        sums = self.reader.sums(self.reader.read(partition), self.message)
        return Bundle({"sums": Folded((sums, Sums({})))})

    def key(self) -> dict[str, Any]:
        """Return nothing: the sums of a pass are not cached."""
        return {"kind": "pass"}


def one_pass(run: Run, reader: Callable[[Dataset, bool], RowReader], message: Any) -> Sums:
    """Add up over all rows, of the training and of the separate test data, reading them anew."""
    bundle = run.reduce(lambda *rows: PassReader(reader(*rows), message), cache=False)
    sums: Sums = bundle["sums"].parts[0]
    return sums


class Passes:
    """Passes over the rows of the training data, kept on actors where they fit.

    A context manager; calling it with a message makes a pass. The sums have the same bits whether
    rows are kept or read again. `reader` makes of a dataset a `RowReader`, whose rows have
    `row_values` numbers; of held-out data its sums are without entries. A pass is worth `n_outputs`
    products of the rows.
    """

    def __init__(
        self,
        run: Run,
        reader: Callable[[Dataset, bool], RowReader],
        row_values: int,
        n_outputs: int = 1,
    ) -> None:
        self._run = run
        self._reader = reader
        self._dataset = run.inputs.train
        self._n_values = row_values * self._dataset.n_rows
        self._n_outputs = n_outputs
        self._pool: Any = None
        #: Rows that are kept in this process, where no pool of actors pays.
        self._kept: list[_Shard] = []
        self._each: Any = map
        self._stack = ExitStack()

    @staticmethod
    def n_operations(n_values: float) -> float:
        """Return about how many multiplications a job's passes over so many numbers take."""
        return 4.0 * _PASSES_GUESSED * n_values

    @staticmethod
    def describe(n_bytes: int) -> str:
        """Write what becomes of the rows between passes, for the lines before a run."""
        size = format_bytes(n_bytes)
        if keeps_rows(n_bytes):
            return f"rows stay in memory between passes, about {size}"
        return f"rows are read again for every pass: about {size} do not fit into memory"

    def __enter__(self) -> Self:
        if not keeps_rows(8 * self._n_values):
            return self
        partitions = self._dataset.partitions
        shards = shards_of(partitions)
        largest = max(_n_rows(shard) for shard in shards)
        pool: Any = self._run.pool(
            len(shards),
            8 * largest * self._n_values // self._dataset.n_rows,
            what="passes",
            n_operations=self.n_operations(self._n_values * self._n_outputs),
        )
        self._pool = self._stack.enter_context(pool)
        read = partial(_read_shard, self._reader(self._dataset, False))
        if pool.name == "serial":
            self._stack.enter_context(single_threaded_blas())
            self._kept = [read(shard) for shard in shards]
            n_threads = min(self._run.workers, n_processors(), len(shards))
            if n_threads > 1:
                threads = self._stack.enter_context(ThreadPoolExecutor(n_threads))
                self._each = threads.map
        else:
            pool.start(read, shards)
        n_bytes = sum(partition.n_bytes for partition in partitions)
        self._run.count(n_read=len(partitions), bytes_read=n_bytes)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, message: Any) -> Sums:
        """Make one pass."""
        if self._pool is None:
            return one_pass(self._run, self._reader, message)
        if self._kept:
            answers = self._each(partial(_shard_sums, message=message), self._kept)
            return merge_tree(sums for _, sums in answers)
        return merge_tree(self._pool.step(_shard_sums, message))


@dataclass(frozen=True, eq=False)
class _Shard:
    """Rows of some partitions that follow one another."""

    reader: RowReader
    rows: list[Any]


def shards_of(partitions: Sequence[Partition]) -> list[Sequence[Partition]]:
    """Cut partitions into shards, each of which is a node of their tree."""
    step = 1 << ((len(partitions) - 1) // _MOST_SHARDS).bit_length()
    return [partitions[first : first + step] for first in range(0, len(partitions), step)]


def _n_rows(shard: Sequence[Partition]) -> int:
    return sum(partition.n_rows for partition in shard)


def _read_shard(reader: RowReader, partitions: Sequence[Partition]) -> _Shard:
    return _Shard(reader, [reader.read(partition) for partition in partitions])


def _shard_sums(shard: _Shard, message: Any) -> tuple[None, Sums]:
    return None, merge_tree([shard.reader.sums(rows, message) for rows in shard.rows])


def keeps_rows(n_bytes: int) -> bool:
    """Return whether workers keep rows of this size: half of the memory that there is."""
    return n_bytes <= available_bytes() // 2
