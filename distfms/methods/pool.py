"""What the distributed searches ask of a pool of actors; `distfms.engine.pools` has such pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Pool(Protocol):
    """States, one for each shard, on actors somewhere; see `distfms.engine.pools.ActorPool`."""

    def start(self, build: Callable[[Any], Any], shards: Sequence[Any]) -> int:
        """Build one state for each shard."""

    def step(self, fn: Callable[[Any, Any], tuple[Any, Any]], message: Any = None) -> list[Any]:
        """Call ``fn(state, message)`` on every state; answers in the order of shards."""
