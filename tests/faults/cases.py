"""Whole jobs for tests of engines and faults, one of each kind that uses an engine differently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distfms.methods import slab_job, slabs
from distfms.runs.job_spec import JobSpec
from tests.conformance.engine_tasks import blas_as_before
from tests.e2e.jobs import judgments_job, write_judgments
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, write_rows

#: In the order of their names; of which `blocks` searches on actors, the others in the driver.
KINDS = ("blocks", "glm", "multiselect", "sequence")


@dataclass(frozen=True)
class Case:
    """A kind of job.

    Attributes
    ----------
    write : callable
        ``folder → folder`` with its data.
    spec : callable
        ``(data, output, engine=…) → JobSpec``.
    n_partitions : int
        Of the data.
    """

    write: Callable[[Path], Path]
    spec: Callable[..., JobSpec]
    n_partitions: int


def _blocks(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"psd": "none", "plan": False}
    return judgments_job(data, output, multiselect=options, **changes)


def _glm_rows(folder: Path) -> Path:
    columns = mixed_rows(300)
    columns["y"] = (np.nan_to_num(columns["y"], nan=0.0) > columns["blood"]).astype(float)
    return write_rows(folder, columns)


def _glm(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"family": "logistic", "baselines": [], "costs": {}, "shared_costs": {}}
    section = {"folds": 0, "test": 0.0, "missing": "mean"}
    return mixed_job(data, output, sequence=options, data=section, **changes)


CASES = {
    "blocks": Case(lambda folder: write_judgments(folder), _blocks, 4),
    "glm": Case(_glm_rows, _glm, 3),
    "multiselect": Case(lambda folder: write_judgments(folder), judgments_job, 4),
    "sequence": Case(lambda folder: write_rows(folder, mixed_rows()), mixed_job, 3),
}


@contextmanager
def small_blocks(kind: str = "blocks") -> Iterator[None]:
    """Slabs of two of the five attributes, so that there are three, in jobs of that kind only.

    Other jobs search in the driver or on workers, which know nothing of this; how wide slabs are
    changes the last bits.
    """
    before = slabs.SLAB_COLUMNS, slab_job.ONE_PROCESS_BYTES
    if kind == "blocks":
        slabs.SLAB_COLUMNS, slab_job.ONE_PROCESS_BYTES = 2, 0
    try:
        yield
    finally:
        slabs.SLAB_COLUMNS, slab_job.ONE_PROCESS_BYTES = before


@contextmanager
def dask_cluster(n_workers: int = 2) -> Iterator[Any]:
    """A Dask cluster of worker processes; gives its engine section."""
    from distributed import LocalCluster

    with (
        blas_as_before(),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield {"kind": "dask", "address": cluster.scheduler_address, "workers": None}


def manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a run says."""
    return json.loads((folder / "manifest.json").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of everything in a finished run that depends on spec and data only."""
    own = ("manifest.json", "spec.yaml", "events.jsonl", ".lock", "report.html")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in own
    }
