"""What a job will read, hold and write: said before it starts, refused where it cannot fit."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Literal

from distfms.engine.graph import batch_size
from distfms.engine.memory import (
    COLUMN_BYTES,
    FILE_BYTES,
    LOCAL_BYTES,
    PROCESS_BYTES,
    MemoryProjection,
    counted,
    format_bytes,
    n_processors,
    project,
    require,
)
from distfms.methods.frame.contract import Inputs, Job
from distfms.runs.job_spec import JobSpec
from distfms.store.kept import PACK_UNITS


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
        require(self.memory, available if self.limit is None else self.limit)


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
