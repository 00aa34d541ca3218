"""States of a search, in this process or spread over actors, each for a run of its candidates.

Candidates are in blocks that are cut the same way whoever holds them, and what decides about the
last bits of a result is computed block by block: the result is the same to the bit for any number
of actors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

T = TypeVar("T", covariant=True)

#: Columns of a block. It decides about the last bits of a result, and so depends on nothing.
BLOCK_COLUMNS = 64
#: Most runs of blocks that the candidates of a search are cut into.
MOST_SHARDS = 16


class Pool(Protocol):
    """States, one for each shard, on actors somewhere; see `distfms.engine.pool.ActorPool`."""

    def start(self, build: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        """Build one state for each shard."""

    def step(self, fn: Callable[[Any, Any], tuple[Any, Any]], message: Any = None) -> list[Any]:
        """Call ``fn(state, message)`` on every state; answers in the order of shards."""


class OneProcess:
    """A pool whose states are all here."""

    states: list[Any]

    def start(self, build: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        """Build one state for each shard."""
        self.states = [build(shard) for shard in shards]

    def step(self, fn: Callable[[Any, Any], tuple[Any, Any]], message: Any = None) -> list[Any]:
        """Call ``fn(state, message)`` on every state; answers in the order of shards."""
        results = [fn(state, message) for state in self.states]
        self.states = [state for state, _ in results]
        return [answer for _, answer in results]


class Loadable(Protocol[T]):
    """Small picklable description of something that an actor loads or computes."""

    def load(self) -> T:
        """Return it."""


def loaded(matrix: np.ndarray | Loadable[np.ndarray]) -> np.ndarray:
    """Return a matrix that is in memory, or load it."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.load()


def block_edges(widths: Iterable[int]) -> list[int]:
    """Return the first item of each block, and the number of items, for the columns of each item.

    A block takes items in order until another would exceed `BLOCK_COLUMNS`; a larger item is a
    block of its own.
    """
    edges = [0]
    n_columns = 0  # of the last block
    n_items = 0
    for width in widths:
        if n_columns and n_columns + width > BLOCK_COLUMNS:
            edges.append(n_items)
            n_columns = 0
        n_columns += width
        n_items += 1
    return [*edges, n_items]


def shard_edges(n_blocks: int) -> list[int]:
    """Return the first block of each shard, and the number of blocks; shards are about equal."""
    n_shards = min(n_blocks, MOST_SHARDS)
    return [number * n_blocks // n_shards for number in range(n_shards + 1)]
