"""What a method's function uses: passes over the data, tasks, actors, steps of the run."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from distfms.data.files.partition import Dataset, HeldPartition, Partition
from distfms.engine.base import Executor, map_reduce
from distfms.engine.blas import single_threaded_blas
from distfms.engine.graph import Unit, UnitReport
from distfms.engine.pool import NO_GAIN, ON_RAY, ActorPool
from distfms.methods.frame.contract import Inputs, PartialReader
from distfms.methods.frame.passes import shards_of
from distfms.runs.events import Recorder
from distfms.runs.steps import Steps
from distfms.stats.base import Bundle, merge_tree
from distfms.stats.codec import MAGIC, decode, encode, settled
from distfms.store.kept import PartialCache
from distfms.store.places import Location, absolute

#: Multiplications that take one process about 5 s (at 6 · 10⁹ a second), of which two actors save
#: half and need 2 s of a processor each to start. The results do not depend on it.
ACTORS_PAY_OPERATIONS = 3e10

Actors = Literal["auto", "always", "never"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class RunContext:
    """What the function of a method uses; see :class:`distfms.methods.frame.contract.Run`.

    ``cache`` is the folder of partial statistics, of packs of partitions alone where
    ``packs_only``; ``value_bytes`` is what the statistics of a partition take at most; with
    ``elsewhere`` the data are not those of the run's own steps.
    """

    seed: int
    inputs: Inputs
    steps: Steps
    executor: Executor
    attempts: int
    cache: Location | None
    record: Recorder
    value_bytes: int = 0
    packs_only: bool = False
    elsewhere: bool = False
    actors: Actors = "auto"

    # --- steps ---

    def step(self, name: str, make: Callable[[], T], file: str | None = None) -> T:
        """Return the value of a step, done now or in an earlier attempt."""
        if self.elsewhere:
            value: T = settled(make())
            return value
        return self.steps.step(name, make, file)

    def place(self, step: str) -> Location | None:
        """Return the file with the value of a step."""
        return None if self.elsewhere else self.steps.place(step)

    def path(self, name: str) -> Location:
        """Return the place of a file or folder that a step writes itself."""
        assert self.steps.run is not None
        return absolute(self.steps.run.path) / name

    def note(self, text: str) -> None:
        """Tell the user something that the report should also say."""
        if not self.elsewhere:
            self.steps.note(text)

    def count(self, **counts: int) -> None:
        """Add to the counts of the present step."""
        counted = self.steps.now.counts
        for name, value in counts.items():
            counted[name] = counted.get(name, 0) + value

    def account(self, **entries: Any) -> None:
        """Enter what was counted in the manifest."""
        if not self.elsewhere:
            self.steps.now.entries.update(entries)

    # --- passes, tasks, actors ---

    @property
    def workers(self) -> int:
        """Number of tasks that are done at a time."""
        return self.executor.workers

    def reduce(
        self,
        reader: Callable[[Dataset, bool], PartialReader],
        *,
        cache: bool = True,
        actors: str | None = None,
    ) -> Bundle:
        """Map-reduce over all partitions."""

        def one(dataset: Dataset, held_out: bool) -> Bundle:
            read = reader(dataset, held_out)
            finish = _weighed if any(part.weight != 1 for part in dataset.partitions) else None
            if actors is not None and self._by_actors(actors, ON_RAY, len(dataset.partitions)):
                return self._reduce_by_actors(read, dataset.partitions, finish, actors)
            return self._map_reduce(read, dataset.partitions, Bundle.merge, finish, cache)

        self.count(n_passes=1)
        result = one(self.inputs.train, False)
        return result if self.inputs.test is None else result.merge(one(self.inputs.test, True))

    def each_partition(
        self,
        read: PartialReader,
        partitions: Sequence[Partition],
        summarise: Callable[[Partition, Bundle], T],
    ) -> list[T]:
        """Summarise the partial statistics of partitions, one by one."""
        summaries: list[T] = self._map_reduce(
            read, partitions, operator.add, lambda part, bundle: [summarise(part, bundle)]
        )
        return summaries

    def on(self, inputs: Inputs) -> RunContext:
        """Return the same for other data."""
        return replace(self, inputs=inputs, elsewhere=True)

    def _reduce_by_actors(
        self, read: PartialReader, partitions: Sequence[Partition], finish: Any, what: str
    ) -> Bundle:
        """Map-reduce where actors summarise shards, along the same tree."""
        shards = shards_of(partitions)
        held = max(part.held_bytes for part in partitions)
        shared = held + 2 * self.value_bytes
        opened = self.pool(len(shards), 0, what=what, shared_bytes=shared, n_operations=ON_RAY)
        with opened as pool:
            pool.start(_as_is, [(read, finish)] * pool.n_actors)
            summaries: list[Bundle] = pool.map(_shard_summary, shards)
        n_bytes = sum(part.n_bytes for part in partitions)
        self.count(n_read=len(partitions), n_cached=0, bytes_read=n_bytes)
        return merge_tree(summaries)

    def _map_reduce(
        self,
        read: PartialReader,
        partitions: Sequence[Partition],
        merge: Callable[[Any, Any], Any],
        finish: Callable[[Partition, Bundle], Any] | None,
        use_cache: bool = True,
    ) -> Any:
        if any(
            isinstance(partition, HeldPartition) and partition.is_lazy for partition in partitions
        ):
            n_bytes = sum(partition.n_bytes for partition in partitions)
            self.count(n_read=len(partitions), n_cached=0, bytes_read=n_bytes)
            return reduce_lazily(read, partitions, merge, finish)
        key = json.dumps(read.key(), sort_keys=True, default=str)
        prefix = hashlib.sha256(key.encode()).hexdigest()
        units = [Unit(read.partition_key(p), p, p.n_bytes) for p in partitions]
        cache = None
        if use_cache and self.cache is not None:
            spec_key = f"{MAGIC.decode()}{prefix}"
            cache = PartialCache(self.cache, encode, decode, spec_key, self.packs_only)
        reduction = map_reduce(
            units,
            read.in_batches,
            merge,
            self.executor,
            finish_fn=finish,
            cache=cache,
            attempts=self.attempts,
            on_event=self.record if use_cache else self.record.iteration,
            value_bytes=self.value_bytes,
        )
        self.count(
            n_read=reduction.n_computed,
            n_cached=reduction.n_cached,
            bytes_read=reduction.bytes_read,
        )
        return reduction.value

    def map(self, function: Callable[[T], R], items: Iterable[T], what: str = "") -> list[R]:
        """Run independent tasks side by side; results in the order of the items.

        Tasks may write to the run folder, so the fence is looked at before. Progress is told where
        `what` says what they do.
        """
        tasks = list(items)
        done = set[int]()

        def watch(report: UnitReport) -> None:
            done.add(report.index)
            if what:
                size = {"done": len(done), "total": len(tasks), "workers": self.workers}
                self.record.event("task", what=what, **size)

        if self.steps.run is not None:
            self.steps.run.require_claim()
        return self.executor.map(function, tasks, attempts=self.attempts, watch=watch)

    def pool(
        self,
        n_shards: int,
        shard_bytes: int,
        *,
        what: str,
        shared_bytes: int = 0,
        n_operations: float = math.inf,
        alone: bool = False,
    ) -> ActorPool:
        """Open a pool of actors of the executor's kind, or of none where they do not pay."""
        n_actors = min(self.executor.workers, n_shards)
        if alone:
            is_serial = True
            why = "some workers do not see the run folder"
        elif self.steps.in_memory:
            is_serial = True
            why = "the run is in memory"
        else:
            single = n_actors == 1 and self.executor.name == "local"
            on_actors, why = decide(self.actors, n_operations, single, self.executor.name)
            is_serial = not on_actors
        options: dict[str, Any] = {
            "attempts": self.attempts,
            "on_event": self.record,
            "actor_bytes": shared_bytes
            + shard_bytes * -(-n_shards // (1 if is_serial else n_actors)),
        }
        if is_serial:
            from distfms.engine.local import SerialPool

            pool: ActorPool = SerialPool(**options)
        else:
            pool = self.executor.pool(n_actors, **options)
        self.record.event(
            "pool", kind=pool.name, what=what, n_actors=pool.n_actors, n_shards=n_shards, why=why
        )
        return pool

    def _by_actors(self, what: str, n_operations: float, n_shards: int) -> bool:
        """Return whether actors do some work; tell where they do not."""
        yes, why = decide(self.actors, n_operations, False, self.executor.name)
        if not yes:
            self.record.event(
                "pool", kind="serial", what=what, n_actors=1, n_shards=n_shards, why=why
            )
        return yes and not self.steps.in_memory

    @contextmanager
    def candidates(self, shards: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Let searches of a problem in memory ask for candidates where its shards are."""
        if not shards or not self._by_actors("candidates", NO_GAIN, len(shards)):
            yield {}
            return
        # What is kept of the selected takes at most as much again.
        shard_bytes = 2 * max(shard.n_bytes for shard in shards)
        with self.pool(len(shards), shard_bytes, what="candidates") as pool:
            yield {"pool": pool, "shards": shards}


def decide(
    actors: Actors, n_operations: float, single: bool, kind: str = "local"
) -> tuple[bool, str]:
    """Return whether actors of a kind do some work, and why.

    It takes so many multiplications, as `Job.for_actors` counts them; `single` means that there is
    but one actor, beside this process.
    """
    if actors != "auto":
        return actors == "always", f"`engine.actors` is {actors}"
    if n_operations == math.inf:
        return True, "one process is too small"
    if n_operations == NO_GAIN:
        return False, "actors are no faster"
    if n_operations == ON_RAY:
        is_ray = kind == "ray"
        return is_ray, "actors on Ray keep what they read with" if is_ray else "tasks do it"
    operations = f"about {n_operations:.1g} multiplications"
    if n_operations < ACTORS_PAY_OPERATIONS:
        return False, f"{operations} take less time than starting actors"
    if single:
        return False, f"{operations}, but one actor is no faster than this process"
    return True, f"{operations} take more time than the start of actors"


def reduce_lazily(
    read: PartialReader,
    partitions: Sequence[Partition],
    merge: Callable[[Any, Any], Any],
    finish: Callable[[Partition, Bundle], Any] | None,
) -> Any:
    """Map-reduce over chunks of a Dask collection by a graph of Dask, where the chunks are."""
    import dask

    summarise = dask.delayed(_chunk_summary, pure=False, traverse=False)
    join = dask.delayed(merge, pure=False)
    held: Sequence[Any] = partitions
    summaries = (summarise(read, finish, replace(p, rows=None), p.rows) for p in held)
    return merge_tree(summaries, join).compute()


def _chunk_summary(read: PartialReader, finish: Any, partition: Any, rows: Any) -> Any:
    return _summary(read, finish, replace(partition, rows=rows))


def _summary(read: PartialReader, finish: Any, partition: Any) -> Any:
    with single_threaded_blas():
        bundle = read.in_batches(partition)
    return bundle if finish is None else finish(partition, bundle)


def _as_is(state: T) -> T:
    return state


def _shard_summary(reading: tuple[PartialReader, Any], shard: Sequence[Partition]) -> Bundle:
    return merge_tree(_summary(*reading, partition) for partition in shard)


def _weighed(partition: Partition, bundle: Bundle) -> Bundle:
    return bundle if partition.weight == 1 else bundle.scaled(partition.weight)
