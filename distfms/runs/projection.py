"""What a job will read, hold and write: said before it starts, refused where it cannot fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Literal

from distfms.engine.graph import batch_size
from distfms.engine.memory import COLUMN_BYTES, available_bytes, counted, format_bytes, n_processors
from distfms.errors import SpecError
from distfms.methods.frame.contract import Job
from distfms.spec import EngineSection
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
class Projection:
    """The projected size of a run.

    Attributes
    ----------
    n_rows, n_partitions, n_files : int
    read_bytes : int
        Decoded, of all columns.
    written_bytes : int
        Bounds the statistics in the run folder and the cached partials.
    workers : int
        Tasks at the same time.
    units_bytes, files_bytes, processes_bytes : int
        Held of partitions that are read, of the footers of all files, and by programs.
    value_bytes, values_bytes : int
        Of a partial statistic, and of those that are held at the same time.
    limit : int or None
        What the spec allows, None for what there is.
    cached : str
        Which partials are kept on disk: of each partition, of packs of them, or none.
    """

    n_rows: int
    n_partitions: int
    n_files: int
    read_bytes: int
    written_bytes: int
    workers: int
    units_bytes: int
    files_bytes: int
    processes_bytes: int
    value_bytes: int
    values_bytes: int
    limit: int | None
    cached: Literal["each", "packs", ""]

    @property
    def total_bytes(self) -> int:
        """Held at the peak of a pass."""
        return self.processes_bytes + self.files_bytes + self.units_bytes + self.values_bytes

    def lines(self, place: object) -> list[str]:
        """Return it in words, for a run that writes to a place."""
        files = counted(self.n_files, "file") if self.n_files else "embedded data"
        return [
            f"Reads {counted(self.n_rows, 'row')}, {counted(self.n_partitions, 'partition')} of "
            f"{files}, up to {format_bytes(self.read_bytes)} decoded",
            f"Holds up to {format_bytes(self.total_bytes)} on {counted(self.workers, 'worker')}",
            f"Writes up to {format_bytes(self.written_bytes)} of statistics to {place}",
        ]

    def require(self, available: int | None = None) -> None:
        """Refuse a job that cannot fit, with the numbers.

        `available` are the bytes the workers have, where they are not on this machine.
        """
        limit = self.limit or available or available_bytes()
        if self.total_bytes <= limit:
            return
        raise SpecError(
            f"This job needs about {format_bytes(self.total_bytes)} of memory, but "
            f"{format_bytes(limit)} is available ({counted(self.n_partitions, 'partition')} on "
            f"{counted(self.workers, 'worker')}; partitions being read "
            f"{format_bytes(self.units_bytes)}; partial statistics "
            f"{format_bytes(self.values_bytes)} ({format_bytes(self.value_bytes)} each); footers "
            f"{format_bytes(self.files_bytes)}; programs and libraries "
            f"{format_bytes(self.processes_bytes)}). Use fewer workers, fewer columns or folds, or "
            "a machine or cluster with more memory."
        )


def most_values(
    n_units: int, workers: int, *, unit_bytes: int, value_bytes: int, processes: bool
) -> int:
    """Return how many values of a map-reduce are held at the same time.

    At most ``workers + ⌈log2 n⌉`` values wait in the tree or are being computed; each worker has
    one more for the output of a running merge, and log2 of the units of a task for the subtrees
    that it has finished. Those of processes also travel pickled, through the driver.
    """
    units_per_task = batch_size(n_units, workers, unit_bytes=unit_bytes, value_bytes=value_bytes)
    busy = min(workers, n_units)
    waiting = min(n_units, busy + math.ceil(math.log2(n_units)))
    of_tasks = busy * (1 + math.ceil(math.log2(units_per_task)))
    return waiting + of_tasks + (2 * busy if processes else 0)


#: Partials are always kept up to this size, which takes less than a second to read again; beyond,
#: only where they are no larger than the files, and of packs where those of partitions are larger.
_CACHE_FREELY_BYTES = 2**26


def project_job(engine: EngineSection, job: Job, workers: int | None = None) -> Projection:
    """Project a job's size from its data's footers and its statistics.

    ``workers`` are tasks side by side, where the executor knows better than the spec.
    """
    partitions = [p for dataset in job.inputs.datasets for p in dataset.partitions]
    value_bytes = job.statistics_bytes
    kept = value_bytes if job.kept_bytes is None else job.kept_bytes
    read_bytes = sum(p.n_bytes for p in partitions)
    n_packs = len(partitions) // PACK_UNITS
    kinds: dict[Any, int] = {"each": len(partitions) + n_packs, "packs": n_packs, "": 0}
    kinds = kinds if engine.cache else {"": 0}
    files_bytes = sum(file.n_bytes for dataset in job.inputs.datasets for file in dataset.files)
    most = max(_CACHE_FREELY_BYTES, files_bytes)
    cached = next(kind for kind, n in kinds.items() if n * value_bytes <= most)
    workers = workers or engine.workers or n_processors()
    units_bytes = sum(nlargest(workers, (partition.held_bytes for partition in partitions)))
    units_bytes += COLUMN_BYTES * len(job.columns) * min(workers, len(partitions))
    n_files = sum(len(dataset.files) for dataset in job.inputs.datasets)
    n_values = most_values(
        len(partitions),
        workers,
        unit_bytes=max(p.held_bytes for p in partitions),
        value_bytes=value_bytes,
        processes=engine.processes,
    )
    program_bytes = LOCAL_BYTES if engine.kind == "local" else PROCESS_BYTES
    return Projection(
        n_rows=sum(p.n_rows for p in partitions),
        n_partitions=len(partitions),
        n_files=n_files,
        read_bytes=read_bytes,
        written_bytes=kept + value_bytes * kinds[cached],
        workers=workers,
        units_bytes=max(units_bytes, workers * job.task_bytes),
        files_bytes=FILE_BYTES * max(n_files, len(partitions)),
        processes_bytes=program_bytes * (1 + workers if engine.processes else 1),
        value_bytes=value_bytes,
        values_bytes=value_bytes * n_values,
        limit=engine.memory,
        cached=cached,
    )
