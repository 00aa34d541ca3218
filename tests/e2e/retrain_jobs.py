"""Data that grow day by day, and jobs that are trained on them again and again."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.registry import Registry
from distfms.retrain.job import Outcome, retrain
from distfms.runs.job_spec import JobSpec
from tests.e2e.jobs import content, spec_of


def write_day(folder: Path, day: str, seed: int, *, n: int = 300, **changes: Any) -> Path:
    """Write a day's rows of five features in two partitions; `changes` shift a column's mean."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=n) for name in ("a", "b", "c", "d", "e")}
    for name, shift in changes.items():
        columns[name] += shift
    effect = 2 * columns["a"] + columns["b"] - columns["c"] + 0.3 * columns["d"]
    table = {**columns, "y": effect + rng.normal(size=n), "id": 100_000 * seed + np.arange(n)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{day}.parquet"
    pq.write_table(pa.table(table), path, row_group_size=-(-n // 2))
    return path


def growing_job(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    """Spec of a sequence job on `write_day` data."""
    sections: dict[str, Any] = {
        "name": "growing",
        "method": "sequence",
        "data": {
            "path": str(data),
            "target": "y",
            "id": "id",
            "folds": 2,
            "test": 0.3,
            "max_partition_rows": 150,
        },
        "sequence": {"model": "linear", "baselines": []},
        "engine": {"workers": 1},
        "output": str(output),
    }
    if changes.get("method", "sequence") != "sequence":
        del sections["sequence"]
    return spec_of(sections, changes)


def again(spec: JobSpec, **options: Any) -> Outcome:
    """Retrain with the registry of the spec."""
    return retrain(spec, registry_of(spec), **options)


def registry_of(spec: JobSpec) -> Registry:
    """Return the registry of a spec."""
    return spec.registry()


def in_place(spec: JobSpec) -> int:
    """Return the number of the version that is in place."""
    return registry_of(spec).version("growing").number


def retraining(outcome: Outcome) -> Any:
    """Return what a retraining says of itself."""
    assert outcome.folder is not None
    return content(outcome.folder, "retrain.json")
