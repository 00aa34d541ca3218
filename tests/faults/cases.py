"""Whole jobs for tests of engines and faults, one of each kind that uses an engine differently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distfms.methods.frame import mapped
from distfms.methods.multiselect import slab_form
from distfms.methods.sequence.form import SequenceForm
from distfms.runs.driver import run_job
from distfms.runs.folder import digest
from distfms.runs.job_spec import JobSpec
from tests.conformance.engine_tasks import dask_cluster
from tests.e2e.attribute_efficient_jobs import few_columns, few_job
from tests.e2e.jobs import content, judgments_job, write_judgments
from tests.e2e.landmarks_jobs import landmarks_job, ranked_rows, ranking_job, smooth_rows
from tests.e2e.sequence_jobs import GRID, mixed_job, mixed_rows, write_rows


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


def _tuned(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    tune = {"grid": GRID, "measure": "explained_variance"}
    return mixed_job(data, output, tune=tune, **changes)


def _functions(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"similarity": "tests.e2e.landmarks_jobs:near", "landmarks": 12}
    return landmarks_job(
        data, output, landmarks=options | {"loss": "epsilon_insensitive"}, **changes
    )


def _metric(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"metric": "auto", "landmarks": 20}
    return landmarks_job(data, output, data={"folds": 2}, landmarks=options, **changes)


def _ranking(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    tune = {"grid": {"ridge": [1e-3, 1.0]}, "measure": "ndcg@5"}
    return ranking_job(data, output, tune=tune, **changes)


def _few(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"solver": "online", "repeats": 1}
    return few_job(data, output, attribute_efficient=options, **changes)


def _pairs(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    options = {"solver": "pairs", "draws": "two_phase", "repeats": 0}
    return few_job(data, output, options, **changes)


def _rows(columns: Callable[[], dict[str, Any]]) -> Callable[[Path], Path]:
    return lambda folder: write_rows(folder, columns())


#: Jobs of every kind of statistics, search and fit. `blocks` search on actors, `glm`,
#: `functions` and `few` fit there, `tuned` compares there; of the others nothing but passes is
#: shared out.
CASES = {
    "blocks": Case(write_judgments, _blocks, 4),
    "multiselect": Case(write_judgments, judgments_job, 4),
    "sequence": Case(_rows(mixed_rows), mixed_job, 3),
    "mapped": Case(_rows(mixed_rows), mixed_job, 3),
    "tuned": Case(_rows(mixed_rows), _tuned, 3),
    "glm": Case(_glm_rows, _glm, 3),
    "landmarks": Case(_rows(smooth_rows), _metric, 3),
    "functions": Case(_rows(smooth_rows), _functions, 3),
    "ranking": Case(_rows(ranked_rows), _ranking, 3),
    "few": Case(_rows(few_columns), _few, 3),
    "pairs": Case(_rows(few_columns), _pairs, 3),
}


@contextmanager
def small_blocks(kind: str = "blocks") -> Iterator[None]:
    """Let products of few columns be too many, in jobs of the two kinds that heed their number.

    Other jobs search in the driver or on workers, which know nothing of this; how wide slabs are
    changes the last bits.
    """
    with pytest.MonkeyPatch.context() as patch:
        if kind == "blocks":
            patch.setattr(slab_form, "SLAB_COLUMNS", 2)
            patch.setattr(slab_form, "ONE_PROCESS_BYTES", 0)
        elif kind == "mapped":
            patch.setattr(mapped, "PASS_ROWS", 4)
            patch.setattr(mapped, "ONE_PROCESS_BYTES", 0)
            patch.setattr(SequenceForm, "models_bytes", 0)
        yield


@contextmanager
def dask_engine(n_workers: int = 2, processes: bool = True) -> Iterator[dict[str, Any]]:
    """Engine section of a Dask cluster of worker processes, or in this process."""
    with dask_cluster(n_workers, processes) as cluster:
        yield {"kind": "dask", "address": cluster.scheduler_address, "workers": None}


def manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a run says."""
    return content(folder, "manifest.json")


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of everything in a finished run that depends on spec and data only."""
    own = ("manifest.json", "inputs.json", "spec.yaml", "events.jsonl", ".lock", "report.html")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in own and path.parent.name != ".owners"
    }


class Jobs:
    """Jobs of each kind on data that are made once, and what they write undisturbed."""

    def __init__(self, judgments: Path, run: Path, folder: Callable[[str], Path]) -> None:
        self._data = {"multiselect": judgments, "blocks": judgments}
        self._written = {"multiselect": contents(run)}
        self._folder = folder

    def data(self, kind: str) -> Path:
        """Folder with the data of a kind of job."""
        if kind not in self._data:
            self._data[kind] = CASES[kind].write(self._folder(kind) / "data")
        return self._data[kind]

    def spec(self, kind: str, output: Path, **changes: Any) -> JobSpec:
        return CASES[kind].spec(self.data(kind), output, **changes)

    def require_sound(self, kind: str, output: Path, run: Path) -> None:
        """Check that a run is what one thread writes when nothing goes wrong, whole and alone."""
        if kind not in self._written:
            spec = self.spec(kind, self._folder("undisturbed"), engine={"workers": 1})
            with small_blocks(kind):
                self._written[kind] = contents(run_job(spec).folder)
        assert contents(run) == self._written[kind]
        nothing_half_written(output, run)


def nothing_half_written(output: Path, run: Path) -> None:
    """Check a finished run: no temporary file, and a manifest that vouches for every file."""
    assert not [p for p in output.rglob("*") if p.name.endswith(".tmp") or ".probe" in p.name]
    results = manifest(run)
    assert results["status"] == "done"
    vouched = {name: sha for stage in results["stages"] for name, sha in stage["files"].items()}
    assert {name: digest(run / name) for name in vouched} == vouched
    for line in (run / "events.jsonl").read_text().splitlines():
        json.loads(line)
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    files = {file for file in files if not file.startswith(".owners/")}
    covered = {f for f in files if f in vouched or any(f.startswith(f"{v}/") for v in vouched)}
    own = {"manifest.json", "inputs.json", "spec.yaml", "events.jsonl", ".lock"}
    assert files - covered <= own
