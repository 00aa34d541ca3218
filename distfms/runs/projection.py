"""What a job will read, hold and write: said before it starts, refused where it cannot fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Literal

from distfms.engine.graph import batch_size
from distfms.engine.memory import COLUMN_BYTES, available_bytes, counted, format_bytes, n_processors
from distfms.errors import SpecError
from distfms.methods.frame.contract import Inputs, Job
from distfms.runs.job_spec import JobSpec
from distfms.store.kept import PACK_UNITS

# Interpreter with all that a driver on Ray comes to load, scikit-learn included,
# measured on Linux, rounded up; a local worker takes half of it.
PROCESS_BYTES = 300 * 2**20
# The same of a driver on this machine alone.
LOCAL_BYTES = 250 * 2**20
# What the driver keeps of a file and its partition: 5.3 to 6 KiB were seen in
# runs over 5,000 files of a disk, 7 to 8 of 20,000 on object storage.
FILE_BYTES = 6_656


@dataclass(frozen=True)
class MemoryProjection:
    """Bytes that a pass is expected to hold at its peak; see `project`."""

    n_units: int
    workers: int
    units_bytes: int
    values_bytes: int
    processes_bytes: int
    value_bytes: int
    files_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Peak of the pass."""
        return self.processes_bytes + self.files_bytes + self.units_bytes + self.values_bytes

    def require(self, available: int | None = None) -> None:
        """Raise SpecError, with the numbers and what would help, for work that cannot fit."""
        limit = available_bytes() if available is None else available
        if self.total_bytes <= limit:
            return
        detail = (
            f"{counted(self.n_units, 'unit')} on {counted(self.workers, 'worker')}; "
            f"units being read {format_bytes(self.units_bytes)}; "
            f"partial statistics {format_bytes(self.values_bytes)} "
            f"({format_bytes(self.value_bytes)} each); "
            f"footers {format_bytes(self.files_bytes)}; "
            f"programs and libraries {format_bytes(self.processes_bytes)}; "
            f"peak {format_bytes(self.total_bytes)}"
        )
        raise SpecError(
            f"This job needs about {format_bytes(self.total_bytes)} of memory, but "
            f"{format_bytes(limit)} is available ({detail}). Use fewer workers, fewer columns or "
            "folds, or a machine or cluster with more memory."
        )


def project(
    n_units: int,
    units_bytes: int,
    value_bytes: int,
    workers: int,
    *,
    processes: bool = False,
    units_per_task: int = 1,
    program_bytes: int = PROCESS_BYTES,
    files_bytes: int = 0,
) -> MemoryProjection:
    """Project the memory of a map-reduce.

    At most ``workers + ⌈log2 n⌉`` values wait in the tree or are being computed; each worker has
    one more for the output of a running merge, and log2 of the units of a task for the subtrees
    that it has finished.

    Parameters
    ----------
    n_units, workers, units_per_task : int
        Units of the pass; tasks at the same time; see `distfms.engine.graph.batch_size`.
    units_bytes : int
        Held of all units that are worked on at the same time.
    value_bytes : int
        Of one (merged) value.
    processes : bool
        Whether workers are processes. Values then also travel pickled, through the driver.
    program_bytes : int
        Interpreter and libraries of each process.
    files_bytes : int
        What the driver keeps of the footers of all files.
    """
    busy = min(workers, n_units)
    waiting = min(n_units, busy + math.ceil(math.log2(n_units)) if n_units > 1 else 1)
    n_values = waiting + busy * (1 + math.ceil(math.log2(units_per_task)))
    return MemoryProjection(
        n_units=n_units,
        workers=workers,
        units_bytes=units_bytes,
        values_bytes=value_bytes * (n_values + (2 * busy if processes else 0)),
        processes_bytes=program_bytes * (1 + (workers if processes else 0)),
        value_bytes=value_bytes,
        files_bytes=files_bytes,
    )


@dataclass(frozen=True)
class Projection:
    """The projected size of a run.

    `read_bytes` are decoded, of all columns; `written_bytes` bound the statistics in the run folder
    and the cached partials; `limit` is what the spec allows, None for what there is; `cached` says
    which partials are kept on disk: of each partition, of packs of them, or none.
    """

    n_rows: int
    n_partitions: int
    n_files: int
    read_bytes: int
    written_bytes: int
    memory: MemoryProjection
    limit: int | None
    cached: Literal["each", "packs", ""]

    def lines(self, place: object) -> list[str]:
        """Return it in words, for a run that writes to a place."""
        return [
            f"Reads {counted(self.n_rows, 'row')}, {counted(self.n_partitions, 'partition')} of "
            f"{counted(self.n_files, 'file')}, up to {format_bytes(self.read_bytes)} decoded",
            f"Holds up to {format_bytes(self.memory.total_bytes)} on "
            f"{counted(self.memory.workers, 'worker')}",
            f"Writes up to {format_bytes(self.written_bytes)} of statistics to {place}",
        ]

    def require(self, available: int | None = None) -> None:
        """Refuse a job that cannot fit, with the numbers.

        `available` are the bytes the workers have, where they are not on this machine.
        """
        self.memory.require(available if self.limit is None else self.limit)


#: Partials are always kept up to this size, which takes less than a second to read again; beyond,
#: only where they are no larger than the files, and of packs where those of partitions are larger.
_CACHE_FREELY_BYTES = 2**26


def project_job(spec: JobSpec, inputs: Inputs, job: Job, workers: int | None = None) -> Projection:
    """Project a job's size from its data's footers and its statistics.

    ``workers`` are tasks side by side, where the engine knows better than the spec.
    """
    partitions = [p for dataset in inputs.datasets for p in dataset.partitions]
    value_bytes = job.statistics_bytes
    kept = value_bytes if job.kept_bytes is None else job.kept_bytes
    read_bytes = sum(p.n_bytes for p in partitions)
    n_packs = len(partitions) // PACK_UNITS
    kinds: dict[Any, int] = {"each": len(partitions) + n_packs, "packs": n_packs, "": 0}
    kinds = kinds if spec.engine.cache else {"": 0}
    files_bytes = sum(file.n_bytes for dataset in inputs.datasets for file in dataset.files)
    most = max(_CACHE_FREELY_BYTES, files_bytes)
    cached = next(kind for kind, n in kinds.items() if n * value_bytes <= most)
    workers = workers or spec.engine.workers or n_processors()
    largest = max(p.held_bytes for p in partitions)
    units_bytes = sum(nlargest(workers, (partition.held_bytes for partition in partitions)))
    units_bytes += COLUMN_BYTES * len(job.columns) * min(workers, len(partitions))
    n_files = sum(len(dataset.files) for dataset in inputs.datasets)
    memory = project(
        n_units=len(partitions),
        units_bytes=max(units_bytes, workers * job.task_bytes),
        value_bytes=value_bytes,
        workers=workers,
        processes=spec.engine.processes,
        program_bytes=LOCAL_BYTES if spec.engine.kind == "local" else PROCESS_BYTES,
        # As on a cluster; threads take fewer.
        units_per_task=batch_size(
            len(partitions), workers, unit_bytes=largest, value_bytes=value_bytes
        ),
        files_bytes=FILE_BYTES * max(n_files, len(partitions)),
    )
    return Projection(
        n_rows=sum(p.n_rows for p in partitions),
        n_partitions=len(partitions),
        n_files=n_files,
        read_bytes=read_bytes,
        written_bytes=kept + value_bytes * kinds[cached],
        memory=memory,
        limit=spec.engine.memory,
        cached=cached,
    )
