"""What a stage uses while it runs: passes over the data, tasks, the run folder."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from distfms.data.dataset import ParquetDataset
from distfms.engine.cache import PartialCache
from distfms.engine.executors import Executor
from distfms.engine.graph import Unit
from distfms.engine.mapreduce import map_reduce
from distfms.engine.pools import ActorPool, make_pool
from distfms.engine.retry import RetryPolicy
from distfms.methods.contract import Inputs, PartialReader
from distfms.runs.folder import RunFolder
from distfms.stats.base import from_bytes, to_bytes
from distfms.stats.bundle import Bundle

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class _Iteration:
    """Hands on the events of passes that follow one another; the ends of passes now and then."""

    progress: Callable[[Mapping[str, Any]], None]
    interval_s: float = 5.0
    last_s: float = -math.inf

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "unit" and event["done"] == event["total"]:
            now_s = time.monotonic()
            if now_s - self.last_s < self.interval_s:
                return
            self.last_s = now_s
        self.progress(event)


@dataclass
class RunContext:
    """What the stages of one run use; see :class:`distfms.methods.contract.Context`.

    Parameters
    ----------
    seed : int
    inputs : Inputs
    run : RunFolder
    executor : Executor
    retry : RetryPolicy
    cache : Path or None
        Folder of partial statistics.
    say, progress : callable
        Told lines for the user, and the engine's events.
    counts : dict
        Partitions read and taken from the cache, and bytes read, since it was last emptied.
    """

    seed: int
    inputs: Inputs
    run: RunFolder
    executor: Executor
    retry: RetryPolicy
    cache: Path | None
    say: Callable[[str], None]
    progress: Callable[[Mapping[str, Any]], None]
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._iteration = _Iteration(self._take)

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.run.path

    def reduce(
        self, reader: Callable[[ParquetDataset, bool], PartialReader], *, cache: bool = True
    ) -> Bundle:
        """Map-reduce over all partitions."""
        result = self._reduce_one(reader(self.inputs.train, False), self.inputs.train, cache)
        if self.inputs.test is not None:
            held_out = self._reduce_one(reader(self.inputs.test, True), self.inputs.test, cache)
            result = result.merge(held_out)
        return result

    def _reduce_one(self, read: PartialReader, dataset: ParquetDataset, use_cache: bool) -> Bundle:
        key = json.dumps(read.key(), sort_keys=True, default=str)
        prefix = hashlib.sha256(key.encode()).hexdigest()
        units = [
            Unit(f"{prefix}:{read.partition_key(p)}", p, p.n_bytes) for p in dataset.partitions
        ]
        cache = None
        if use_cache and self.cache is not None:
            cache = PartialCache(self.cache, encode_bundle, partial(decode_bundle, read.part_types))
        reduction = map_reduce(
            units,
            read,
            Bundle.merge,
            self.executor,
            cache=cache,
            retry=self.retry,
            on_event=self._take if use_cache else self._iteration,
        )
        self._count(reduction.n_computed, reduction.n_cached, reduction.bytes_read)
        return reduction.value

    def _take(self, event: Mapping[str, Any]) -> None:
        """Show an event; all but the many of single units are kept in the run folder."""
        self.progress(event)
        if event.get("event") != "unit":
            self.run.event(**dict(event))

    def _count(self, n_read: int, n_cached: int, bytes_read: int) -> None:
        for name, value in (
            ("n_read", n_read),
            ("n_cached", n_cached),
            ("bytes_read", bytes_read),
        ):
            self.counts[name] = self.counts.get(name, 0) + value

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Run independent tasks side by side; results in the order of the items."""
        return self.executor.map(function, list(items), retry=self.retry)

    def pool(self, n_shards: int, shard_bytes: int) -> ActorPool:
        """Open a pool of actors of the executor's kind."""
        n_actors = min(self.executor.workers, n_shards)
        return make_pool(
            self.executor.name,
            n_actors,
            executor=self.executor,
            timeout_s=self.retry.timeout_s,
            retry=self.retry,
            on_event=self._take,
            actor_bytes=shard_bytes * -(-n_shards // n_actors),
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """Read what an earlier stage wrote."""
        return self.run.read_json(name)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Read what an earlier stage wrote."""
        return self.run.read_arrays(name)

    def manifest(self) -> dict[str, Any]:
        """Return what the run folder says so far."""
        return self.run.manifest()

    def note(self, text: str) -> None:
        """Tell the user something that the report should also say."""
        notes = self.run.manifest().get("notes", [])
        if text not in notes:
            self.run.update(notes=[*notes, text])
            self.run.event("note", text=text)
            self.say(f"Note: {text}")

    def account(self, **entries: Any) -> None:
        """Enter what was counted in the manifest."""
        self.run.update(**entries)


def encode_bundle(bundle: Bundle) -> bytes:
    """Bytes of a bundle, for the cache."""
    return to_bytes(bundle.to_arrays())


def decode_bundle(part_types: Mapping[str, Any], payload: bytes) -> Bundle:
    """Inverse of :func:`encode_bundle`."""
    return Bundle.from_arrays(from_bytes(payload), part_types)
